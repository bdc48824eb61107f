"""The command line `binocle`: list the commands, and turn errors into one line and an exit code.

Exit codes as in grep: 0 for a hit (or done), 1 for no hit (or a fault), 2 for an error, with one line on stderr.
"""

from __future__ import annotations

import atexit
import gc
import os
import select
import sys
import warnings
from collections import UserDict
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn, TextIO

import click

from .core.errors import BinocleError, first_line, is_out_of_memory, tensor_errors
from .core.version import __version__

_ERROR = 2
_SECTIONS = {  # of the help, in its order: the module in `commands` of each command
    "Search": {
        "index": "index",
        "search": "passages.search",
        "similar": "passages.similar",
        "show": "passages.similar",
        "pick": "passages.pick",
        "answer": "passages.answer",
        "rank": "passages.rank",
    },
    "Look after an index": {
        "status": "upkeep.status",
        "files": "upkeep.status",
        "verify": "upkeep.verify",
        "forget": "index",
        "collections": "upkeep.collections",
        "switch": "upkeep.switch",
        "rollback": "upkeep.switch",
        "optimize": "upkeep.optimize",
        "trust": "upkeep.trust",
    },
    "Connect": {
        "mcp": "mcp",
        "serve": "serve",
        "watch": "watch",
    },
    "Measure and see": {
        "evaluate": "evaluate",
        "compare": "evaluate",
        "look": "look",
        "audit": "models.audit",
        "invert": "models.invert",
    },
    "Train": {
        "tune": "models.tune",
        "train": "models.train",
        "mine": "models.mine",
        "score": "models.mine",
        "distill": "models.train",
        "pretrain": "models.pretrain",
        "fill": "models.pretrain",
    },
    "Sort and mark texts": {
        "label": "label",
        "enrich": "enrich",
        "classify": "models.heads",
        "tag": "models.heads",
    },
    "This installation": {
        "doctor": "upkeep.doctor",
        "completion": "upkeep.doctor",
    },
}
_OUTPUT = "standard output"  # as messages call it
_PACKAGE = Path(__file__).parent
_SHOW_WARNING = warnings.showwarning
_COMMANDS = {name: module for section in _SECTIONS.values() for name, module in section.items()}


def _prepare_process() -> None:
    """Set the variables that libraries read at import, and open a closed output."""
    # A query is many small products in a row. A second thread for them only waits: up to 0.4 s on a busy machine.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # spinning threads halve the rate of a busy machine
    os.environ.setdefault("LANCE_LOG", "error")  # users of a search have no use for its warnings
    _end_quickly()
    warnings.showwarning = _show_warning
    if sys.stdout is None:  # closed by a caller that needs only the exit code
        descriptor = os.open(os.devnull, os.O_WRONLY)  # to stay open, or Python 3.13 warns when it ends
        sys.stdout = open(descriptor, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def main() -> NoReturn:  # noqa: C901 - one branch for each way that a command ends
    """Run the command line. Every error is one line; a user's mistake never shows a traceback."""
    _prepare_process()
    try:
        if "_BINOCLE_COMPLETE" in os.environ:
            cli.main(prog_name="binocle")
        with cli.make_context("binocle", sys.argv[1:]) as context:
            code = cli.invoke(context)
        sys.stdout.flush()
        sys.exit(code if isinstance(code, int) else 0)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(_ERROR)
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "binocle"
        _fail(f"{_usage_problem(error)} (see '{command} --help')")
    except click.ClickException as error:
        _fail(error.format_message())
    except BinocleError as error:
        _fail(str(error))
    except (click.Abort, KeyboardInterrupt):
        from .commands.background.client import INTERRUPTED, interrupted_line

        click.echo(interrupted_line(sys.argv[1:]), err=True)
        os._exit(INTERRUPTED)  # a plain exit would wait for threads of native libraries
    except BrokenPipeError as error:
        if not _reader_has_gone():
            _fail(f"a connection was closed by the other side: {error.strerror or error}")
        _drop_output()
        sys.exit(0)
    except OSError as error:
        stream = error.filename or _failed_stream(error)
        if stream == _OUTPUT:
            _drop_output()
        _fail(f"{stream}: {error.strerror or error}")
    except MemoryError:
        _fail("out of memory: end other programs, or raise the limit of this process (ulimit -v)")
    except ImportError as error:
        if (error.name or "").partition(".")[0] == __package__:
            raise  # a fault of this program
        _fail(f"a library cannot be loaded ({first_line(error)}): install it again, or raise a limit of memory")
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        _fail(f"out of memory ({first_line(error)}): end other programs, or take smaller batches")
    except tensor_errors() as error:
        _fail(_tensor_problem(error))


@cache  # a process in the background runs many commands
def _end_quickly() -> None:
    """Skip the garbage collection at exit. It would read all objects of all modules and free almost none."""
    atexit.register(gc.freeze)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning of this package as a note of one line. Warnings of other libraries name their source."""
    if not issubclass(category, UserWarning) or not Path(filename).is_relative_to(_PACKAGE):
        _SHOW_WARNING(message, category, filename, lineno, file, line)
        return
    from .core.printable import printable

    click.echo(f"warning: {printable(' '.join(str(message).split()))}", err=True)


def _drop_output() -> None:
    """Drop the rest of the output. Otherwise Python prints it again at the end, and exits with 120."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _reader_has_gone() -> bool:
    """Whether standard output is a pipe that nobody reads any more, as after `| head`."""
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)
    return bool(output.poll(0))


