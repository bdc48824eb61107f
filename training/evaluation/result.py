"""The results of an evaluation: on a test collection, and on a file of judged rows."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...core.arrays import Doubles
    from .judged_rows import Kind
    from .measures import Run
    from .significance import Statistic


@dataclass(frozen=True, slots=True)
class RetrievalResult:
    """The quality of retrieval on a test collection.

    Measures are means over the queries with a relevant document; a query without hits counts as 0.
    """

    collection: str
    split: str
    mode: str
    model: str
    measures: dict[str, float]
    queries: int
    documents: int
    chunks: int
    index_seconds: float
    query_milliseconds: float  # mean of the first 50, searched one at a time
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)  # 95 %, by the bootstrap over queries
    per_query: dict[str, dict[str, float]] = field(default_factory=dict, repr=False)  # measure -> query -> value
    reranker: str | None = None

    def as_dict(self, *, per_query: bool = False) -> dict[str, Any]:
        """Return all fields for JSON, with null for the interval of one query.

        :param per_query: include the values of each query.
        """
        fields = asdict(self)
        fields["intervals"] = {measure: _finite_or_none(bounds) for measure, bounds in self.intervals.items()}
        if not per_query:
            del fields["per_query"]
        return fields


@dataclass(frozen=True, slots=True)
class JudgedRowsResult:
    """A model's quality on judged rows.

    A measure compares `scores` with `gold`, or is the mean of its values in `per_query`.
    """

    kind: Kind
    data: str
    model: str
    measures: dict[str, float]
    intervals: dict[str, tuple[float, float]]  # 95 %, by the bootstrap over rows
    rows: int
    seconds: float  # to score them
    thresholds: dict[str, float] = field(default_factory=dict)  # of pairs: best for accuracy and for F1
    scores: Doubles = field(default_factory=lambda: np.empty(0), repr=False)  # of each pair, or passage
    gold: Doubles = field(default_factory=lambda: np.empty(0), repr=False)  # people's judgement; 1 for a positive
    per_query: dict[str, dict[str, float]] = field(default_factory=dict, repr=False)  # measure -> query -> value
    run: Run = field(default_factory=dict, repr=False)
    score: str = "cosine similarity"  # the name of the scores
    labels: tuple[str, ...] = ()  # of classes, by the numbers in scores and gold

    @classmethod
    def of(
        cls, statistics: Mapping[str, Statistic], scores: Doubles, gold: Doubles, *, seconds: float, **facts: Any
    ) -> JudgedRowsResult:
        """Return each statistic of scores and judgements with its interval.

        :param scores: shape (rows,) or (rows, values).
        :param gold: shape (rows,).
        :param facts: the other fields.
        """
        intervals = {name: statistic.interval(scores, gold) for name, statistic in statistics.items()}
        return cls(
            measures={name: round(statistic.value(scores, gold), 4) for name, statistic in statistics.items()},
            intervals={name: (round(low, 4), round(high, 4)) for name, (low, high) in intervals.items()},
            rows=len(gold),
            seconds=round(seconds, 3),
            scores=scores,
            gold=gold,
            **facts,
        )

    def as_dict(self, *, per_query: bool = False) -> dict[str, Any]:
        """Return the fields for JSON, with null for a measure that is not defined.

        :param per_query: include the values of each query, the score of each pair, or the classes of each text.
        """
        names = ("kind", "data", "model", "measures", "intervals", "rows", "seconds")
        fields = {name: getattr(self, name) for name in names}
        for name in ("measures", "intervals"):
            fields[name] = {measure: _finite_or_none(value) for measure, value in fields[name].items()}
        if self.thresholds:
            fields["thresholds"] = self.thresholds
        if per_query and self.per_query:
            fields["per_query"] = self.per_query
        elif per_query:
            fields["scores"], fields["gold"] = self._values(self.scores), self._values(self.gold)
        return fields

    def _values(self, values: Doubles) -> list[Any]:
        return [self.labels[int(number)] for number in values] if self.labels else values.tolist()


def _finite_or_none(value: Any) -> Any:
    return value if np.isfinite(value).all() else None
