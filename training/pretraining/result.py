"""The result of a pretraining run."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from .perplexity import Perplexity
from .rows import Counts

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(slots=True)
class PretrainingResult:
    """A pretrained model and its measures."""

    folder: str
    base: str
    objective: str
    new_head: bool  # the base had no head for masked words, and got one tied to its word embeddings
    counts: Counts
    steps: int
    seconds: float
    texts_per_second: float  # rows
    before: Perplexity | None
    after: Perplexity | None
    fingerprint: str = ""
    resumed_from: int | None = None
    history: list[dict[str, Any]] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON, without the history."""
        return {name: value for name, value in asdict(self).items() if name != "history"}

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> PretrainingResult:
        """From the result of `as_dict`, with the history."""
        before, after = Perplexity.from_dict(fields["before"]), Perplexity.from_dict(fields["after"])
        return cls(**{**fields, "counts": Counts(**fields["counts"]), "before": before, "after": after})


def result_file(folder: Path) -> Path:
    """The file with the result of a run; it exists once the model is written."""
    return folder / "trained.json"
