"""What has changed in a folder since the store saw it: files to read, files only touched or moved, and files gone."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...core.errors import InputError
from ...core.files import sha256
from ..documents.scan import scan
from ..readers.detect import ending_of
from .report import Report

if TYPE_CHECKING:
    from pathlib import Path

    from ..documents.scan import Entry

    Row = dict[str, Any]

FORGOTTEN = "forgotten on request"  # the reason of a row that `sync` leaves alone until asked to retry
_RACY_NS = 2_000_000_000  # a file changed this shortly before it was read may change again at the same mtime


@dataclass(slots=True)
class FolderChanges:
    """What a folder needs: the difference between it and the store."""

    read: list[Entry] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)  # document rows that change while their chunks stay
    replaced: list[int] = field(default_factory=list)  # rows without chunks that those take the place of
    drop: list[int] = field(default_factory=list)  # documents that are gone
    report: Report = field(default_factory=Report)


def find_changes(
    root: Path, known: dict[str, Row], *, leave_out: Path | None = None, retry: bool = False
) -> FolderChanges:
    """Compare a folder with the file rows of the store, reading no more than it must.

    :param known: path -> document row.
    :param retry: read again what failed before or was forgotten.
    """
    made = FolderChanges()
    gone = dict(known)
    fresh: list[Entry] = []
    for entry in scan(root, leave_out=leave_out):
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
            made.rows.append({**row, **mtime_fields(entry.mtime_ns)})  # touched
            _count_unchanged(made.report, row)
        else:
            made.read.append(entry)
    _find_moves(root, fresh, gone, known, made)
    made.read.sort(key=lambda entry: entry.path)
    made.drop = [row["id"] for row in gone.values()]
    made.report.removed = sum(row["state"] == "indexed" for row in gone.values())
    return made


def _keep_below(root: Path, entry: Entry, gone: dict[str, Row], report: Report) -> None:
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
    root: Path, fresh: list[Entry], gone: dict[str, Row], known: dict[str, Row], made: FolderChanges
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
        made.rows.append({**before, "path": entry.path, **mtime_fields(entry.mtime_ns)})
        made.report.moved += 1
        if entry.path in known:
            made.replaced.append(known[entry.path]["id"])


def mtime_fields(mtime_ns: int) -> Row:
    """The time of a file, not to be relied on if it is so fresh that the next change could leave it as it is."""
    return {"mtime_ns": mtime_ns, "settled": time.time_ns() - mtime_ns > _RACY_NS}


def _sha256(file: Path) -> str | None:
    """None where it cannot be read: it has gone, or may not be."""
    try:
        return sha256(file)
    except OSError:
        return None
