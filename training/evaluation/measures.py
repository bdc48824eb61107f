"""Measures of a ranking: nDCG, recall, reciprocal rank and average precision, each of one query."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .significance import interval

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Qrels = Mapping[str, Mapping[str, int]]  # query -> document -> grade
    Ranking = Sequence[tuple[str, float]]  # documents with scores, best first
    Run = Mapping[str, Ranking]  # query -> ranking


def ndcg(grades: Mapping[str, int], ranking: Ranking) -> float:
    gained = _dcg([grades.get(document, 0) for document, _ in ranking[:10]])
    return gained / _dcg(sorted(grades.values(), reverse=True)[:10])


def _dcg(grades: Sequence[int]) -> float:
    return sum(max(0, grade) / math.log2(rank + 1) for rank, grade in enumerate(grades, 1))


def _recall(grades: Mapping[str, int], ranking: Ranking) -> float:
    relevant = _relevant(grades)
    return len(relevant & {document for document, _ in ranking[:100]}) / len(relevant)


def _reciprocal_rank(grades: Mapping[str, int], ranking: Ranking) -> float:
    relevant = _relevant(grades)
    return next((1 / rank for rank, (document, _) in enumerate(ranking[:10], 1) if document in relevant), 0.0)


def _average_precision(grades: Mapping[str, int], ranking: Ranking) -> float:
    relevant, found, total = _relevant(grades), 0, 0.0
    for rank, (document, _) in enumerate(ranking, 1):
        if document in relevant:
            found += 1
            total += found / rank
    return total / len(relevant)


_OF_A_QUERY: dict[str, Callable[[Mapping[str, int], Ranking], float]] = {
    "nDCG@10": ndcg,
    "Recall@100": _recall,
    "MRR@10": _reciprocal_rank,
    "MAP": _average_precision,
}


def values(qrels: Qrels, run: Run) -> dict[str, dict[str, float]]:
    """Of each measure the value of each query that has a relevant document; 0 where nothing was found."""
    judged = {query: grades for query, grades in qrels.items() if _relevant(grades)}
    return {
        measure: {query: of(grades, run.get(query, ())) for query, grades in judged.items()}
        for measure, of in _OF_A_QUERY.items()
    }


def intervals(per_query: Mapping[str, Mapping[str, float]]) -> dict[str, tuple[float, float]]:
    """Of each measure the 95 % interval of its mean, by the bootstrap over queries."""
    found = {measure: interval([*given.values()]) for measure, given in per_query.items()}
    return {measure: (round(low, 4), round(high, 4)) for measure, (low, high) in found.items()}


def ndcg_at_10(qrels: Qrels, run: Run) -> float:
    """Normalised discounted cumulative gain, gain = grade (Järvelin and Kekäläinen 2002)."""
    return _mean(values(qrels, run)["nDCG@10"])


def _mean(found: Mapping[str, float]) -> float:
    return sum(found.values()) / len(found) if found else 0.0


def _relevant(grades: Mapping[str, int]) -> set[str]:
    return {document for document, grade in grades.items() if grade > 0}
