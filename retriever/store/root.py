"""The indexed folder: as the settings name it, and as a sync finds it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import InputError
from ...core.files import expand_home
from ..documents.file_parts import size_and_time
from ..documents.scan import INDEX_NAME, file_below
from .locations.folder_location import reachable

if TYPE_CHECKING:
    from collections.abc import Callable

    from .locations.location import Location
    from .store import Store


def root_of(store: Store) -> Path | None:
    """Return the indexed folder; None if only documents were added.

    An index that the user does not trust has the folder that it lies in or none, since a search looks at files there.
    """
    folder = store.settings.folder
    if folder is None:
        return None
    root = Path(os.path.normpath(store.path / folder))
    return root if store.trusted or store.path == root / INDEX_NAME else None


def relative_folder(root: Path, index: Path) -> str:
    """Return the folder as the settings name it: relative if the index lies in it, so that both can move."""
    return ".." if index == root.resolve() / INDEX_NAME else str(root.resolve())


def to_sync(
    location: Location,
    store: Store | None,
    folder: str | os.PathLike[str] | None,
    documents: Callable[[], list[dict[str, Any]]],
) -> Path:
    """Return the folder to sync, which exists: `folder`, the indexed folder, or the parent of the index.

    :param store: the open index, None if there is none yet.
    :param documents: returns the rows of the index, to recognize a folder that was renamed.
    """
    if folder is not None and (not isinstance(folder, (str, os.PathLike)) or "\0" in str(folder)):
        raise InputError(f"{folder!r} is not a path: expected a folder of documents")
    index = location.cache
    if store:
        indexed, lacks = root_of(store), "this index holds added documents only"
    else:
        indexed, lacks = None, f"{location} is empty" if index.exists() else f"there is no {location}"
    parent = index.parent if index.name == INDEX_NAME else None
    root = expand_home(folder) if folder is not None else indexed or parent
    if root is None:
        raise InputError(f"which folder? {lacks}: call sync(folder)")
    with reachable(root):
        if not root.exists():
            raise InputError(f"there is no folder {root}")
        if not root.is_dir():
            raise InputError(f"{root} is a file: expected a folder of documents")
    if indexed is not None and root.resolve() != indexed.resolve() and not _was_renamed(indexed, root, documents):
        raise InputError(f"the index at {index} is of {indexed}, not of {root}: give another with --index")
    return root


def _was_renamed(indexed: Path, root: Path, documents: Callable[[], list[dict[str, Any]]]) -> bool:
    """Tell whether the indexed folder is gone and this one has a file of it."""
    rows = [] if indexed.exists() else documents()
    files = (file_below(root, row["path"]) for row in rows if row["source"] == "file")
    return any(_exists(file) for file in files if file)


def _exists(file: Path) -> bool:
    with contextlib.suppress(OSError):
        size_and_time(file)
        return True
    return False
