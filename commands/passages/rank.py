"""`binocle rank`: order lines, of grep for example, by how well they answer a query."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

from ...core.errors import InputError
from ..options import EXIT_NEGATIVE, json_option
from ..output import echo, echo_json

# Path, line and column, as grep, ripgrep and git print them.
_LINE_PREFIX = re.compile(r"^(?:[^:\s][^:]*:)?\d+:(?:\d+:)?")


@click.command()
@click.argument("query")
@click.argument("file", default="-")
@click.option("-k", "count", metavar="N", type=click.IntRange(min=1), help="Print at most N lines. Default: all.")
@click.option("--model", metavar="NAME", help="An encoder or a cross-encoder. Default: all-MiniLM-L6-v2.")
@json_option
def rank(query: str, file: str, count: int | None, model: str | None, as_json: bool) -> int:
    """Order the lines of FILE by how well they answer QUERY.

    The FILE "-", which is the default, is standard input, such as the output of grep. Lines are printed as they came. A
    place before a line (guide.md:12:) is not read. No index is needed. Exit 1 when there is no line.

    \b
    binocle rank "who may cancel a task" tickets.txt -k 3
    """
    from ...retriever.search.arguments import check_words
    from ...training.evaluation.scorers import load, scores

    query = check_words(query)
    lines = [line for line in _lines(file) if any(map(str.isalnum, line))]  # grep puts "--" between groups of lines
    texts = [_LINE_PREFIX.sub("", line).strip() or line.strip() for line in lines]
    values = scores(load(model), query, texts)
    for position in (-values).argsort(kind="stable")[:count].tolist():
        if as_json:
            echo_json({"text": lines[position], "score": float(values[position])})
        else:
            echo(lines[position])
    return 0 if lines else EXIT_NEGATIVE


def _lines(file: str) -> list[str]:
    """Return the lines of a file; bytes that are no UTF-8 become U+FFFD, since grep prints any file."""
    if Path(file).is_dir():
        raise InputError(f"{file} is a folder: expected a file of lines; 'binocle search' ranks an indexed folder")
    if file != "-":
        content = Path(file).read_bytes()
    elif sys.stdin is None:
        raise InputError("the lines '-' are read from standard input, but that is closed")
    else:
        content = sys.stdin.buffer.read()
    return content.decode("utf-8-sig", "replace").replace("\r\n", "\n").split("\n")
