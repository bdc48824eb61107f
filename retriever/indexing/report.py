"""The report of a run over documents, and its progress."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...core.errors import InputError
from ...core.progress import Progress, per_second
from ...core.units import count_of
from ..documents.document import is_in_part

if TYPE_CHECKING:
    from ..documents.scan import Entry

FILE_STATES = ("indexed", "unchanged", "moved", "removed", "missing", "skipped", "failed")


@dataclass(frozen=True, slots=True)
class Failure:
    """A document that could not be added."""

    number: int  # its position among the documents, from 0
    id: str | None
    reason: str


class DocumentError(InputError):
    """A document that cannot be added, by its position and id."""

    def __init__(self, number: int, name: str | None, reason: str) -> None:
        super().__init__(reason)
        self.number = number
        self.name = name


@dataclass(slots=True)
class Report:
    """Counts of files by state and of passages; `binocle index --json` prints them."""

    indexed: int = 0
    unchanged: int = 0
    moved: int = 0
    removed: int = 0  # documents that left the index: their file is gone, or is skipped now
    missing: int = 0  # documents that stay without their files: too many are missing, so a disk may be away
    skipped: int = 0
    failed: int = 0
    in_part: int = 0  # indexed files with a part that was not read
    chunks_total: int = 0
    embedded: int = 0
    reused: int = 0
    chunks_removed: int = 0
    code: int = 0  # files in a language that the extra `code` parses
    seconds: float = 0.0
    ids: list[str] = field(default_factory=list)  # of the documents that `add` was given and the index now has
    failures: list[Failure] = field(default_factory=list)
    note: str = ""  # for people: missing folders, a language that the encoder does not read, and the like

    def count(self, entry: Entry, row: dict[str, Any], *, is_member: bool = False) -> None:
        """Count a file by its state. The scan of the folder has already counted skipped files.

        :param is_member: whether it is a file in a file, which no scan sees.
        """
        if not entry.reason or is_member:
            setattr(self, row["state"], getattr(self, row["state"]) + 1)
            self.in_part += is_in_part(row)

    def join(self, report: Report) -> None:
        """Add the counts of a part of the run."""
        for name in ("indexed", "skipped", "failed", "in_part", "embedded", "reused"):
            setattr(self, name, getattr(self, name) + getattr(report, name))

    def count_chunks(self, before: int, after: int) -> None:
        """Derive the remaining counts from the number of chunks before and after the run."""
        self.chunks_total = after
        self.chunks_removed = before + self.embedded + self.reused - after

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON has it."""
        return {
            "files": {name: getattr(self, name) for name in FILE_STATES},
            "in_part": self.in_part,
            "chunks": {
                "total": self.chunks_total,
                "embedded": self.embedded,
                "reused": self.reused,
                "removed": self.chunks_removed,
            },
            "seconds": round(self.seconds, 3),
        }


def progress_of_passages(stage: str, done: int, total: int, start: float) -> Progress:
    """Progress by passages.

    :param start: `time.monotonic()` at the start of the stage.
    """
    rate = per_second(done, start, "passages")
    return Progress(stage, done, total, f"{done:,} of {count_of(total, 'passage')}, {rate}")


def progress_of_files(files: tuple[int, int], size: tuple[int, int], passages: int, start: float) -> Progress:
    """Progress by bytes, which follows the work more evenly than files do.

    :param files: the number of files done, and of all.
    :param size: the bytes done, and of all.
    :param passages: the number of passages embedded or reused so far.
    :param start: `time.monotonic()` at the start of indexing.
    """
    rate = per_second(passages, start, "passages") if passages else "reading"
    return Progress("indexing", *size, f"{files[0]:,} of {count_of(files[1], 'file')}, {rate}")
