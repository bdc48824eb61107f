"""A model held to rows that people have judged: what was measured, and on which file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...core.errors import InputError
from . import labelled
from .scorers import load

if TYPE_CHECKING:
    from .result import JudgedRowsResult
    from .scorers import Model


def evaluate_file(
    path: str | Path, *, model: str | Model | None = None, run_file: str | Path | None = None
) -> JudgedRowsResult:
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
        from .retrieval import trec

        Path(run_file).write_text("".join(trec(found.run, "reranking")), "utf-8")
    return found


def evaluate_rows(rows: labelled.Pairs | labelled.Rankings, model: Model) -> JudgedRowsResult:
    if isinstance(rows, labelled.Pairs):
        from .similarity import evaluate_pairs

        return evaluate_pairs(rows, model)
    from .reranking import evaluate_rankings

    return evaluate_rankings(rows, model)
