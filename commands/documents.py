"""Find the documents that a user names by path or citation, and name documents in output."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from ..core.errors import InputError, NoIndexError, NotFoundError
from ..core.files import existing_spelling, expand_home
from ..core.printable import path_as_printed, printable_path
from ..core.words import composed
from ..retriever.documents.file_parts import file_of
from .index_lookup import command_hint, open_index, path_from_here

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..retriever.retriever import Retriever

_MAXIMUM_COMPARED = 5_000  # documents: comparing a misspelt name with more takes too long
_Cited = TypeVar("_Cited")


def open_cited(
    citation: str,
    locate: Callable[[Retriever, str], _Cited],
    folder: Path | None,
    index: Path | None,
    *,
    narrow: bool = False,
    wait: float = 0.0,
) -> tuple[Retriever, _Cited]:
    """Open the index that FOLDER and --index name, and locate the citation in it.

    If neither is given, and the index of the current folder is missing or lacks the citation, the index above the
    cited file is tried.

    :param locate: finds the document that a citation or a path names.
    :param narrow: FOLDER may be a file or a glob too.
    :param wait: the seconds that a write waits for another process.
    """
    retriever = None
    try:
        retriever = open_index(folder, index, wait=wait, narrow=narrow)
        return retriever, locate(retriever, citation)
    except (NotFoundError, NoIndexError):
        above = None if folder or index else _index_above(citation)
        if above is None or (retriever is not None and retriever.path == above):
            raise
    click.get_current_context().params["index"] = above  # for hints
    retriever = open_index(None, above, wait=wait)
    return retriever, locate(retriever, citation)


def _index_above(citation: str) -> Path | None:
    """The nearest index above a cited file; None if there is none, or it cannot be read."""
    from ..retriever.documents.scan import find_index

    names = [existing_spelling(Path(reading)) for reading in _readings(citation)]
    for folder in sorted((above for name in names for above in name.parents), key=lambda above: -len(above.parts)):
        with contextlib.suppress(OSError, ValueError):  # a name that is too long, a NUL, a folder of another user
            if folder.is_dir():
                return find_index(folder)
    return None


def parse_citation(retriever: Retriever, citation: str) -> tuple[str, int]:
    """The document's path in the index and the line of a citation FILE:LINE."""
    match = re.fullmatch(r"(.+):([0-9]{1,99})", citation, re.DOTALL)
    if not match:
        raise InputError(f"{citation[:200]!r} is not a citation: expected FILE:LINE, such as guide.md:12")
    return find_document(retriever, match[1]), int(match[2])


def printed_name(retriever: Retriever) -> Callable[[str], str]:
    """Return a function from a document's id to the name to print: for a file, its path from the current folder."""
    rows = retriever.snapshot().document_rows.select(["path", "source"]).to_pylist()
    files, from_here = {row["path"] for row in rows if row["source"] == "file"}, path_from_here(retriever.folder)
    return lambda document: from_here(document) if document in files else document


def is_document(retriever: Retriever, path: str) -> bool:
    """Whether the index has a document under exactly this path."""
    return path in retriever.snapshot().document_rows["path"].to_pylist()


def find_document(retriever: Retriever, path: str, *, folders: bool = False) -> str:
    r"""The path in the index of a user's document, named from the current folder or by its path in the index.

    A "~" that no shell expanded is the home folder, and accents may be composed or not.
    A name may have its escapes, as output has them: `\n` is a line break unless a document has a backslash there.

    :param folders: also accept a folder, for commands that erase. Then a path with two meanings is an error.
    :raises InputError: when there is no such document, with the nearest name.
    """
    name = path_as_printed(path)
    try:
        document = _find(retriever, path, folders=folders)
    except NotFoundError:
        for reading in _readings(path)[1:]:
            with contextlib.suppress(NotFoundError):
                return _find(retriever, reading, folders=folders)
        raise
    if folders and name != path:
        _check_meaning(retriever, path, name)
    return document


def _readings(path: str) -> list[str]:
    """The names that a user's path may mean: itself, the name that is printed like this, or one in the home folder."""
    return list(dict.fromkeys([path, path_as_printed(path), str(expand_home(path)) if path.startswith("~") else path]))


def _check_meaning(retriever: Retriever, path: str, name: str) -> None:
    """Refuse to erase a document if its path is also what output shows for another one."""
    with contextlib.suppress(NotFoundError):
        document = _find(retriever, name, folders=True)
        raise InputError(
            f"{path} means one document, and is shown for another, {document!r}: expected {printable_path(path)} for "
            f"the first, or $'{path}' in the shell for the other"
        )


