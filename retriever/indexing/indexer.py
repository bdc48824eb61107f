"""Chunk, embed and commit documents, a batch at a time. A text that the store has is not embedded again."""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from ...core.arrays import Keys
from ...core.errors import EncoderMismatchError
from ...core.vectors import unit
from ..documents.chunker import Chunk, chunk, whole
from ..models.encoder import encode_finite
from ..store.derived.fragment_columns import among
from ..store.tables import PREVIOUS, SYMBOLS, chunk_schema, document_schema, matrix

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ...core.arrays import Floats, Ids
    from ..documents.document import Document
    from ..models.encoder import Encoder
    from ..store.head import Head
    from ..store.snapshot import Snapshot
    from .report import Report

    Row = dict[str, Any]

_BATCH_CHUNKS = 256  # embedded and committed at a time: a second or two of work
_BATCH_FILES = 1_000
_FEW_KEYS = 64
_TOLERANCE = 0.02  # of a length of 1: vectors in bf16 have .996 to 1.004


@dataclass(frozen=True, slots=True)
class _Passage:
    """A passage that waits to be staged."""

    document: int
    chunk: Chunk
    context: str
    key: int
    vector: Floats | None = None  # from the caller, with the document; None: from the encoder

    def row(self, number: int) -> Row:
        """Return the row of the chunks table with this id, without vectors."""
        return {
            "id": number,
            "document": self.document,
            "key": self.key,
            "char_start": self.chunk.start,
            "char_end": self.chunk.end,
            "line_start": self.chunk.line_start,
            "line_end": self.chunk.line_end,
            "page": self.chunk.page,
            "heading": list(self.chunk.heading),
            "text": self.chunk.text,
            "context": self.context,
            SYMBOLS: list(self.chunk.symbols) or None,
        }


@dataclass(slots=True)
class _Batch:
    """Documents to commit together, and their chunks, except staged ones."""

    rows: list[Row] = field(default_factory=list)
    drop: list[int] = field(default_factory=list)
    waiting: list[_Passage] = field(default_factory=list)


class RowWriter(Protocol):
    """The methods of a writer that an indexer calls: `Writer` has them, and a cluster's worker, which never commits."""

    @property
    def head(self) -> Head:
        """The committed state, with the next ids."""

    def snapshot(self) -> Snapshot:
        """The rows committed so far."""

    def stage(self, chunks: pa.Table) -> None:
        """Write chunks for the next commit."""

    def staged(self, columns: list[str], keys: Sequence[int]) -> pa.Table:
        """Read the chunks with these keys, committed or staged."""

    def commit(self, *, drop: Sequence[int], documents: pa.Table) -> None:
        """Commit the staged chunks and these documents, and remove the documents with the ids in `drop`."""


