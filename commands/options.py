"""What the commands share: the folder and the index that a user means, and the options that say so."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..core.errors import InputError, NoIndexError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from click.shell_completion import CompletionItem

    from ..retriever.retriever import Retriever

_MANY = 5_000  # documents: to compare a name with all of them takes too long
NOTHING = 1  # the exit code of a search without a hit, of a check that found a fault


class _Path(click.Path):
    """Completes files and folders; whether one is there is for the command to say."""

    completes = "file"

    def __init__(self) -> None:
        super().__init__(path_type=Path, readable=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("'' is empty; '.' is the folder you are in", param, ctx)
        return super().convert(value, param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type=self.completes)]


class _Folder(_Path):
    completes = "dir"


class _Index(_Folder):
    """A folder, or an index on object storage, whose name stays as it is."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from ..retriever.store.open_location import is_s3

        return value if is_s3(value) else super().convert(value, param, ctx)


PATH = _Path()
FOLDER = _Folder()
INDEX = _Index()
index_option = click.option(
    "--index",
    "index",
    metavar="DIR",
    type=INDEX,
    envvar="BINOCLE_INDEX",
    help="The index: a folder, or s3://BUCKET/PREFIX. Default: .binocle in FOLDER, here, or the nearest above.",
)
ray_option = click.option(
    "--ray", metavar="ADDRESS", envvar="BINOCLE_RAY", help="Have a Ray cluster do the work: auto, local, HOST:PORT."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
folder_argument = click.argument("folder", required=False, type=FOLDER)
where_option = click.option(
    "--where",
    "-w",
    multiple=True,
    metavar="FILTER",
    help="Only documents such as path='docs/**' (from the indexed folder on), type=pdf, modified>=2026-01-01, "
    "size<1MB, KEY=VALUE. Repeatable.",
)
k_option = click.option(
    "-k", default=10, show_default=True, metavar="N", type=click.IntRange(min=1), help="How many passages."
)
rerank_option = click.option(
    "--rerank", metavar="MODEL", help="Rerank with a cross-encoder: its folder, or its name on the hub."
)
rerank_depth_option = click.option(
    "--rerank-depth", default=50, show_default=True, metavar="N", type=int, help="How many passages to rerank."
)


def check_rerank_options(*, used: bool, by: str) -> None:
    """Refuse options that say how to rerank where nothing does."""
    context = click.get_current_context()
    for name in ("rerank_depth", "rerank_seconds"):
        if not used and context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name.replace('_', '-')} goes with {by}", context)


