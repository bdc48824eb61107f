"""Evaluate a model on a file of judged rows: read the rows, score them, measure the scores."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...core.errors import InputError
from .judged_rows import Pairs, read
from .reranking import evaluate_rankings
from .scorers import load
from .similarity import evaluate_pairs
from .trec_run import check_run_file, write_run

if TYPE_CHECKING:
    from .judged_rows import Rankings
    from .result import JudgedRowsResult
    from .scorers import Model


def evaluate_file(
    path: str | Path, *, model: str | Model | None = None, run_file: str | Path | None = None
) -> JudgedRowsResult:
    """Evaluate a model on a file of judged rows (see `judged_rows`).

    :param model: an encoder or a cross-encoder, or its folder or name; all-MiniLM-L6-v2 by default.
    :param run_file: write the rankings in TREC's format here; the rows must be rankings.
    :raises InputError: naming the file and line of the first row that does not fit.
    """
    check_run_file(run_file)
    rows = read(path)
    if run_file is not None and isinstance(rows, Pairs):
        raise InputError(f"{path} holds pairs: only rankings can be written as a TREC run")
    result = evaluate_rows(rows, load(model) if model is None or isinstance(model, str) else model)
    if run_file is not None:
        write_run(Path(run_file), result.run, "reranking")
    return result


def evaluate_rows(rows: Pairs | Rankings, model: Model) -> JudgedRowsResult:
    """Evaluate a model on judged rows in memory."""
    return evaluate_pairs(rows, model) if isinstance(rows, Pairs) else evaluate_rankings(rows, model)
