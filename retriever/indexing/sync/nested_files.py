"""Read files, and the files in them: attachments of mail and members of archives."""

from __future__ import annotations

from collections import deque
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from ...documents.scan import Entry
from ...readers.containers.members import MAX_BYTES, MAX_DEPTH, MAX_MEMBERS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ...readers.pool.pool import ReaderPool
    from ...readers.pool.reading import Reading

_TOO_DEEP = f"it lies more than {MAX_DEPTH} files deep"
_TOO_MANY = f"its file holds more than {MAX_MEMBERS:,} files, or more than {MAX_BYTES >> 20} MB"


def read_entries(root: Path, entries: list[Entry], ocr: str = "") -> Iterator[tuple[Entry, Reading | None]]:
    """Read the files in order; an entry that is passed over comes with None.

    Members of a file come before it: their rows are committed when its row is.

    :param ocr: the languages to read pictures in; see `ReaderPool`.
    """
    from ...readers.pool.pool import ReaderPool

    with ReaderPool(ocr=ocr) as pool, ReaderPool(ocr=ocr) as member_pool:
        readings = pool.read_all(root / entry.path for entry in entries if not entry.reason)
        for entry in entries:
            reading = None if entry.reason else next(readings)
            if reading is not None and reading.members:
                yield from _read_members(member_pool, root, entry, reading)
            yield entry, reading


def _read_members(
    pool: ReaderPool, root: Path, entry: Entry, reading: Reading
) -> Iterator[tuple[Entry, Reading | None]]:
    """Read the members of a file, then theirs, a file at a time."""
    count, size = 0, 0
    waiting = deque([(entry, reading, 1)])
    while waiting:
        outer, listing, depth = waiting.popleft()
        members = list(_entries(outer, listing, depth))
        if count + len(members) > MAX_MEMBERS or size > MAX_BYTES:
            yield replace(members[0], path=f"{outer.path}/more files", reason=_TOO_MANY), None
            continue
        count += len(members)
        with closing(pool.read_all(root / member.path for member in members if not member.reason)) as readings:
            for member in members:
                answer = None if member.reason else next(readings)
                yield member, answer
                size += answer.size if answer else 0
                if answer and answer.members:
                    waiting.append((member, replace(answer, document=None), depth + 1))


def _entries(outer: Entry, reading: Reading, depth: int) -> Iterator[Entry]:
    for member in reading.members:
        reason = member.reason or (_TOO_DEEP if depth > MAX_DEPTH else "")
        yield Entry(f"{outer.path}/{member.name}", member.size, reading.mtime_ns, reason)
