"""The indexed folder or folders: their names in the settings, and their present paths for a sync.

A collection holds several folders and files. Its root is "/", so the path of a document in it is the absolute path
without the first "/". So a file keeps its name when other folders are added or removed.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import InputError
from ...core.files import expand_home
from ..documents.file_parts import size_and_time
from ..documents.gitignore import Pattern
from ..documents.scan import INDEX_NAME, file_below, is_index
from .collection import naming
from .locations.folder_location import reachable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .head import Settings
    from .locations.location import Location
    from .store import Store

    AnyPath = str | os.PathLike[str]

TOP = Path("/")  # the root of a collection
_MAX_PATTERN = 1_000  # characters


def root_of(store: Store) -> Path | None:
    """Return the indexed folder; None if only documents were added.

    Searches look at files in the indexed folder, so an untrusted index may only name the folder that it lies in.
    """
    folder = store.settings.folder
    if folder is None:
        return None
    root = Path(os.path.normpath(store.path / folder))
    return root if store.trusted or store.path == root / INDEX_NAME else None


def held_below(store: Store) -> list[str]:
    """Return the folders and files of a collection as its paths name them; none for an index of one folder."""
    return [folder.removeprefix("/") for folder in store.settings.folders]


def relative_folder(root: Path, index: Path) -> str:
    """Return the folder for the settings: relative if the index lies in it, so that both can move together."""
    return ".." if index == root.resolve() / INDEX_NAME else str(root.resolve())


@dataclass(frozen=True, slots=True)
class Request:
    """Changes of a sync to the settings of an index: folders, patterns, and the languages of pictures."""

    root: Path  # paths in the index are relative to it
    folders: tuple[str, ...] = ()  # to add to a collection: absolute paths
    drop: tuple[str, ...] = ()  # to take out of it
    exclude: tuple[str, ...] = ()  # patterns to add
    exclude_anew: bool = False  # forget the patterns of before
    ocr: str | None = None  # the languages to read pictures in from now on; "" to read none; None as before

    def holding(
        self, *, drop: tuple[str, ...], exclude: Sequence[str], exclude_anew: bool, ocr: str | None = None
    ) -> Request:
        """Return this request with folders to drop, patterns to exclude and languages of pictures.

        :raises InputError: when a pattern can never match anything.
        """
        if not isinstance(exclude, (list, tuple)):
            raise InputError(f"expected a list of patterns, not {exclude!r}")
        for line in exclude:
            if not isinstance(line, str) or "\n" in line or "\0" in line or len(line) > _MAX_PATTERN:
                raise InputError(f"{str(line)[:100]!r} is not a pattern: expected one line as in .gitignore")
            if Pattern.parse(line) is None:
                raise InputError(
                    f"the pattern {line!r} matches nothing: expected one as in .gitignore, such as '*.log'"
                )
        return replace(self, drop=drop, exclude=tuple(dict.fromkeys(exclude)), exclude_anew=exclude_anew, ocr=ocr)

    def changes(self, store: Store, folder: str) -> bool:
        """Whether the settings of a store differ from this."""
        indexed, settings = root_of(store), store.settings
        changed = self.change(settings, folder)
        is_elsewhere = indexed is None or indexed.resolve() != (store.path / folder).resolve()
        return is_elsewhere or replace(changed, folder=settings.folder) != settings

    def change(self, settings: Settings, folder: str) -> Settings:
        """Return the settings of an index that holds this too.

        :param folder: the root, as the settings name it.
        """
        before = () if self.exclude_anew else settings.exclude
        folders = tuple(sorted({*settings.folders, *self.folders} - {*self.drop}))
        if self.drop and not folders:
            remedy = "'binocle collections --remove NAME' removes a named one"
            raise InputError(f"a collection holds one folder at least: {remedy}")
        exclude = tuple(dict.fromkeys(before + self.exclude))
        ocr = settings.ocr if self.ocr is None else self.ocr
        return replace(settings, folder=folder, folders=folders, exclude=exclude, ocr=ocr)


def to_sync(
    location: Location,
    store: Store | None,
    folder: AnyPath | Sequence[AnyPath] | None,
    documents: Callable[[], list[dict[str, Any]]],
) -> Request:
    """Return what to sync, which exists: `folder`, the indexed folder, or the parent of the index.

    :param store: the open index, None if there is none yet.
    :param folder: a list makes a collection, or adds to one.
    :param documents: returns the rows of the index, to recognize a folder that was renamed.
    """
    several = folder if isinstance(folder, (list, tuple)) else () if folder is None else (folder,)
    _check_paths(several)
    if store and store.settings.folders:
        return Request(TOP, _of_collection(location, store, folder, several))
    if isinstance(folder, (list, tuple)) and folder:
        indexed = root_of(store) if store else None
        if indexed is None:
            return Request(TOP, tuple(map(_absolute, several)))
        if len(several) > 1 or Path(several[0]).resolve() != indexed.resolve():
            raise InputError(
                f"the index at {location} is of one folder, {indexed}: several folders need a collection, "
                "'binocle index FOLDER … --name NAME', or another --index"
            )
    return Request(_one_folder(location, store, several[0] if several else None, documents))


def _check_paths(paths: Sequence[AnyPath]) -> None:
    for path in paths:
        if not isinstance(path, (str, os.PathLike)) or "\0" in str(path):
            raise InputError(f"{path!r} is not a path: expected a folder of documents")


def _of_collection(
    location: Location, store: Store, folder: AnyPath | Sequence[AnyPath] | None, several: Sequence[AnyPath]
) -> tuple[str, ...]:
    """The folders to add to a collection: a list. A single folder must be there already."""
    paths = tuple(map(_absolute, several))
    if folder is not None and not isinstance(folder, (list, tuple)) and paths[0] not in store.settings.folders:
        raise InputError(
            f"the index at {location} is a collection without {folder}: "
            f"'binocle index {folder} {' '.join(naming(str(location)))}' or sync([folder]) adds it"
        )
    return paths


def _absolute(folder: AnyPath) -> str:
    """The path of a folder or file to hold, without symbolic links.

    :raises InputError: when there is none, or the store could not name it.
    """
    path = Path(os.path.realpath(expand_home(folder)))
    with reachable(path):
        if not path.exists():
            raise InputError(f"there is no folder or file {folder}")
        if not path.is_dir() and not path.is_file():
            raise InputError(f"{folder} is neither a folder nor a regular file")
    if is_index(path):
        raise InputError(f"{folder} is an index, not a folder of documents")
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise InputError(f"the path {os.fsencode(path)!r} is not valid UTF-8") from None
    return str(path)


def to_drop(store: Store | None, folders: Sequence[AnyPath]) -> tuple[str, ...]:
    """Return the paths of these folders in the settings of a collection.

    :raises InputError: when it does not hold one.
    """
    if not isinstance(folders, (list, tuple)):
        raise InputError(f"expected a list of folders to drop, not {folders!r}")
    _check_paths(folders)
    present = store.settings.folders if store else ()
    paths = []
    for folder in folders:
        names = (os.path.realpath(expand_home(folder)), os.path.abspath(expand_home(folder)))  # noqa: PTH100
        path = next((name for name in names if name in present), None)
        if path is None:
            raise InputError(
                f"{folder} is not one of the folders of the collection: {', '.join(present) or 'the index is none'}"
            )
        paths.append(path)
    return tuple(paths)


def _one_folder(
    location: Location, store: Store | None, folder: AnyPath | None, documents: Callable[[], list[dict[str, Any]]]
) -> Path:
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
