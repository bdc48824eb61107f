"""A portion of a run's files, read, chunked and embedded by a worker on any machine.

A worker runs the very code that indexes on one machine, `Indexer`, on a writer whose rows become fragments of the
store's tables: files that are no part of a table until the one process that commits says so. So a worker that is lost
has written nothing that anyone sees, and what it was to do can be done by another.
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
from ..indexing.indexer import Indexer
from ..indexing.report import Report
from ..indexing.sync import row_of
from ..models import files as model_folder
from ..models import settings as model_settings
from ..models.bert_encoder import expect_many
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

ROOM = 2**24  # ids that each portion has for its chunks: they ascend with the portions, whoever is done first
_REMEMBERED = 65_536  # chunks whose vectors a worker keeps, for texts that come again in the same run


@dataclass(frozen=True, slots=True)
class FileBatch:
    """Files to be indexed together, in order of path, and the ids that they may use."""

    entries: tuple[Entry, ...]
    document: int  # the id of the first document
    chunk: int  # the id of the first chunk
    contents: dict[str, bytes] | None = None  # path -> bytes, for a worker that does not see the folder


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What became of a portion: fragments as JSON, to be committed, and counts."""

    documents: list[str]
    chunks: list[str]
    next_document: int
    next_chunk: int
    report: Report = field(default_factory=Report)


class Worker:
    """An encoder and readers, loaded once, for portion after portion of one run."""

    def __init__(self, store: Store, head: Head, *, gpu: bool = False) -> None:
        """
        :param head: the state that the run began from: what it holds is not embedded again.
        :raises EncoderMismatchError: when the encoder on this machine is another.
        """
        encoder = _load(head.encoder.model, gpu=gpu)
        expect_many(encoder)
        if encoder.fingerprint != head.encoder.fingerprint:
            raise EncoderMismatchError(
                f"{head.encoder.model} on a worker has fingerprint {encoder.fingerprint[:8]} but the index was made "
                f"with {head.encoder.fingerprint[:8]}: put the same model folder on every machine"
            )
        self._rows = _Fragments(store, head)
        self._report = Report()
        self._indexer = Indexer(self._rows, encoder, self._report)
        self._pool = ReaderPool(workers=1)

    def close(self) -> None:
        """End the readers' processes."""
        self._pool.close()

    def do(self, portion: FileBatch, root: Path) -> BatchResult | None:
        """Index a portion; None if its files cannot be seen from here as they were when the folder was looked through.

        The next try then comes with their contents.
        """
        if portion.contents is None:
            return self._done(portion, root) if all(map(_Seen(root), portion.entries)) else None
        with tempfile.TemporaryDirectory() as folder:
            for entry in portion.entries:
                if entry.path in portion.contents:
                    file = Path(folder, entry.path)
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(portion.contents[entry.path])
                    os.utime(file, ns=(entry.mtime_ns, entry.mtime_ns))
            return self._done(portion, Path(folder))

    def _done(self, portion: FileBatch, root: Path) -> BatchResult:
        before = Report(embedded=self._report.embedded, reused=self._report.reused)
        report = Report()
        self._indexer.number_from(portion.document, portion.chunk)
        readings = self._pool.read_all(root / entry.path for entry in portion.entries if not entry.reason)
        for entry in portion.entries:
            row, document = row_of(entry, None if entry.reason else next(readings))
            report.count(entry, row)
            self._indexer.add(row, document)
        self._indexer.commit()
        report.embedded = self._report.embedded - before.embedded
        report.reused = self._report.reused - before.reused
        next_document, next_chunk = self._indexer.next_ids
        if next_chunk > portion.chunk + ROOM:
            raise StoreError(f"{portion.entries[0].path} and what follows make more than {ROOM:,} passages")
        documents, chunks = self._rows.written()
        return BatchResult(documents, chunks, next_document, next_chunk, report)


class _Seen:
    """Whether a file is what it was when the folder was looked through."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def __call__(self, entry: Entry) -> bool:
        if entry.reason:
            return True
        with contextlib.suppress(OSError, ValueError):
            status = (self._root / entry.path).lstat()
            return (status.st_size, status.st_mtime_ns) == (entry.size, entry.mtime_ns)
        return False


class _Fragments:
    """The `indexer.Rows` of a worker."""

    def __init__(self, store: Store, head: Head) -> None:
        self.head = head
        self._store = store
        self._snapshot = Snapshot(store, head)
        self._documents: list[pa.Table] = []
        self._chunks: list[pa.Table] = []
        self._remembered: deque[pa.Table] = deque()

    def snapshot(self) -> Snapshot:
        return self._snapshot

    def stage(self, chunks: pa.Table) -> None:
        self._chunks.append(chunks)
        self._remembered.append(chunks.select([name for name in chunks.column_names if name in _LOOKED_UP]))
        while sum(map(len, self._remembered)) > _REMEMBERED:
            self._remembered.popleft()

    def staged(self, columns: list[str], keys: Sequence[int]) -> pa.Table:
        import pyarrow.compute as pc

        wanted = pa.array(keys, pa.int64())
        own = [table.filter(pc.is_in(table["key"], wanted)).select(columns) for table in self._remembered]
        return pa.concat_tables([self._snapshot.read("chunks", columns, rows_among("key", keys)), *own])

    def commit(self, *, drop: Sequence[int], documents: pa.Table) -> None:
        assert not drop  # whoever commits knows what is replaced
        self._documents.append(documents)

    def written(self) -> tuple[list[str], list[str]]:
        """What has come since the last call as fragments on storage: of documents and of chunks."""
        with writing(self._store.place):
            return tuple(  # type: ignore[return-value]
                list(self._fragments(name, tables))
                for name, tables in (("documents", self._documents), ("chunks", self._chunks))
            )

    def _fragments(self, name: str, tables: list[pa.Table]) -> Iterator[str]:
        if tables:
            rows = pa.concat_tables(tables)
            tables.clear()
            for fragment in self._store.place.table(name).fragments(rows):
                yield json.dumps(fragment.to_json())


_LOOKED_UP = ("key", "context", "vector", PREVIOUS)


def _load(name: str, *, gpu: bool) -> Encoder:
    """The encoder, by torch where there is a GPU for it and it is no defended one, whose folder only names it."""
    folder = model_folder.find(name)
    if not gpu or (folder / model_folder.DEFENCE).is_file():
        return load_encoder(name)
    from ..models.torch_encoder import TorchEncoder

    return TorchEncoder(name, folder, model_settings.ModelSettings.read(folder))


def fragments_of(written: Sequence[str]) -> list[Any]:
    """The fragments that a worker has described."""
    import lance

    return [lance.fragment.FragmentMetadata.from_json(text) for text in written]
