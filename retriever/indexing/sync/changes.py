"""Compare a folder with the store: which files to read, and which were only touched, moved or removed."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from ....core.errors import InputError
from ...documents.file_parts import document_sha256, file_of
from ...documents.scan import away, scan
from ...readers.containers.members import has_members
from ...readers.detect import ending_of
from ...readers.formats import FORMATS
from ...readers.large_files import cut
from ...store import tombstones
from ..report import Report
from .last_scan import read_last_scan
from .member_rows import Members
from .missing import count_indexed, take_away, take_doubtful
from .picture_rows import is_to_read, languages_of
from .reader_versions import is_outdated

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from ...documents.scan import Entry
    from ...store.snapshot import Snapshot

    Row = dict[str, Any]

TRY_AGAIN = "; the next run tries again"  # ends the reason of a file that a limit stopped for the first time
_RACY_NS = 2_000_000_000  # a file changed this shortly before it was read may change again at the same mtime


class State(Enum):
    """The state of an entry of the folder, compared with its row in the store."""

    NEW = auto()  # never read, though the store may have a row that says why
    CHANGED = auto()  # to be read again
    TOUCHED = auto()  # same bytes, another mtime
    UNCHANGED = auto()
    SKIPPED = auto()  # passed over for a reason that the store does not have yet
    STILL_SKIPPED = auto()


@dataclass(slots=True)
class FolderChanges:
    """The difference between a folder and the store."""

    known: dict[str, Row]  # path -> document row before the sync; of a tombstone only id, state and chunks
    read: list[Entry] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)  # document rows that change while their chunks stay
    replaced: list[int] = field(default_factory=list)  # ids of rows without chunks that `rows` replace
    drop: list[int] = field(default_factory=list)  # ids of documents that are gone
    away: list[tuple[str, Row]] = field(default_factory=list)  # kept: their folder of the collection is not there
    members: dict[str, list[Row]] = field(default_factory=dict)  # file in `read` -> rows of the members it had
    report: Report = field(default_factory=Report)
    outdated: int = 0  # unchanged files in `read`: an earlier version of their reader read them
    time_ns: int = field(default_factory=time.time_ns)  # when the scan began

    def account(self, entry: Entry, state: State, row: Row | None, members: list[Row]) -> None:
        """Record the state of an entry: what happens to its row and to the rows of its members."""
        if state is State.CHANGED:
            self.read.append(replace(entry, tried=row["sha256"]) if row and _is_left(row) else entry)
        if state in (State.NEW, State.CHANGED):
            self.members[entry.path] = members
        elif state in (State.SKIPPED, State.STILL_SKIPPED):
            self.report.skipped += 1
            self.drop_rows(members)
        else:
            # Its bytes are those of a row.
            rows = [known for known in (row, *members) if known]
            for unchanged in rows:
                _count_unchanged(self.report, unchanged)
            is_part = file_of(entry.path) != entry.path  # the rows of a large file that grew are not written anew
            if state is State.TOUCHED and not is_part:
                self.rows += [{**touched, **mtime_fields(entry.mtime_ns)} for touched in rows]

    def drop_rows(self, rows: Iterable[Row]) -> None:
        """Drop documents, and count those with a text as removed."""
        for row in rows:
            self.drop.append(row["id"])
            self.report.removed += row["state"] == "indexed"


def find_changes(
    root: Path,
    snapshot: Snapshot,
    *,
    leave_out: Path | None = None,
    within: Sequence[str] = (),
    exclude: Sequence[str] = (),
    retry: bool = False,
    drop_missing: bool = False,
    ocr: str = "",
) -> FolderChanges:
    """Compare a folder with the file rows of a snapshot. A file is hashed only if its size and times leave doubt.

    :param within: the folders and files of a collection; documents elsewhere are dropped. Documents of a missing folder
        stay.
    :param retry: also read files that failed before or were forgotten.
    :param ocr: languages. A file is read again if its pictures were not read, or in other languages.
    :param drop_missing: drop missing documents even if a disk may only be away.
    """
    gone = {row["path"]: row for row in snapshot.document_rows.to_pylist() if row["source"] == "file"}
    changes, seen_ns = FolderChanges(dict(gone)), read_last_scan(snapshot.store.location) - _RACY_NS
    members, indexed = Members.removed_from(gone), count_indexed(gone.items())
    report = changes.report
    fresh: list[Entry] = []
    entries = cut(root, scan(root, leave_out=leave_out, within=within, exclude=exclude))
    for entry in _without_forgotten(entries, snapshot, changes, retry=retry):
        if entry.unknown and _retain(root, entry, gone, members, report):
            continue
        row, inside = gone.pop(entry.path, None), members.take(entry.path)
        state = classify(entry, row, root, seen_ns, retry=retry)
        if row and state in (State.UNCHANGED, State.TOUCHED):
            is_outdated_row = any(_is_outdated(known, ocr) for known in (row, *inside))
            changes.outdated += is_outdated_row
            has_unread_picture = bool(ocr) and any(is_to_read(known, ocr) for known in (row, *inside))
            if is_outdated_row or has_unread_picture or (retry and _is_to_open(row, inside, snapshot)):
                state = State.CHANGED
        if state in (State.NEW, State.SKIPPED):
            fresh.append(entry)
        changes.account(entry, state, row, inside)
    changes.away = [] if drop_missing else take_away(away(root, within), gone)
    _find_moves(root, fresh, gone, changes, members)
    changes.read.sort(key=lambda entry: entry.path)
    if not drop_missing:
        ignored = {entry.path for entry in fresh if entry.path.endswith("/")}
        doubtful = [*take_doubtful(root, gone, indexed, ignored, within), *changes.away]
        report.missing = count_indexed(doubtful)
        for path, _ in doubtful:
            members.take(path)
    changes.drop_rows([*gone.values(), *members.rest()])
    if retry and not report.missing:  # also tombstones of files that are gone
        changes.drop += set(snapshot.tombstones.values()).difference(row["id"] for row in changes.known.values())
    return changes


def _is_outdated(row: Row, ocr: str) -> bool:
    """Whether a new version of its reader is to read a file. Without OCR it would lose the text of its pictures."""
    return is_outdated(row) and bool(ocr or not languages_of(row))


def _without_forgotten(
    entries: Iterable[Entry], snapshot: Snapshot, changes: FolderChanges, *, retry: bool
) -> Iterator[Entry]:
    """Pass over forgotten files. With `retry` they are read; a file, or the parts of one, replace the tombstone."""
    for entry in entries:
        is_known = entry.unknown or entry.path in changes.known
        tombstone = None if is_known else snapshot.tombstone_of(entry.path)
        if tombstone is not None and retry:
            changes.known[entry.path] = {"id": tombstone, "state": tombstones.SOURCE, "chunks": 0}
        if tombstone is None or retry:
            yield entry
        else:
            changes.report.skipped += 1


def classify(entry: Entry, row: Row | None, root: Path, seen_ns: int, *, retry: bool = False) -> State:
    """Compare an entry with its row, None if it has none.

    :param seen_ns: an earlier scan has seen all changes up to this time.
    :param retry: a file that failed before has changed.
    """
    if entry.reason:
        is_known = row is not None and row["reason"] == entry.reason
        return State.STILL_SKIPPED if is_known else State.SKIPPED
    if row is None or not row["sha256"]:  # without a hash, the file was passed over or not readable
        return State.NEW
    if _is_left(row) or (retry and (row["state"] == "failed" or _has_a_reader_now(row))):
        return State.CHANGED
    return _compare_bytes(entry, row, root, seen_ns)


def _has_a_reader_now(row: Row) -> bool:
    """Whether an earlier version had no reader for a file, and this one has."""
    reason: str = row["reason"]
    return reason.startswith("no reader for") and ending_of(row["path"]) in FORMATS


def _is_left(row: Row) -> bool:
    """Whether the last run left a file that a limit stopped for this one."""
    reason: str = row["reason"]
    return row["state"] == "failed" and reason.endswith(TRY_AGAIN)


def _compare_bytes(entry: Entry, row: Row, root: Path, seen_ns: int) -> State:
    is_settled = row["settled"] and (row["size"], row["mtime_ns"]) == (entry.size, entry.mtime_ns)
    if is_settled and entry.ctime_ns <= seen_ns:
        return State.UNCHANGED
    if row["size"] != entry.size or row["sha256"] != _sha256(root / entry.path):
        return State.CHANGED
    return State.UNCHANGED if is_settled else State.TOUCHED


def _retain(root: Path, entry: Entry, gone: dict[str, Row], members: Members, report: Report) -> bool:
    """Keep the rows at and below an entry that cannot be read: its files may still be there.

    :return: whether the entry has a row of its own that does not change.
    """
    if not entry.path:
        raise InputError(f"{root} {entry.reason}")
    own, below = gone.get(entry.path), entry.path.removesuffix("/") + "/"
    stays = own is not None and (own["state"] == "indexed" or own["reason"] == entry.reason)
    paths = [path for path in gone if (stays if path == entry.path else path.startswith(below))]
    for path in paths:
        for row in (gone.pop(path), *members.take(path)):
            _count_unchanged(report, row)
    return stays


def _count_unchanged(report: Report, row: Row) -> None:
    name = "unchanged" if row["state"] == "indexed" else row["state"]
    setattr(report, name, getattr(report, name) + 1)


def _is_to_open(row: Row, members: list[Row], snapshot: Snapshot) -> bool:
    """Whether another reading may give more members: so far none were read, some failed, or some were forgotten."""
    is_doubtful = not members or any(member["state"] == "failed" for member in members) or bool(snapshot.tombstones)
    return has_members(row["format"]) and is_doubtful


def _find_moves(root: Path, fresh: list[Entry], gone: dict[str, Row], changes: FolderChanges, members: Members) -> None:
    """Recognise moved files: a new file with the bytes and the ending of a gone one, so the same reader reads it."""
    by_size_and_ending: dict[tuple[int, str], list[Row]] = {}
    for row in gone.values():
        if row["state"] == "indexed":
            by_size_and_ending.setdefault((row["size"], ending_of(row["path"])), []).append(row)
    for entry in fresh:
        candidates = [] if entry.reason else by_size_and_ending.get((entry.size, ending_of(entry.path)), [])
        digest = _sha256(root / entry.path) if candidates else None
        source = next((row for row in candidates if row["sha256"] == digest), None)
        if source is None:
            changes.read.append(entry)
            continue
        candidates.remove(source)
        del gone[source["path"]]
        below = len(source["path"])
        inside = members.take(source["path"])
        changes.rows += [
            {**row, "path": entry.path + row["path"][below:], **mtime_fields(entry.mtime_ns)}
            for row in (source, *inside)
        ]
        changes.report.moved += 1
        for row in inside:
            _count_unchanged(changes.report, row)
        if entry.path in changes.known:
            changes.replaced.append(changes.known[entry.path]["id"])


def mtime_fields(mtime_ns: int) -> Row:
    """The columns for the time of a file. A recent time is not settled: the next change could leave it the same."""
    return {"mtime_ns": mtime_ns, "settled": time.time_ns() - mtime_ns > _RACY_NS}


def _sha256(file: Path) -> str | None:
    """The hash of a file; None if it is gone or cannot be read."""
    try:
        return document_sha256(file)
    except OSError:
        return None
