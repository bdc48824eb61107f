"""Documents of a snapshot by path: their rows, their texts, the lines that citations name."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .snapshot import Snapshot

    Row = dict[str, Any]


def rows(snapshot: Snapshot) -> list[Row]:
    """Every document by path: the documents table without the texts."""
    return sorted(snapshot.document_rows.to_pylist(), key=lambda row: (row["path"], row["source"]))


def row(snapshot: Snapshot, path: str | os.PathLike[str]) -> Row:
    """One document, its text included; of a file and an added document that share a name, the file if it has text."""
    path, rows = os.fspath(path), snapshot.document_rows
    is_named = pc.equal(rows["path"].cast(pa.binary()), path.encode("utf-8", "surrogatepass"))
    named = rows.filter(is_named).to_pylist()
    if not named:
        raise InputError(f"{path!r} is not in the index: 'binocle files' lists what is")
    found = min(named, key=lambda row: (not row["chunks"], row["source"] == "added"))
    return snapshot.documents_by_id([found["id"]], [*found, "text"])[found["id"]]


def named(snapshot: Snapshot, paths: Iterable[str]) -> list[Row]:
    """The documents of these paths, and those below the ones that end in "/"; "./" before a path may be left out."""
    rows = snapshot.document_rows.to_pylist()
    names = {row["path"] for row in rows}
    wanted = {path if path in names else path.removeprefix("./") for path in paths}
    folders = tuple(path for path in wanted if path.endswith("/"))
    return [row for row in rows if row["path"] in wanted or row["path"].startswith(folders)]


def text(snapshot: Snapshot, path: str | os.PathLike[str]) -> str:
    """The text that was read from a document; InputError where none was, with the reason."""
    return _with_text(snapshot, path)["text"]  # type: ignore[no-any-return]


def lines(snapshot: Snapshot, path: str | os.PathLike[str], first: int, last: int) -> str:
    """What stands on these lines of a document, counted as its citations count them.

    Where the citations' lines are those of the source (HTML, XML) and not of the text, the passages there.
    """
    found = _with_text(snapshot, path)
    chunks = _chunks(snapshot, found, ["char_start", "line_start", "line_end", "text"])
    _check_lines(found, chunks, first, last)
    if all(_counts_lines_of(found["text"], chunk) for chunk in chunks):
        return "\n".join(found["text"].split("\n")[first - 1 : last])
    return "\n\n".join(chunk["text"] for chunk in chunks if chunk["line_start"] <= last and chunk["line_end"] >= first)


def chunk_at(snapshot: Snapshot, path: str | os.PathLike[str], line: int) -> Row:
    """The chunk, with its vector, that stands on a line of a document or nearest to it."""
    found = _with_text(snapshot, path)
    chunks = _chunks(snapshot, found, ["id", "char_start", "line_start", "line_end", "vector", "context"])
    _check_lines(found, chunks, line, line)
    return min(chunks, key=lambda chunk: (max(chunk["line_start"] - line, line - chunk["line_end"], 0), chunk["id"]))


def _with_text(snapshot: Snapshot, path: str | os.PathLike[str]) -> Row:
    found = row(snapshot, path)
    if not found["chunks"]:
        raise InputError(f"{found['path']!r} is in the index without a text ({found['reason'] or 'it is empty'})")
    return found


def _chunks(snapshot: Snapshot, found: Row, columns: list[str]) -> list[Row]:
    """The chunks of a document in order."""
    table = snapshot.read("chunks", columns, f"document = {found['id']}")
    return sorted(table.to_pylist(), key=lambda chunk: chunk["char_start"])


def _counts_lines_of(text: str, chunk: dict[str, Any]) -> bool:
    """Whether a chunk's lines are those of the text, not of a source that the text was taken from."""
    start = 1 + text.count("\n", 0, chunk["char_start"])
    return (start, start + chunk["text"].count("\n")) == (chunk["line_start"], chunk["line_end"])


def _check_lines(found: Row, chunks: list[Row], first: int, last: int) -> None:
    for number in (first, last):
        if isinstance(number, bool) or not isinstance(number, (int, np.integer)):
            raise InputError(f"a line is a whole number from 1, not {number!r}")
    text = found["text"]
    count = max(text.count("\n") + (not text.endswith("\n")), *(chunk["line_end"] for chunk in chunks))
    asked = f"line {first}" if first == last else f"lines {first} to {last}"
    if first > last:
        raise InputError(f"{asked} of {found['path']!r}: the first comes after the last")
    if first < 1 or first > count:
        raise InputError(f"{found['path']!r} has lines 1 to {count}, not {asked}")
