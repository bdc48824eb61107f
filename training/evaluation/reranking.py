"""How well a model puts the passages that answer a query above those that do not."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from .measures import intervals, values
from .result import JudgedRowsResult, Run
from .scorers import finite, is_encoder, score_name, unit_vectors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...core.arrays import Doubles
    from .labelled import Rankings
    from .scorers import Model

_MEASURES = ("MAP", "MRR@10", "nDCG@10")  # the first for a table


def evaluate_rankings(rankings: Rankings, model: Model) -> JudgedRowsResult:
    """MAP, MRR@10 and nDCG@10 of the passages of each query, ranked by the model.

    Of equal scores the negative comes first: a model that cannot tell them apart has no claim to either order.
    """
    began = time.monotonic()
    scores = list(_scores(rankings, model))
    seconds = time.monotonic() - began
    qrels: dict[str, dict[str, int]] = {}
    run: Run = {}
    gold = []
    for number, (positives, found) in enumerate(zip(rankings.positives, scores, strict=True), 1):
        is_positive = np.arange(len(found)) < len(positives)
        names = [f"{'p' if positive else 'n'}{place}" for place, positive in enumerate(is_positive, 1)]
        order = np.lexsort((is_positive, -found))
        qrels[str(number)] = dict.fromkeys(names[: len(positives)], 1)
        run[str(number)] = [(names[place], float(found[place])) for place in order]
        gold.append(is_positive)
    all_of = values(qrels, run)
    per_query = {name: all_of[name] for name in _MEASURES}
    return JudgedRowsResult(
        kind="reranking",
        data=rankings.name,
        model=model.name,
        measures={name: round(float(np.mean([*of.values()])), 4) for name, of in per_query.items()},
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
    """For each query the scores of its positives, then of its negatives."""
    candidates = [p + n for p, n in zip(rankings.positives, rankings.negatives, strict=True)]
    if not is_encoder(model):
        for query, passages in zip(rankings.queries, candidates, strict=True):
            yield finite(model, np.asarray(model.score(query, passages), np.float64))
        return
    queries = unit_vectors(model, rankings.queries, kind="query")
    vectors = unit_vectors(model, [passage for some in candidates for passage in some])
    ends = np.cumsum([len(some) for some in candidates])
    for vector, some in zip(queries, np.split(vectors, ends[:-1]), strict=True):
        yield (some @ vector).astype(np.float64)
