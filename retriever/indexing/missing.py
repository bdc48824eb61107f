"""Documents whose files are missing in such a way that they may be away and not deleted: a disk is not mounted.

A sync keeps them until it is told to drop them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    Row = dict[str, Any]

_FEW = 3  # documents that a sync drops in any case: to embed them again takes a moment


def take_doubtful(root: Path, gone: dict[str, Row], indexed: int, ignored: set[str]) -> list[Row]:
    """Take the rows to keep out of `gone`, and return them.

    They are kept if more than half of the indexed documents are missing; else only those below a folder that is there
    and empty, such as the mount point of a disk.

    :param gone: path -> row of a file that is not in the folder.
    :param indexed: documents with passages before the sync.
    :param ignored: folders that a rule passes over, each ending in "/": what lies below is not missing.
    """
    paths = [path for path in gone if not _is_below(path, ignored)]
    if _count_indexed(gone, paths) * 2 <= indexed:
        paths = _below_empty_folders(root, paths)
    return [gone.pop(path) for path in paths] if _count_indexed(gone, paths) > _FEW else []


def _count_indexed(rows: dict[str, Row], paths: Iterable[str]) -> int:
    return sum(rows[path]["state"] == "indexed" for path in paths)


def _is_below(path: str, folders: set[str]) -> bool:
    names = path.split("/")
    return bool(folders) and any("/".join(names[:depth]) + "/" in folders for depth in range(1, len(names)))


def _below_empty_folders(root: Path, paths: list[str]) -> list[str]:
    """Return the paths whose nearest folder that exists is empty."""
    empty: dict[str, bool] = {}  # folder -> whether the nearest one that exists is empty
    for folder in {path.rstrip("/").rpartition("/")[0] for path in paths}:
        empty[folder] = _is_empty(_nearest(root, root / folder))
    return [path for path in paths if empty[path.rstrip("/").rpartition("/")[0]]]


def _nearest(root: Path, folder: Path) -> Path:
    return next((above for above in (folder, *folder.parents) if above == root or above.is_dir()), root)


def _is_empty(folder: Path) -> bool:
    try:
        with os.scandir(folder) as entries:
            return next(entries, None) is None
    except OSError:
        return False
