"""Compare documents in int8 with the processor's own precision: time, agreement and nDCG@10 of four collections.

    python -m benchmarks.encoding.int8 --data ../shared/data --work DIR [--documents 6000] [--queries 2000] [--rounds 5]

The collections are scifact, cranfield, SQuAD's paragraphs (a question must find its own) and Debian's packages (the
short description must find the long one). The sentences that int8 is calibrated with are of none of them. Queries are
encoded in float32. Times are of the processor, and the contenders take turns.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from binocle.retriever.models.load import load_encoder
from binocle.retriever.models.model_files import DEFAULT_MODEL, INT8
from binocle.training.data import beir
from binocle.training.evaluation.measures import ndcg_at_10

from .. import collections
from ..machine import save

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from binocle.core.arrays import Floats

TIMED = 64  # documents
_DRAWS = 2_000  # of the bootstrap


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of the test collections")
    parser.add_argument(
        "--work", type=Path, required=True, help="a folder for collections made from question answering"
    )
    parser.add_argument("--documents", type=int, default=6_000, help="at most: those judged, and others at random")
    parser.add_argument("--queries", type=int, default=2_000, help="at most, of each collection")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    folders = {
        "scifact": options.data / "scifact",
        "cranfield": options.data / "cranfield",
        "squad": collections.squad(
            options.data / "squad11" / "squad11_dev.jsonl.gz", options.work / "squad", count=options.queries
        ),
        "debian": collections.debian(
            options.data / "debian_descriptions" / "debian12_descriptions.jsonl.gz",
            options.work / "debian",
            count=options.queries,
        ),
    }
    results: dict[str, Any] = {}
    changes: list[NDArray[np.float64]] = []
    for name, folder in folders.items():
        results[name], change = measure(folder, options.documents, options.queries, options.rounds)
        changes.append(change)
        print(name, results[name], flush=True)
    results["pooled"] = {
        "queries": sum(map(len, changes)),
        "mean_of_queries": summary(np.concatenate(changes)),
        "mean_of_collections": summary_of_means(changes),
        "times_as_fast": round(statistics.median(results[name]["times_as_fast"] for name in folders), 2),
    }
    save("int8", results, seed=0)


def measure(folder: Path, documents: int, queries: int, rounds: int) -> tuple[dict[str, Any], NDArray[np.float64]]:
    """Compare the encoders on one collection; return the figures, and the change of nDCG@10 of each query."""
    qrels, asked_texts = beir.qrels(folder, "test"), beir.queries(folder)
    judged = {name for relevant in qrels.values() for name in relevant}
    rows = list(beir.documents(folder))
    random.Random(0).shuffle(rows)
    rows = sorted(rows, key=lambda row: row["id"] not in judged)[:documents]
    names, texts = [row["id"] for row in rows], [beir.passage(row) for row in rows]
    known = set(names)
    qrels = dict([(query, relevant) for query, relevant in qrels.items() if relevant.keys() & known][:queries])
    encoders: dict[str, Any] = {"own": load_encoder(DEFAULT_MODEL), "int8": load_encoder(DEFAULT_MODEL + INT8)}
    seconds: dict[str, list[float]] = {name: [] for name in encoders}
    for encoder in encoders.values():
        encoder.encode(texts[:2])  # compiles the graph
    for _ in range(rounds):
        for name, encoder in encoders.items():
            began = time.process_time()
            encoder.encode(texts[-TIMED:])
            seconds[name].append(time.process_time() - began)
    vectors = {name: encoder.encode(texts) for name, encoder in encoders.items()}
    query_vectors = np.concatenate([encoders["own"].encode([asked_texts[query]], kind="query") for query in qrels])
    ndcg = {name: per_query(qrels, names, query_vectors @ vectors[name].T) for name in vectors}
    median = {name: statistics.median(values) for name, values in seconds.items()}
    cosine, change = (vectors["own"] * vectors["int8"]).sum(1), ndcg["int8"] - ndcg["own"]
    results = {
        "documents": len(names),
        "queries": len(qrels),
        "precision": encoders["own"]._model.compiled().precision,  # noqa: SLF001
        "processor_seconds": {name: [round(value, 3) for value in values] for name, values in seconds.items()},
        "times_as_fast": round(median["own"] / median["int8"], 2),
        "cosine": {"mean": round(float(cosine.mean()), 4), "least": round(float(cosine.min()), 4)},
        "top_ten_kept": round(agreement_of(query_vectors @ vectors["own"].T, query_vectors @ vectors["int8"].T), 3),
        "ndcg_at_10": {name: round(float(values.mean()), 4) for name, values in ndcg.items()},
        "change": summary(change),
    }
    return results, change


def summary(change: NDArray[np.float64]) -> dict[str, Any]:
    """The mean change, with its interval of 95 % by a bootstrap over queries."""
    return summary_of_means([change])


def summary_of_means(changes: list[NDArray[np.float64]]) -> dict[str, Any]:
    """The mean of several collections' mean changes, with an interval of 95 % by a bootstrap over their queries."""
    draw = np.random.default_rng(0)
    means = np.mean([draw.choice(change, (_DRAWS, len(change))).mean(1) for change in changes], axis=0)
    low, high = (round(float(bound), 4) for bound in np.quantile(means, [0.025, 0.975]))
    return {"mean": round(float(np.mean([change.mean() for change in changes])), 4), "interval_95": [low, high]}


def per_query(qrels: dict[str, dict[str, int]], names: list[str], scores: Floats) -> NDArray[np.float64]:
    """nDCG@10 of each query."""
    values = []
    for (query, relevant), row in zip(qrels.items(), scores, strict=True):
        best = np.argsort(-row, kind="stable")[:10]
        values.append(ndcg_at_10({query: relevant}, {query: [(names[rank], float(row[rank])) for rank in best]}))
    return np.array(values)


def agreement_of(own: Floats, int8: Floats) -> float:
    """The mean share of the best ten that are among the other's best ten."""
    best = (np.argsort(-scores, axis=1)[:, :10] for scores in (own, int8))
    return float(np.mean([len(set(left) & set(right)) / 10 for left, right in zip(*best, strict=True)]))


if __name__ == "__main__":
    main()
