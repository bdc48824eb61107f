"""Erase deleted documents at a quiet moment: a thread waits until nothing was written for a while, or time is up."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from ..core.errors import BinocleError, LockedError

if TYPE_CHECKING:
    from collections.abc import Callable

_QUIET = 10.0  # seconds without a write
_AGAIN = 5.0  # seconds until the next attempt, while another process writes
_LOG = logging.getLogger("binocle")


class DeferredErasure:
    """One process's thread that erases at a quiet moment, or at the latest when time is up.

    :param erase: erases whatever was deleted.
    """

    def __init__(self, erase: Callable[[], object]) -> None:
        self._erase = erase
        self._changed = threading.Condition()
        self._due: float | None = None
        self._written = self._not_before = 0.0
        self._thread: threading.Thread | None = None

    def note_write(self, due: float | None) -> None:
        """Note the end of a write, and the time to erase deleted rows; None if nothing waits."""
        with self._changed:
            self._written, self._due = time.time(), due
            if due is not None and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="binocle-erasure", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """Erase now, if anything waits.

        :raises BinocleError: when the erasure fails; the next writer erases then.
        """
        with self._changed:
            is_due, self._due = self._due is not None, None
            thread = self._thread
            self._changed.notify()
        if thread:
            thread.join()
        if is_due:
            self._erase()

    def _run(self) -> None:
        while self._wait():
            try:
                self._erase()
            except LockedError:
                with self._changed:
                    self._not_before = time.time() + _AGAIN
            except (BinocleError, OSError) as error:
                _LOG.warning("deleted documents are not erased yet, the next write does it: %s", error)
                with self._changed:
                    self._due = None

    def _wait(self) -> bool:
        """Wait for the quiet moment; return False if nothing is left to erase."""
        with self._changed:
            while self._due is not None:
                delay = max(min(self._due, self._written + _QUIET), self._not_before) - time.time()
                if delay <= 0:
                    return True
                self._changed.wait(delay)
            self._thread = None
            return False
