"""Bring the store in line with a folder: new, changed, moved and deleted files, one atomic commit a batch.

Files go through in order of path and batches are cut by what is in them alone, so a run that was interrupted goes on
with the very batches that an uninterrupted one would have made, and ends with the same rows and vectors.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from ..indexes.checksum import sha256
from ..indexes.errors import EncoderMismatchError, InputError
from . import folder as folders
from .chunker import Chunk, chunk
from .encoder import encoded
from .ids import Keys
from .readers.sniffing import ending_of
from .tables import PREVIOUS, chunk_schema, document_schema, matrix

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from .document import Document
    from .encoder import Encoder
    from .readers.pool import Reading
    from .settings import Head
    from .snapshot import Snapshot
    from .writer import Writer

    Floats = NDArray[np.float32]
    Row = dict[str, Any]
    Crew = Callable[
        [Writer, Path, list[folders.Entry], dict[str, Row], "Report", Callable[["Progress"], None] | None], None
    ]

_BATCH_CHUNKS = 256  # embedded and committed at a time: a second or two of work
_BATCH_FILES = 1_000
_RACY_NS = 2_000_000_000  # a file changed this shortly before it was read may change again at the same mtime


@dataclass(slots=True)
class Report:
    """What a run did. `files` and `chunks` are what `binocle index --json` prints."""

    indexed: int = 0
    unchanged: int = 0
    moved: int = 0
    removed: int = 0
    skipped: int = 0
    failed: int = 0
    chunks_total: int = 0
    embedded: int = 0
    reused: int = 0
    chunks_removed: int = 0
    seconds: float = 0.0
    note: str = ""  # that the vector index was damaged, or no longer met what was demanded of it

    def count(self, entry: folders.Entry, row: Row) -> None:
        """Count a file by what became of it; one passed over was counted when the folder was looked through."""
        if not entry.reason:
            setattr(self, row["state"], getattr(self, row["state"]) + 1)

    def join(self, other: Report) -> None:
        """Add what another has counted."""
        for name in ("indexed", "skipped", "failed", "embedded", "reused"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def count_chunks(self, before: int, after: int) -> None:
        """Fill in what follows from the number of chunks before and after."""
        self.chunks_total = after
        self.chunks_removed = before + self.embedded + self.reused - after

    def as_dict(self) -> dict[str, Any]:
        return {
            "files": {name: getattr(self, name) for name in FILE_STATES},
            "chunks": {
                "total": self.chunks_total,
                "embedded": self.embedded,
                "reused": self.reused,
                "removed": self.chunks_removed,
            },
            "seconds": round(self.seconds, 3),
        }


FORGOTTEN = "forgotten on request"  # the reason of a row that `sync` leaves alone until asked to retry
FILE_STATES = ("indexed", "unchanged", "moved", "removed", "skipped", "failed")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is: of the bytes to read, how many have been dealt with."""

    files_done: int
    files_total: int
    bytes_done: int
    bytes_total: int
    chunks: int


@dataclass(slots=True)
class Plan:
    """What a folder needs: the difference between it and the store."""

    read: list[folders.Entry] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)  # document rows that change while their chunks stay
    replaced: list[int] = field(default_factory=list)  # rows without chunks that those take the place of
    drop: list[int] = field(default_factory=list)  # documents that are gone
    report: Report = field(default_factory=Report)


def plan(root: Path, known: dict[str, Row], *, leave_out: Path | None = None, retry: bool = False) -> Plan:
    """Compare a folder with the file rows of the store, reading no more than it must.

    :param known: path -> document row.
    :param retry: read again what failed before or was forgotten.
    """
    made = Plan()
    gone = dict(known)
    fresh: list[folders.Entry] = []
    for entry in folders.scan(root, leave_out=leave_out):
        if entry.unknown:
            _keep_below(root, entry, gone, made.report)
        row = gone.pop(entry.path, None)
        if entry.reason:
            made.report.skipped += 1
            if row is None or row["reason"] not in (entry.reason, FORGOTTEN):
                fresh.append(entry)
        elif row is None or not row["sha256"]:  # new, or never read: passed over or not readable then
            fresh.append(entry)
        elif retry and (row["state"] == "failed" or row["reason"] == FORGOTTEN):
            made.read.append(entry)
        elif row["reason"] == FORGOTTEN:
            made.report.skipped += 1
        elif row["settled"] and (row["size"], row["mtime_ns"]) == (entry.size, entry.mtime_ns):
            _count_unchanged(made.report, row)
        elif row["size"] == entry.size and row["sha256"] and row["sha256"] == _sha256(root / entry.path):
            made.rows.append({**row, **_seen(entry.mtime_ns)})  # touched
            _count_unchanged(made.report, row)
        else:
            made.read.append(entry)
    _find_moves(root, fresh, gone, known, made)
    made.read.sort(key=lambda entry: entry.path)
    made.drop = [row["id"] for row in gone.values()]
    made.report.removed = sum(row["state"] == "indexed" for row in gone.values())
    return made


def _keep_below(root: Path, entry: folders.Entry, gone: dict[str, Row], report: Report) -> None:
    """Where nothing could be seen, nothing is known to be gone."""
    if not entry.path:
        raise InputError(f"{root} {entry.reason}")
    below = entry.path if entry.path.endswith("/") else entry.path + "/"
    for path in [path for path in gone if path == entry.path or path.startswith(below)]:
        _count_unchanged(report, gone.pop(path))


def _count_unchanged(report: Report, row: Row) -> None:
    name = "unchanged" if row["state"] == "indexed" else row["state"]
    setattr(report, name, getattr(report, name) + 1)


