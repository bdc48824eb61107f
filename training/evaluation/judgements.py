"""Read your own queries and judgements for a folder of documents."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from ...core.errors import InputError
from ..data import beir

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ..data.beir import Judgement


def read_queries(file: Path) -> dict[str, str]:
    """Read id to text, from JSON lines {_id, text} or lines of an id, a tab and the text.

    :raises InputError: naming the file and line that does not fit.
    """
    queries: dict[str, str] = {}
    for number, line in _lines(file, "queries"):
        where = f"{file}:{number}"
        name, text = _object(where, line) if line.lstrip().startswith("{") else _cells(where, line)
        if number == 1 and text in ("text", "query"):
            continue  # a header
        if not name.strip() or not text.strip():
            raise InputError(f"{where}: expected an id and a text")
        if name in queries:
            raise InputError(f"{where} has the id {name!r} for the second time: each query has one of its own")
        queries[name] = text
    return queries


def _object(where: str, line: str) -> tuple[str, str]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is not JSON: {error}") from None
    name = row.get("_id", row.get("id"))
    if not isinstance(name, (str, int)) or isinstance(name, bool) or not isinstance(row.get("text"), str):
        raise InputError(f"{where}: expected an object with '_id' and a string in 'text'")
    return str(name), row["text"]


def _cells(where: str, line: str) -> tuple[str, str]:
    name, tab, text = line.partition("\t")
    if not tab:
        raise InputError(f"{where}: expected an id, a tab and the text of a query, or a JSON object")
    return name, text


def read_qrels(file: Path) -> dict[str, dict[str, int]]:
    """Read query to document to grade, from lines of query, document and grade, or of TREC's four columns.

    TREC's columns are query, 0, document and grade. Cells are separated by tabs, or by white space in a line without a
    tab. Queries without a relevant document are left out: they have no measures.

    :raises InputError: naming the file and line that does not fit.
    """
    return beir.by_query(file, _judgements(file))


def _judgements(file: Path) -> Iterator[Judgement]:
    for number, line in _lines(file, "judgements"):
        cells = line.split("\t") if "\t" in line else line.split()
        if number > 1 or cells[-1].strip().lower() not in beir.HEADERS:
            yield number, *_judgement(f"{file}:{number}", cells)


def _judgement(where: str, cells: list[str]) -> tuple[str, str, int]:
    """Return query, document and grade. The second of four cells is TREC's iteration, which is unused."""
    if len(cells) == 3 or (len(cells) == 4 and re.fullmatch(r"Q?\d+", cells[1].strip())):
        grade = beir.whole_grade(cells[-1])
        if grade is not None:
            return cells[0], cells[-2], grade
    raise InputError(
        f"{where}: expected query, document and a whole number as grade, separated by tabs, or TREC's four columns"
    )


def _lines(file: Path, what: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not blank, with their numbers."""
    if not file.is_file():
        raise InputError(f"there is no file {file}: expected {what}")
    try:
        text = file.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8: {error}") from None
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield number, line.rstrip("\r")
