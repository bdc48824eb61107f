"""Options that commands share, the types of their values, and notes on the error stream."""

from __future__ import annotations

import contextlib
import math
import re
import sys
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..core.errors import InputError
from ..core.files import existing_spelling, expand_home
from .output import echo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from click.shell_completion import CompletionItem

    from ..core.progress import Progress

EXIT_NEGATIVE = 1  # the exit code of a search without a hit and of a check that finds a fault
_DAY = 24 * 3_600  # seconds


class FilePath(click.Path):
    """Complete files and folders, and expand "~", as a shell does not in --out=~/x, nor an agent's program.

    A name with accents means the existing file with this name, in any Unicode form.
    By default the command itself checks whether the path exists.
    """

    completes = "file"
    expected = "a file or folder"

    def __init__(self, *, exists: bool = False, dir_okay: bool = True) -> None:
        super().__init__(exists, dir_okay=dir_okay, readable=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Expand "~" and find accents; refuse an empty path, and one on object storage."""
        if value == "":
            self.fail("'' is empty; '.' is the folder you are in", param, ctx)
        if isinstance(value, str) and value.startswith("s3://"):
            self.fail(f"{value} is on object storage: expected {self.expected} of this machine", param, ctx)
        return super().convert(existing_spelling(expand_home(value)), param, ctx)

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


def refuse_options(names: Iterable[str], rule: str) -> None:
    """Refuse the first of these options and arguments that stands on the command line.

    :param rule: ends the message, which begins with the option: "goes with --regex".
    """
    context = click.get_current_context()
    for name in filter(is_typed, names):
        parameter = next(each for each in context.command.params if each.name == name)
        label = parameter.opts[0] if isinstance(parameter, click.Option) else parameter.human_readable_name
        raise click.UsageError(f"{label} {rule}", context)


def check_rerank_options(*, used: bool, by: str) -> None:
    """Refuse options of reranking in a command that does not rerank.

    :param by: the option that turns reranking on, for the message.
    """
    if not used:
        refuse_options(("rerank_depth", "rerank_seconds"), f"goes with {by}")


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
