"""How good and how fast a vector index is, measured on queries, and what a demand asks of it."""

from __future__ import annotations

import math
import statistics
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ...core.errors import InputError
from ..flat import exact

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...core.arrays import Floats
    from ..base import VectorIndex

K = 10  # recall is that of the ten best
DEPTH = 200  # neighbours that a search in meaning asks an index for, and that latency is taken with
MOST_QUERIES = 50_000  # that are encoded to prove a recall
_TIED = 1e-6  # scores no further apart than this are equal: they may be computed in another order
_Z = 1.6449  # of a one-sided bound at 95 %
_TIMED = 200  # queries whose latency is taken one by one
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Requirements:
    """What an index must reach: recall@10 by the lower 95 % bound, and what it may cost."""

    recall: float = 0.99
    memory: float | None = None  # bytes that a search goes through at random
    latency: float | None = None  # seconds, of all but one in a hundred queries, for DEPTH neighbours, one at a time

    def check(self) -> Self:
        if not _is_number(self.recall) or not 0 < self.recall <= 1:
            raise InputError(f"a recall lies above 0 and is at most 1, such as 0.99, not {self.recall!r}")
        for name, value, what in (
            ("memory", self.memory, "bytes above 0, such as 250e6"),
            ("latency", self.latency, "seconds above 0, such as 0.005"),
        ):
            if value is not None and not (_is_number(value) and value > 0):
                raise InputError(f"{name} is a number of {what}, not {value!r}")
        return self

    @property
    def queries(self) -> int:
        """So many unseen queries leave room between the demanded recall and what has to be measured to prove it.

        Beyond a recall of 0.9999 it would take too many, and only exact search is sure to reach it.
        """
        wanted = round(min(2_500, max(400, 10 / max(1e-9, 1 - self.recall))))
        proof = math.ceil(1.5 * queries_needed(self.recall))
        return max(wanted, proof) if proof <= MOST_QUERIES else wanted


def _is_number(value: object) -> bool:
    """One that JSON has too, unlike numpy's, and a float can be."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _is_row(row: dict[str, Any]) -> bool:
    """Whether it can be a row of a curve."""
    search = all(name.isidentifier() and type(value) is int for name, value in row["search"].items())
    return search and all(_is_number(row[name]) for name in ("recall", "least", "rate", "p50", "p99"))


def queries_needed(recall: float) -> int:
    """How many queries, answered without a miss, it takes to prove a recall."""
    return math.ceil((1 + _Z) / max(1e-9, 1 - recall))


def at_least(recalls: NDArray[np.float64]) -> float:
    """The lower 95 % bound of their mean: Student's, over them and one more query that finds nothing.

    That one stands for the rare failure that a small sample does not happen to hold: without it, as many hits in a
    row as you like, be it three, would prove a recall of 1.
    """
    values = np.append(recalls, 0.0)
    freedom = max(1, len(values) - 1)
    quantile = _Z * (1 + (_Z**2 + 1) / (4 * freedom))
    spread = float(values.std(ddof=1)) if len(values) > 1 else 1.0
    return max(0.0, float(values.mean()) - quantile * spread / math.sqrt(len(values)))


@dataclass(frozen=True, slots=True)
class Sample:
    """Queries, and the score of the last of the exact answers to each: what scores as much is an answer too."""

    queries: Floats
    last: Floats  # (n, 1)
    k: int = K

    @classmethod
    def of(cls, queries: Floats, index: VectorIndex) -> Self:
        k = min(K, len(index.ids))
        scores = exact(index).search(queries, k)[0]
        return cls(queries, scores[:, -1:] if k else np.zeros((len(queries), 1), np.float32), k)

    def recalls(self, index: VectorIndex) -> NDArray[np.float64]:
        """The share of its exact answers that each query gets, (n,)."""
        return self.compared(index.search(self.queries, self.k)[0])

    def compared(self, scores: Floats) -> NDArray[np.float64]:
        if not self.k:
            return np.ones(len(scores))
        shares: NDArray[np.float64] = (scores >= self.last - _TIED * (1 + np.abs(self.last))).mean(axis=1)
        return shares

    def timed(self, index: VectorIndex) -> tuple[float, float]:
        """Seconds for a query, of the middle one and of the 99th in a hundred; each is asked alone, three times.

        For as many neighbours as a search asks for: it takes several times as long as for the ten best.
        """
        some, depth = self.queries[:_TIMED], min(DEPTH, len(index.ids))
        seconds = np.array([statistics.median(_seconds(index, query[None], depth) for _ in range(3)) for query in some])
        return float(np.quantile(seconds, 0.5)), float(np.quantile(seconds, 0.99))

    def rate(self, index: VectorIndex) -> float:
        """Queries a second for the ten best when all come at once: the best of three rounds."""
        return len(self.queries) / min(_seconds(index, self.queries, self.k) for _ in range(_ROUNDS))


def _seconds(index: VectorIndex, queries: Floats, k: int) -> float:
    began = time.perf_counter()
    index.search(queries, k)
    return time.perf_counter() - began


@dataclass(frozen=True, slots=True)
class Point:
    """One setting of one index, measured."""

    kind: str
    build: dict[str, Any]
    search: dict[str, Any]
    recall: float
    least: float  # the lower 95 % bound
    rate: float  # queries a second for the ten best, all at once
    memory: int  # bytes
    p50: float = math.nan  # seconds for DEPTH neighbours, one at a time
    p99: float = math.nan

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it: what was not timed is null."""
        return {name: None if value != value else value for name, value in asdict(self).items()}  # noqa: PLR0124

    @property
    def name(self) -> str:
        values = ", ".join(f"{name} {value}" for name, value in {**self.build, **self.search}.items())
        return f"{self.kind}{f' ({values})' * bool(values)}"


