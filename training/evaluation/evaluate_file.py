"""Evaluate a model on a file of judged rows: read the rows, score them, measure the scores."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...core.errors import InputError
from .heads.head_rows import HEAD_ROWS, Head, evaluate_head, load_head
from .judged_rows import HeadRows, Pairs, Rankings, read
from .reranking import evaluate_rankings
from .scorers import load
from .similarity import evaluate_pairs
from .trec_run import check_run_file, write_run

if TYPE_CHECKING:
    from .result import JudgedRowsResult
    from .scorers import Model


def evaluate_file(
    path: str | Path, *, model: str | Model | None = None, run_file: str | Path | None = None
) -> JudgedRowsResult:
    """Evaluate a model on a file of judged rows (see `judged_rows`).

    :param model: an encoder or a cross-encoder, or its folder or name; all-MiniLM-L6-v2 by default. For rows of a
        head, the folder or name of a classifier, tagger or reader.
    :param run_file: write the rankings in TREC's format here; the rows must be rankings.
    :raises InputError: naming the file and line of the first row that does not fit.
    """
    check_run_file(run_file, path)
    rows = read(path)
    if run_file is not None and not isinstance(rows, Rankings):
        content = "pairs" if isinstance(rows, Pairs) else HEAD_ROWS[rows.kind].rows
        raise InputError(f"{path} holds {content}: only rankings can be written as a TREC run")
    if isinstance(rows, HeadRows) and (model is None or isinstance(model, str)):
        return evaluate_head(rows, load_head(rows, model))
    result = evaluate_rows(rows, load(model) if model is None or isinstance(model, str) else model)
    if run_file is not None:
        write_run(Path(run_file), result.run, "reranking")
    return result


def evaluate_rows(rows: Pairs | Rankings | HeadRows, model: Model | Head) -> JudgedRowsResult:
    """Evaluate a model on judged rows in memory.

    :raises InputError: for a head with rows of another kind.
    """
    if isinstance(rows, HeadRows):
        return evaluate_head(rows, model)
    if isinstance(model, Head):
        raise InputError(f"{model.name} and {rows.name} do not fit: expected the kind of rows that it is trained on")
    return evaluate_rankings(rows, model) if isinstance(rows, Rankings) else evaluate_pairs(rows, model)
