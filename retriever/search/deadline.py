"""The time that a search may take, and the time that its stages took."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...core.checks import is_real
from ...core.errors import DeadlineError, InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

_STAGES = ("encoding", "lexical", "exact", "semantic", "neighbours", "reranker", "sentences")  # in a fixed order


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


class StageTimes:
    """The seconds of each stage of one search. A call times a stage: `with timed("lexical"):`.

    :param deadline: no stage but the reranker begins after it.
    """

    def __init__(self, deadline: Deadline | None) -> None:
        self._deadline = deadline
        self._seconds: dict[str, float] = {}  # by stage

    @contextlib.contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Time a stage, or a part of it.

        :raises DeadlineError: when the time is over before it.
        """
        if self._deadline and stage != "reranker":
            self._deadline.check(stage)
        start = time.perf_counter()
        yield
        self._seconds[stage] = self._seconds.get(stage, 0) + time.perf_counter() - start

    def seconds(self) -> dict[str, float]:
        """Return the seconds by stage, in the order of the stages."""
        return {stage: self._seconds[stage] for stage in _STAGES if stage in self._seconds}
