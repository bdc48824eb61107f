"""Bring the store in line with a folder: new, changed, moved and deleted files, one atomic commit a batch.

Files go through in order of path and batches are cut by what is in them alone, so a run that was interrupted goes on
with the very batches that an uninterrupted one would have made, and ends with the same rows and vectors.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...core.progress import OnProgress, ignore
from ..store.tables import document_schema
from .changes import find_changes, mtime_fields
from .indexer import Indexer
from .report import Report, progress_of_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from ..documents.document import Document
    from ..documents.scan import Entry
    from ..models.encoder import Encoder
    from ..readers.pool.reading import Reading
    from ..store.writer import Writer

    Row = dict[str, Any]
    Crew = Callable[[Writer, Path, list[Entry], dict[str, Row], Report, OnProgress], None]


def sync(
    writer: Writer,
    root: Path,
    encoder: Encoder,
    *,
    retry: bool = False,
    leave_out: Path | None = None,
    crew: Crew | None = None,
    progress: OnProgress = ignore,
) -> Report:
    """Make the store hold what the folder holds. Safe to interrupt anywhere: the next run goes on.

    :param crew: who reads and embeds; this process, unless given.
    """
    began = time.monotonic()
    rows = {row["path"]: row for row in writer.snapshot().document_rows.to_pylist() if row["source"] == "file"}
    made = find_changes(root, rows, leave_out=leave_out, retry=retry)
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


def _readings(root: Path, entries: list[Entry]) -> Iterator[tuple[Entry, Reading | None]]:
    """Each entry with what its file reads as; None for those passed over."""
    from ..readers.pool.pool import ReaderPool

    with ReaderPool() as pool:
        readings = pool.read_all(root / entry.path for entry in entries if not entry.reason)
        for entry in entries:
            yield entry, None if entry.reason else next(readings)


def _tracked(
    readings: Iterable[tuple[Entry, Reading | None]],
    entries: list[Entry],
    indexer: Indexer,
    progress: OnProgress,
) -> Iterator[tuple[Entry, Reading | None]]:
    start = time.monotonic()
    total, done = sum(entry.size for entry in entries), 0
    for number, (entry, reading) in enumerate(readings):
        progress(progress_of_files((number, len(entries)), (done, total), indexer.chunks, start))
        yield entry, reading
        done += entry.size


def row_of(entry: Entry, reading: Reading | None) -> tuple[Row, Document | None]:
    row: Row = {"path": entry.path, "state": "indexed", "size": entry.size, **mtime_fields(entry.mtime_ns)}
    if reading is None:
        return {**row, "state": "skipped", "reason": entry.reason}, None
    row |= {"size": reading.size, "sha256": reading.sha256, **mtime_fields(reading.mtime_ns)}
    if reading.state != "ok" or reading.document is None:
        return {**row, "state": reading.state, "reason": reading.reason}, None
    if not reading.document.parts:
        reason = reading.reason or "no text in it"
        return {**row, "state": "skipped", "reason": reason, "format": reading.document.format}, None
    return row, reading.document
