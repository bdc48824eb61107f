"""Compare the documents of an index with the documents of today: texts, keys, lines, pages and hidden text."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from ...core.errors import DamagedError, InputError
from ..documents.document import HIDDEN, Document, LineCounter, context_of, metadata_of
from ..documents.scan import file_below
from ..indexing.indexer import key_of, own_key
from ..indexing.sync.picture_rows import languages_of
from ..indexing.sync.reader_versions import is_outdated
from ..readers.ocr import choose_languages
from .fault import CHANGED, UNREADABLE, Fault

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ..readers.pool.reading import Reading
    from ..store.snapshot import Snapshot

_BATCH_SIZE = 500  # documents read together with their chunks


def document_faults(snapshot: Snapshot, root: Path | None, rows: list[dict[str, Any]]) -> Iterator[Fault]:
    """Compare every indexed file, read anew, and every added document with its row and its chunks.

    :param root: the indexed folder, None when only documents were added.
    :param rows: of all documents.
    """
    if root is not None:
        yield from _file_faults(snapshot, root, [row for row in rows if row["source"] == "file"])
    added = [row for row in rows if row["source"] == "added"]
    for row, chunks, text in _with_chunks(snapshot, added):
        yield from _chunk_faults(row, chunks, text, Document.from_text(text))


def _file_faults(snapshot: Snapshot, root: Path, rows: list[dict[str, Any]]) -> Iterator[Fault]:
    indexed = sorted((row for row in rows if row["state"] == "indexed"), key=lambda row: row["path"])
    files = {row["id"]: file_below(root, row["path"]) for row in indexed}
    for row in indexed:
        if files[row["id"]] is None:
            yield Fault("document", row["path"], f"does not lie in {root}, or lies behind a symbolic link")
    by_languages: dict[str, list[dict[str, Any]]] = {}  # of the pictures; "" without OCR
    for row in indexed:
        if files[row["id"]]:
            by_languages.setdefault(languages_of(row), []).append(row)
    for languages, documents in by_languages.items():
        if lack := _lack_of(languages):
            yield from (Fault("document", row["path"], f"{UNREADABLE}: {lack}") for row in documents)
        else:
            paths = [path for row in documents if (path := files[row["id"]])]
            yield from _reading_faults(snapshot, documents, paths, languages)


def _lack_of(languages: str) -> str:
    """The reason why pictures cannot be read in these languages here; "" if they can."""
    try:
        if languages:
            choose_languages(languages)
    except InputError as error:
        return str(error)
    return ""


def _reading_faults(
    snapshot: Snapshot, rows: list[dict[str, Any]], files: list[Path], languages: str
) -> Iterator[Fault]:
    """Read files again, and compare them with their rows.

    :param languages: to read pictures in; "" to read none.
    """
    from ..readers.pool.pool import ReaderPool

    with ReaderPool(ocr=languages) as pool:
        readings = pool.read_all(files)
        for row, chunks, text in _with_chunks(snapshot, rows):
            reading = next(readings)
            document, problem = reading.document, _changed(row, reading)
            if problem:
                yield Fault("document", row["path"], problem)
            elif is_outdated(row):
                yield from _chunk_faults(row, chunks, text)
            elif document is not None:
                problem = _differing(row, text, document)
                if problem:
                    yield Fault("document", row["path"], problem)
                yield from _chunk_faults(row, chunks, document.text, document)


def _differing(row: dict[str, Any], text: str, document: Document) -> str:
    """How the stored text of a document differs from the text of its file; "" if it does not."""
    if text != document.text:
        return "is stored with another text than it has"
    if concealed_in(row) != document.metadata.get(HIDDEN):
        return "is stored without the places of its hidden text"
    return ""


def concealed_in(row: dict[str, Any]) -> Any:
    """Return the hidden text of a document row, for `hidden_spans`; None if its metadata are damaged."""
    with contextlib.suppress(DamagedError):  # another check reports it
        return metadata_of(row).get(HIDDEN)
    return None


def _with_chunks(
    snapshot: Snapshot, rows: list[dict[str, Any]]
) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]], str]]:
    """Each document row with its chunks in order and its stored text; documents are read in batches."""
    columns = [
        "id",
        "document",
        "key",
        "char_start",
        "char_end",
        "line_start",
        "line_end",
        "page",
        "heading",
        "text",
        "context",
    ]
    for start in range(0, len(rows), _BATCH_SIZE):
        batch = rows[start : start + _BATCH_SIZE]
        numbers = ",".join(str(row["id"]) for row in batch)
        chunks: dict[int, list[dict[str, Any]]] = {row["id"]: [] for row in batch}
        for chunk in snapshot.read("chunks", columns, f"document IN ({numbers})").to_pylist():
            chunks[chunk["document"]].append(chunk)
        texts = snapshot.documents_by_id([row["id"] for row in batch], ["text"])
        for row in batch:
            ordered = sorted(chunks[row["id"]], key=lambda chunk: chunk["char_start"])
            yield row, ordered, texts[row["id"]]["text"]


def _changed(row: dict[str, Any], reading: Reading) -> str:
    if reading.sha256 and reading.sha256 != row["sha256"]:
        return CHANGED
    if reading.document is None:
        return f"{UNREADABLE}: {reading.reason}"
    return ""


def _chunk_faults(
    row: dict[str, Any], chunks: list[dict[str, Any]], text: str, document: Document | None = None
) -> Iterator[Fault]:
    """Compare each chunk with the text of its document, and its lines and page with the document, if it is known."""
    lines = LineCounter(document) if document else None
    for chunk in chunks:
        label = f"passage {chunk['id']} (characters {chunk['char_start']} to {chunk['char_end']})"
        context = context_of(chunk["heading"], chunk["text"])
        if text[chunk["char_start"] : chunk["char_end"]] != chunk["text"]:
            yield Fault("passage", row["path"], f"{label} differs from the text of the document there")
        elif context != chunk["context"] or chunk["key"] not in (key_of(context), own_key(row["path"], context)):
            yield Fault("passage", row["path"], f"{label} differs from the text that was embedded")
        elif (
            document
            and lines
            and (chunk["line_start"], chunk["line_end"], chunk["page"])
            != (
                lines.at(chunk["char_start"]),
                lines.at(max(chunk["char_start"], chunk["char_end"] - 1)),
                document.page_at(chunk["char_start"]),
            )
        ):
            yield Fault("passage", row["path"], f"{label} is not on the lines or the page that it cites")
