"""Bring the store in line with a folder: new, changed, moved and deleted files, one atomic commit a batch.

Files go through in order of path, and their contents alone decide where a batch ends. So a run that was interrupted
goes on with the batches of an uninterrupted one, and ends with the same rows and vectors.
"""

from __future__ import annotations

import shlex
import time
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ....core.errors import InputError
from ....core.printable import printable_path
from ....core.progress import OnProgress, ignore
from ....core.units import count_of
from ...documents.document import UNREAD
from ...documents.scan import INDEX_NAME, away
from ...readers.containers.members import may_hold
from ...readers.ocr import choose_languages
from ...readers.pictures import may_have_pictures
from ...readers.plain_text.definitions import GRAMMARS, has_parser
from ...readers.pool.reading import DENIED
from ...store.collection import naming
from ...store.documents import documents_at
from ...store.tables import document_schema
from ..indexer import Indexer
from ..report import Report, progress_of_files
from .changes import TRY_AGAIN, find_changes, mtime_fields
from .last_scan import note_scan
from .nested_files import read_entries
from .reader_versions import with_version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from ...documents.document import Document
    from ...documents.scan import Entry
    from ...models.encoder import Encoder
    from ...readers.pool.reading import Reading
    from ...store.locations.location import Location
    from ...store.snapshot import Snapshot
    from ...store.writer import Writer
    from .changes import FolderChanges

    Row = dict[str, Any]
    FileIndexer = Callable[[Writer, Path, list[Entry], dict[str, Row], Report, OnProgress], None]


_MANY_CODE_FILES = 10  # files of source code: with this many, a run says that a parser would help
_BATCH_ROWS, _BATCH_BYTES = 10_000, 64 * 2**20  # of documents that are rewritten together


def sync(
    writer: Writer,
    root: Path,
    encoder: Encoder,
    *,
    within: Sequence[str] = (),
    exclude: Sequence[str] = (),
    retry: bool = False,
    drop_missing: bool = False,
    ocr: str = "",
    leave_out: Path | None = None,
    file_indexer: FileIndexer | None = None,
    progress: OnProgress = ignore,
) -> Report:
    """Make the store hold the documents of a folder. Safe to interrupt anywhere: the next run goes on.

    :param within: the folders and files of a collection, relative to `root`; by default all of it.
    :param exclude: patterns of files to leave out.
    :param drop_missing: drop missing documents, however many: else many stay, since a disk may be away.
    :param ocr: the languages to read pictures in; "" to read none. Where Tesseract lacks them, a note says so.
    :param leave_out: the folder of the index.
    :param file_indexer: reads, embeds and commits files, such as a cluster; by default this process does.
    """
    start = time.monotonic()
    snapshot = writer.snapshot()
    languages, note_on_languages = _languages(ocr)
    changes = find_changes(
        root,
        snapshot,
        leave_out=leave_out,
        within=within,
        exclude=exclude,
        retry=retry,
        drop_missing=drop_missing,
        ocr=languages,
    )
    report = changes.report
    chunks_before = snapshot.chunks.count_rows()
    rewrite_rows(writer, changes.rows, changes.replaced)
    entries = changes.read
    if file_indexer and entries:
        entries, elsewhere = _divide(entries, languages)
        file_indexer(writer, root, elsewhere, changes.known, report, progress)
    _index(writer, root, encoder, changes, entries, retry=retry, ocr=languages, progress=progress)
    report.removed += _count_skipped_now(changes, writer.snapshot()) if report.skipped else 0
    index = writer.snapshot().store.location
    missing = _note_of_missing(report, root, within, index)
    notes = [missing, _note_of_outdated(changes), _note_of_code(report), note_on_languages, writer.finish()]
    report.note = "; ".join(filter(None, notes))
    report.count_chunks(chunks_before, writer.snapshot().chunks.count_rows())
    if not report.missing:  # a disk that is away may come back with changes from before this scan
        note_scan(index, changes.time_ns)
    report.seconds = time.monotonic() - start
    return report


