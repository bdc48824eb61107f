"""Writers that wait for the lock of a folder, in order of arrival.

Each has an empty file `waiting-NUMBER-PID-…` in the index, and holds its lock: the system frees it when the process
dies, and the next look removes the file. A writer tries the index's lock only when nobody is before it.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ....core.errors import LockedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from filelock import BaseFileLock

    from .location import Location

_TICKET = re.compile(r"waiting-(\d{8})-(\d+)-[0-9a-f]{8}")
_T = TypeVar("_T")


class Busy(Exception):  # noqa: N818 - no error, unless the patience ends
    """Another process has the lock; the argument says who, for a message."""


def wait_for(location: Location, attempt: Callable[[], _T], *, poll_seconds: float) -> _T:
    """Return the result of an attempt to take the lock, repeated while it raises `Busy`.

    :raises LockedError: when the patience ends.
    """
    start, patience = time.monotonic(), location.patience
    has_said = False
    while True:
        try:
            return attempt()
        except Busy as busy:
            remaining = start + patience.seconds - time.monotonic()
            process = str(busy)
            if remaining <= 0:
                raise _refusal(location, process) from None
        if not has_said:
            patience.say(f"{location} is being written by {process}: waiting up to {patience.seconds:g} s for it")
            has_said = True
        time.sleep(min(poll_seconds, remaining))


def _refusal(location: Location, process: str) -> LockedError:
    killed = ", or in a minute if it was killed" if location.lock_expires else ""
    still, waited = ("still ", f" after {location.patience.seconds:g} s") if location.patience.seconds else ("", "")
    return LockedError(
        f"{location} is {still}being written by {process}{waited}: "
        f"try again when it has finished{killed}, or {location.patience.remedy}"
    )


class WaitingLine:
    """The place of one writer in the line of an index folder. It has none before `join`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ticket: Path | None = None
        self._lock: BaseFileLock | None = None

    def join(self) -> None:
        """Take the last place, unless this process has one.

        Another writer may look at the ticket before it is locked, and remove it: the next call takes a new one.
        """
        from filelock import FileLock, Timeout

        if self._ticket is None or not self._ticket.exists():
            self.leave()
            numbers = [int(match[1]) for match in self._tickets().values()]
            name = f"waiting-{max(numbers, default=0) + 1:08}-{os.getpid()}-{os.urandom(4).hex()}"
            self._ticket = self._folder / name
            self._lock = FileLock(self._ticket, timeout=0, mode=0o600)
            with contextlib.suppress(Timeout):
                self._lock.acquire()

    def leave(self) -> None:
        """Give the place up."""
        self._ticket = None
        lock, self._lock = self._lock, None
        if lock is not None:
            Path(lock.lock_file).unlink(missing_ok=True)
            lock.release()

    def first(self) -> int | None:
        """Return the first process that waits before this writer; None if there is none.

        A writer without a place comes after all.
        """
        for ticket, match in sorted(self._tickets().items()):
            if ticket == self._ticket:
                return None
            if self._is_alive(ticket):
                return int(match[2])
        return None

    def _tickets(self) -> dict[Path, re.Match[str]]:
        names = ((entry, _TICKET.fullmatch(entry.name)) for entry in self._folder.iterdir())
        return {entry: match for entry, match in names if match}

    def _is_alive(self, ticket: Path) -> bool:
        """Tell whether the process of a ticket lives, and remove the ticket if not."""
        from filelock import FileLock, Timeout

        lock = FileLock(ticket, timeout=0, mode=0o600)
        try:
            lock.acquire()
        except Timeout:
            return True
        with contextlib.suppress(OSError):
            ticket.unlink()
        lock.release()
        return False


def is_ticket(name: str) -> bool:
    """Tell whether this is the name of a ticket."""
    return _TICKET.fullmatch(name) is not None
