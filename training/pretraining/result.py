"""The result of a pretraining run."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ..evaluation.significance import Difference
from .data.token_rows import RowCounts
from .perplexity import Perplexity

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(slots=True)
class PretrainingResult:
    """A pretrained model and its measures."""

    folder: str
    base: str
    objective: str
    new_head: bool  # the base had no head for masked words, and got one tied to its word embeddings
    counts: RowCounts
    steps: int
    seconds: float
    texts_per_second: float  # rows
    before: Perplexity | None
    after: Perplexity | None
    fingerprint: str = ""
    resumed_from: int | None = None
    history: list[dict[str, Any]] = field(default_factory=list)
    planned: int = 0  # steps, unless the run stops early
    best_step: int | None = None  # step of the weights that were kept; None: the last
    loop_notes: list[str] = field(default_factory=list)  # why it stopped, and which weights it kept
    difference: Difference | None = None  # in the log-likelihood of a hidden token, to the base

    @property
    def is_worse(self) -> bool:
        """Whether the model is worse than its base by more than chance."""
        return self.difference is not None and self.difference.verdict == "worse"

    @property
    def notes(self) -> list[str]:
        """Sentences for people: the verdict on held-out rows, where the run ended, and which weights it kept."""
        if self.difference is None:
            return self.loop_notes
        sentence = self.difference.sentence("log-likelihood of a hidden token")
        return [f"{sentence} than its base", *self.loop_notes]

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON, without the history."""
        left_out = ("history", "loop_notes")
        facts = {name: value for name, value in asdict(self).items() if name not in left_out} | {"notes": self.notes}
        for name in ("before", "after", "difference"):
            facts[name] = value.as_dict() if (value := getattr(self, name)) else None
        return facts

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> PretrainingResult:
        """From the fields of a result."""
        before, after = Perplexity.from_dict(fields["before"]), Perplexity.from_dict(fields["after"])
        difference = Difference(**fields["difference"]) if fields.get("difference") else None
        parts = {"counts": RowCounts(**fields["counts"]), "before": before, "after": after, "difference": difference}
        return cls(**{**fields, **parts})


def result_file(folder: Path) -> Path:
    """The file with the result of a run; it exists once the model is written."""
    return folder / "trained.json"
