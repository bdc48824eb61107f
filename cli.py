"""`binocle …`: translates options into one library call each and prints the answer.

Exit codes are grep's: 0 found (or done), 1 nothing found (or not clean), 2 an error, in one line on stderr.
"""

from __future__ import annotations

import os
import select
import sys
from collections import UserDict
from importlib import import_module
from typing import Any, NoReturn

import click

from .core.errors import BinocleError
from .core.version import __version__

_ERROR, _INTERRUPTED = 2, 130
_COMMANDS = {  # in the order of need: which module of `commands` each is in
    "index": "index",
    "switch": "index",
    "rollback": "index",
    "search": "search",
    "similar": "search",
    "show": "search",
    "status": "index",
    "files": "index",
    "verify": "index",
    "forget": "index",
    "optimize": "optimize",
    "evaluate": "evaluate",
    "compare": "evaluate",
    "invert": "invert",
    "audit": "audit",
    "mine": "mine",
    "train": "train",
    "tune": "train",
    "distill": "train",
    "pretrain": "pretrain",
    "fill": "pretrain",
    "doctor": "doctor",
    "completion": "doctor",
}


def main() -> NoReturn:
    """Run the command line: every error one line, never a traceback for a user's mistake."""
    # One query is one small product after another: a second thread for each only waits, up to 0.4 s on a busy machine.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads that spin while waiting halve a busy machine's rate
    os.environ.setdefault("LANCE_LOG", "error")  # its warnings are not for the one who searches
    if sys.stdout is None:  # closed by the caller, who then wants the exit code alone
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    try:
        if "_BINOCLE_COMPLETE" in os.environ:
            cli.main(prog_name="binocle")
        with cli.make_context("binocle", sys.argv[1:]) as context:
            code = cli.invoke(context)
        sys.stdout.flush()
        sys.exit(code if isinstance(code, int) else 0)
    except click.exceptions.Exit as ended:
        sys.exit(ended.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(_ERROR)
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "binocle"
        _fail(f"{error.format_message()} (see '{command} --help')")
    except click.ClickException as error:
        _fail(error.format_message())
    except BinocleError as error:
        _fail(str(error))
    except (click.Abort, KeyboardInterrupt):
        click.echo("binocle: interrupted; what was committed is kept, the same command goes on from there", err=True)
        os._exit(_INTERRUPTED)  # threads of native libraries must not hold up a Ctrl-C
    except BrokenPipeError as error:
        if not _nobody_reads():
            _fail(f"a connection was closed by the other side: {error.strerror or error}")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        _fail(f"{error.filename or _what_failed(error)}: {error.strerror or error}")


def _nobody_reads() -> bool:
    """Whether standard output is a pipe whose reader has gone, as `head` goes when it has enough."""
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)
    return bool(output.poll(0))


def _what_failed(error: OSError) -> str:
    """Standard output, where the error was raised by what prints to it."""
    import traceback

    *_, (frame, _line) = traceback.walk_tb(error.__traceback__)
    return "standard output" if frame.f_code in (main.__code__, click.echo.__code__) else "input/output"


def _fail(message: str) -> NoReturn:
    from .retriever.search.snippet import printable

    click.echo(f"binocle: {printable(' '.join(message.split()))}", err=True)
    sys.exit(_ERROR)


class _Commands(UserDict[str, Any]):
    """Imports a command when it is asked for: none waits for what others need, and `main` sees a Ctrl-C meanwhile."""

    def __getitem__(self, name: str) -> Any:
        return getattr(import_module(f".commands.{super().__getitem__(name)}", __package__), name)


class _Group(click.Group):
    """Lists the commands in the order of need."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(self.commands)


@click.group(
    cls=_Group,
    commands=_Commands(_COMMANDS),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, "-V", "--version", prog_name="binocle")
def cli() -> None:
    """Search a folder of documents by meaning and by words, with exact citations.

    \b
    binocle index ~/notes
    binocle search "how do I cancel a running task" ~/notes
    """


if __name__ == "__main__":
    main()
