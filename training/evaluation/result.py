"""The result of measuring a model on judged rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ...core.arrays import Doubles
    from ..evaluation import labelled


Run = dict[str, list[tuple[str, float]]]  # query -> passages with scores, best first


@dataclass(frozen=True, slots=True)
class JudgedRowsResult:
    """What `evaluate_file` found. A measure is of `scores` against `gold`, or the mean of its values in `per_query`."""

    kind: labelled.Kind
    data: str
    model: str
    measures: dict[str, float]
    intervals: dict[str, tuple[float, float]]  # 95 %, by the bootstrap over rows
    rows: int
    seconds: float  # to score them
    thresholds: dict[str, float] = field(default_factory=dict)  # of pairs: where accuracy and F1 are best
    scores: Doubles = field(default_factory=lambda: np.empty(0), repr=False)  # of each pair, or passage
    gold: Doubles = field(default_factory=lambda: np.empty(0), repr=False)  # what was said of it; 1 for a positive
    per_query: dict[str, dict[str, float]] = field(default_factory=dict, repr=False)  # measure -> query -> value
    run: Run = field(default_factory=dict, repr=False)
    score: str = "cosine similarity"  # what the scores are

    def as_dict(self, *, per_query: bool = False) -> dict[str, Any]:
        """For JSON; the values of each row or query only if asked."""
        names = ("kind", "data", "model", "measures", "intervals", "rows", "seconds")
        found = {name: getattr(self, name) for name in names}
        for name in ("measures", "intervals"):  # JSON has no NaN: what is not defined is null
            found[name] = {measure: _real(value) for measure, value in found[name].items()}
        if self.thresholds:
            found["thresholds"] = self.thresholds
        if per_query and self.per_query:
            found["per_query"] = self.per_query
        elif per_query:
            found["scores"], found["gold"] = self.scores.tolist(), self.gold.tolist()
        return found


def _real(value: Any) -> Any:
    return value if np.isfinite(value).all() else None
