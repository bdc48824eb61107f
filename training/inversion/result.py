"""The result of training an inverter."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(slots=True)
class TrainedInverter:
    """A trained inverter and its measures."""

    folder: str
    kind: str
    encoder: str
    counts: dict[str, int]
    steps: int
    seconds: float
    texts_per_second: float
    measures: list[dict[str, Any]]  # name, value, interval, rows
    threshold: float = 0.0
    resumed_from: int | None = None
    history: list[dict[str, Any]] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON, without the history."""
        return {name: value for name, value in asdict(self).items() if name != "history"}
