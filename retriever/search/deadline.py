"""The time that a search may take."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ...core.checks import is_real
from ...core.errors import DeadlineError, InputError


@dataclass(frozen=True, slots=True)
class Deadline:
    """A number of seconds, and the moment at which they are over."""

    seconds: float
    end: float  # of `time.monotonic`

    @classmethod
    def after(cls, seconds: float | Deadline | None) -> Deadline | None:
        """Return the deadline these seconds from now; a `Deadline` is returned as it is.

        :raises InputError: when it is no number of seconds.
        """
        if seconds is None or isinstance(seconds, Deadline):
            return seconds
        if not is_real(seconds) or seconds <= 0:
            raise InputError(f"deadline is the time for a search, a number of seconds above 0, not {seconds!r}")
        return cls(float(seconds), time.monotonic() + float(seconds))

    def or_sooner(self, seconds: float | None) -> Deadline:
        """Return this deadline, or a sooner one that began at the same moment.

        :raises InputError: when it is no number of seconds.
        """
        requested = Deadline.after(seconds)
        if requested is None or requested.seconds >= self.seconds:
            return self
        return Deadline(requested.seconds, self.end - self.seconds + requested.seconds)

    @property
    def remaining(self) -> float:
        """The seconds that remain; below 0 after the end."""
        return self.end - time.monotonic()

    def check(self, stage: str) -> None:
        """:raises DeadlineError: when the time is over before this stage of the search."""
        if self.remaining <= 0:
            raise DeadlineError(
                f"the search was not done after {self.seconds:g} seconds, before the stage {stage!r}: allow more time, "
                "or call warm_up() first"
            )
