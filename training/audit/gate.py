"""A gate: the limits that a defence must meet, and the settings that meet them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .result import AuditReport, DefenceResult

_LABELS = {"f1": "tokens", "content_f1": "uncommon tokens", "names": "names", "numbers": "numbers"}
_NEAREST = 3  # settings named when none passes


@dataclass(frozen=True, slots=True)
class Gate:
    """Limits for leak and search quality; None sets no limit.

    A leak is compared by the upper bound of its 95 % interval. A setting that was not measured does not pass.
    """

    max_token_f1: float | None = None  # the highest leak at any length
    min_ndcg_keep: float | None = None  # the lowest share of nDCG@10
    max_content_f1: float | None = None
    max_names: float | None = None  # share of names that come back
    max_numbers: float | None = None
    max_known: float | None = None  # share of passages with text that the attacker has: no defence changes it

    @property
    def is_set(self) -> bool:
        """Whether the gate has any limit."""
        return self.limits_leak or self.min_ndcg_keep is not None or self.max_known is not None

    @property
    def limits_leak(self) -> bool:
        """Whether the gate limits what may be recovered, which differs between settings."""
        return any(limit is not None for limit, _ in self._limits())

    def passing(self, report: AuditReport) -> list[DefenceResult]:
        """Return the settings within all limits: best nDCG@10 first, or least leak first if any leak is allowed."""
        results = [result for result in self._within(report) if not self.unknown(report, result)]
        results.sort(key=lambda result: (-(result.ndcg.value or 0.0), result.leak))
        return results if self.limits_leak else sorted(results, key=lambda result: result.leak)

    def unmeasured(self, report: AuditReport) -> list[DefenceResult]:
        """Return the settings that seem to be within all limits, but were attacked too weakly to tell."""
        return [result for result in self._within(report) if self.unknown(report, result)]

    def exceeds_known(self, report: AuditReport) -> bool:
        """Whether too many passages have text that the attacker has, by the upper bound; then no setting passes."""
        upper = report.known.sharing.high
        return self.max_known is not None and upper is not None and upper > self.max_known

    def unknown(self, report: AuditReport, result: DefenceResult) -> str:
        """Why a setting that seems to be within the limits may be beyond them; "" if it is measured."""
        if self.max_known is not None and report.known.sharing.high is None:
            return "no passage was compared with the attacker's documents"
        absent = [measure for limit, measure in self._limits() if limit is not None and result.upper(measure) is None]
        if absent:
            return f"the attacked texts have nothing that counts as {' or '.join(map(_LABELS.__getitem__, absent))}"
        return result.unmeasured

    def nearest(self, report: AuditReport) -> list[DefenceResult]:
        """Return the three settings that exceed the limits by the smallest sums, nearest first.

        Known text is left out, because it is the same for all settings.
        """
        return sorted(report.results, key=self._excess)[:_NEAREST]

    def _within(self, report: AuditReport) -> list[DefenceResult]:
        if self.exceeds_known(report):
            return []
        return [result for result in report.results if not self._excess(result)]

    def _limits(self) -> tuple[tuple[float | None, str], ...]:
        return (
            (self.max_token_f1, "f1"),
            (self.max_content_f1, "content_f1"),
            (self.max_names, "names"),
            (self.max_numbers, "numbers"),
        )

    def _excess(self, result: DefenceResult) -> float:
        uppers = ((limit, result.upper(measure)) for limit, measure in self._limits() if limit is not None)
        over = sum(max(0.0, upper - limit) for limit, upper in uppers if upper is not None)
        under = 0.0 if self.min_ndcg_keep is None else max(0.0, self.min_ndcg_keep - result.keep)
        return over + under

    def as_dict(self, report: AuditReport) -> dict[str, Any]:
        """Return the limits for JSON, with the names of the passing, the unmeasured and the nearest settings."""
        return {
            **asdict(self),
            "within": [result.name for result in self.passing(report)],
            "not_measured": [result.name for result in self.unmeasured(report)],
            "nearest": [result.name for result in self.nearest(report)],
        }