def _failed_stream(error: OSError) -> str:
    """The stream that an error without a file name concerns: standard output, if printing raised it."""
    import traceback

    *_, (frame, _line) = traceback.walk_tb(error.__traceback__)
    return _OUTPUT if frame.f_code in (main.__code__, click.echo.__code__) else "input/output"


def _usage_problem(error: click.UsageError) -> str:
    """Describe a mistake in a command. For a missing option, add the help of that option."""
    problem, option = error.format_message(), getattr(error, "param", None)
    if isinstance(error, click.MissingParameter) and isinstance(option, click.Option) and option.help:
        problem = f"{problem.removesuffix('.')}: {option.help}"
    return problem


def _tensor_problem(error: Exception) -> str:
    """Describe an error of safetensors, which does not name its file."""
    action, _, reason = first_line(error).partition(": ")
    verb = "written" if action == "Error while serializing" else "read"
    return f"weights cannot be {verb}: {reason.removeprefix('I/O error: ') or action}"


def _fail(message: str) -> NoReturn:
    from .core.printable import printable

    click.echo(f"binocle: {printable(' '.join(message.split()))}", err=True)
    sys.exit(_ERROR)


class _Commands(UserDict[str, Any]):
    """Import a command only when it is called, for a fast start; `main` then sees a Ctrl-C during the import."""

    def __getitem__(self, name: str) -> Any:
        return getattr(import_module(f".commands.{super().__getitem__(name)}", __package__), name)


class _Group(click.Group):
    """List the commands by section, in the order of `_SECTIONS`."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as above
        """Write a table of names and first sentences for each section."""
        width = max(map(len, self.commands))
        limit = formatter.width - width - 6  # of a sentence: indented by 2, with a margin
        for title, section in _SECTIONS.items():
            rows = [(name.ljust(width), self.commands[name].get_short_help_str(limit)) for name in section]
            with formatter.section(title):
                formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Name the configuration file in force, if there is one."""
        from .commands.configuration import configuration_file

        super().format_epilog(ctx, formatter)
        file = configuration_file()
        if file and os.environ.get("BINOCLE_CONFIG") != "" and file.is_file():
            formatter.write_paragraph()
            formatter.write(f"Defaults: {file}\n")  # in one piece


@click.group(
    cls=_Group,
    commands=_Commands(_COMMANDS),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, "-V", "--version", prog_name="binocle")
@click.pass_context
def cli(context: click.Context) -> None:
    """Search a folder of documents by meaning and by words, with exact citations.

    The file ~/.config/binocle/config.toml sets defaults of options.

    \b
    binocle index ~/notes
    binocle search "how do I cancel a running task" ~/notes
    """
    from .commands.configuration import configure

    configure(context, cli)


if __name__ == "__main__":
    main()
