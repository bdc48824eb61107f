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
    planned: int = 0  # steps, unless the run stops early
    best_step: int | None = None  # step of the weights that were best on held-out rows; None: the last

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
            planned=loop.planned,
            best_step=loop.best_step,
        )

    @property
    def notes(self) -> list[str]:
        """Sentences for people: where the run ended, and whether the model is worse than its base."""
        notes = []
        if self.steps < self.planned:
            notes.append(f"stopped early, after step {self.steps:,} of {self.planned:,}: no more gain on held-out rows")
        if self.best_step is not None and self.best_step < self.steps:
            notes.append(f"the weights come from step {self.best_step:,}, the best on held-out rows")
        if self.before and self.after and self.after.value < self.before.value:
            notes.append(f"the model is worse than its base: {self.after.name} fell on held-out rows")
        return notes

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
            "planned": self.planned,
            "best_step": self.best_step,
            "notes": self.notes,
            "rows": self.rows,
        }
