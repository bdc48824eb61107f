"""Choose the weight of the first stage's score beside the reranker's, on queries held out from training."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from ...retriever.models.load import load_reranker
from ...retriever.search.ranking.fusion import reranked_score
from ..encoders import heldout
from ..evaluation.measures import ndcg

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from ...core.arrays import Floats
    from ...retriever.models.reranker import Reranker
    from ...retriever.retriever import Retriever


WEIGHTS = np.arange(0, 1, 0.1)  # of the first stage
_QUERIES = 100  # maximum of a data set to choose the weight by
_DEPTH = 50  # passages that a search reranks by default


def choose_weight(
    ready: Path, stages: Iterable[tuple[Retriever, Mapping[str, set[str]]]], seed: int
) -> list[dict[str, Any]]:
    """Choose the weight, write it beside the model, and return its measures for the model card.

    :param stages: of each data set the index, and its held-out queries with the paths of the documents that answer
        them.
    """
    reranker = load_reranker(str(ready))
    both = [
        gains
        for retriever, relevant in stages
        for query in _sample(relevant, seed)
        if (gains := gains_by_weight(reranker, retriever, query, dict.fromkeys(relevant[query], 1))) is not None
    ]
    if len(both) < 2:
        return []
    first = np.array([gain for gain, _ in both], np.float32)
    table = np.array([gains for _, gains in both], np.float32)  # queries by weights
    facts = {"first_stage_weight": round(float(WEIGHTS[table.mean(0).argmax()]), 2)}
    (ready / "binocle.json").write_text(json.dumps(facts), "utf-8")
    on = f"hybrid search's best {_DEPTH}, held-out queries"
    measures = (
        ("first stage alone", on, first),
        ("reranked", f"{on}, the weight for each half chosen on the other", _crossed(table)),
    )
    return [
        heldout.mean("ndcg@10", values, seed).as_dict() | {"on": where, "when": when}
        for when, where, values in measures
    ]


def _sample(relevant: Mapping[str, set[str]], seed: int) -> list[str]:
    queries = sorted(relevant)
    return [queries[number] for number in np.random.default_rng(seed).permutation(len(queries))[:_QUERIES]]


def gains_by_weight(
    reranker: Reranker, retriever: Retriever, query: str, grades: Mapping[str, int]
) -> tuple[float, list[float]] | None:
    """Return a query's nDCG@10 of the first stage, and at each of `WEIGHTS`; None if there is nothing to sort.

    :param grades: of the documents that answer it, by path.
    """
    hits = retriever.search(query, _DEPTH, collapse=False)
    if len(hits) < 2:
        return None
    own = reranker.score(query, [hit.context for hit in hits])
    stage = np.array([hit.score for hit in hits], np.float32)
    paths = [hit.path for hit in hits]
    at_weights = [_ndcg(paths, reranked_score(own, stage, weight), grades) for weight in WEIGHTS]
    return _ndcg(paths, stage, grades), at_weights


def _crossed(table: Floats) -> Floats:
    """Return each query's nDCG at the weight that is best for the other half of the queries.

    The nDCG at the best weight for all queries is the highest of ten values, so it overestimates that of new queries.

    :param table: queries by weights.
    """
    half = np.arange(len(table)) % 2
    best = np.array([table[half != part].mean(0).argmax() for part in (0, 1)])
    gains: Floats = table[np.arange(len(table)), best[half]]
    return gains


def _ndcg(paths: list[str], scores: Any, grades: Mapping[str, int]) -> float:
    """Return nDCG@10 of documents, each ranked by its best passage."""
    ranking = dict.fromkeys(paths[row] for row in np.argsort(-scores, kind="stable"))
    return ndcg(grades, [(path, 0.0) for path in ranking])
