"""Draw docs/search.svg, a search as a terminal shows it: `python .ci/picture.py FOLDER`, an indexed Rust book."""

from __future__ import annotations

import io
import os
import pty
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

_ARGUMENTS = ["search", "how do I return an error early", "-k", "3", "-w", "path=src/"]
_COLUMNS = 100
_PICTURE = Path(__file__).parents[1] / "docs" / "search.svg"


def main(folder: str) -> None:
    """Run the search in a terminal of its own, and write its output as SVG."""
    shown = bytearray()

    def read(terminal: int) -> bytes:
        data = os.read(terminal, 65_536)
        shown.extend(data)
        return data

    os.chdir(folder)
    os.environ |= {"COLUMNS": str(_COLUMNS), "TERM": "xterm-256color"}
    pty.spawn([sys.executable, "-m", "binocle.cli", *_ARGUMENTS], read)
    command = " ".join(f'"{word}"' if " " in word else word for word in _ARGUMENTS)
    console = Console(record=True, width=_COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text(f"$ binocle {command}\n"))
    console.print(Text.from_ansi(shown.decode().replace("\r\n", "\n").rstrip()))
    picture = console.export_svg(title="binocle", unique_id="binocle")
    _PICTURE.write_text(re.sub(r"\s*@font-face \{.*?\}\n", "\n", picture, flags=re.DOTALL), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
