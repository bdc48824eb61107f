"""Documents that miss their files, perhaps because a disk is not mounted.

A sync keeps them until it is told to drop them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ...documents.file_parts import file_of
from ...documents.scan import lies_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    Row = dict[str, Any]

_MAX_DROPPED = 3  # documents that a sync drops in any case: to embed them again takes a moment


def take_away(folders: Sequence[str], gone: dict[str, Row]) -> list[tuple[str, Row]]:
    """Take the rows below folders that are not there out of `gone`, and return them with their paths."""
    rows = [(path, row) for path, row in gone.items() if lies_in(path, folders)]
    for path, _ in rows:
        del gone[path]
    return rows


def take_doubtful(
    root: Path, gone: dict[str, Row], indexed: int, ignored: set[str], folders: Sequence[str] = ()
) -> list[tuple[str, Row]]:
    """Take the rows to keep out of `gone`, and return them with their paths.

    All are kept if more than half of the indexed files are missing. Otherwise only rows below an empty folder are kept:
    it may be the mount point of a disk.

    :param gone: path -> row of a file, or of a part of a file, that is not in the folder.
    :param indexed: files with passages before the sync.
    :param ignored: folders that a rule passes over, each ending in "/": files below are not missing.
    :param folders: the folders of a collection: files elsewhere were taken out of it.
    """
    missing = [
        (path, row)
        for path, row in gone.items()
        if not (_is_below(path, ignored) or _is_cut_off(root, path)) and (not folders or lies_in(path, folders))
    ]
    if count_indexed(missing) * 2 <= indexed:
        missing = _below_empty_folders(root, missing)
    if count_indexed(missing) <= _MAX_DROPPED:
        return []
    for path, _ in missing:
        del gone[path]
    return missing


def count_indexed(rows: Iterable[tuple[str, Row]]) -> int:
    """Count the files with passages; the parts of a large one are one."""
    return len({file_of(path) for path, row in rows if row["state"] == "indexed"})


def _is_cut_off(root: Path, path: str) -> bool:
    """Whether this is a part of a file that is there, but shorter now."""
    return file_of(path) != path and (root / file_of(path)).exists()


def _is_below(path: str, folders: set[str]) -> bool:
    names = path.split("/")
    return any("/".join(names[:depth]) + "/" in folders for depth in range(1, len(names)))


def _below_empty_folders(root: Path, rows: list[tuple[str, Row]]) -> list[tuple[str, Row]]:
    """Return the rows below an empty folder."""
    folders = [file_of(path).rstrip("/").rpartition("/")[0] for path, _ in rows]
    empty = {folder: _is_empty(_nearest(root, root / folder)) for folder in set(folders)}
    return [row for row, folder in zip(rows, folders, strict=True) if empty[folder]]


def _nearest(root: Path, folder: Path) -> Path:
    return next((above for above in (folder, *folder.parents) if above == root or above.is_dir()), root)


def _is_empty(folder: Path) -> bool:
    try:
        with os.scandir(folder) as entries:
            return next(entries, None) is None
    except OSError:
        return False
