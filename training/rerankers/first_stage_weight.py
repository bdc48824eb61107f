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
    from collections.abc import Mapping
    from pathlib import Path

    from ...core.arrays import Floats
    from ...retriever.retriever import Retriever


_WEIGHTS = np.arange(0, 1, 0.1)  # of the first stage
_QUERIES = 100  # maximum to choose the weight by
_DEPTH = 50  # passages that a search reranks by default


def choose_weight(
    ready: Path, retriever: Retriever, relevant: Mapping[str, set[str]], seed: int
) -> list[dict[str, Any]]:
    """Choose the weight, write it beside the model, and return its measures for the model card.

    :param relevant: query -> paths of the documents that answer it.
    """
    reranker = load_reranker(str(ready))
    queries = sorted(relevant)
    sample = np.random.default_rng(seed).permutation(len(queries))[:_QUERIES]
    gains = []  # for each query: nDCG@10 at every weight
    first = []
    for number in sample:
        query = queries[number]
        hits = retriever.search(query, _DEPTH, collapse=False)
        if len(hits) < 2:
            continue
        own = reranker.score(query, [hit.context for hit in hits])
        stage = np.array([hit.score for hit in hits], np.float32)
        paths = [hit.path for hit in hits]
        gains.append([_ndcg(paths, reranked_score(own, stage, w), relevant[query]) for w in _WEIGHTS])
        first.append(_ndcg(paths, stage, relevant[query]))
    if len(gains) < 2:
        return []
    table = np.array(gains, np.float32)
    facts = {"first_stage_weight": round(float(_WEIGHTS[table.mean(0).argmax()]), 2)}
    (ready / "binocle.json").write_text(json.dumps(facts), "utf-8")
    on = f"hybrid search's best {_DEPTH}, held-out queries"
    measures = (
        ("first stage alone", on, np.array(first, np.float32)),
        ("reranked", f"{on}, the weight for each half chosen on the other", _crossed(table)),
    )
    return [
        heldout.mean("ndcg@10", values, seed).as_dict() | {"on": where, "when": when}
        for when, where, values in measures
    ]


def _crossed(table: Floats) -> Floats:
    """Return each query's nDCG at the weight that is best for the other half of the queries.

    The nDCG at the best weight for all would be the highest of ten, and too high for other queries.

    :param table: queries by weights.
    """
    half = np.arange(len(table)) % 2
    best = np.array([table[half != part].mean(0).argmax() for part in (0, 1)])
    gains: Floats = table[np.arange(len(table)), best[half]]
    return gains


def _ndcg(paths: list[str], scores: Any, relevant: set[str]) -> float:
    """Return nDCG@10 of documents, each ranked by its best passage."""
    ranking = dict.fromkeys(paths[row] for row in np.argsort(-scores, kind="stable"))
    return ndcg(dict.fromkeys(relevant, 1), [(path, 0.0) for path in ranking])
