"""The folder that an index is of: where its settings say it is, and which one is to be synced."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import InputError, NoIndexError
from ...core.files import expand_home
from ..documents.scan import INDEX_NAME
from .folder_location import reachable
from .store import Store

if TYPE_CHECKING:
    from collections.abc import Callable

    from .location import Location


def root_of(store: Store) -> Path | None:
    """The folder that is indexed; None when only documents were added."""
    folder = store.settings.folder
    return None if folder is None else Path(os.path.normpath(store.path / folder))


def as_settings_have(root: Path, index: Path) -> str:
    """A folder that moves with the index in it is told as seen from there."""
    return ".." if index == root.resolve() / INDEX_NAME else str(root.resolve())


def to_sync(
    place: Location, given: str | os.PathLike[str] | None, documents: Callable[[], list[dict[str, Any]]]
) -> Path:
    """The folder given, the one indexed before, or the one that the index lies in: it is there.

    :param documents: gives the rows of what is indexed, asked for to know a folder that was renamed.
    """
    if given is not None and (not isinstance(given, (str, os.PathLike)) or "\0" in str(given)):
        raise InputError(f"{given!r} is not a path: expected a folder of documents")
    index = place.cache
    try:
        indexed, lacks = root_of(Store.open(place)), "this index holds added documents only"
    except NoIndexError:
        indexed, lacks = None, f"{place} is empty" if index.exists() else f"there is no {place}"
    beside = index.parent if index.name == INDEX_NAME else None
    root = expand_home(given) if given is not None else indexed or beside
    if root is None:
        raise InputError(f"which folder? {lacks}: call sync(folder)")
    with reachable(root):
        if not root.exists():
            raise InputError(f"there is no folder {root}")
        if not root.is_dir():
            raise InputError(f"{root} is a file: expected a folder of documents")
    if indexed is not None and root.resolve() != indexed.resolve() and not _was(indexed, root, documents):
        raise InputError(f"the index at {index} is of {indexed}, not of {root}: give another with --index")
    return root


def _was(indexed: Path, root: Path, documents: Callable[[], list[dict[str, Any]]]) -> bool:
    """Whether the folder that was indexed is gone and this one has a file of it: then it was renamed."""
    rows = [] if indexed.exists() else documents()
    return any((root / row["path"]).exists() for row in rows if row["source"] == "file")
