"""Look up documents of a snapshot by path: their rows, their texts, the lines of a citation, a passage's vector."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core.errors import InputError, NotFoundError
from ...core.terms import query_stems
from ...core.words import composed
from ..documents.document import concealed_of, hidden_spans, metadata_of, take_internal, visible_text
from ..documents.file_parts import file_of
from . import tombstones
from .filters.where import parse
from .tables import beginning_with

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...core.arrays import Floats
    from .filters.filter import Filter
    from .filters.where import Where
    from .snapshot import Snapshot

    Row = dict[str, Any]


def rows(snapshot: Snapshot) -> list[Row]:
    """Return all documents in order of path: the documents table without the texts."""
    return sorted(snapshot.document_rows.to_pylist(), key=lambda row: (row["path"], row["source"]))


def ids_passing(snapshot: Snapshot, where: Where) -> set[int]:
    """Return the row ids of the documents that pass a filter, of all if it has no conditions."""
    conditions, ids = parse(where), snapshot.document_rows["id"].to_numpy()
    return set((ids if conditions is None else ids[snapshot.select(conditions)]).tolist())


def with_name(snapshot: Snapshot, query: str, where: Where = None) -> list[Row]:
    """Return the documents that have all words of a query in their paths, one at least in the name itself.

    Words are compared by their stems. The documents with the fewest other words come first.
    """
    words, passing = set(query_stems(query)), ids_passing(snapshot, where)
    named = []
    for row in snapshot.document_rows.select(["id", "path", "source"]).to_pylist():
        name = row["path"].rstrip("/").rsplit("/", 1)[-1]
        if row["id"] not in passing or words.isdisjoint(query_stems(name)):
            continue  # as most documents
        own = set(query_stems(row["path"]))
        if words <= own:
            named.append((len(own), row["path"], row))
    return [row for *_, row in sorted(named, key=lambda entry: entry[:2])]


def readable(row: Row) -> Row:
    """Return a row with its metadata as a mapping, without the index's own keys."""
    metadata = metadata_of(row)
    if row["source"] == "file":
        take_internal(metadata)
    return row | {"metadata": metadata}


def row(snapshot: Snapshot, path: str | os.PathLike[str]) -> Row:
    """Return one document with its text; if a file and an added document share a name, the file if it has text."""
    path = os.fspath(path)
    candidates = _rows_at(snapshot, path).to_pylist()
    if not candidates and snapshot.is_forgotten(path):
        raise NotFoundError(f"{path!r} was forgotten on request: 'binocle index --retry' reads it again")
    if not candidates:
        names = snapshot.document_rows["path"].to_pylist()
        part = min((name for name in names if file_of(name) == path), default="")
        hint = f"is in the index in parts; the first is {part!r}" if part else "is not in the index"
        raise NotFoundError(f"{path!r} {hint}: 'binocle files' lists its files")
    best = min(candidates, key=lambda row: (not row["chunks"], row["source"] == "added"))
    return snapshot.documents_by_id([best["id"]], [*best, "text"])[best["id"]]


def _rows_at(snapshot: Snapshot, path: str) -> pa.Table:
    """Return the rows with this path; if there are none, the one file with this path in another Unicode form."""
    rows = snapshot.document_rows
    exact = rows.filter(pc.equal(rows["path"].cast(pa.binary()), path.encode("utf-8", "surrogatepass")))
    if exact.num_rows or path.isascii():
        return exact
    names = zip(rows["path"].to_pylist(), rows["source"].to_pylist(), strict=True)
    same = rows.filter(pa.array([source == "file" and composed(name) == composed(path) for name, source in names]))
    return same if same.num_rows == 1 else exact


def named(snapshot: Snapshot, ids: Sequence[str], folders: Sequence[str] = ()) -> list[Row]:
    """Return the documents with these ids, or paths, and all below these folders; of a large file all its parts.

    A leading "./" of a path is ignored.
    """
    exact = {row["path"] for row in documents_at(snapshot, ids, [])}
    ids = list(dict.fromkeys(path if path in exact else path.removeprefix("./") for path in ids))
    prefixes = [f"{folder.removeprefix('./').rstrip('/')}/" for folder in folders]
    return documents_at(snapshot, ids, ["id"], prefixes, parts=True)


