"""Documents that are not files: what a caller may add, checked, and put into the store."""

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

_BATCH = 1_000  # documents looked at together, of which the last of each id counts
_FIELDS = {"id", "text", "title", "metadata"}


def add(writer: Writer, encoder: Encoder, documents: Iterable[Mapping[str, Any]]) -> Report:
    """Put documents into the store in place of those of the same id; one that is there as it is stays.

    :raises InputError: naming the first that cannot be added, and how many were.
    """
    began = time.monotonic()
    report = Report()
    snapshot = writer.snapshot()
    rows = snapshot.document_rows.to_pylist()
    known = {row["path"]: (row["id"], row["sha256"]) for row in rows if row["source"] == "added"}
    files = {row["path"] for row in rows if row["source"] == "file" and row["chunks"]}.difference(known)
    before = snapshot.chunks.count_rows()
    indexer = Indexer(writer, encoder, report)
    for some in _batches(documents, files):
        for name, (sha256, document) in {name: (sha, document) for name, sha, document in some}.items():
            number, held = known.get(name, (None, ""))
            became = "skipped" if not document.parts else "unchanged" if held == sha256 else "indexed"
            setattr(report, became, getattr(report, became) + 1)
            if held != sha256:
                known[name] = indexer.add(_row(name, sha256, document), document, replaces=number), sha256
        indexer.commit()
    report.note = writer.finish()
    report.count_chunks(before, writer.snapshot().chunks.count_rows())
    report.seconds = time.monotonic() - began
    return report


def _row(name: str, sha256: str, document: Document) -> dict[str, Any]:
    skipped = {} if document.parts else {"state": "skipped", "reason": "no text in it"}
    return {"path": name, "source": "added", "sha256": sha256, "size": len(document.text.encode()), **skipped}


def _batches(
    documents: Iterable[Mapping[str, Any]], files: Container[str]
) -> Iterator[list[tuple[str, str, Document]]]:
    """What `parse_document` gives of documents, some at a time."""
    given = enumerate(documents)
    while some := list(islice(given, _BATCH)):
        try:
            yield [parse_document(number, document, files) for number, document in some]
        except InputError as error:
            before = some[0][0]
            raise InputError(f"{error}; {f'the first {before:,} were' if before else 'none was'} added") from None


def parse_document(number: int, given: Mapping[str, Any], files: Container[str] = ()) -> tuple[str, str, Document]:
    """Id, sha256 and document of one that a caller adds.

    :param files: what no id may be.
    :raises InputError: naming the document by its number and id, and what is wrong with it.
    """
    if not hasattr(given, "keys"):
        raise InputError(f"document {number} is of type {type(given).__name__}: expected a mapping with 'text'")
    name = given.get("id")
    which = f"document {number}" if name is None else f"document {number} ({name!r})"
    unknown = set(given) - _FIELDS
    if unknown:
        given_too, expected = (", ".join(sorted(map(repr, names))) for names in (unknown, _FIELDS))
        raise InputError(f"{which} has {given_too}: expected only {expected}")
    text, title, metadata = given.get("text"), given.get("title") or "", given.get("metadata") or {}
    if not isinstance(text, str) or not isinstance(title, str):
        raise InputError(f"{which} has no text: expected a mapping whose 'text' and 'title' are strings")
    if isinstance(metadata, Mapping):
        metadata = {key: plain(value) for key, value in metadata.items() if value is not None}
    expected = "expected a mapping of names to strings, finite numbers up to 1.8e308, booleans, dates or lists of them"
    if not isinstance(metadata, dict):
        raise InputError(f"{which} has metadata of type {type(metadata).__name__}: {expected}")
    for key, value in metadata.items():
        members = value if isinstance(value, list) else [value]
        if not isinstance(key, str) or not all(is_plain(member) for member in members):
            raise InputError(
                f"{which} has metadata {key!r} of type {type(value).__name__} that cannot be kept: {expected}"
            )
    text, title = _whole(text).replace("\r\n", "\n"), _whole(title)
    metadata = {_whole(key): _whole_value(value) for key, value in metadata.items()}
    document = Document.from_text(text, title=title, metadata=metadata)
    sha256 = hashlib.sha256(f"{text}\0{title}\0{sorted(metadata.items())}".encode()).hexdigest()
    if name is not None and (not isinstance(name, str) or not name):
        raise InputError(f"document {number} has id {name!r}: expected a string that is not empty")
    if name is not None and _whole(name) != name:
        raise InputError(f"document {number} has id {name!r}: expected a string without halves of surrogate pairs")
    if name in files:
        raise InputError(f"document {number} has id {name!r}, which is a file of this index: give it another id")
    return name or sha256[:16], sha256, document


def _whole(text: str) -> str:
    """The text without halves of surrogate pairs, which no file can hold."""
    return encodable(text)


def _whole_value(value: Any) -> Any:
    if isinstance(value, list):
        return [_whole_value(member) for member in value]
    return _whole(value) if isinstance(value, str) else value
