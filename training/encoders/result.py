"""The result of training an encoder or a reranker."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from ..runs.training_run import LoopResult, TrainingRun
    from .heldout import Estimate


@dataclass(slots=True)
class TrainingResult:
    """The model's folder, the cost of the steps, and the measures before and after them."""

    folder: Path
    objective: str
    steps: int
    seconds: float
    texts_per_second: float
    before: Estimate | None
    after: Estimate | None
    fingerprint: str
    resumed_from: int | None = None
    history: list[dict[str, Any]] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)  # in each part of the data
    account: str = ""  # of these parts, as a sentence

    @classmethod
    def of(cls, run: TrainingRun[Any], objective: str, loop: LoopResult, before: Estimate | None) -> TrainingResult:
        """Return the result after the steps, before the final measure."""
        return cls(
            folder=run.out,
            objective=objective,
            steps=loop.steps,
            seconds=loop.seconds,
            texts_per_second=loop.texts_per_second,
            before=before,
            after=None,
            fingerprint="",
            resumed_from=loop.resumed_from,
            history=loop.history,
        )

    def measures(self) -> list[dict[str, Any]]:
        """Return the rows of the model card."""
        estimates = (("before", self.before), ("after", self.after))
        return [estimate.as_dict() | {"when": when} for when, estimate in estimates if estimate]

    def as_dict(self) -> dict[str, Any]:
        """Return the result for JSON, without history and account."""
        return {
            "folder": str(self.folder),
            "objective": self.objective,
            "steps": self.steps,
            "seconds": round(self.seconds, 1),
            "texts_per_second": round(self.texts_per_second, 1),
            "before": self.before and self.before.as_dict(),
            "after": self.after and self.after.as_dict(),
            "fingerprint": self.fingerprint,
            "resumed_from": self.resumed_from,
            "rows": self.rows,
        }
