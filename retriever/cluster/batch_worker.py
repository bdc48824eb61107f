"""Read, chunk and embed a batch of files, on any machine.

A worker runs the same `Indexer` as a single machine. Its rows become fragments of the store's tables: files outside
of a table until the one committing process appends them. So nobody sees the rows of a lost worker, and another worker
can do its batch again.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...core.errors import EncoderMismatchError, StoreError
from ..documents.file_parts import size_and_time
from ..indexing.indexer import Indexer
from ..indexing.report import Report
from ..indexing.sync.sync import row_of
from ..models.load import load_encoder
from ..readers.pool.pool import ReaderPool
from ..store.snapshot import Snapshot
from ..store.tables import PREVIOUS, rows_among, writing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..documents.scan import Entry
    from ..models.encoder import Encoder
    from ..store.head import Head
    from ..store.store import Store

CHUNK_IDS = 2**24  # chunk ids for each batch: ids ascend with the batches, whichever is finished first
_CACHED_CHUNKS = 65_536  # with vectors, for texts that occur again in the same run


@dataclass(frozen=True, slots=True)
class FileBatch:
    """Files to index together, in order of path, and the ids for them."""

    entries: tuple[Entry, ...]
    document: int  # the id of the first document
    chunk: int  # the id of the first chunk
    contents: dict[str, bytes] | None = None  # path -> bytes, for a worker that cannot see the folder


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The result of a batch: fragments as JSON, to be committed, and counts."""

    documents: list[str]
    chunks: list[str]
    next_document: int
    next_chunk: int
    report: Report = field(default_factory=Report)


class Worker:
    """An encoder and readers, loaded once for all batches of a run."""

    def __init__(self, store: Store, head: Head, encoder: Encoder) -> None:
        self._rows = _Fragments(store, head)
        self._report = Report()
        self._indexer = Indexer(self._rows, encoder, self._report)
        self._pool = ReaderPool(workers=1)

    @classmethod
    def load(cls, store: Store, head: Head, *, gpu: bool = False) -> Worker:
        """Load the encoder of an index.

        :param head: the state at the start of the run: its texts are not embedded again.
        :raises EncoderMismatchError: when this machine has another encoder under that name.
        """
        encoder = load_encoder(head.encoder.model, gpu=gpu)
        if encoder.fingerprint != head.encoder.fingerprint:
            raise EncoderMismatchError(
                f"{head.encoder.model} on a worker has fingerprint {encoder.fingerprint[:8]} but the index was made "
                f"with {head.encoder.fingerprint[:8]}: put the same model folder on every machine"
            )
        return cls(store, head, encoder)

    def close(self) -> None:
        """End the processes of the readers."""
        self._pool.close()

    def do(self, batch: FileBatch, root: Path) -> BatchResult | None:
        """Index a batch; None if the files on this machine are not the files that the scan of the folder saw.

        The caller then sends the batch again with the contents of the files.
        """
        if batch.contents is None:
            return self._index(batch, root) if all(_is_unchanged(root, entry) for entry in batch.entries) else None
        with tempfile.TemporaryDirectory() as folder:
            for entry in batch.entries:
                if entry.path in batch.contents:
                    file = Path(folder, entry.path)
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(batch.contents[entry.path])
                    os.utime(file, ns=(entry.mtime_ns, entry.mtime_ns))
            return self._index(batch, Path(folder))

    def _index(self, batch: FileBatch, root: Path) -> BatchResult:
        before = Report(embedded=self._report.embedded, reused=self._report.reused)
        report = Report()
        self._indexer.number_from(batch.document, batch.chunk)
        readings = self._pool.read_all(root / entry.path for entry in batch.entries if not entry.reason)
        for entry in batch.entries:
            row, document = row_of(entry, None if entry.reason else next(readings))
            report.count(entry, row)
            self._indexer.add(row, document)
        self._indexer.commit()
        report.embedded = self._report.embedded - before.embedded
        report.reused = self._report.reused - before.reused
        next_document, next_chunk = self._indexer.next_ids
        if next_chunk > batch.chunk + CHUNK_IDS:
            raise StoreError(f"{batch.entries[0].path} and what follows make more than {CHUNK_IDS:,} passages")
        documents, chunks = self._rows.write()
        return BatchResult(documents, chunks, next_document, next_chunk, report)


def _is_unchanged(root: Path, entry: Entry) -> bool:
    """Tell whether a file has the size and time that the scan of the folder saw."""
    if entry.reason:
        return True
    with contextlib.suppress(OSError, ValueError):
        return size_and_time(root / entry.path) == (entry.size, entry.mtime_ns)
    return False


class _Fragments:
    """The rows of a worker, as `Indexer` writes them."""

    def __init__(self, store: Store, head: Head) -> None:
        self.head = head
        self._store = store
        self._snapshot = Snapshot(store, head)
        self._documents: list[pa.Table] = []
        self._chunks: list[pa.Table] = []
        self._cached: deque[pa.Table] = deque()

    def snapshot(self) -> Snapshot:
        return self._snapshot

    def stage(self, chunks: pa.Table) -> None:
        self._chunks.append(chunks)
        self._cached.append(chunks.select([name for name in chunks.column_names if name in _CACHED_COLUMNS]))
        while sum(map(len, self._cached)) > _CACHED_CHUNKS:
            self._cached.popleft()

    def staged(self, columns: list[str], keys: Sequence[int]) -> pa.Table:
        import pyarrow.compute as pc

        key_set = pa.array(keys, pa.int64())
        own = [table.filter(pc.is_in(table["key"], key_set)).select(columns) for table in self._cached]
        return pa.concat_tables([self._snapshot.read("chunks", columns, rows_among("key", keys)), *own])

    def commit(self, *, drop: Sequence[int], documents: pa.Table) -> None:
        assert not drop  # the committing process drops replaced documents
        self._documents.append(documents)

    def write(self) -> tuple[list[str], list[str]]:
        """Write the new documents and chunks as fragments; return both lists as JSON."""
        with writing(self._store.location):
            return tuple(  # type: ignore[return-value]
                list(self._fragments(name, tables))
                for name, tables in (("documents", self._documents), ("chunks", self._chunks))
            )

    def _fragments(self, name: str, tables: list[pa.Table]) -> Iterator[str]:
        if tables:
            rows = pa.concat_tables(tables)
            tables.clear()
            for fragment in self._store.location.table(name).fragments(rows):
                yield json.dumps(fragment.to_json())


_CACHED_COLUMNS = ("key", "context", "vector", PREVIOUS)


def fragments_of(texts: Sequence[str]) -> list[Any]:
    """Return the fragments that a worker described in JSON."""
    import lance

    return [lance.fragment.FragmentMetadata.from_json(text) for text in texts]
