"""Measures of a ranking: nDCG, recall, reciprocal rank and average precision, each of one query.

The values equal trec_eval's; the tests compare them with `ir-measures`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .significance import interval

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Grades = Mapping[str, int]  # of one query: document -> grade
    Qrels = Mapping[str, Grades]  # by query
    Ranking = Sequence[tuple[str, float]]  # documents with scores, best first
    Run = Mapping[str, Ranking]  # query -> ranking


def ndcg(grades: Grades, ranking: Ranking) -> float:
    """Normalised discounted cumulative gain at 10, gain = grade (Järvelin and Kekäläinen 2002)."""
    gain = _dcg([grades.get(document, 0) for document, _ in ranking[:10]])
    return gain / _dcg(sorted(grades.values(), reverse=True)[:10])


def _dcg(grades: Sequence[int]) -> float:
    return sum(max(0, grade) / math.log2(rank + 1) for rank, grade in enumerate(grades, 1))


def _recall(grades: Grades, ranking: Ranking) -> float:
    documents = relevant(grades)
    return len(documents & {document for document, _ in ranking[:100]}) / len(documents)


def _reciprocal_rank(grades: Grades, ranking: Ranking) -> float:
    documents = relevant(grades)
    return next((1 / rank for rank, (document, _) in enumerate(ranking[:10], 1) if document in documents), 0.0)


def _average_precision(grades: Grades, ranking: Ranking) -> float:
    documents, hits, total = relevant(grades), 0, 0.0
    for rank, (document, _) in enumerate(ranking, 1):
        if document in documents:
            hits += 1
            total += hits / rank
    return total / len(documents)


_MEASURES: dict[str, Callable[[Grades, Ranking], float]] = {
    "nDCG@10": ndcg,
    "Recall@100": _recall,
    "MRR@10": _reciprocal_rank,
    "MAP": _average_precision,
}


def values(qrels: Qrels, run: Run) -> dict[str, dict[str, float]]:
    """Return for each measure the value of each query with a relevant document; 0 for a query without hits."""
    judged = {query: grades for query, grades in qrels.items() if relevant(grades)}
    return {
        name: {query: measure(grades, run.get(query, ())) for query, grades in judged.items()}
        for name, measure in _MEASURES.items()
    }


def intervals(per_query: Mapping[str, Mapping[str, float]]) -> dict[str, tuple[float, float]]:
    """Return for each measure the 95 % interval of its mean, by the bootstrap over queries."""
    bounds = {name: interval([*by_query.values()]) for name, by_query in per_query.items()}
    return {name: (round(low, 4), round(high, 4)) for name, (low, high) in bounds.items()}


def ndcg_at_10(qrels: Qrels, run: Run) -> float:
    """Mean nDCG@10 over the queries with a relevant document."""
    return mean(values(qrels, run)["nDCG@10"])


def mean(by_query: Mapping[str, float]) -> float:
    """Mean over queries; 0 without any."""
    return sum(by_query.values()) / len(by_query) if by_query else 0.0


def relevant(grades: Grades) -> set[str]:
    """Return the documents with a grade above 0."""
    return {document for document, grade in grades.items() if grade > 0}
