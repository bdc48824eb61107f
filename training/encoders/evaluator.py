"""Evaluation on held-out rows, as sentence-transformers' trainers call it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sentence_transformers.base.evaluation import BaseEvaluator

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..evaluation.best_so_far import BestSoFar
    from .heldout import Estimate


class HeldOutEvaluator(BaseEvaluator):
    """Evaluate with a function of our own, on rows of our own."""

    def __init__(self, metric: str, measure: Callable[[], Estimate | None], best: BestSoFar) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.primary_metric = metric
        self._measure, self._best = measure, best

    def __call__(self, *_: Any, **__: Any) -> dict[str, float]:
        """Return the measure under the name that the trainer compares; all arguments are ignored."""
        estimate = self._measure()
        assert estimate is not None
        return self._best.metrics(estimate)
