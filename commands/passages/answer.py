"""`binocle answer`, and `search --answer`: the span of a text that answers a question."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...core.errors import InputError
from ...core.printable import printable, printable_path
from ..index_lookup import path_from_here
from ..options import EXIT_NEGATIVE, json_option
from ..output import echo, echo_coloured, echo_json, is_coloured

if TYPE_CHECKING:
    from ...retriever.retriever import Retriever
    from ...retriever.search.answers import Answer

_AROUND = 80  # characters that are printed on each side of an answer
_MATCH, _END = "\x1b[1;33m", "\x1b[0m"
_FIELDS = ("text", "char_start", "char_end", "line_start", "line_end", "page", "score", "probability")


@click.command()
@click.argument("question")
@click.argument("files", nargs=-1, metavar="FILE...")
@click.option("--reader", required=True, metavar="MODEL", help="A trained reader: its folder, or its name on the hub.")
@json_option
def answer(question: str, files: tuple[str, ...], reader: str, as_json: bool) -> int:
    """Answer QUESTION from the texts of FILEs.

    Prints the answering span of each file, the surest first, with its line and the probability that it is right.
    The FILE "-", which is the default, is standard input. 'binocle search --answer' reads the best passages of an index
    instead. Exit 1 when no file has an answer.

    \b
    binocle answer "who may cancel a task" guide.md notes.txt --reader my-reader
    """
    from ...retriever.models.heads.reader import load_reader
    from ...retriever.search.arguments import check_words

    question = check_words(question)
    names = files or ("-",)
    texts = [_read(name) for name in names]
    model = load_reader(reader)
    rows = [
        (name, text, span)
        for name, text, span in zip(names, texts, model.read(question, texts), strict=True)
        if span is not None and span.score >= model.settings.threshold
    ]
    for name, text, span in sorted(rows, key=lambda row: -row[2].score):
        line = text.count("\n", 0, span.start) + 1
        if as_json:
            location = {
                "file": name,
                "text": span.text,
                "char_start": span.start,
                "char_end": span.end,
                "line_start": line,
            }
            echo_json(location | {"score": span.score, "probability": span.probability})
            continue
        _print(span.text, span.probability, f"{printable_path(name)}:{line}", _marked(text, span.start, span.end))
    return 0 if rows else _say_none()


def _read(name: str) -> str:
    if Path(name).is_dir():
        raise InputError(f"{name} is a folder: expected a file; 'binocle search --answer' reads an indexed folder")
    try:
        if name == "-":
            if sys.stdin is None:
                raise InputError("the texts '-' are read from standard input, but that is closed")
            return sys.stdin.buffer.read().decode("utf-8-sig")
        return Path(name).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(
            f"{name} is no text in UTF-8: index its folder, and read other formats by 'binocle search --answer'"
        ) from None


def print_answer(answers: list[Answer], retriever: Retriever) -> int:
    """Print the best answer of a search with its location and the text around it; return the exit code."""
    if not answers:
        return _say_none()
    best = answers[0]
    path = path_from_here(retriever.folder)(best.path) if best.hit.source == "file" else best.path
    page = f"  p. {best.page}" if best.page is not None else ""
    start = best.char_start - best.hit.char_start
    around = _marked(best.hit.text, start, start + len(best.text))
    _print(best.text, best.probability, f"{printable_path(path)}:{best.line_start}{page}", around)
    return 0


def answer_fields(answers: list[Answer], passages: list[int]) -> dict[str, Any] | None:
    """Return the best answer in some passages for JSON; None if they have none."""
    own = (answer for answer in answers if answer.hit.passage in passages)
    best = next(own, None)
    return None if best is None else {name: getattr(best, name) for name in _FIELDS}


def _say_none() -> int:
    echo("binocle: no answer: nothing that was read answers this", err=True)
    return EXIT_NEGATIVE


def _print(text: str, probability: float, location: str, around: str) -> None:
    echo_coloured(f"{printable(' '.join(text.split()))}  ({probability:.0%})  {location}\n    {around}\n")


def _marked(text: str, start: int, end: int) -> str:
    """Return the text around a span on one line, with the span marked."""
    left, right = text[max(0, start - _AROUND) : start], text[end : end + _AROUND]
    before = "… " * (start > _AROUND) + left.partition(" ")[2] if start > _AROUND else left
    after = right.rpartition(" ")[0] + " …" if end + _AROUND < len(text) else right
    marks = (_MATCH, _END) if is_coloured() else ("[", "]")
    span = printable(" ".join(text[start:end].split()))
    return f"{_flat(before)}{marks[0]}{span}{marks[1]}{_flat(after)}"


def _flat(text: str) -> str:
    """Write white space as single spaces, also at the ends."""
    words = printable(" ".join(text.split()))
    return " " * text[:1].isspace() + words + " " * (text[-1:].isspace() and bool(words))
