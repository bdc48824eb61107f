"""Documents chunked, embedded and committed, a batch at a time: no text that the store holds is embedded again."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from ...core.arrays import Keys
from ...core.errors import EncoderMismatchError
from ..documents.chunker import Chunk, chunk
from ..models.encoder import encode_finite
from ..store.tables import PREVIOUS, chunk_schema, document_schema, matrix

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...core.arrays import Floats
    from ..documents.document import Document
    from ..models.encoder import Encoder
    from ..store.head import Head
    from ..store.snapshot import Snapshot
    from .report import Report

    Row = dict[str, Any]

_BATCH_CHUNKS = 256  # embedded and committed at a time: a second or two of work
_BATCH_FILES = 1_000


@dataclass(slots=True)
class _Batch:
    """Documents waiting to be committed, and those of their chunks that are not staged yet."""

    rows: list[Row] = field(default_factory=list)
    drop: list[int] = field(default_factory=list)
    waiting: list[tuple[int, Chunk]] = field(default_factory=list)  # document id, chunk
    staged: int = 0


class Rows(Protocol):
    """What an indexer needs of a writer: of `Writer`, or of a worker's whose rows another commits."""

    @property
    def head(self) -> Head: ...

    def snapshot(self) -> Snapshot: ...

    def stage(self, chunks: pa.Table) -> None: ...

    def staged(self, columns: list[str], keys: Sequence[int]) -> pa.Table: ...

    def commit(self, *, drop: Sequence[int], documents: pa.Table) -> None: ...


class Indexer:
    """Chunks, embeds and commits documents through one writer."""

    def __init__(self, writer: Rows, encoder: Encoder, report: Report) -> None:
        self._writer = writer
        self._encoder = encoder
        self._report = report
        self._batch = _Batch()
        snapshot = writer.snapshot()
        if encoder.fingerprint != writer.head.encoder.fingerprint:
            raise EncoderMismatchError(f"{encoder.name} was to index what {writer.head.encoder.model} has indexed")
        self._keeps = writer.head.previous is not None
        self._next_document = writer.head.next_document
        self._next_chunk = writer.head.next_chunk
        self._keys = Keys(snapshot.read("chunks", ["key"])["key"].to_numpy())
        self.chunks = 0  # embedded or reused so far

    def number_from(self, document: int, chunk: int) -> None:
        """Give the next document and the next chunk these ids."""
        self._next_document, self._next_chunk = document, chunk

    @property
    def next_ids(self) -> tuple[int, int]:
        return self._next_document, self._next_chunk

    def add(self, row: Row, document: Document | None, *, replaces: int | None = None) -> int:
        """Queue a document; a batch is committed when it is full. Gives the document's id.

        :param row: columns of the documents table; `id`, `chunks` and, from the document, the rest are filled in.
        :param replaces: id of the row that it takes the place of.
        """
        batch = self._batch
        number = self._next_document
        self._next_document += 1
        chunks = chunk(document, self._encoder.offsets, self._encoder.max_tokens) if document else []
        batch.rows.append({**_EMPTY_ROW, **row, **_described(document), "id": number, "chunks": len(chunks)})
        if replaces is not None:
            batch.drop.append(replaces)
        for left, piece in zip(range(len(chunks), 0, -1), chunks, strict=True):
            if len(batch.waiting) >= _BATCH_CHUNKS and left > _BATCH_CHUNKS:  # no small batch of what is left of it
                self._stage()
            batch.waiting.append((number, piece))
        if batch.staged or len(batch.waiting) >= _BATCH_CHUNKS or len(batch.rows) >= _BATCH_FILES:
            self.commit()
        return number

    def commit(self, *, drop: Sequence[int] = ()) -> None:
        """Commit what is queued, and the removal of these documents."""
        self._stage()
        batch, self._batch = self._batch, _Batch()
        if batch.rows or batch.drop or drop:
            rows = pa.Table.from_pylist(batch.rows, document_schema())
            self._writer.commit(drop=[*batch.drop, *drop], documents=rows)

    def _stage(self) -> None:
        waiting, self._batch.waiting = self._batch.waiting, []
        if not waiting:
            return
        contexts = [piece.context for _, piece in waiting]
        keys = [key_of(context) for context in contexts]
        vectors, kept = self._vectors(contexts, keys)
        rows = [
            {
                "id": self._next_chunk + place,
                "document": number,
                "key": key,
                "char_start": piece.start,
                "char_end": piece.end,
                "line_start": piece.line_start,
                "line_end": piece.line_end,
                "page": piece.page,
                "heading": list(piece.heading),
                "text": piece.text,
                "context": context,
            }
            for place, ((number, piece), key, context) in enumerate(zip(waiting, keys, contexts, strict=True))
        ]
        schema = chunk_schema(self._encoder.dim, previous=self._keeps)
        table = pa.Table.from_pylist(rows, pa.schema([field for field in schema if not field.name.endswith("vector")]))
        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), self._encoder.dim)
        table = table.append_column(schema.field("vector"), column)
        if self._keeps:
            table = table.append_column(schema.field(PREVIOUS), pa.array(kept, pa.binary()))
        self._writer.stage(table)
        self._next_chunk += len(rows)
        self._keys.add(np.array(keys, np.int64))
        self._batch.staged += len(rows)
        self.chunks += len(rows)

    def _vectors(self, contexts: list[str], keys: list[int]) -> tuple[Floats, list[bytes | None]]:
        """For each context its vector, and the one kept of the encoder before the last switch, if there is one.

        What the store or this batch holds already is not embedded again.
        """
        known, kept = self._stored(keys)
        new = [context for context in dict.fromkeys(contexts) if context not in known]
        if new:
            known.update(zip(new, encode_finite(self._encoder, new), strict=True))
        self._report.embedded += len(new)
        self._report.reused += len(contexts) - len(new)
        return np.stack([known[context] for context in contexts]), [kept.get(context) for context in contexts]

    def _stored(self, keys: list[int]) -> tuple[dict[str, Floats], dict[str, bytes]]:
        wanted = np.unique(np.array(keys, np.int64))
        hits = wanted[self._keys.contains(wanted)]
        if not len(hits):
            return {}, {}
        table = self._writer.staged(["context", "vector", *([PREVIOUS] if self._keeps else [])], hits.tolist())
        contexts = table["context"].to_pylist()
        vectors = dict(zip(contexts, matrix(table["vector"], self._encoder.dim), strict=True))
        if not self._keeps:
            return vectors, {}
        kept = zip(contexts, table[PREVIOUS].to_pylist(), strict=True)
        return vectors, {context: previous for context, previous in kept if previous is not None}


def key_of(context: str) -> int:
    """64 bits of BLAKE2b: what a chunk's vector is looked up by."""
    return int.from_bytes(hashlib.blake2b(context.encode(), digest_size=8).digest(), "little", signed=True)


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


def _described(document: Document | None) -> Row:
    if document is None:
        return {}
    return {
        "format": document.format,
        "title": document.title,
        "metadata": json.dumps(document.metadata, ensure_ascii=False),
        "text": document.text,
    }
