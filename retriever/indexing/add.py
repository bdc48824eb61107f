"""Add documents that are not files: check them and put them into the store."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from ...core.errors import InputError
from ...core.words import encodable
from ..documents.document import Document
from ..documents.metadata import is_plain, plain
from .indexer import Indexer
from .report import Report

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

    from ..models.encoder import Encoder
    from ..store.writer import Writer

_BATCH_SIZE = 1_000  # documents checked together; of several with the same id the last counts
_FIELDS = ("id", "metadata", "text", "title")
_METADATA = "a mapping of names to strings, finite numbers up to 1.8e308, booleans, dates or lists of them"


def add(writer: Writer, encoder: Encoder, documents: Iterable[Mapping[str, Any]]) -> Report:
    """Put documents into the store; one replaces an earlier one of the same id, unless that is equal.

    :raises InputError: naming the first that cannot be added, and how many were.
    """
    start = time.monotonic()
    report = Report()
    snapshot = writer.snapshot()
    rows = snapshot.document_rows.to_pylist()
    known = {row["path"]: (row["id"], row["sha256"]) for row in rows if row["source"] == "added"}
    files = {row["path"] for row in rows if row["source"] == "file" and row["chunks"]}.difference(known)
    chunks_before = snapshot.chunks.count_rows()
    indexer = Indexer(writer, encoder, report)
    for batch in _batches(documents, files):
        for name, (sha256, document) in {name: (sha256, document) for name, sha256, document in batch}.items():
            number, known_sha256 = known.get(name, (None, ""))
            is_unchanged = known_sha256 == sha256
            state = "skipped" if not document.parts else "unchanged" if is_unchanged else "indexed"
            setattr(report, state, getattr(report, state) + 1)
            if not is_unchanged:
                known[name] = indexer.add(_row(name, sha256, document), document, replaces=number), sha256
        indexer.commit()
    report.note = writer.finish()
    report.count_chunks(chunks_before, writer.snapshot().chunks.count_rows())
    report.seconds = time.monotonic() - start
    return report


def _row(name: str, sha256: str, document: Document) -> dict[str, Any]:
    skipped = {} if document.parts else {"state": "skipped", "reason": "no text in it"}
    return {"path": name, "source": "added", "sha256": sha256, "size": len(document.text.encode()), **skipped}


def _batches(
    documents: Iterable[Mapping[str, Any]], files: Container[str]
) -> Iterator[list[tuple[str, str, Document]]]:
    """Parse the documents, a batch at a time."""
    numbered = enumerate(documents)
    while batch := list(islice(numbered, _BATCH_SIZE)):
        try:
            yield [parse_document(number, document, files) for number, document in batch]
        except InputError as error:
            added = batch[0][0]
            raise InputError(f"{error}; {f'the first {added:,} were' if added else 'none was'} added") from None


def parse_document(number: int, record: Mapping[str, Any], files: Container[str] = ()) -> tuple[str, str, Document]:
    """Parse a document that a caller adds: its id, its SHA-256, and the document.

    :param number: its position among the documents, from 0, for messages.
    :param files: the paths of indexed files, which no id may have.
    :raises InputError: naming the document by its number and id, and its fault.
    """
    if not hasattr(record, "keys"):
        raise InputError(f"document {number} is of type {type(record).__name__}: expected a mapping with 'text'")
    name = record.get("id")
    label = f"document {number}" if name is None else f"document {number} ({name!r})"
    unknown = set(record).difference(_FIELDS)
    if unknown:
        fields, expected = (", ".join(sorted(map(repr, names))) for names in (unknown, _FIELDS))
        raise InputError(f"{label} has {fields}: expected only {expected}")
    text, title = _text_and_title(label, record)
    metadata = _metadata(label, record)
    _check_id(number, name, files)
    sha256 = hashlib.sha256(f"{text}\0{title}\0{sorted(metadata.items())}".encode()).hexdigest()
    return name or sha256[:16], sha256, Document.from_text(text, title=title, metadata=metadata)


def _text_and_title(label: str, record: Mapping[str, Any]) -> tuple[str, str]:
    text, title = record.get("text"), record.get("title") or ""
    if not isinstance(text, str) or not isinstance(title, str):
        raise InputError(f"{label} has no text: expected a mapping whose 'text' and 'title' are strings")
    return encodable(text).replace("\r\n", "\n"), encodable(title)


def _metadata(label: str, record: Mapping[str, Any]) -> dict[str, Any]:
    metadata = record.get("metadata") or {}
    if not isinstance(metadata, Mapping):
        raise InputError(f"{label} has metadata of type {type(metadata).__name__}: expected {_METADATA}")
    values = {key: plain(value) for key, value in metadata.items() if value is not None}
    for key, value in values.items():
        members = value if isinstance(value, list) else [value]
        if not isinstance(key, str) or not all(is_plain(member) for member in members):
            kind = type(value).__name__
            raise InputError(f"{label} has metadata {key!r} of type {kind} that cannot be kept: expected {_METADATA}")
    return {encodable(key): _encodable_value(value) for key, value in values.items()}


def _encodable_value(value: Any) -> Any:
    if isinstance(value, list):
        return [_encodable_value(member) for member in value]
    return encodable(value) if isinstance(value, str) else value


def _check_id(number: int, name: Any, files: Container[str]) -> None:
    if name is None:
        return
    if not isinstance(name, str) or not name:
        raise InputError(f"document {number} has id {name!r}: expected a string that is not empty")
    if encodable(name) != name:
        raise InputError(f"document {number} has id {name!r}: expected a string without halves of surrogate pairs")
    if name in files:
        raise InputError(f"document {number} has id {name!r}, which is a file of this index: give it another id")
