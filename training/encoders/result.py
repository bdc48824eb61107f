"""What a run that trains an encoder or a reranker made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from ..runs.run_folder import RunFolder, StepsResult
    from .heldout import Estimate


@dataclass(slots=True)
class TrainingResult:
    """The model's folder, what its steps took, and what is measured before and after them."""

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
    account: str = ""  # of those parts, in words

    @classmethod
    def of(cls, run: RunFolder, objective: str, ran: StepsResult, before: Estimate | None) -> TrainingResult:
        """What is known when the steps are taken."""
        return cls(
            folder=run.out,
            objective=objective,
            steps=ran.steps,
            seconds=ran.seconds,
            texts_per_second=ran.texts_per_second,
            before=before,
            after=None,
            fingerprint="",
            resumed_from=ran.resumed_from,
            history=ran.history,
        )

    def as_dict(self) -> dict[str, Any]:
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