class Indexer:
    """Chunks, embeds and commits documents through one writer."""

    def __init__(self, writer: RowWriter, encoder: Encoder, report: Report, *, commits: bool = True) -> None:
        """:param commits: commit full batches; else documents stay until `take`, and only their chunks are staged."""
        self._writer = writer
        self._commits = commits
        self._encoder = encoder
        self._report = report
        self._batch = _Batch()
        if encoder.fingerprint != writer.head.encoder.fingerprint:
            raise EncoderMismatchError(f"{encoder.name} cannot add to an index of {writer.head.encoder.model}")
        self._passage_tokens = writer.head.encoder.passage_tokens or encoder.max_tokens
        self._has_previous = writer.head.previous is not None
        self._next_document = writer.head.next_document
        self._next_chunk = writer.head.next_chunk
        self._keys: Keys | None = None  # of the chunks in the store; None until there are many to look up
        self._new_keys: list[int] = []
        self.chunks = 0  # embedded or reused so far

    @functools.cached_property
    def keeps_lengths(self) -> bool:
        """Whether the vectors of the encoder have other lengths than 1: it is trained for dot products."""
        if self._writer.head.encoder.is_none:
            return False
        length = np.linalg.norm(encode_finite(self._encoder, ["The length of a vector"]))
        return bool(abs(length - 1) > _TOLERANCE)

    def number_from(self, document: int, chunk: int) -> None:
        """Give the next document and the next chunk these ids."""
        self._next_document, self._next_chunk = document, chunk

    @property
    def next_ids(self) -> tuple[int, int]:
        """The ids of the next document and the next chunk."""
        return self._next_document, self._next_chunk

    def add(
        self,
        row: Row,
        document: Document | None,
        *,
        replaces: int | None = None,
        on_staged: Callable[[float], None] | None = None,
    ) -> int:
        """Queue a document; a batch is committed when it is full. Returns the document's id.

        :param row: columns of the documents table; `id`, `chunks` and the columns of the document are filled in.
        :param replaces: the id of the row that this one replaces.
        :param on_staged: gets the share of the document's passages that is staged, when a part of many is.
        """
        batch = self._batch
        number = self._next_document
        self._next_document += 1
        passages = list(self._passages(number, row["path"], document)) if document else []
        batch.rows.append({**_EMPTY_ROW, **row, **_document_columns(document), "id": number, "chunks": len(passages)})
        if replaces is not None:
            batch.drop.append(replaces)
        for remaining, passage in zip(range(len(passages), 0, -1), passages, strict=True):
            if len(batch.waiting) >= _BATCH_CHUNKS and remaining > _BATCH_CHUNKS:  # so that no small batch remains
                self._stage()
                if on_staged:
                    on_staged(1 - remaining / len(passages))
            batch.waiting.append(passage)
        if not self._commits:
            if len(batch.waiting) >= _BATCH_CHUNKS:
                self._stage()
        elif len(batch.waiting) >= _BATCH_CHUNKS or len(batch.rows) >= _BATCH_FILES:
            self.commit()
        return number

    def _passages(self, number: int, name: str, document: Document) -> Iterator[_Passage]:
        if document.embedding is not None:
            piece = whole(document)
            vector = document.embedding.astype(np.float32) if self.keeps_lengths else unit(document.embedding)
            yield _Passage(number, piece, piece.context, own_key(name, piece.context), vector)
            return
        for piece in chunk(document, self._encoder.offsets, self._passage_tokens):
            yield _Passage(number, piece, piece.context, key_of(piece.context))

    def drop(self, ids: Sequence[int]) -> None:
        """Remove documents with the next commit."""
        self._batch.drop.extend(ids)

    def commit(self, *, drop: Sequence[int] = ()) -> None:
        """Commit the queued documents, and remove the documents with the ids in `drop`."""
        documents, replaced = self.take()
        if len(documents) or replaced or drop:
            self._writer.commit(drop=[*replaced, *drop], documents=documents)

    def take(self) -> tuple[pa.Table, list[int]]:
        """Stage the queued chunks; return the rows of their documents, and the ids of documents to replace."""
        self._stage()
        batch, self._batch = self._batch, _Batch()
        return pa.Table.from_pylist(batch.rows, document_schema()), batch.drop

    def _stage(self) -> None:
        waiting, self._batch.waiting = self._batch.waiting, []
        if not waiting:
            return
        vectors, previous = self._vectors(waiting)
        rows = [passage.row(self._next_chunk + position) for position, passage in enumerate(waiting)]
        has_symbols = self._writer.snapshot().has_symbols
        schema = chunk_schema(self._encoder.dim, previous=self._has_previous, symbols=has_symbols)
        table = pa.Table.from_pylist(rows, pa.schema([field for field in schema if not field.name.endswith("vector")]))
        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), self._encoder.dim)
        table = table.append_column(schema.field("vector"), column)
        if self._has_previous:
            table = table.append_column(schema.field(PREVIOUS), pa.array(previous, pa.binary()))
        self._writer.stage(table)
        self._next_chunk += len(rows)
        keys = [passage.key for passage in waiting]
        if self._keys is None:
            self._new_keys += keys
        else:
            self._keys.add(np.array(keys, np.int64))
        self.chunks += len(rows)

    def _vectors(self, passages: Sequence[_Passage]) -> tuple[Floats, list[bytes | None]]:
        """The vector of each passage, and its vector of the encoder before the last switch, if the store has one.

        A context that the store or this batch has is not embedded again.
        """
        texts = [passage for passage in passages if passage.vector is None]
        known, previous = self._stored([passage.key for passage in texts])
        new = [context for context in dict.fromkeys(passage.context for passage in texts) if context not in known]
        if new:
            known.update(zip(new, encode_finite(self._encoder, new), strict=True))
        self._report.embedded += len(new)
        self._report.reused += len(passages) - len(new)
        vectors = [known[passage.context] if passage.vector is None else passage.vector for passage in passages]
        earlier = [previous.get(passage.context) if passage.vector is None else None for passage in passages]
        return np.stack(vectors), earlier

    def _stored(self, keys: list[int]) -> tuple[dict[str, Floats], dict[str, bytes]]:
        """The vectors in the store by context: of this encoder, and of the previous one."""
        distinct = np.unique(np.array(keys, np.int64))
        stored = self._among_stored(distinct)
        if not len(stored):
            return {}, {}
        table = self._writer.staged(["context", "vector", *([PREVIOUS] if self._has_previous else [])], stored.tolist())
        contexts = table["context"].to_pylist()
        vectors = dict(zip(contexts, matrix(table["vector"], self._encoder.dim), strict=True))
        if not self._has_previous:
            return vectors, {}
        previous = zip(contexts, table[PREVIOUS].to_pylist(), strict=True)
        return vectors, {context: vector for context, vector in previous if vector is not None}

    def _among_stored(self, keys: Ids) -> Ids:
        """Return the keys that the store has. For a few keys, the store's are not sorted."""
        if self._keys is None:
            stored = self._writer.snapshot().numbers("chunks", "key")
            if len(keys) + len(self._new_keys) <= _FEW_KEYS:
                matches = stored[among(stored, keys)]
                return keys[np.isin(keys, matches) | np.isin(keys, self._new_keys)]
            self._keys = Keys(stored)
            self._keys.add(np.array(self._new_keys, np.int64))
        return keys[self._keys.contains(keys)]


def key_of(context: str) -> int:
    """Hash a context to 64 bits of BLAKE2b, the key to its vector."""
    return int.from_bytes(hashlib.blake2b(context.encode(), digest_size=8).digest(), "little", signed=True)


def own_key(name: str, context: str) -> int:
    """Hash the id of a document and its context to 64 bits of BLAKE2b: the key of a vector that came with a document.

    No text has this key, so no other passage gets this vector.
    """
    text = f"{len(name)} {name}{context}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8, person=b"own").digest(), "little", signed=True)


_EMPTY_ROW: Row = {
    "source": "file",
    "state": "indexed",
    "reason": "",
    "size": 0,
    "mtime_ns": 0,
    "settled": False,
    "sha256": "",
    "format": "",
    "title": "",
    "metadata": "{}",
    "text": "",
}


def _document_columns(document: Document | None) -> Row:
    if document is None:
        return {}
    return {
        "format": document.format,
        "title": document.title,
        "metadata": json.dumps(document.metadata, ensure_ascii=False),
        "text": document.text,
    }
