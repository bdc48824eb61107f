"""The result of training a head."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from ..encoders.heldout import Estimate
    from ..runs.training_run import LoopResult


@dataclass(slots=True)
class HeadResult:
    """The model's folder, the cost of the steps, and its measures on held-out rows."""

    folder: Path
    kind: str
    rows: dict[str, int]  # learned from, held out and, if any, left out
    loop: LoopResult
    measures: list[Estimate]
    fingerprint: str
    notes: list[str] = field(default_factory=list)  # sentences for people

    def as_dict(self) -> dict[str, Any]:
        """Return the result for JSON."""
        return {
            "folder": str(self.folder),
            "kind": self.kind,
            "rows": self.rows,
            "steps": self.loop.steps,
            "seconds": round(self.loop.seconds, 1),
            "texts_per_second": round(self.loop.texts_per_second, 1),
            "resumed_from": self.loop.resumed_from,
            "measures": [measure.as_dict() for measure in self.measures],
            "fingerprint": self.fingerprint,
            "notes": self.notes,
        }
