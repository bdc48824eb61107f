"""Where an index lies: a folder, or a prefix of a bucket on object storage.

A commit changes one small file, HEAD.json, as one step. In a folder it is renamed into place under the writer's lock.
Object storage cannot rename, but it can put an object on the condition that it has not changed since it was read.
There the put is the commit, and of two writers one is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Container
    from pathlib import Path

    from ..tables import TableLocation
    from .patience import Patience

ANY = "*"  # the tag to overwrite any file
NEW = ""  # the tag to write only if there is no such file
HEAD = "HEAD.json"  # the committed state
PREVIOUS = "HEAD.previous.json"  # the state before, for a damaged HEAD.json, or damaged files of its state
KEEP_SECONDS = 600.0  # time for which readers may still open a replaced table version or vector index
TABLES = ("documents.lance", "chunks.lance")
LARGEST = 2**26  # bytes of a small file, at most: a larger one is not ours


class Location(Protocol):
    """The operations of a store on its files."""

    cache: Path  # a folder of this machine, for mapped files and files that only this machine needs
    durable: bool  # a commit that has returned survives a power cut
    lock_expires: bool  # a live writer can lose its lock, so the next writer commits before it does anything else
    patience: Patience  # with another writer

    def __str__(self) -> str:
        """Return its name, for `open_location` on another machine."""
        ...

    def table(self, name: str) -> TableLocation:
        """Return the address of `documents` or `chunks`, which may not exist yet."""
        ...

    def read(self, file: str) -> tuple[bytes, str]:
        """Read a small file and its tag, which changes whenever the file does.

        :raises OSError: FileNotFoundError when there is none; also when it has more than `LARGEST` bytes.
        """
        ...

    def exists(self, file: str) -> bool:
        """Tell whether a small file exists.

        :raises OSError: when the file system or the storage does not tell.
        """
        ...

    def write(self, file: str, data: bytes, *, over: str) -> str:
        """Replace the file with the tag `over` (or `ANY`, or `NEW`) as one step; return the new tag.

        :raises LockedError: when the file has another tag by now.
        """
        ...

    def begin(self, *, synced: bool) -> None:
        """Begin the commits of a writer.

        :param synced: the last commit synced its files; else the next one syncs all files.
        """
        ...

    def commit(self, head: bytes, previous: bytes, *, over: str) -> str:
        """Put everything new on the disk, then replace HEAD.json as `write` does.

        :param previous: the state to fall back to if this one is damaged.
        """
        ...

    def remove(self, prefix: str) -> None:
        """Remove the small files with this prefix in their names."""
        ...

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Hold the writer's lock; wait for it at most for the time of `patience`.

        :raises LockedError: naming the process that holds it.
        """
        ...

    def abandon(self) -> None:
        """Remove the files of the lock from a location without an index; the caller holds the lock."""
        ...

    def is_free(self) -> bool:
        """Tell whether nothing is here but the remains of an unfinished index."""
        ...

    def prepare(self) -> None:
        """Remove the tables of an unfinished index, where `is_free`."""
        ...

    def vectors(self, name: str) -> Path:
        """Return the folder of a published vector index on this machine, which may be missing."""
        ...

    def has(self, name: str) -> bool:
        """Tell whether a published vector index is still here for all machines."""
        ...

    def keep(self, name: str) -> None:
        """Make a vector index that was published below `cache` available to all machines."""
        ...

    def size(self) -> int:
        """Count the bytes of all files."""
        ...

    def supersede(self, name: str) -> None:
        """Mark a vector index as replaced: readers may still open it for `KEEP_SECONDS`."""
        ...

    def drop(self, name: str) -> None:
        """Remove a vector index that was never in service."""
        ...

    def tidy(self, keep: Container[str], before: float) -> None:
        """Remove the vector indexes that were built or replaced before this time, except those in `keep`."""
        ...
