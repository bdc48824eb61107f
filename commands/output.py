"""Print for people and for programs. No control character of a document or a file's name reaches a terminal."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from ..core.printable import json_text, printable_lines

if TYPE_CHECKING:
    from collections.abc import Mapping


def echo(text: object = "", *, err: bool = False) -> None:
    """Print lines for people, with characters that they would not see as symbols.

    :param err: print on stderr.
    """
    click.echo(printable_lines(str(text)), err=err)


def echo_coloured(text: str) -> None:
    """Print lines with our own colours; the rest went through `printable` already."""
    click.echo(text)


def is_coloured() -> bool:
    """Whether standard output shows colours: a terminal, unless the user wants none."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def echo_json(record: Mapping[str, Any]) -> None:
    """Print a record as one line of JSON; `chunks`, as the store calls them, are `passages` to users."""
    click.echo(json_text({"passages" if name == "chunks" else name: value for name, value in record.items()}))