def _find(retriever: Retriever, path: str, *, folders: bool) -> str:
    """The path in the index of a document, by its very name."""
    rows = retriever.snapshot().document_rows.select(["path", "source"]).to_pylist()
    rows += [{**row, "path": name} for row in rows if (name := file_of(row["path"])) != row["path"]]  # of its parts
    paths = {row["path"] for row in rows}
    files = {row["path"] for row in rows if row["source"] == "file"}  # an added document's id need not be a path
    root = retriever.folder
    readings = _path_in(root, path), _path_in(root, path, follow=True), path.rstrip("/")
    local, target, stored = (_spelling(name, paths) for name in readings)
    if not folders and local not in files and not _is_folder_of(local, files):
        local = target  # what erases takes a symbolic link for itself
    candidates = [local] * (local in files or _is_folder_of(local, files))
    if stored not in candidates and (stored in paths or _is_folder_of(stored, paths if folders else files)):
        candidates.append(stored)
    if folders and root is not None and len(candidates) > 1:
        raise InputError(
            f"{path!r} means {candidates[0]!r} of the index from here, and there is {stored!r} too: "
            f"expected a whole path, such as {str(root / candidates[0])!r}"
        )
    for candidate in candidates:
        if folders or candidate in paths:
            return candidate
        listing = command_hint("files", Path(path_from_here(root)(candidate)))
        raise InputError(f"{path!r} is a folder: {listing} lists its files")
    if is_forgotten(retriever, path):
        raise InputError(f"{path!r} was forgotten on request: {command_hint('index --retry')} reads it again")
    nearest = target if target in files else _nearest(path, paths)
    raise _missing(path, path_from_here(root)(nearest) if nearest and nearest in files else nearest)


def _missing(path: str, nearest: str | None) -> NotFoundError:
    hint = f"is it {nearest!r}? " if nearest and nearest != path else ""
    return NotFoundError(f"{path[:200]!r} is not in the index: {hint}{command_hint('files')} lists its files")


def _spelling(name: str, paths: set[str]) -> str:
    """The path of the document or folder with this name, however its accents are written; else the name."""
    if name.isascii() or name in paths or _is_folder_of(name, paths):
        return name
    depth = name.count("/") + 1
    above = {"/".join(path.split("/")[:depth]) for path in paths}
    same = [path for path in above if composed(path) == composed(name)]
    return same[0] if len(same) == 1 else name


def is_forgotten(retriever: Retriever, path: str) -> bool:
    """Whether a user's path names a forgotten file, or a folder of some, from here or by its path in the index."""
    from ..retriever.store.documents import named

    snapshot, root = retriever.snapshot(), retriever.folder
    readings = _readings(path)
    local = [name for reading in readings if (name := _path_in(root, reading)) not in ("", ".")]
    names = [*local, *(reading.rstrip("/") for reading in readings)]
    if root is not None and snapshot.tombstones:  # they tell a name only when it is asked for
        names += [file.relative_to(root).as_posix() for name in local for file in (root / name).rglob("*")]
    return any(map(snapshot.is_forgotten, names)) and not named(snapshot, names)


def _path_in(root: Path | None, path: str, *, follow: bool = False) -> str:
    """The path relative to the indexed folder; "" if there is none, or the path lies outside.

    :param follow: if the path names a symbolic link, return the path of its target.
    """
    if root is not None and "\0" not in path:
        with contextlib.suppress(ValueError, OSError):
            name = existing_spelling(Path(path))
            is_last_kept = not follow and name.name not in ("", "..")
            whole = name.parent.resolve() / name.name if is_last_kept else name.resolve()
            return whole.relative_to(root.resolve()).as_posix()
    return ""


def _is_folder_of(folder: str, paths: set[str]) -> bool:
    return any(path.startswith(folder + "/") for path in paths)


def _nearest(path: str, paths: set[str]) -> str | None:
    """The only path with this ending, or else the path with the most similar spelling."""
    from difflib import get_close_matches

    endings = [candidate for candidate in paths if candidate.endswith(f"/{path}")]
    similar = get_close_matches(path, sorted(paths), 1, 0.8) if len(paths) < _MAXIMUM_COMPARED else []
    return endings[0] if len(endings) == 1 else next(iter(similar), None)
