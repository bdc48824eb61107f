"""Named collections: indexes of several folders, each in a folder of its own below the user's data folder."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import unicodedata
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

from ...core.errors import DamagedError, InputError, NoIndexError, StoreError
from ...core.files import user_folder
from ..documents.scan import is_index
from .foreign import trust
from .locations.open_location import open_location
from .locations.patience import Patience

if TYPE_CHECKING:
    from pathlib import Path

    from .head import Settings

_MAX_BYTES = 200  # of a name: a file system takes 255


@dataclass(frozen=True, slots=True)
class Collection:
    """A named collection, by its small files: its tables stay closed."""

    name: str
    path: str
    folders: list[str]
    bytes: int
    changed: float | None  # seconds since 1970, of the last commit; None if its settings cannot be read
    problem: str = ""  # why they cannot be read, and what to do


def collection_path(name: str) -> Path:
    """Return the folder of the index of a collection, whether or not there is one.

    :raises InputError: when a folder cannot have the name.
    """
    name = unicodedata.normalize("NFC", name)
    is_printable = all(unicodedata.category(character)[0] not in "CZ" or character == " " for character in name)
    if not name.strip() or name != name.strip() or name[0] in ".-" or "/" in name or "\\" in name or not is_printable:
        raise InputError(
            f"{name[:100]!r} cannot name a collection: expected letters, digits and signs but / and \\, no . or - first"
        )
    if len(name.encode()) > _MAX_BYTES:
        raise InputError(f"the name of a collection has at most {_MAX_BYTES} bytes, not {len(name.encode()):,}")
    return _home() / name


def is_collection_path(path: str | os.PathLike[str]) -> bool:
    """Whether this is the folder of a named collection."""
    try:
        return os.path.dirname(path) == str(_home())  # noqa: PTH120 - S3 is no path
    except InputError:  # this user has no home folder, and so no collection
        return False


def naming(index: str | os.PathLike[str]) -> list[str]:
    """The words of a command that name an index: a collection by its name."""
    if is_collection_path(index):
        return ["--name", shlex.quote(os.path.basename(index))]  # noqa: PTH119 - as above
    return ["--index", shlex.quote(os.fspath(index))]


def existing_collection(name: str) -> Path:
    """Return the folder of the index of a collection.

    :raises NoIndexError: when there is none, with the nearest name.
    """
    path = collection_path(name)
    if not is_index(path):
        names = collection_names()
        near = get_close_matches(name, names, cutoff=0.5)
        listed = f"there are {', '.join(names[:20])}" if names else "there is none yet"
        hint = f"is it {near[0]!r}?" if near else f"{listed}; 'binocle index FOLDER … --name NAME' makes one"
        raise NoIndexError(f"there is no collection {name!r}: {hint}")
    return path


def collection_names() -> list[str]:
    """Return the names of all collections, in order, even if this user may not read one.

    :raises StoreError: when their folder cannot be listed.
    """
    home = _home()
    try:
        return sorted(folder.name for folder in home.iterdir() if folder.name[0] != "." and _may_be_index(folder))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(
            f"the collections in {home} cannot be listed ({error.strerror}): XDG_DATA_HOME moves them"
        ) from None


def _may_be_index(folder: Path) -> bool:
    try:
        return is_index(folder)
    except OSError:
        return True


def collections() -> list[Collection]:
    """Describe all collections, in order of name."""
    return [_describe(name) for name in collection_names()]


def remove_collection(name: str) -> Collection:
    """Remove the index of a collection. The indexed folders are not touched.

    After an interrupted removal, the same call removes the rest.

    :raises NoIndexError: when there is none, or another process removed it meanwhile.
    :raises StoreError: when it is a symbolic link.
    :raises LockedError: when another process writes it.
    """
    from .store import locked

    path = collection_path(name)
    removed = path.with_name(f".{path.name}")  # no collection has such a name
    if not is_index(path) and removed.is_dir() and not removed.is_symlink():  # left by a process that was killed below
        collection, settings = replace(_describe(removed.name), name=path.name), _settings(removed)
        _erase(removed)
    else:
        path = existing_collection(name)
        if path.is_symlink():
            raise StoreError(f"{path} is a symbolic link to {os.path.realpath(path)}: remove the link yourself")
        collection, settings = _describe(path.name), _settings(path)
        with locked(open_location(path, patience=Patience(remedy="end that process"))):
            shutil.rmtree(removed, ignore_errors=True)
            path.rename(removed)  # in one step: a waiting writer never sees half of an index
            _erase(removed)
    if settings and settings.id:
        trust.forget(settings.id)
    return collection


def _erase(removed: Path) -> None:
    from .locations.folder_location import reachable

    shutil.rmtree(removed, ignore_errors=True)  # a writer that opened it before may put its ticket there now
    with reachable(removed, "remove it yourself"), contextlib.suppress(FileNotFoundError):
        shutil.rmtree(removed)


def _home() -> Path:
    return user_folder("DATA", "~/.local/share") / "binocle" / "collections"


def _describe(name: str) -> Collection:
    path = _home() / name
    location = open_location(path)
    folders, problem, changed = [], "", None
    try:
        settings = _read(path)
        folders = list(settings.folders or filter(None, [settings.folder]))
        states = [file for file in (path / "HEAD.json", path / "HEAD.previous.json") if file.is_file()]
        changed = max((file.stat().st_mtime for file in states), default=changed)
    except (StoreError, OSError) as error:
        problem = str(error)
        if isinstance(error, DamagedError):
            reason, word = re.split(": remove the folder|: /.* is no index", problem)[0], shlex.quote(name)
            remove, index = f"'binocle collections --remove {word}'", f"'binocle index FOLDER … --name {word}'"
            problem = f"{reason}: {remove}, and then {index} makes it anew"
    return Collection(name, str(path), folders, location.size(), changed, problem)


def _settings(path: Path) -> Settings | None:
    try:
        return _read(path)
    except StoreError:
        return None


def _read(path: Path) -> Settings:
    from .head import Settings

    return Settings.read(open_location(path))
