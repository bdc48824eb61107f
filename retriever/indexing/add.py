"""Add documents that are not files: check them and put them into the store."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from ...core.errors import InputError
from ...core.vectors import check_dimension, unit, with_direction
from ...core.words import encodable
from ..documents.document import Document
from ..documents.metadata import is_plain, plain
from ..store.documents import documents_at
from ..store.filters.fields import shown
from .indexer import Indexer
from .report import DocumentError, Failure, Report

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..models.encoder import Encoder
    from ..store.snapshot import Snapshot
    from ..store.writer import Writer

_BATCH_SIZE = 1_000  # documents checked together; the last of several with the same id counts
_FIELDS = ("embedding", "format", "id", "metadata", "text", "title")
_FORMATS = ("text", "markdown")
_METADATA = "a mapping of names to strings, finite numbers up to 1.8e308, booleans, dates or lists of them"

IfExists = Literal["replace", "skip", "fail"]
OnError = Literal["stop", "skip"]


@dataclass(frozen=True, slots=True)
class Addition:
    """A document that a caller adds, checked."""

    number: int  # its position among the caller's documents
    name: str
    sha256: str
    document: Document


@dataclass(frozen=True, slots=True)
class AddPolicy:
    """What to do if the id of a document exists, and if a document cannot be added."""

    if_exists: IfExists = "replace"
    on_error: OnError = "stop"

    def check(self) -> AddPolicy:
        """Return this, if both are known.

        :raises InputError: otherwise.
        """
        for name, value, choices in (("if_exists", self.if_exists, IfExists), ("on_error", self.on_error, OnError)):
            if value not in get_args(choices):
                raise InputError(f"{name} is one of {', '.join(get_args(choices))}, not {value!r}")
        return self


def add(
    writer: Writer, encoder: Encoder, documents: Iterable[Mapping[str, Any]], policy: AddPolicy | None = None
) -> Report:
    """Put documents into the store. A document replaces an earlier one with its id, unless the two are equal.

    :raises InputError: naming the first that cannot be added, and how many were.
    """
    start = time.monotonic()
    report = Report()
    chunks_before = writer.snapshot().chunks.count_rows()
    indexer = Indexer(writer, encoder, report)
    additions = Additions(writer.snapshot(), policy or AddPolicy(), report)
    for batch in _batches(documents):
        additions.put(additions.choose(batch), indexer)
        indexer.commit()
    report.note = writer.finish()
    report.count_chunks(chunks_before, writer.snapshot().chunks.count_rows())
    report.seconds = time.monotonic() - start
    return report


class Additions:
    """Documents to add, compared with the documents of the index.

    :param report: gets their ids, failures and counts.
    """

    def __init__(self, snapshot: Snapshot, policy: AddPolicy, report: Report) -> None:
        self._snapshot = snapshot
        self._encoder = snapshot.head.encoder
        self._policy = policy
        self._report = report
        self._known: dict[str, tuple[int | None, str]] = {}  # id -> row id and SHA-256, None and "" if it is new
        self._files: set[str] = set()

    def choose(self, batch: Sequence[Addition | DocumentError]) -> list[Addition]:
        """Return the documents of a batch that are to be added, each id once."""
        self._look_up([item.name for item in batch if isinstance(item, Addition)])
        additions: dict[str, Addition] = {}
        for item in batch:
            try:
                if isinstance(item, DocumentError):
                    raise item
                is_new = self._known[item.name][0] is None and item.name not in additions
                if self._check(item, is_new=is_new):
                    additions[item.name] = item
                else:
                    self._report.unchanged += 1
                self._report.ids.append(item.name)
            except DocumentError as error:
                if self._policy.on_error == "stop":
                    added = batch[0].number
                    done = f"the first {added:,} were" if added else "none was"
                    raise InputError(f"{error}; {done} added") from None
                self._report.failures.append(Failure(error.number, error.name, str(error)))
        return list(additions.values())

    def _look_up(self, names: Iterable[str]) -> None:
        names = [name for name in dict.fromkeys(names) if name not in self._known]
        rows = documents_at(self._snapshot, names, ["id", "sha256", "chunks"])
        self._known |= dict.fromkeys(names, (None, ""))
        self._known |= {row["path"]: (row["id"], row["sha256"]) for row in rows if row["source"] == "added"}
        self._files |= {row["path"] for row in rows if row["source"] == "file" and row["chunks"]}

    def _check(self, item: Addition, *, is_new: bool) -> bool:
        """Tell whether to add a document.

        :raises DocumentError: when a file has its id, its id must not exist yet, or the index cannot embed it.
        """
        label = f"document {item.number} has id {item.name!r}"
        self._check_embedding(item)
        if item.name in self._files and self._known[item.name][0] is None:
            raise DocumentError(item.number, item.name, f"{label}, which is a file of this index: give it another id")
        if is_new or self._policy.if_exists == "replace":
            return True
        if self._policy.if_exists == "fail":
            raise DocumentError(item.number, item.name, f"{label}, which exists: if_exists='replace' replaces it")
        return False

    def _check_embedding(self, item: Addition) -> None:
        label, embedding = f"document {item.number} ({item.name!r})", item.document.embedding
        if embedding is not None:
            try:
                check_dimension(embedding, self._encoder.dim, f"the embedding of {label}")
            except InputError as error:
                raise DocumentError(item.number, item.name, str(error)) from None
        elif self._encoder.is_none and item.document.parts:
            problem = f"{label} has a text and no 'embedding', which this index needs: it has no encoder"
            raise DocumentError(item.number, item.name, problem)

    def put(self, additions: Iterable[Addition], indexer: Indexer) -> None:
        """Queue documents for the next commit, without unchanged ones."""
        for item in additions:
            number, known_sha256 = self._known[item.name]
            sha256, embedding = item.sha256, item.document.embedding
            if embedding is not None and indexer.keeps_lengths:
                sha256 = _xor(sha256, hashlib.sha256(f"{np.linalg.norm(embedding):.6e}".encode()).hexdigest())
            is_unchanged = known_sha256 == sha256
            state = "skipped" if not _has_passages(item.document) else "unchanged" if is_unchanged else "indexed"
            setattr(self._report, state, getattr(self._report, state) + 1)
            if not is_unchanged:
                row = added_row(item.name, sha256, item.document)
                self._known[item.name] = indexer.add(row, item.document, replaces=number), sha256


def added_row(name: str, sha256: str, document: Document) -> dict[str, Any]:
    """Return the columns of an added document that do not come from the document itself."""
    skipped = {} if _has_passages(document) else {"state": "skipped", "reason": "no text in it"}
    return {"path": name, "source": "added", "sha256": sha256, "size": len(document.text.encode()), **skipped}


def _has_passages(document: Document) -> bool:
    return bool(document.parts) or document.embedding is not None


def _batches(documents: Iterable[Mapping[str, Any]]) -> Iterator[list[Addition | DocumentError]]:
    """Check the documents, a batch at a time."""
    numbered = enumerate(documents)
    while batch := list(islice(numbered, _BATCH_SIZE)):
        yield [check_document(number, document) for number, document in batch]


def check_documents(documents: object) -> None:
    """:raises InputError: when these are no documents, but a text, say, or one document."""
    if not isinstance(documents, Iterable) or isinstance(documents, (str, bytes, Mapping)):
        raise InputError(f"expected documents, each a mapping with 'text', not {shown(documents)}")


def check_document(number: int, record: Mapping[str, Any] | DocumentError) -> Addition | DocumentError:
    """Return a document that a caller adds, or why it cannot be added.

    :param number: its position among the documents, from 0, for messages.
    """
    if isinstance(record, DocumentError):  # a scope has refused it
        return record
    try:
        return _parse(number, record)
    except InputError as error:
        name = record.get("id") if hasattr(record, "keys") else None
        return DocumentError(number, name if isinstance(name, str) else None, str(error))


def _parse(number: int, record: Mapping[str, Any]) -> Addition:
    if not hasattr(record, "keys"):
        raise InputError(f"document {number} is of type {type(record).__name__}: expected a mapping with 'text'")
    name = record.get("id")
    label = f"document {number}" if name is None else f"document {number} ({shown(name)})"
    unknown = set(record).difference(_FIELDS)
    if unknown:
        fields, expected = (", ".join(sorted(map(repr, names))) for names in (unknown, _FIELDS))
        raise InputError(f"{label} has {fields}: expected only {expected}")
    text, title = _text_and_title(label, record)
    metadata = check_metadata(label, record.get("metadata"))
    _check_id(number, name)
    embedding = record.get("embedding")
    if embedding is not None:
        embedding = with_direction(embedding, f"the embedding of {label}")
    document = _read(label, record.get("format", "text"), text, title)
    document = replace(document, metadata=metadata, embedding=embedding)
    sha256 = sha256_of(text, document.title, metadata)
    if embedding is not None:
        sha256 = _xor(sha256, hashlib.sha256(np.ascontiguousarray(unit(embedding), "<f4").tobytes()).hexdigest())
    if document.format != "text":
        sha256 = _xor(sha256, hashlib.sha256(document.format.encode()).hexdigest())
    return Addition(number, name or sha256[:16], sha256, document)


def _read(label: str, format_name: Any, text: str, title: str) -> Document:
    """Split a text into its parts.

    :param title: "" for the first heading of Markdown.
    """
    if format_name not in _FORMATS:
        raise InputError(f"{label} has format {format_name!r:.80}: expected one of {', '.join(map(repr, _FORMATS))}")
    if format_name == "text":
        return Document.from_text(text, title=title)
    from ..readers.markup.markdown import parse_markdown  # a search needs no reader

    document = parse_markdown(text, format_name)
    return replace(document, title=title or document.title)


def sha256_of(text: str, title: str, metadata: Mapping[str, Any]) -> str:
    """Hash an added document. The hashes of an embedding and of a format come to it by exclusive or."""
    return hashlib.sha256(f"{text}\0{title}\0{sorted(metadata.items())}".encode()).hexdigest()


def with_metadata(sha256: str, text: str, title: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return the hash of a document after a change of its metadata. The rest of its content is unchanged."""
    if not re.fullmatch("[0-9a-f]{64}", sha256):
        return sha256_of(text, title, after)
    return _xor(_xor(sha256, sha256_of(text, title, before)), sha256_of(text, title, after))


def _xor(first: str, second: str) -> str:
    return f"{int(first, 16) ^ int(second, 16):064x}"


def _text_and_title(label: str, record: Mapping[str, Any]) -> tuple[str, str]:
    text, title = record.get("text"), record.get("title") or ""
    if text is None and (record.get("embedding") is not None or record.get("metadata")):
        text = ""
    if not isinstance(text, str) or not isinstance(title, str):
        raise InputError(f"{label} has no text: expected strings as 'text' and 'title', or an 'embedding'")
    return encodable(text).replace("\r\n", "\n"), encodable(title)


def check_metadata(label: str, metadata: Any) -> dict[str, Any]:
    """Return metadata as they are stored.

    :param label: names the document in messages.
    :raises InputError: when they cannot be stored.
    """
    metadata = metadata or {}
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


def _check_id(number: int, name: object) -> None:
    if name is None:
        return
    if not isinstance(name, str) or not name:
        raise InputError(f"document {number} has id {shown(name)}: expected a string that is not empty")
    if encodable(name) != name:
        raise InputError(f"document {number} has id {name!r}: expected a string without halves of surrogate pairs")
