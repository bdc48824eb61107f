"""The result of training an encoder or a reranker."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from ..evaluation.significance import Difference
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
    best_step: int | None = None  # step of the weights that were kept; None: the last
    loop_notes: list[str] = field(default_factory=list)  # why it stopped, and which weights it kept
    difference: Difference | None = None  # of the trained model and its base, on the same rows

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
            loop_notes=loop.notes,
        )

    def measured(self, after: Estimate | None) -> None:
        """Take the final measure, and compare it with that of the base."""
        self.after = after
        if self.before and after and len(self.before.values) == len(after.values):
            self.difference = after.difference(self.before.values)

    @property
    def is_worse(self) -> bool:
        """Whether the model is worse than its base by more than chance."""
        return self.difference is not None and self.difference.verdict == "worse"

    @property
    def notes(self) -> list[str]:
        """Sentences for people: the verdict on held-out rows, where the run ended, and which weights it kept."""
        if self.difference is None or self.after is None:
            return self.loop_notes
        return [f"{self.difference.sentence(self.after.name)} than its base", *self.loop_notes]

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
            "difference": self.difference and self.difference.as_dict(),
            "fingerprint": self.fingerprint,
            "resumed_from": self.resumed_from,
            "planned": self.planned,
            "best_step": self.best_step,
            "notes": self.notes,
            "rows": self.rows,
        }