def _find_moves(
    root: Path, fresh: list[folders.Entry], gone: dict[str, Row], known: dict[str, Row], made: Plan
) -> None:
    """A new file with the bytes of a gone one is that one, moved, if its name has it read the same way."""
    alike: dict[tuple[int, str], list[Row]] = {}
    for row in gone.values():
        if row["state"] == "indexed":
            alike.setdefault((row["size"], ending_of(row["path"])), []).append(row)
    for entry in fresh:
        candidates = [] if entry.reason else alike.get((entry.size, ending_of(entry.path)), [])
        now = _sha256(root / entry.path) if candidates else None
        before = next((row for row in candidates if row["sha256"] == now), None)
        if before is None:
            made.read.append(entry)
            continue
        candidates.remove(before)
        del gone[before["path"]]
        made.rows.append({**before, "path": entry.path, **_seen(entry.mtime_ns)})
        made.report.moved += 1
        if entry.path in known:
            made.replaced.append(known[entry.path]["id"])


def _seen(mtime_ns: int) -> Row:
    """The time of a file, not to be relied on if it is so fresh that the next change could leave it as it is."""
    return {"mtime_ns": mtime_ns, "settled": time.time_ns() - mtime_ns > _RACY_NS}


def _sha256(file: Path) -> str | None:
    """None where it cannot be read: it has gone, or may not be."""
    try:
        return sha256(file)
    except OSError:
        return None


@dataclass(slots=True)
class _Batch:
    """Documents waiting to be committed, and those of their chunks that are not staged yet."""

    rows: list[Row] = field(default_factory=list)
    drop: list[int] = field(default_factory=list)
    waiting: list[tuple[int, Chunk]] = field(default_factory=list)  # document id, chunk
    staged: int = 0


class Rows(Protocol):
    """What an indexer needs of a writer: of `Writer`, or of a worker's whose rows another commits."""

    head: Head

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
        schema = chunk_schema(self._encoder.dim, keeps=self._keeps)
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
            known.update(zip(new, encoded(self._encoder, new), strict=True))
        self._report.embedded += len(new)
        self._report.reused += len(contexts) - len(new)
        return np.stack([known[context] for context in contexts]), [kept.get(context) for context in contexts]

    def _stored(self, keys: list[int]) -> tuple[dict[str, Floats], dict[str, bytes]]:
        wanted = np.unique(np.array(keys, np.int64))
        hits = wanted[self._keys.hold(wanted)]
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


def sync(
    writer: Writer,
    root: Path,
    encoder: Encoder,
    *,
    retry: bool = False,
    leave_out: Path | None = None,
    crew: Crew | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Report:
    """Make the store hold what the folder holds. Safe to interrupt anywhere: the next run goes on.

    :param crew: who reads and embeds; this process, unless given.
    """
    began = time.monotonic()
    rows = {row["path"]: row for row in writer.snapshot().document_rows.to_pylist() if row["source"] == "file"}
    made = plan(root, rows, leave_out=leave_out, retry=retry)
    report = made.report
    before = writer.snapshot().chunks.count_rows()
    if made.rows:
        _keep_chunks(writer, made.rows, made.replaced)
    if crew and made.read:
        crew(writer, root, made.read, rows, report, progress)
        if made.drop:
            writer.commit(drop=made.drop, documents=document_schema().empty_table())
    elif made.read or made.drop:
        indexer = Indexer(writer, encoder, report)
        for entry, reading in _tracked(_readings(root, made.read), made.read, indexer, progress):
            row, document = row_of(entry, reading)
            old = rows.get(entry.path)
            report.count(entry, row)
            indexer.add(row, document, replaces=old["id"] if old else None)
        indexer.commit(drop=made.drop)
    report.note = writer.finish()
    report.count_chunks(before, writer.snapshot().chunks.count_rows())
    report.seconds = time.monotonic() - began
    return report


def _keep_chunks(writer: Writer, rows: list[Row], replaced: list[int]) -> None:
    """Rewrite document rows whose text and chunks stay as they are."""
    texts = writer.snapshot().documents_by_id([row["id"] for row in rows], ["text"])
    full = [{**row, "text": texts[row["id"]]["text"]} for row in rows]
    writer.replace_rows(pa.Table.from_pylist(full, document_schema()), drop=replaced)


def _readings(root: Path, entries: list[folders.Entry]) -> Iterator[tuple[folders.Entry, Reading | None]]:
    """Each entry with what its file reads as; None for those passed over."""
    from .readers.pool import ReaderPool

    with ReaderPool() as pool:
        readings = pool.read_all(root / entry.path for entry in entries if not entry.reason)
        for entry in entries:
            yield entry, None if entry.reason else next(readings)


def _tracked(
    readings: Iterable[tuple[folders.Entry, Reading | None]],
    entries: list[folders.Entry],
    indexer: Indexer,
    progress: Callable[[Progress], None] | None,
) -> Iterator[tuple[folders.Entry, Reading | None]]:
    total, done = sum(entry.size for entry in entries), 0
    for number, (entry, reading) in enumerate(readings):
        if progress:
            progress(Progress(number, len(entries), done, total, indexer.chunks))
        yield entry, reading
        done += entry.size


def row_of(entry: folders.Entry, reading: Reading | None) -> tuple[Row, Document | None]:
    row: Row = {"path": entry.path, "state": "indexed", "size": entry.size, **_seen(entry.mtime_ns)}
    if reading is None:
        return {**row, "state": "skipped", "reason": entry.reason}, None
    row |= {"size": reading.size, "sha256": reading.sha256, **_seen(reading.mtime_ns)}
    if reading.state != "ok" or reading.document is None:
        return {**row, "state": reading.state, "reason": reading.reason}, None
    if not reading.document.parts:
        reason = reading.reason or "no text in it"
        return {**row, "state": "skipped", "reason": reason, "format": reading.document.format}, None
    return row, reading.document
