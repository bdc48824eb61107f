"""The program `binocle`: a process in the background answers, if there is one, else the command line does."""

from __future__ import annotations

import os
import sys

from .commands.background.client import INTERRUPTED, STAY, ask, interrupted_line


def main() -> None:
    """Run the command line."""
    try:
        _run()
    except KeyboardInterrupt:  # while its modules are loaded, which takes most of a second
        sys.stderr.write(f"{interrupted_line(sys.argv[1:])}\n")
        os._exit(INTERRUPTED)


def _run() -> None:
    code = ask(sys.argv[1:])
    if code is not None:
        sys.exit(code)
    from .cli import main as run

    if sys.argv[1:2] == [STAY]:
        from .commands.background.server import stay

        stay(run)
    else:
        run()


if __name__ == "__main__":
    main()
