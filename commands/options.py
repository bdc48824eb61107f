"""Options that commands share; find the index that a user names."""

from __future__ import annotations

import contextlib
import gc
import math
import os
import re
import shlex
import sys
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..core.errors import InputError, NoIndexError
from ..core.files import expand_home
from .background.kept import open_kept
from .configuration import COLLECTION, FILE
from .output import echo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from click.shell_completion import CompletionItem

    from ..core.progress import Progress
    from ..retriever.retriever import Retriever
    from ..retriever.store.filters.filter import Filter
    from ..retriever.store.locations.location import Location

EXIT_NEGATIVE = 1  # the exit code of a search without a hit and of a check that finds a fault
_DAY = 24 * 3_600  # seconds


class FilePath(click.Path):
    """Complete files and folders, and expand "~", as a shell does not in --out=~/x, nor an agent's program.

    By default the command itself checks whether the path exists.
    """

    completes = "file"
    expected = "a file or folder"

    def __init__(self, *, exists: bool = False, dir_okay: bool = True) -> None:
        super().__init__(exists, dir_okay=dir_okay, readable=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Expand "~"; refuse an empty path, and one on object storage."""
        if value == "":
            self.fail("'' is empty; '.' is the folder you are in", param, ctx)
        if isinstance(value, str) and value.startswith("s3://"):
            self.fail(f"{value} is on object storage: expected {self.expected} of this machine", param, ctx)
        return super().convert(expand_home(value), param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        """Leave the names to the shell."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type=self.completes)]


class _FolderPath(FilePath):
    completes = "dir"
    expected = "a folder"


class _IndexPath(_FolderPath):
    """A folder, or an index on object storage, with its address unchanged."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from ..retriever.store.locations.open_location import check_address, is_s3

        check_address(str(value))
        return value if is_s3(value) else super().convert(value, param, ctx)


class _Duration(click.ParamType):  # type: ignore[type-arg]  # a generic type in newer versions alone
    """A time such as 90s, 15m or 2h, at most a day; in seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        match = re.fullmatch(r"([0-9]{1,6})([smh]?)", str(value))
        seconds = int(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3_600}[match[2]] if match else -1
        if not match or not (match[2] or seconds == 0) or seconds > _DAY:
            self.fail(f"{value!r} is no time: expected one such as 90s, 15m or 2h, at most 24h, or 0", param, ctx)
        return float(seconds)


DURATION = _Duration()
PATH = FilePath()
FOLDER = _FolderPath()
INDEX = _IndexPath()
folder_argument = click.argument("folder", required=False, type=FOLDER)
folders_argument = click.argument("folder", nargs=-1, type=PATH)  # a tuple: also files and globs


class IndexOption(click.Option):
    """The option --index; --name may set its value too."""

    def consume_value(self, ctx: click.Context, opts: Mapping[str, Any]) -> tuple[Any, click.core.ParameterSource]:
        """Take the path of the collection that --name names."""
        name = opts.get("collection")
        if not isinstance(name, str):
            return super().consume_value(ctx, opts)
        if isinstance(opts.get("index"), str):
            raise click.UsageError("--index and --name both name an index: give one of them", ctx)
        from ..retriever.store.collection import collection_path, existing_collection

        path = collection_path(name) if ctx.command.name == "index" else existing_collection(name)
        return str(path), click.core.ParameterSource.COMMANDLINE


def _complete_name(_context: click.Context, _option: click.Parameter, incomplete: str) -> list[str]:
    from ..retriever.store.collection import collection_names

    return [name for name in collection_names() if name.startswith(incomplete)]


name_option = click.option(
    "-n",
    "--name",
    "collection",
    metavar="NAME",
    expose_value=False,
    shell_complete=_complete_name,
    help="The named collection: see 'binocle collections'.",
)


class FloatRange(click.FloatRange):
    """A number in a range, which nan is not."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read a number in the range."""
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"expected a number, not {value}", param, ctx)
        return number