def documents_at(
    snapshot: Snapshot,
    paths: Sequence[str],
    columns: Sequence[str],
    prefixes: Sequence[str] = (),
    *,
    parts: bool = False,
) -> list[Row]:
    """Return these columns of the documents with these paths or prefixes of them.

    :param parts: also of the parts of large files with these paths.
    """
    names, requested = list(dict.fromkeys(["path", "source", *columns])), set(paths)
    rows = [
        row
        for row in snapshot.rows_at(paths, names)
        if row["path"] in requested or (parts and file_of(row["path"]) in requested)
    ]
    if prefixes:
        rows += snapshot.read("documents", names, beginning_with("path", prefixes)).to_pylist()
    return [row for row in rows if row["source"] != tombstones.SOURCE]


def passing(snapshot: Snapshot, where: Filter) -> list[Row]:
    """Return the documents that pass a filter."""
    return snapshot.document_rows.filter(pa.array(snapshot.select(where))).to_pylist()  # type: ignore[no-any-return]


def text(snapshot: Snapshot, path: str | os.PathLike[str], *, hidden: bool = True) -> str:
    """Return the text that was read from a document.

    :param hidden: with text that a person does not see in the document.
    :raises InputError: when it has no text, with the reason.
    """
    document = _with_text(snapshot, path)
    return document["text"] if hidden else _visible(document, document["text"], 0)


def lines(snapshot: Snapshot, path: str | os.PathLike[str], first: int, last: int, *, hidden: bool = True) -> str:
    """Return these lines of a document, counted as its citations count them.

    If citations count the lines of the source (HTML, XML) and not of the text, return the passages there. Lines of a
    large file may lie in several of its parts.

    :param hidden: with text that a person does not see in the document.
    """
    pieces: list[str] = []
    previous = 0  # the last line of the part before
    parts = _parts_from(snapshot, path, first)
    for part in parts:
        document = _with_text(snapshot, part)
        chunks = _chunks(snapshot, document, ["char_start", "line_start", "line_end", "text"])
        start, end = _line_range(document, chunks)
        if not pieces:
            _check_lines(document, chunks, first, last)
        elif start > last:
            break
        else:
            pieces.append("\n" * (start - previous))  # none within a line that was cut
        to = last if part == parts[-1] else min(last, end)
        pieces.append(_lines_in(document, chunks, first, to, hidden=hidden))
        if last < end or (last == end and document["text"].endswith("\n")):
            break
        previous = end
    return "".join(pieces)


def _lines_in(document: Row, chunks: list[Row], first: int, last: int, *, hidden: bool) -> str:
    """Return these lines, or the passages there, of a document that is whole or a part of a file."""
    before = _lines_before(document, chunks[0])
    if all(_counts_lines_of(document["text"], chunk, before) for chunk in chunks):
        rows = document["text"].split("\n")
        skipped = max(first - 1 - before, 0)
        pieces = [(sum(len(row) + 1 for row in rows[:skipped]), "\n".join(rows[skipped : last - before]))]
    else:
        inside = (chunk for chunk in chunks if chunk["line_start"] <= last and chunk["line_end"] >= first)
        pieces = [(chunk["char_start"], chunk["text"]) for chunk in inside]
    return "\n\n".join(piece if hidden else _visible(document, piece, start) for start, piece in pieces)


def _visible(document: Row, piece: str, start: int) -> str:
    """Return the visible part of a piece of a document's text.

    :param start: its position in the text.
    """
    return visible_text(piece, start, hidden_spans(concealed_of(document), start, piece))


def line_range(snapshot: Snapshot, path: str | os.PathLike[str]) -> tuple[int, int]:
    """Return the first and the last line of a document, or of a part of one, counted as its citations count them."""
    document = _with_text(snapshot, path)
    return _line_range(document, _chunks(snapshot, document, ["char_start", "line_start", "line_end"]))


