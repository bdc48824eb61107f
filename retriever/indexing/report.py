"""What a run over documents did, as it is told and printed, and how far one is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..documents.scan import Entry

FILE_STATES = ("indexed", "unchanged", "moved", "removed", "skipped", "failed")


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

    def count(self, entry: Entry, row: dict[str, Any]) -> None:
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


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is: of the bytes to read, how many have been dealt with."""

    files_done: int
    files_total: int
    bytes_done: int
    bytes_total: int
    chunks: int