def index_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options --index and --name: both name an index, and the command gets its path."""
    option = click.option(
        "--index",
        "index",
        cls=IndexOption,
        metavar="DIR",
        type=INDEX,
        envvar="BINOCLE_INDEX",
        help="The index: a folder, or s3://BUCKET/PREFIX. Default: .binocle in FOLDER, or in the nearest folder above.",
    )
    return option(name_option(command))


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, one object a line.")
k_option = click.option(
    "-k", default=10, show_default=True, metavar="N", type=click.IntRange(min=1), help="Print at most N passages."
)
wait_option = click.option(
    "--wait",
    metavar="SECONDS",
    default=0.0,
    type=FloatRange(min=0.0),
    envvar="BINOCLE_WAIT",
    help="Wait so long for another process that writes the index. Default: not at all.",
)
gpu_option = click.option("--gpu", is_flag=True, help="Encode on the GPUs of this machine; needs binocle[torch].")
ray_option = click.option(
    "--ray", metavar="ADDRESS", envvar="BINOCLE_RAY", help="Run on a Ray cluster: auto, local or HOST:PORT."
)
rerank_depth_option = click.option(
    "--rerank-depth", default=50, show_default=True, metavar="N", type=int, help="Rerank the best N passages."
)
rerank_option = click.option(
    "--rerank", metavar="MODEL", help="Rerank with a cross-encoder: its folder, or its name on the hub."
)
where_option = click.option(
    "--where",
    "-w",
    multiple=True,
    metavar="FILTER",
    help="Search only documents that pass: path='docs/**' (relative to the indexed folder), type=pdf, "
    "modified>=2026-01-01, size<1MB, KEY=VALUE; joined by and, or, not and brackets. Repeatable: all must pass.",
)


report_to_option = click.option(
    "--report-to",
    type=click.Choice(["tensorboard", "wandb", "trackio"]),
    help="A tracker that follows the run too.",
)


def grouped(**groups: type[Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Pass options to a command in groups (a decorator, below the decorators of the options).

    :param groups: parameter of the command -> a NamedTuple with names of options as fields.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def pass_grouped(**values: Any) -> Any:
            for name, group in groups.items():
                values[name] = group(**{field: values.pop(field) for field in group._fields})
            return command(**values)

        return pass_grouped

    return decorate


def is_typed(name: str) -> bool:
    """Whether an option was given on the command line, and not by the configuration."""
    return click.get_current_context().get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def check_rerank_options(*, used: bool, by: str) -> None:
    """Refuse options of reranking in a command that does not rerank.

    :param by: the option that turns reranking on, for the message.
    """
    context = click.get_current_context()
    for name in ("rerank_depth", "rerank_seconds"):
        if not used and context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name.replace('_', '-')} goes with {by}", context)


def split_names(_context: click.Context, _option: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    """Split the value of an option at its commas (a callback of click)."""
    return None if value is None else tuple(part.strip() for part in value.split(","))


def text_argument(text: str) -> str:
    """Return the text of an argument; "-" is read from standard input.

    :raises InputError: when that is closed, or not in UTF-8.
    """
    if text != "-":
        return text
    if sys.stdin is None:
        raise InputError("the text '-' is read from standard input, but that is closed")
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"standard input is not UTF-8 ({error.reason} at byte {error.start}): save it as UTF-8"
        ) from None


def print_step(event: Progress) -> None:
    """Print the next step of the command on stderr."""
    echo(f"{event.message} …", err=True)


def is_interactive() -> bool:
    """Whether a person can be asked: the input and the notes are on a terminal."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def print_note(note: str) -> None:
    """Print a note on stderr, if there is one."""
    if note:
        echo(note, err=True)


@contextlib.contextmanager
def stdout_for_answers(ray: str | None) -> Iterator[None]:
    """Keep standard output for the answer: Ray would print the messages of its nodes there."""
    with contextlib.redirect_stdout(sys.stderr) if ray else contextlib.nullcontext():
        yield


def print_waiting(line: str) -> None:
    """Print on stderr that a write waits for another process."""
    echo(f"binocle: {line}", err=True)


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
        from ..retriever.documents.scan import find_index, is_index
        from ..retriever.retriever import Retriever

    start = folder or (Path() if index else current_folder())
    if narrow:
        start = folder_above(start)
    if not index and not start.exists():
        raise InputError(f"there is no folder{' or file' * narrow} {start}")
    if not index and start.is_file():
        raise InputError(f"{start} is a file: expected a folder")
    path = index or (start if is_index(start) else find_index(start))
    if path is None and (folder is None or narrow):
        path = _default_collection()
        if path and not narrow:  # perhaps to write to it, or a server: its documents are not those here
            file = click.get_current_context().meta[FILE]
            print_note(f"binocle: there is no index here, so this is the collection {path.name} that {file} names")
    if path is None:
        raise NoIndexError(
            f"no index in {start} or above it: make one with {command_hint('index', start if folder else Path())}"
        )
    opened = None if gpu else open_kept(path, model, ray)
    opened = opened or Retriever.open(path, model=model, ray=ray, gpu=gpu, wait=wait, on_wait=print_waiting)
    if index and folder is not None and not narrow:
        _check_inside(folder, opened)
    return opened


def current_folder() -> Path:
    """Return the current folder.

    :raises InputError: when another process has removed it.
    """
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise InputError("the current folder was removed: name the FOLDER, or go to another one") from None


def _check_inside(folder: Path, retriever: Retriever) -> None:
    """Refuse a FOLDER that the index does not hold, so that a command never acts on an index of other documents."""
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
    """The file whose member a path names, or else the part before its first name with a wildcard; if it exists, all."""
    if path.exists():
        return path
    file = next((above for above in path.parents if above.is_file()), None)
    if file is not None:
        return file
    wild = next((number for number, name in enumerate(path.parts) if any(sign in name for sign in "*?[")), None)
    return path if wild is None else Path(*path.parts[:wild])


def path_from_here(root: Path | None) -> Callable[[str], str]:
    """A function that makes a path of the index one that opens from the current folder: absolute unless below it.

    :param root: the indexed folder.
    """
    if root is None:
        return str
    root = root.resolve()

    def from_here(path: str) -> str:
        relative = os.path.relpath(root / path) + "/" * path.endswith("/")
        return os.path.join(root, path) if relative.split("/")[0] == ".." else relative  # noqa: PTH118

    return from_here
