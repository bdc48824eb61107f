"""The requirements of a vector index, and how many queries prove that it meets them."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Self

from ...core.errors import InputError

MAX_QUERIES = 50_000  # to encode for the proof of a recall
QUANTILE = 1.6449  # of a one-sided 95 % bound


@dataclass(frozen=True, slots=True)
class Requirements:
    """Limits that an index must meet: the lower 95 % bound of its recall@10, its memory and its latency."""

    recall: float = 0.99
    memory: float | None = None  # bytes that a search reads at random
    latency: float | None = None  # seconds, 99th percentile, for SEARCH_DEPTH neighbours, one query at a time

    def check(self) -> Self:
        """Check the values and return the requirements.

        :raises InputError: for a value that no index can meet.
        """
        if not is_number(self.recall) or not 0 < self.recall <= 1:
            raise InputError(f"a recall lies above 0 and is at most 1, such as 0.99, not {self.recall!r}")
        for name, value, unit in (
            ("memory", self.memory, "bytes above 0, such as 250e6"),
            ("latency", self.latency, "seconds above 0, such as 0.005"),
        ):
            if value is not None and not (is_number(value) and value > 0):
                raise InputError(f"{name} is a number of {unit}, not {value!r}")
        return self

    @property
    def query_count(self) -> int:
        """How many held-out queries leave room between the required recall and the measurement that proves it.

        A recall beyond 0.9999 would take too many queries, and only exact search is sure to reach it.
        """
        usual = round(min(2_500, max(400, 10 / max(1e-9, 1 - self.recall))))
        proof = math.ceil(1.5 * queries_needed(self.recall))
        return max(usual, proof) if proof <= MAX_QUERIES else usual


def is_number(value: object) -> bool:
    """Whether the value is a plain number that fits a float: JSON has those, unlike numpy's."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def queries_needed(recall: float) -> int:
    """Return how many queries, answered without a miss, prove a recall."""
    return math.ceil((1 + QUANTILE) / max(1e-9, 1 - recall))
