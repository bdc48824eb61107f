"""Read test collections in BEIR's layout (Thakur et al. 2021, arXiv:2104.08663).

`corpus.jsonl` {_id, title, text}, `queries.jsonl` {_id, text}, `qrels/SPLIT.tsv` with a header and rows of query,
document and grade.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ...core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    Judgement = tuple[int, str, str, int]  # number of its line, query, document, grade

HEADERS = {"score", "grade", "relevance", "rel"}  # names of the last column of judgements


def is_collection(folder: Path) -> bool:
    """Whether a folder has a corpus."""
    return (folder / "corpus.jsonl").is_file()


def documents(folder: Path) -> Iterator[dict[str, str]]:
    """Yield each document as id, title and text; an empty text is replaced by the title."""
    names: set[str] = set()
    for where, row in _rows(folder / "corpus.jsonl"):
        text, name = row.get("text"), str(row["_id"])
        if not isinstance(text, str) or not isinstance(row.get("title") or "", str):
            raise InputError(f"{where}: expected strings in 'text' and 'title'")
        if name in names:
            raise InputError(f"{where} has the id {name!r} for the second time: each document has one of its own")
        names.add(name)
        yield {"id": name, "title": row.get("title") or "", "text": text or row.get("title") or ""}


def passage(document: Mapping[str, str]) -> str:
    """Join title and text into one passage."""
    return "\n".join(dict.fromkeys(filter(None, (document["title"], document["text"]))))


def queries(folder: Path) -> dict[str, str]:
    """Read the queries: id to text."""
    texts = {}
    for where, row in _rows(folder / "queries.jsonl"):
        if not isinstance(row.get("text"), str) or not row["text"].strip():
            raise InputError(f"{where}: expected a string in 'text'")
        name = str(row["_id"])
        if name in texts:
            raise InputError(f"{where} has the id {name!r} for the second time: each query has one of its own")
        texts[name] = row["text"]
    return texts


def _rows(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    if not file.is_file():
        raise InputError(f"{file} is missing: a collection has corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv")
    with file.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
            except (ValueError, RecursionError) as error:
                raise InputError(f"{file}:{number} is not JSON in UTF-8: {error}") from None
            if not isinstance(row, dict) or "_id" not in row:
                raise InputError(f"{file}:{number}: expected an object with '_id'")
            yield f"{file}:{number}", row


def qrels(folder: Path, split: str) -> dict[str, dict[str, int]]:
    """Read the judgements: query to document to grade. Queries without a relevant document are left out."""
    file = folder / "qrels" / f"{split}.tsv"
    if not file.is_file():
        splits = ", ".join(sorted(path.stem for path in (folder / "qrels").glob("*.tsv"))) or "none"
        raise InputError(f"{file} is missing: the splits that are there: {splits}")
    return by_query(file, _judgements(file))


def by_query(file: Path, judgements: Iterable[Judgement]) -> dict[str, dict[str, int]]:
    """Collect the judgements of a file: query to document to grade, without queries that have no relevant document.

    :raises InputError: when two lines contradict each other, or no document is relevant.
    """
    grades_of: dict[str, dict[str, int]] = {}
    for number, query, document, grade in judgements:
        if grades_of.setdefault(query, {}).setdefault(document, grade) != grade:
            raise InputError(
                f"{file}:{number} gives {document!r} another grade for {query!r} than a line before: keep one"
            )
    judged = {query: grades for query, grades in grades_of.items() if max(grades.values()) > 0}
    if not judged:
        raise InputError(f"{file} judges no document relevant")
    return judged


def whole_grade(cell: str) -> int | None:
    """Return a grade, or None if the cell is no whole number."""
    try:
        grade = float(cell)
    except ValueError:
        return None
    return int(grade) if grade.is_integer() else None


def _judgements(file: Path) -> Iterator[Judgement]:
    try:
        lines = file.read_text("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8: {error}") from None
    for number, line in enumerate(lines, 1):
        cells = line.split("\t")
        if not line.strip() or (number == 1 and cells[-1].strip().lower() in HEADERS):
            continue
        grade = whole_grade(cells[-1])
        if len(cells) != 3 or grade is None:
            raise InputError(
                f"{file}:{number}: expected query, document and a whole number as grade, separated by tabs"
            )
        yield number, cells[0], cells[1], grade


def line_of(folder: Path, split: str, query: str, document: str) -> str:
    """Return file and line of a judgement."""
    file = folder / "qrels" / f"{split}.tsv"
    cells = (line.split("\t")[:2] for line in file.read_text("utf-8-sig").split("\n"))
    return f"{file}:{next(number for number, pair in enumerate(cells, 1) if pair == [query, document])}"
