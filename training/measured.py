"""A model held to rows that people have judged: what was measured, and on which file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..indexes.errors import InputError
from . import labelled
from .scoring import load

if TYPE_CHECKING:
    from .scoring import Model
    from .significance import Floats

Run = dict[str, list[tuple[str, float]]]  # query -> passages with scores, best first


@dataclass(frozen=True, slots=True)
class Measured:
    """What `evaluate_file` found. A measure is of `scores` against `gold`, or the mean of its values in `per_query`."""

    kind: labelled.Kind
    data: str
    model: str
    measures: dict[str, float]
    intervals: dict[str, tuple[float, float]]  # 95 %, by the bootstrap over rows
    rows: int
    seconds: float  # to score them
    thresholds: dict[str, float] = field(default_factory=dict)  # of pairs: where accuracy and F1 are best
    scores: Floats = field(default_factory=lambda: np.empty(0), repr=False)  # of each pair, or passage
    gold: Floats = field(default_factory=lambda: np.empty(0), repr=False)  # what was said of it; 1 for a positive
    per_query: dict[str, dict[str, float]] = field(default_factory=dict, repr=False)  # measure -> query -> value
    run: Run = field(default_factory=dict, repr=False)
    score: str = "cosine similarity"  # what the scores are

    def as_dict(self, *, per_query: bool = False) -> dict[str, Any]:
        """For JSON; the values of each row or query only if asked."""
        names = ("kind", "data", "model", "measures", "intervals", "rows", "seconds")
        found = {name: getattr(self, name) for name in names}
        for name in ("measures", "intervals"):  # JSON has no NaN: what is not defined is null
            found[name] = {measure: _real(value) for measure, value in found[name].items()}
        if self.thresholds:
            found["thresholds"] = self.thresholds
        if per_query and self.per_query:
            found["per_query"] = self.per_query
        elif per_query:
            found["scores"], found["gold"] = self.scores.tolist(), self.gold.tolist()
        return found


def _real(value: Any) -> Any:
    return value if np.isfinite(value).all() else None


def evaluate_file(
    path: str | Path, *, model: str | Model | None = None, run_file: str | Path | None = None
) -> Measured:
    """Measure a model on a file of judged rows (see `labelled`).

    :param model: an encoder or a cross-encoder, or the folder or name of one; all-MiniLM-L6-v2 unless given.
    :param run_file: where to write the rankings in TREC's format, where the rows are rankings.
    :raises InputError: naming the file and line of the first row that does not fit.
    """
    if run_file is not None and not Path(run_file).parent.is_dir():
        raise InputError(f"there is no folder {Path(run_file).parent} to write the run into")
    rows = labelled.read(path)
    if run_file is not None and isinstance(rows, labelled.Pairs):
        raise InputError(f"{path} holds pairs: only rankings can be written as a TREC run")
    found = evaluate_rows(rows, load(model) if model is None or isinstance(model, str) else model)
    if run_file is not None:
        from .evaluation import trec

        Path(run_file).write_text("".join(trec(found.run, "reranking")), "utf-8")
    return found


def evaluate_rows(rows: labelled.Pairs | labelled.Rankings, model: Model) -> Measured:
    if isinstance(rows, labelled.Pairs):
        from .similarity import evaluate_pairs

        return evaluate_pairs(rows, model)
    from .reranking import evaluate_rankings

    return evaluate_rankings(rows, model)
