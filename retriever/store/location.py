"""Where an index lies: a folder, or a prefix of a bucket on object storage.

What must change as one step is one small file, HEAD.json. In a folder it is renamed into place under the writer's
lock. On object storage nothing can be renamed, but an object can be put on the condition that it still is the one that
was read: there the put is the commit, and of two writers one is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Container
    from pathlib import Path

    from .tables import TableLocation

ANY = "*"  # to write over whatever there is
NEW = ""  # to write only what is not there yet
KEEP_SECONDS = 600.0  # a reader may still come for what was in service for this long
TABLES = ("documents.lance", "chunks.lance")


class Location(Protocol):
    """What a store needs of the place it lies in."""

    cache: Path  # a folder of this machine, for what is mapped or is of use to this machine alone
    outlives: bool  # whether one that writes may be taken for dead while it lives: then the next one commits first

    def __str__(self) -> str:
        """Its name, by which `place_of` finds it again on another machine."""
        ...

    def table(self, name: str) -> TableLocation: ...

    def read(self, file: str) -> tuple[bytes, str]:
        """A small file and its tag, which changes whenever the file does.

        :raises OSError: FileNotFoundError when there is none.
        """
        ...

    def write(self, file: str, data: bytes, *, over: str) -> str:
        """Put a file in place of the one with this tag, of `ANY` or of none (`NEW`), as one step; gives its tag.

        :raises LockedError: when it is another by now.
        """
        ...

    def remove(self, beginning: str) -> None:
        """Remove the small files whose names begin so."""
        ...

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Be the one who writes.

        :raises LockedError: at once, naming who does.
        """
        ...

    def is_free(self) -> bool:
        """Whether nothing is here, or what an index that was never finished has left."""
        ...

    def prepare(self) -> None:
        """Make room for an index where `is_free`: no table of an unfinished one remains."""
        ...

    def vectors(self, name: str) -> Path:
        """The folder of a published vector index on this machine; it need not exist."""
        ...

    def has(self, name: str) -> bool:
        """Whether a published vector index is still here, for every machine."""
        ...

    def keep(self, name: str) -> None:
        """Have other machines see a vector index that was published below `cache`."""
        ...

    def size(self) -> int:
        """Bytes of all that is here."""
        ...

    def supersede(self, name: str) -> None:
        """Note that a vector index is out of service from now on: readers may still come for it for a while."""
        ...

    def drop(self, name: str) -> None:
        """Remove a vector index that was never in service."""
        ...

    def tidy(self, keep: Container[str], before: float) -> None:
        """Remove vector indexes but those to keep and those made or superseded after this time."""
        ...
