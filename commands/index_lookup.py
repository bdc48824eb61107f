"""Find the index that a user names, and turn its paths into paths of the current folder and back."""

from __future__ import annotations

import contextlib
import gc
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..core.errors import InputError, NoIndexError
from .background.kept import open_kept
from .configuration import COLLECTION, FILE
from .options import print_note, print_waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..retriever.retriever import Retriever
    from ..retriever.store.filters.filter import Filter
    from ..retriever.store.locations.location import Location


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Pause garbage collection in this block, for imports: they make many objects and hardly any garbage."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def open_index(
    folder: Path | None,
    index: Path | None,
    model: str | None = None,
    ray: str | None = None,
    wait: float = 0.0,
    *,
    gpu: bool = False,
    narrow: bool = False,
) -> Retriever:
    """Open the existing index that FOLDER and --index name.

    :param wait: the seconds that a write waits for another process.
    :param gpu: encode documents and search on the GPUs of this machine.
    :param narrow: FOLDER may be a file or a glob too, for commands that have a filter.
    :raises InputError: when FOLDER lies outside of the folder of the index that --index names.
    """
    with _without_garbage_collection():
        from ..core.runtime.arrow import leave_out_pandas

        leave_out_pandas()  # before the modules that import pyarrow
        from ..retriever.retriever import Retriever

    path = index or _index_of(folder, narrow=narrow)
    opened = None if gpu else open_kept(path, model, ray)
    opened = opened or Retriever.open(path, model=model, ray=ray, gpu=gpu, wait=wait, on_wait=print_waiting)
    if index and folder is not None and not narrow:
        _check_inside(folder, opened)
    return opened


def _index_of(folder: Path | None, *, narrow: bool) -> Path:
    """The index of FOLDER or of the nearest folder above it, or else the collection in the configuration."""
    from ..retriever.documents.scan import find_index, is_index

    start = folder or current_folder()
    if narrow:
        start = folder_above(start)
    if not start.exists():
        raise InputError(f"there is no folder{' or file' * narrow} {start}")
    if start.is_file():
        raise InputError(f"{start} is a file: expected a folder")
    path = start if is_index(start) else find_index(start)
    if path is None and (folder is None or narrow):
        path = _default_collection()
        if path and not narrow:  # perhaps to write to it, or a server: its documents are not those here
            file = click.get_current_context().meta[FILE]
            print_note(f"binocle: there is no index here, so this is the collection {path.name} that {file} names")
    if path is None:
        hint = command_hint("index", start if folder else Path())
        raise NoIndexError(f"no index in {start} or above it: make one with {hint}")
    return path


def current_folder() -> Path:
    """Return the current folder.

    :raises InputError: when another process has removed it.
    """
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise InputError("the current folder was removed: name the FOLDER, or go to another one") from None


def _check_inside(folder: Path, retriever: Retriever) -> None:
    """Refuse a FOLDER outside of the index, so that a command never acts on an index of other documents."""
    folder_filter(folder, retriever.folder, retriever.location)
    roots, path = [each.resolve() for each in retriever.folders], folder.resolve()
    is_inside = any(path.is_relative_to(root) or root.is_relative_to(path) for root in roots)
    if roots and not is_inside and path != retriever.path:
        raise InputError(f"{folder} is not in the collection at {retriever.location}")


def _default_collection() -> Path | None:
    """The collection that the user's configuration names; None if it names none."""
    from ..retriever.store.collection import existing_collection

    meta = click.get_current_context().meta
    name = meta.get(COLLECTION)
    try:
        return None if name is None else existing_collection(name)
    except (InputError, NoIndexError) as error:
        raise type(error)(f"{meta[FILE]}: {error}") from None


def command_hint(command: str, folder: Path | None = None, *, at: Path | None = None) -> str:
    """A command for the same index, in quotes, ready to be typed: `'binocle files --state failed docs'`.

    :param folder: the folder to name; by default the running command's.
    :param at: the path of the index; the hint names it if `folder` alone does not lead there.
    """
    from ..retriever.documents.scan import INDEX_NAME
    from ..retriever.store.collection import naming

    arguments = click.get_current_context().params
    index, current = arguments.get("index"), arguments.get("folder")
    if not index and folder is not None and at is not None and at != folder.resolve() / INDEX_NAME:
        index = at
    if isinstance(current, tuple):  # a command that takes several folders
        current = next(iter(current), None)
    if folder is None and not index and current != Path():
        folder = current
    if folder == Path("/") and index:  # the root of a collection
        folder = None
    words = [command, *([] if folder is None else [shlex.quote(str(folder))]), *(naming(index) if index else [])]
    return f"'binocle {' '.join(words)}'"


def folder_filter(folders: Path | Sequence[Path] | None, root: Path | None, index: Location) -> list[Filter]:
    """The filter for FOLDER, a file, a glob, or several; none unless all lie below `root`, the indexed folder.

    :raises InputError: when one does not exist, or lies elsewhere.
    """
    from ..retriever.store.filters.filter import joined

    several = [folders] if isinstance(folders, Path) else folders or []
    parts = [_below(folder, root, index) for folder in several]
    return [] if not parts or [] in parts else [joined("or", [part for below in parts for part in below])]


def _below(folder: Path, root: Path | None, index: Location) -> list[Filter]:
    """The filters for the documents at or below a path; none for the indexed folder and for the index itself."""
    from ..retriever.documents.scan import INDEX_NAME
    from ..retriever.store.filters.fields import escaped
    from ..retriever.store.filters.filter import F

    if folder.resolve() == index.cache or (root is None and folder.resolve() / INDEX_NAME == index.cache):
        return []
    above = _above_glob(folder)
    if not above.exists():
        raise InputError(f"there is no folder or file {above}")
    if root is None:
        raise InputError(f"the index at {index} has no folder, so {folder} is not in it: leave it out")
    if not above.resolve().is_relative_to(root.resolve()):
        raise InputError(f"{folder} is not in {root}, the folder of the index at {index}")
    inside = above.resolve().relative_to(root.resolve()).as_posix()
    if above != folder:
        rest = folder.relative_to(above).as_posix()
        names = [escaped(inside)] * (inside != ".") + [rest]
        member = f"{inside}/{rest}" if above.is_file() else ""
        exact = [F.path == member, F.path.startswith(member + "/")] if member else []
        return [*exact, F.path.glob("/" + "/".join(names))]
    below = F.path.startswith(inside + "/")  # also the members of an archive, and the parts of a large file
    return [] if inside == "." else [below] if above.is_dir() else [F.path == inside, below]


def folder_above(path: Path) -> Path:
    """Return the folder of a file or a glob; of a folder, itself."""
    above = _above_glob(path)
    return above.parent if above.is_file() else above


def _above_glob(path: Path) -> Path:
    """Return a path that exists. For the path of a member, return its file; for a glob, the part before a wildcard."""
    if path.exists():
        return path
    file = next((above for above in path.parents if above.is_file()), None)
    if file is not None:
        return file
    wild = next((number for number, name in enumerate(path.parts) if any(sign in name for sign in "*?[")), None)
    return path if wild is None else Path(*path.parts[:wild])


def path_from_here(root: Path | None) -> Callable[[str], str]:
    """A function that converts a path of the index: relative to the current folder if it lies below, else absolute.

    :param root: the indexed folder.
    """
    if root is None:
        return str
    root = root.resolve()

    def from_here(path: str) -> str:
        relative = os.path.relpath(root / path) + "/" * path.endswith("/")
        return os.path.join(root, path) if relative.split("/")[0] == ".." else relative  # noqa: PTH118

    return from_here
