"""Measure how well a model ranks a query's relevant passages above the irrelevant ones."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from .measures import intervals, mean, values
from .result import JudgedRowsResult
from .scorers import finite, is_encoder, score_name, unit_vectors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...core.arrays import Doubles
    from .judged_rows import Rankings
    from .scorers import Model

_MEASURES = ("MAP", "MRR@10", "nDCG@10")  # the first for a table


def evaluate_rankings(rankings: Rankings, model: Model) -> JudgedRowsResult:
    """Compute MAP, MRR@10 and nDCG@10 of each query's passages, ranked by the model.

    With equal scores the negative comes first: a model without a preference gets no credit.
    """
    began = time.monotonic()
    scores = list(_scores(rankings, model))
    seconds = time.monotonic() - began
    qrels: dict[str, dict[str, int]] = {}
    run: dict[str, list[tuple[str, float]]] = {}
    gold = []
    for number, (positives, of_query) in enumerate(zip(rankings.positives, scores, strict=True), 1):
        is_positive = np.arange(len(of_query)) < len(positives)
        names = [f"{'p' if positive else 'n'}{position}" for position, positive in enumerate(is_positive, 1)]
        order = np.lexsort((is_positive, -of_query))
        qrels[str(number)] = dict.fromkeys(names[: len(positives)], 1)
        run[str(number)] = [(names[position], float(of_query[position])) for position in order]
        gold.append(is_positive)
    all_values = values(qrels, run)
    per_query = {name: all_values[name] for name in _MEASURES}
    return JudgedRowsResult(
        kind="reranking",
        data=rankings.name,
        model=model.name,
        measures={name: round(mean(by_query), 4) for name, by_query in per_query.items()},
        intervals=intervals(per_query),
        rows=len(scores),
        seconds=round(seconds, 3),
        scores=np.concatenate(scores),
        gold=np.concatenate(gold).astype(np.float64),
        per_query=per_query,
        run=run,
        score=score_name(model),
    )


def _scores(rankings: Rankings, model: Model) -> Iterator[Doubles]:
    """Yield for each query the scores of its positives, then of its negatives."""
    candidates = [p + n for p, n in zip(rankings.positives, rankings.negatives, strict=True)]
    if not is_encoder(model):
        for query, passages in zip(rankings.queries, candidates, strict=True):
            yield finite(model, np.asarray(model.score(query, passages), np.float64))
        return
    queries = unit_vectors(model, rankings.queries, kind="query")
    vectors = unit_vectors(model, [passage for passages in candidates for passage in passages])
    ends = np.cumsum([len(passages) for passages in candidates])
    for query, passage_vectors in zip(queries, np.split(vectors, ends[:-1]), strict=True):
        yield (passage_vectors @ query).astype(np.float64)