def _note_of_outdated(changes: FolderChanges) -> str:
    if changes.outdated == 1:
        return "1 file was read again, since its reader has changed"
    return f"{changes.outdated:,} files were read again, since their reader has changed" if changes.outdated else ""


def _languages(ocr: str) -> tuple[str, str]:
    """The languages to read pictures in, "" if Tesseract cannot, and a note on them."""
    if not ocr:
        return "", ""
    try:
        languages = choose_languages(ocr)
    except InputError as error:
        return "", f"pictures are not read: {error}; --no-ocr no longer asks for it"
    return languages, f"pictures are read in {languages}: --ocr-language names others, --no-ocr reads none"


def _divide(entries: Iterable[Entry], languages: str) -> tuple[list[Entry], list[Entry]]:
    """Divide files into those for this process and the rest, which any machine of a cluster can read.

    Only this process commits members and runs Tesseract.
    """
    here: list[Entry] = []
    elsewhere: list[Entry] = []
    for entry in entries:
        is_here = may_hold(entry.path) or (bool(languages) and may_have_pictures(entry.path))
        (here if is_here else elsewhere).append(entry)
    return here, elsewhere


def _index(
    writer: Writer,
    root: Path,
    encoder: Encoder,
    changes: FolderChanges,
    entries: list[Entry],
    *,
    retry: bool,
    ocr: str,
    progress: OnProgress,
) -> None:
    """Read, embed and commit files with their members, and drop the documents that are gone."""
    if not entries and not changes.drop:
        return
    report, snapshot = changes.report, writer.snapshot()
    indexer = Indexer(writer, encoder, report)
    members: set[str] = set()  # read so far
    tracker = _Tracker(entries, indexer, progress)
    for entry, reading, is_member in tracker.follow(read_entries(root, entries, ocr)):
        if is_member and not retry and snapshot.tombstone_of(entry.path) is not None:
            report.skipped += 1
            continue
        row, document = row_of(entry, reading, is_member=is_member)
        earlier = changes.known.get(entry.path)
        report.count(entry, row, is_member=is_member)
        report.code += document is not None and document.format in GRAMMARS
        if earlier and earlier["chunks"] and _is_out_of_reach(row):
            continue
        indexer.add(row, document, replaces=earlier["id"] if earlier else None, on_staged=tracker.within)
        if is_member:
            members.add(entry.path)
        else:  # the row of a file is dropped together with the rows of its missing members
            gone = [old for old in changes.members.get(entry.path, ()) if old["path"] not in members]
            indexer.drop([old["id"] for old in gone])
            report.removed += sum(old["state"] == "indexed" for old in gone)
    indexer.commit(drop=changes.drop)


def _count_skipped_now(changes: FolderChanges, snapshot: Snapshot) -> int:
    """Count the documents, members of files included, that had a text before and are skipped now."""
    earlier = [changes.known.get(entry.path) for entry in changes.read]
    earlier += [row for rows in changes.members.values() for row in rows]
    paths = [row["path"] for row in earlier if row and row["state"] == "indexed"]
    rows = documents_at(snapshot, paths, ["state"])
    return sum((row["source"], row["state"]) == ("file", "skipped") for row in rows)


def _note_of_missing(report: Report, root: Path, within: Sequence[str], index: Location) -> str:
    """Say which documents stay without their files.

    :param within: the folders and files of a collection, relative to `root`.
    """
    folder = [] if within else [shlex.quote(str(root))]
    is_inside = index.cache == root.resolve() / INDEX_NAME
    command = " ".join(["binocle index", *folder, *([] if is_inside else naming(str(index)))])
    folders = [printable_path(str(root / folder)) for folder in away(root, within)]
    gone = f"not there: {', '.join(folders)}" if folders else ""
    if not report.missing:
        return gone
    if gone:
        return (
            f"{gone}; the index keeps their documents ({report.missing:,}): is a disk not mounted? "
            f"'{command} --drop FOLDER' takes a folder out"
        )
    where = "the collection" if within else printable_path(str(root))
    return (
        f"{where} lacks {count_of(report.missing, 'indexed document')}, which the index keeps: is a disk not mounted? "
        f"'{command} --yes' or sync(drop_missing=True) drops what was deleted"
    )