def names(_context: click.Context, _option: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    """Of an option that takes several, with commas between them."""
    return None if value is None else tuple(part.strip() for part in value.split(","))


def tell(text: str) -> None:
    click.echo(f"{text} …", err=True)


@contextlib.contextmanager
def only_answers(ray: str | None) -> Iterator[None]:
    """Keep standard output for the answer: Ray tells there what it hears of its nodes."""
    with contextlib.redirect_stdout(sys.stderr) if ray else contextlib.nullcontext():
        yield


def open_index(folder: Path | None, index: Path | None, model: str | None = None, ray: str | None = None) -> Retriever:
    """The existing index meant by FOLDER and --index."""
    from ..retriever.documents.scan import find_index, is_index
    from ..retriever.retriever import Retriever

    if index:
        return Retriever.open(index, model=model, ray=ray)
    start = folder or Path.cwd()
    if not start.exists():
        raise InputError(f"there is no folder {start}")
    if start.is_file():
        raise InputError(f"{start} is a file: expected a folder; narrow a search with --where path={start.name}")
    found = start if is_index(start) else find_index(start)
    if found is None:
        raise NoIndexError(f"no index in {start} or above it: make one with {typed('index', folder or Path())}")
    return Retriever.open(found, model=model, ray=ray)


def typed(command: str, folder: Path | None = None, *, at: Path | None = None) -> str:
    """A command to go on with, as it is to be typed for the index that this one was given.

    :param folder: the one it is to be given, where that is another.
    :param at: where the index is, to be said where `folder` alone does not lead there.
    """
    from ..retriever.documents.scan import INDEX_NAME

    given = click.get_current_context().params
    index, below = given.get("index"), given.get("folder")
    if not index and folder is not None and at is not None and at != folder.resolve() / INDEX_NAME:
        index = at
    if folder is None and not index and below != Path():
        folder = below
    words = [command, *([] if folder is None else [shlex.quote(str(folder))])]
    return f"'binocle {' '.join([*words, *(['--index', shlex.quote(str(index))] if index else [])])}'"


def within(retriever: Retriever, folder: Path | None) -> list[str]:
    """The filter that FOLDER adds when it lies below the indexed folder."""
    from ..retriever.store.filters import folder as below

    root = retriever.folder
    if folder is None or folder.resolve() == retriever.path:
        return []
    if not folder.exists():
        raise InputError(f"there is no folder {folder}")
    if root is None or not folder.resolve().is_relative_to(root.resolve()):
        raise InputError(f"{folder} is not in {root}, the folder that the index at {retriever.path} is of")
    inside = folder.resolve().relative_to(root.resolve()).as_posix()
    return [] if inside == "." else [below(inside)]


def as_from_here(retriever: Retriever) -> Callable[[str], str]:
    """What turns a path of the index into one that opens from here: absolute where it is not below."""
    root = retriever.folder
    if root is None:
        return str
    root = root.resolve()

    def shown(path: str) -> str:
        way = os.path.relpath(root / path) + "/" * path.endswith("/")
        return os.path.join(root, path) if way.split("/")[0] == ".." else way  # noqa: PTH118

    return shown


def parse_citation(retriever: Retriever, place: str) -> tuple[str, int]:
    match = re.fullmatch(r"(.+):([0-9]{1,99})", place, re.DOTALL)
    if not match:
        raise InputError(f"{place[:200]!r} is not a place: expected FILE:LINE, such as guide.md:12")
    return known(retriever, match[1]), int(match[2])


def is_known(retriever: Retriever, path: str) -> bool:
    return path in retriever.snapshot().document_rows["path"].to_pylist()


def known(retriever: Retriever, path: str, *, folders: bool = False) -> str:
    """The path of a document in the index that a user means: as it is from here, or as the index has it.

    :param folders: whether a folder is an answer too, as to what is to be erased: then no other may be meant.
    """
    rows = retriever.snapshot().document_rows.select(["path", "source"]).to_pylist()
    paths = {row["path"] for row in rows}
    files = {row["path"] for row in rows if row["source"] == "file"}  # an added document's id need not be a path
    holding = paths if folders else files
    root = retriever.folder
    meant = []
    if root is not None and "\0" not in path:
        with contextlib.suppress(ValueError, OSError):  # somewhere else altogether
            here = Path(path).resolve().relative_to(root.resolve()).as_posix()
            meant += [here] * (here in files or _has_below(here, files))
    there = path.rstrip("/")
    if there not in meant and (there in paths or _has_below(there, holding)):
        meant.append(there)
    if folders and root is not None and len(meant) > 1:
        raise InputError(
            f"{path!r} is {meant[0]!r} of the index from here, and there is {there!r} too: "
            f"expected a whole path, such as {str(root / meant[0])!r}"
        )
    for one in meant:
        if folders or one in paths:
            return one
        listing = typed("files", Path(as_from_here(retriever)(one)))
        raise InputError(f"{path!r} is a folder: {listing} lists what is in it")
    near = _nearest(path, paths)
    shown = as_from_here(retriever) if near in files else str
    hint = f"is it {shown(near)!r}? " if near else ""
    raise InputError(f"{path[:200]!r} is not in the index: {hint}{typed('files')} lists what is")


def _has_below(folder: str, paths: set[str]) -> bool:
    return any(one.startswith(folder + "/") for one in paths)


def _nearest(path: str, paths: set[str]) -> str | None:
    """The only one that ends in what was given, or else one that looks like it."""
    from difflib import get_close_matches

    same = [one for one in paths if one.endswith(f"/{path}")]
    alike = get_close_matches(path, sorted(paths), 1, 0.8) if len(paths) < _MANY else []
    return same[0] if len(same) == 1 else next(iter(alike), None)
