"""Read test collections in BEIR's layout (Thakur et al. 2021, arXiv:2104.08663).

`corpus.jsonl` {_id, title, text}, `queries.jsonl` {_id, text}, `qrels/SPLIT.tsv` with a header and rows of query,
document and grade.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ...core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


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
    grades_of: dict[str, dict[str, int]] = {}
    try:
        lines = file.read_text("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8: {error}") from None
    for number, line in enumerate(lines, 1):
        cells = line.split("\t")
        if not line.strip() or (number == 1 and cells[-1].strip() == "score"):
            continue
        try:
            query, document, grade = cells
            grades_of.setdefault(query, {})[document] = int(float(grade))
        except (ValueError, OverflowError):
            raise InputError(f"{file}:{number}: expected query, document and grade separated by tabs") from None
    judged = {query: grades for query, grades in grades_of.items() if max(grades.values()) > 0}
    if not judged:
        raise InputError(f"{file} judges no document relevant")
    return judged


def line_of(folder: Path, split: str, query: str, document: str) -> str:
    """Return file and line of a judgement."""
    file = folder / "qrels" / f"{split}.tsv"
    cells = (line.split("\t")[:2] for line in file.read_text("utf-8-sig").split("\n"))
    return f"{file}:{next(number for number, pair in enumerate(cells, 1) if pair == [query, document])}"