@dataclass(frozen=True, slots=True)
class BenchmarkResult:
    """What is published with an index: what was demanded of it, how it was measured, and its curve."""

    demand: Requirements
    recall: float = 0.0
    least: float = 0.0
    rate: float = 0.0
    p50: float = 0.0
    p99: float = 0.0
    memory: int = 0
    count: int = 0  # vectors
    threads: int = 0
    queries: int = 0
    source: str = "queries kept beside the index"  # where the queries are from
    at: str = ""  # when: ISO 8601, UTC
    curve: list[dict[str, Any]] = field(default_factory=list)  # the same index searched less and more deeply

    @property
    def bytes_per_vector(self) -> float:
        return self.memory / max(1, self.count)

    @property
    def met(self) -> bool:
        return meets(self.demand, self.least, self.memory, self.p99)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "bytes_per_vector": round(self.bytes_per_vector, 1), "met": self.met}

    @classmethod
    def of(cls, data: dict[str, Any]) -> Self | None:
        """What `as_dict` gave; None if it is anything else."""
        try:
            values = {name: data[name] for name in cls.__slots__}
            demand = Requirements(**values.pop("demand"))
            found = cls(demand, **values)
            numbers = [found.recall, found.least, found.rate, found.p50, found.p99, demand.recall]
            counts = [found.memory, found.count, found.threads, found.queries]
            limits = [limit for limit in (demand.memory, demand.latency) if limit is not None]
            right = (
                all(_is_number(number) and number >= 0 for number in [*numbers, *limits])
                and all(type(count) is int and 0 <= count < 2**62 for count in counts)
                and all(isinstance(text, str) and len(text) < 1_000 for text in (found.source, found.at))
                and all(map(_is_row, found.curve))
            )
            demand.check()
        except (AttributeError, KeyError, TypeError, ValueError):
            return None
        return found if right else None


def meets(demand: Requirements, least: float, memory: float, p99: float) -> bool:
    return (
        least >= demand.recall
        and (demand.memory is None or memory <= demand.memory)
        and (demand.latency is None or p99 <= demand.latency)
    )
