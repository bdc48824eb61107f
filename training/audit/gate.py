"""A gate: the limits that a defence must meet, and the settings that meet them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .result import AuditReport, DefenceResult

_NEAREST = 3  # settings named when none passes


@dataclass(frozen=True, slots=True)
class Gate:
    """Limits for leak and search quality; None sets no limit."""

    max_token_f1: float | None = None  # the highest leak at any length
    min_ndcg_keep: float | None = None  # the lowest share of nDCG@10

    @property
    def is_set(self) -> bool:
        """Whether the gate has any limit."""
        return self.max_token_f1 is not None or self.min_ndcg_keep is not None

    def passing(self, report: AuditReport) -> list[DefenceResult]:
        """Return the settings within both limits: best nDCG@10 first, or least leak first if any leak is allowed."""
        results = [result for result in report.results if not self._excess(result)]
        results.sort(key=lambda result: (-(result.ndcg.value or 0.0), result.leak))
        return results if self.max_token_f1 is not None else sorted(results, key=lambda result: result.leak)

    def nearest(self, report: AuditReport) -> list[DefenceResult]:
        """Return the three settings that exceed the limits by the smallest sums, nearest first."""
        return sorted(report.results, key=self._excess)[:_NEAREST]

    def _excess(self, result: DefenceResult) -> float:
        over = 0.0 if self.max_token_f1 is None else max(0.0, result.leak - self.max_token_f1)
        under = 0.0 if self.min_ndcg_keep is None else max(0.0, self.min_ndcg_keep - result.keep)
        return over + under

    def as_dict(self, report: AuditReport) -> dict[str, Any]:
        """Return both limits for JSON, with the names of the passing and the nearest settings."""
        return {
            "max_token_f1": self.max_token_f1,
            "min_ndcg_keep": self.min_ndcg_keep,
            "within": [result.name for result in self.passing(report)],
            "nearest": [result.name for result in self.nearest(report)],
        }