def _note_of_code(report: Report) -> str:
    if report.code < _MANY_CODE_FILES or has_parser():
        return ""
    return f"{report.code:,} files of source code were cut without a parser: pip install 'binocle[code]' gives symbols"


class _Tracker:
    """Reports progress by the bytes of files: before each file, and within a file of many passages."""

    def __init__(self, entries: Sequence[Entry], indexer: Indexer, progress: OnProgress) -> None:
        self._entries, self._indexer, self._progress = entries, indexer, progress
        self._total = sum(entry.size for entry in entries)
        self._number = self._done = 0  # files and their bytes
        self._share = 0.0  # of the present file
        self._start = time.monotonic()

    def follow(self, readings: Iterable[tuple[Entry, Reading | None]]) -> Iterator[tuple[Entry, Reading | None, bool]]:
        """Pass the readings on, with whether each is of a member of a file."""
        for entry, reading in readings:
            self._report()
            present = self._entries[self._number]
            yield entry, reading, entry is not present
            if entry is present:
                self._number, self._done, self._share = self._number + 1, self._done + entry.size, 0.0

    def within(self, share: float) -> None:
        """Report that this share of a document is staged. Of several documents in a file the furthest counts."""
        self._share = max(self._share, share)
        self._report()

    def _report(self) -> None:
        files, size = (self._number, len(self._entries)), self._entries[self._number].size
        done = self._done + round(self._share * size)
        self._progress(progress_of_files(files, (done, self._total), self._indexer.chunks, self._start))


def rewrite_rows(writer: Writer, rows: list[Row], replaced: Sequence[int] = ()) -> None:
    """Rewrite document rows, a batch at a time; their text and their chunks stay the same.

    :param replaced: ids of rows without chunks that they replace.
    """
    while rows:
        sizes = accumulate(row["size"] for row in rows[:_BATCH_ROWS])
        batch = rows[: max(1, sum(size <= _BATCH_BYTES for size in sizes))]
        texts = writer.snapshot().documents_by_id([row["id"] for row in batch], ["text"])
        complete = [{**row, "text": texts[row["id"]]["text"]} for row in batch]
        writer.replace_rows(pa.Table.from_pylist(complete, document_schema()), drop=replaced)
        rows, replaced = rows[len(batch) :], []


def _is_out_of_reach(row: Row) -> bool:
    """Whether a file has vanished since the scan, or its disk failed. Its row stays, and the next run decides."""
    return row["state"] == "failed" and not row["sha256"] and row["reason"] != DENIED


def row_of(entry: Entry, reading: Reading | None, *, is_member: bool = False) -> tuple[Row, Document | None]:
    """The document row of a file, and the document if it has text.

    :param reading: None for a skipped entry.
    :param is_member: whether it is a file in a file. The next run reads it only if the outer file changes.
    """
    row: Row = {"path": entry.path, "state": "indexed", "size": entry.size, **mtime_fields(entry.mtime_ns)}
    if reading is None:
        return {**row, "state": "skipped", "reason": entry.reason}, None
    row |= {"size": reading.size, "sha256": reading.sha256, **mtime_fields(reading.mtime_ns)}
    if reading.state != "ok" or reading.document is None:
        is_first = reading.again and reading.sha256 != entry.tried and not is_member
        return {**row, "state": reading.state, "reason": reading.reason + TRY_AGAIN * is_first}, None
    return {**row, "reason": reading.document.metadata.get(UNREAD, "")}, with_version(reading.document)