def chunk_at(snapshot: Snapshot, path: str | os.PathLike[str], line: int) -> Row:
    """Return the chunk, with its vector, at a line of a document or nearest to it."""
    document = _with_text(snapshot, _parts_from(snapshot, path, line)[0])
    chunks = _chunks(snapshot, document, ["id", "char_start", "line_start", "line_end", "vector", "context"])
    _check_lines(document, chunks, line, line)
    return min(chunks, key=lambda chunk: (max(chunk["line_start"] - line, line - chunk["line_end"], 0), chunk["id"]))


def stored_vector(snapshot: Snapshot, path: str | os.PathLike[str], line: int) -> tuple[Floats, str]:
    """Return the vector (dim,) of the passage at a line of a document, and the text that was embedded."""
    chunk = chunk_at(snapshot, path, line)
    return np.array(chunk["vector"], np.float32), chunk["context"]


def _parts_from(snapshot: Snapshot, path: str | os.PathLike[str], line: int) -> list[str]:
    """Return the paths of the parts of a large file, from the one with this line on; of another document its path."""
    path = os.fspath(path)
    if _rows_at(snapshot, path).num_rows:
        return [path]
    rows = snapshot.document_rows.select(["id", "path", "chunks"]).to_pylist()
    parts: dict[int, str] = {row["id"]: row["path"] for row in rows if row["chunks"] and file_of(row["path"]) == path}
    if not parts:
        return [path]
    ids = ",".join(map(str, parts))
    chunks = snapshot.read("chunks", ["document", "line_start"], f"document IN ({ids})")
    starts = chunks.group_by("document").aggregate([("line_start", "min")]).sort_by("line_start_min").to_pylist()
    paths = [parts[row["document"]] for row in starts]
    first = max(sum(row["line_start_min"] < line for row in starts), 1) - 1  # or a later one, behind blank lines
    while first < len(paths) - 1 and line > line_range(snapshot, paths[first])[1]:
        first += 1
    return paths[first:]


def _with_text(snapshot: Snapshot, path: str | os.PathLike[str]) -> Row:
    document = row(snapshot, path)
    if not document["chunks"]:
        raise InputError(f"{document['path']!r} is in the index without a text ({document['reason'] or 'it is empty'})")
    return document


def _chunks(snapshot: Snapshot, document: Row, columns: list[str]) -> list[Row]:
    """Return the chunks of a document in order."""
    table = snapshot.read("chunks", columns, f"document = {document['id']}")
    return sorted(table.to_pylist(), key=lambda chunk: chunk["char_start"])


def _lines_before(document: Row, first: Row) -> int:
    """Return the number of lines of a large file before one of its parts; 0 for a document that is whole."""
    is_part = file_of(document["path"]) != document["path"]
    return first["line_start"] - 1 - document["text"].count("\n", 0, first["char_start"]) if is_part else 0


def _counts_lines_of(text: str, chunk: dict[str, Any], before: int) -> bool:
    """Tell whether a chunk counts the lines of the text, not of the source that the text was extracted from."""
    start = 1 + before + text.count("\n", 0, chunk["char_start"])
    return (start, start + chunk["text"].count("\n")) == (chunk["line_start"], chunk["line_end"])


def _check_lines(document: Row, chunks: list[Row], first: int, last: int) -> None:
    for number in (first, last):
        if isinstance(number, bool) or not isinstance(number, (int, np.integer)):
            raise InputError(f"a line is a whole number from 1, not {number!r}")
    start, end = _line_range(document, chunks)
    requested = f"line {first}" if first == last else f"lines {first} to {last}"
    if first > last:
        raise InputError(f"{requested} of {document['path']!r}: the first comes after the last")
    if not start <= first <= end:
        raise InputError(f"{document['path']!r} has lines {start} to {end}, not {requested}")


def _line_range(document: Row, chunks: list[Row]) -> tuple[int, int]:
    text, before = document["text"], _lines_before(document, chunks[0])
    end = max(before + text.count("\n") + (not text.endswith("\n")), *(chunk["line_end"] for chunk in chunks))
    return before + 1, end
