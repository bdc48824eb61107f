"""A file to read, and the result of reading it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...documents.document import Document

DENIED = "permission denied"  # the reason of a file that is there, and closed to this user


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of reading one file.

    `state` is "ok", "skipped" (no text, or no reader for it) or "failed", with the `reason` in one line. `sha256`,
    `size` and `mtime_ns` belong to the very bytes that were read; they are "" and 0 if the file could not be opened.
    `again`: a limit or the end of the process stopped the reading, so another try may succeed.
    """

    path: str
    sha256: str = ""
    size: int = 0
    mtime_ns: int = 0
    document: Document | None = None
    state: str = "failed"
    reason: str = ""
    again: bool = False
    members: tuple[MemberName, ...] = ()


@dataclass(frozen=True, slots=True)
class MemberName:
    """A file in a file: its path below that one, its size in bytes, and why it is passed over, or ""."""

    name: str
    size: int
    reason: str = ""


@dataclass(slots=True)
class Job:
    """One file to read."""

    index: int
    path: str  # as the caller names it
    file: str  # the absolute path that is opened
    size: int
    identity: dict[str, Any] | None = None  # sha256, size and mtime_ns, once a worker has read the bytes
