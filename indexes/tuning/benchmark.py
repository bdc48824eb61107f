"""Benchmark a vector index on queries, and compare the result with required limits."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..base import SEARCH_DEPTH
from ..flat import exact_index
from .requirements import QUANTILE, Requirements, is_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...core.arrays import Doubles, Floats
    from ..base import VectorIndex

K = 10  # recall is measured over the ten best
_TIE = 1e-6  # scores no further apart than this are equal: they may be computed in another order
_TIMED_QUERIES = 200
_ROUNDS = 3
_SEED = 0
_JSON_KEYS = {"requirements": "demand", "recall_bound": "least", "measured_at": "at"}  # fields renamed in JSON
_CURVE_FIELDS = ("search", "recall", "recall_bound", "rate", "p50", "p99")


def recall_lower_bound(recalls: Doubles) -> float:
    """Return the lower 95 % bound of the mean: Student's, over the sample and one more query that finds nothing.

    The extra query stands for the rare failure that a small sample misses. Without it, any number of hits in a row,
    even three, would prove a recall of 1.
    """
    values = np.append(recalls, 0.0)
    freedom = max(1, len(values) - 1)
    quantile = QUANTILE * (1 + (QUANTILE**2 + 1) / (4 * freedom))
    spread = float(values.std(ddof=1)) if len(values) > 1 else 1.0
    return max(0.0, float(values.mean()) - quantile * spread / math.sqrt(len(values)))


@dataclass(frozen=True, slots=True)
class QuerySample:
    """Queries with the score of their last exact answer; any vector with at least that score is an answer too."""

    queries: Floats
    thresholds: Floats  # (n, 1)
    k: int = K

    @classmethod
    def of(cls, queries: Floats, index: VectorIndex) -> Self:
        """Search the index exactly for the thresholds."""
        k = min(K, len(index.ids))
        scores = exact_index(index).search(queries, k)[0]
        return cls(queries, scores[:, -1:] if k else np.zeros((len(queries), 1), np.float32), k)

    def recalls(self, index: VectorIndex) -> Doubles:
        """Return the share of its exact answers that each query gets, (n,)."""
        return self.recalls_of_scores(index.search(self.queries, self.k)[0])

    def recalls_of_scores(self, scores: Floats) -> Doubles:
        """Return the recall of each query, (n,), from its scores, (n, k)."""
        if not self.k:
            return np.ones(len(scores))
        shares: Doubles = (scores >= self.thresholds - _TIE * (1 + np.abs(self.thresholds))).mean(axis=1)
        return shares

    def latencies(self, index: VectorIndex) -> tuple[float, float]:
        """Return the median and the 99th percentile of a query's seconds; each query runs alone, three times.

        It asks for as many neighbours as a real search does: that takes several times as long as the ten best.
        """
        queries, depth = self.queries[:_TIMED_QUERIES], min(SEARCH_DEPTH, len(index.ids))
        seconds = np.array([np.median([_seconds(index, query[None], depth) for _ in range(3)]) for query in queries])
        return float(np.quantile(seconds, 0.5)), float(np.quantile(seconds, 0.99))

    def rate(self, index: VectorIndex) -> float:
        """Return queries a second for the ten best, all queries in one batch: the best of three rounds."""
        return len(self.queries) / min(_seconds(index, self.queries, self.k) for _ in range(_ROUNDS))


def _seconds(index: VectorIndex, queries: Floats, k: int) -> float:
    start = time.perf_counter()
    index.search(queries, k)
    return time.perf_counter() - start


def split_queries(queries: Floats, index: VectorIndex) -> tuple[QuerySample, QuerySample]:
    """Divide queries into a half to choose by and a held-out half for the proof, each with its exact answers.

    A single query is in both halves. The division is the same every time, so that the held-out half of stored queries
    never has a part in choosing.
    """
    order = np.random.default_rng(_SEED).permutation(len(queries))
    half = len(queries) // 2
    selection, holdout = order[:half] if half else order, order[half:]
    return QuerySample.of(queries[np.sort(selection)], index), QuerySample.of(queries[np.sort(holdout)], index)


@dataclass(frozen=True, slots=True)
class Measurement:
    """The figures of one index with one setting of its search parameters."""

    kind: str
    build: dict[str, Any]
    search: dict[str, Any]
    recall: float
    recall_bound: float  # the lower 95 % bound
    rate: float  # queries a second for the ten best, in one batch
    memory: int  # bytes
    p50: float = math.nan  # seconds for SEARCH_DEPTH neighbours, one query at a time
    p99: float = math.nan

    def as_dict(self) -> dict[str, Any]:
        """Return the figures for JSON; a latency that was not measured is null."""
        return {
            _JSON_KEYS.get(name, name): None if isinstance(value, float) and math.isnan(value) else value
            for name, value in asdict(self).items()
        }

    @property
    def name(self) -> str:
        """Kind, build and search parameters for messages, such as `ivf_int8 (nlist 500, nprobe 8)`."""
        return setting_name(self.kind, {**self.build, **self.search})


def setting_name(kind: str, values: dict[str, Any]) -> str:
    """Return the kind with its parameters, for messages: `ivf_int8 (nlist 500, nprobe 8)`."""
    parameters = ", ".join(f"{name} {value}" for name, value in values.items())
    return f"{kind}{f' ({parameters})' * bool(parameters)}"


@dataclass(frozen=True, slots=True)
class BenchmarkResult:
    """The measurements that are published with an index: its requirements, its figures and its curve."""

    requirements: Requirements
    recall: float = 0.0
    recall_bound: float = 0.0
    rate: float = 0.0
    p50: float = 0.0
    p99: float = 0.0
    memory: int = 0
    count: int = 0  # vectors
    threads: int = 0
    queries: int = 0
    source: str = "queries kept beside the index"  # where the queries came from
    measured_at: str = ""  # ISO 8601, UTC
    curve: list[dict[str, Any]] = field(default_factory=list)  # the same index searched less and more deeply

    @classmethod
    def of(
        cls,
        measurement: Measurement,
        curve: Sequence[Measurement],
        requirements: Requirements,
        *,
        queries: int,
        count: int,
        source: str,
    ) -> Self:
        """Combine the chosen measurement with the curve around it.

        :param queries: the number of queries that were measured with.
        :param count: the number of vectors in the index.
        """
        import faiss

        figures = {name: getattr(measurement, name) for name in (*_CURVE_FIELDS[1:], "memory")}
        rows = [{_JSON_KEYS.get(name, name): getattr(row, name) for name in _CURVE_FIELDS} for row in curve]
        return cls(
            requirements,
            **figures,
            count=count,
            threads=faiss.omp_get_max_threads(),
            queries=queries,
            source=source,
            measured_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            curve=rows,
        )

    @property
    def bytes_per_vector(self) -> float:
        """`memory` divided by the number of vectors; an empty index counts as one vector."""
        return self.memory / max(1, self.count)

    @property
    def met(self) -> bool:
        """Whether the index meets its requirements."""
        return meets_requirements(self.requirements, self.recall_bound, self.memory, self.p99)

    def as_dict(self) -> dict[str, Any]:
        """Return the result for JSON."""
        values = {_JSON_KEYS.get(name, name): value for name, value in asdict(self).items()}
        return {**values, "bytes_per_vector": round(self.bytes_per_vector, 1), "met": self.met}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self | None:
        """Read a result of `as_dict`; None for any other data."""
        try:
            values = {name: data[_JSON_KEYS.get(name, name)] for name in cls.__slots__}
            requirements = Requirements(**values.pop("requirements"))
            result = cls(requirements, **values)
            is_valid = result._has_valid_types()
            requirements.check()
        except (AttributeError, KeyError, TypeError, ValueError):
            return None
        return result if is_valid else None

    def _has_valid_types(self) -> bool:
        limits = [limit for limit in (self.requirements.memory, self.requirements.latency) if limit is not None]
        numbers = [self.recall, self.recall_bound, self.rate, self.p50, self.p99, self.requirements.recall, *limits]
        counts = [self.memory, self.count, self.threads, self.queries]
        return (
            all(is_number(number) and number >= 0 for number in numbers)
            and all(type(count) is int and 0 <= count < 2**62 for count in counts)
            and all(isinstance(text, str) and len(text) < 1_000 for text in (self.source, self.measured_at))
            and all(map(_is_curve_row, self.curve))
        )


def _is_curve_row(row: dict[str, Any]) -> bool:
    has_search = all(name.isidentifier() and type(value) is int for name, value in row["search"].items())
    return has_search and all(is_number(row[name]) for name in ("recall", "least", "rate", "p50", "p99"))


def meets_requirements(requirements: Requirements, recall_bound: float, memory: float, p99: float) -> bool:
    """Whether these figures meet every limit."""
    return (
        recall_bound >= requirements.recall
        and (requirements.memory is None or memory <= requirements.memory)
        and (requirements.latency is None or p99 <= requirements.latency)
    )
