"""The report of a mining run: how many pairs, candidates and negatives, and the dropped candidates by rule."""

from __future__ import annotations

import contextlib
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...retriever.search.mode import Mode


@dataclass(slots=True)
class MiningReport:
    """The figures of a mining run."""

    model: str = ""
    mode: Mode = "semantic"
    encoded_by: str = "the CPU"
    searched_by: str = "the CPU"
    pairs: int = 0  # different ones
    queries: int = 0  # different ones
    documents: int = 0  # searched texts, or passages of an index
    rows: int = 0  # written
    negatives: int = 0  # chosen, over all queries
    short: int = 0  # queries with fewer negatives than the requested number
    none: int = 0  # … without any
    candidates: int = 0  # over all queries
    dropped: dict[str, int] = field(default_factory=dict)  # candidates, by the first rule that dropped them
    seconds: dict[str, float] = field(default_factory=dict)  # by step

    def as_dict(self) -> dict[str, Any]:
        """Return the figures for JSON, with seconds rounded to milliseconds."""
        seconds = {name: round(value, 3) for name, value in self.seconds.items()}
        return asdict(self) | {"seconds": seconds}

    def drop(self, rule: str, count: int) -> None:
        """Count candidates that a rule dropped."""
        if count:
            self.dropped[rule] = self.dropped.get(rule, 0) + count

    @contextlib.contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Add the seconds of a step."""
        began = time.monotonic()
        yield
        self.seconds[step] = self.seconds.get(step, 0.0) + time.monotonic() - began
