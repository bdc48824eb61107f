"""Indexing against `SentenceTransformer.encode`, on the same passages in the same run.

    python -m benchmarks.speed.encoding --collection DIR [--rounds 3]

DIR is a test collection in BEIR's layout (scifact). Our rate counts everything an index run does: reading the corpus,
cutting it, encoding, committing, both indexes. Theirs counts `encode` alone, with its defaults, on the very texts that
our encoder was given. Rounds take turns: the processor's own precision, float32, theirs. Quality: semantic nDCG@10 with
either's vectors, by the same ranking.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from binocle.retriever.models import files as model_folder
from binocle.retriever.retriever import Retriever
from binocle.training.data import beir
from binocle.training.evaluation.measures import ndcg_at_10

from ..machine import save

if TYPE_CHECKING:
    from collections.abc import Iterator


def rank(vectors: np.ndarray, owners: list[str], queries: np.ndarray, names: list[str]) -> dict[str, Any]:
    """Documents by the cosine of their best passage."""
    run = {}
    for name, scores in zip(names, queries @ vectors.T, strict=True):
        best: dict[str, float] = {}
        for place in np.argsort(-scores, kind="stable")[:400]:
            best.setdefault(owners[place], float(scores[place]))
        run[name] = list(best.items())[:100]
    return run


def rate_of_adding(retriever: Retriever, collection: Path) -> float:
    """Passages a second of a whole index run."""
    began = time.perf_counter()
    report = retriever.add(beir.documents(collection))
    return report.chunks_total / (time.perf_counter() - began)


@contextlib.contextmanager
def in_float32() -> Iterator[None]:
    """Let an encoder that is loaded in this block compute in float32."""
    os.environ["BINOCLE_PRECISION"] = "float32"
    yield
    del os.environ["BINOCLE_PRECISION"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collection", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(str(model_folder.find(model_folder.DEFAULT_MODEL)), device="cpu")
    ours_rates, float32_rates, theirs_rates = [], [], []
    with tempfile.TemporaryDirectory() as temporary:
        for number in range(arguments.rounds):
            retriever = Retriever.open(Path(temporary) / f"index-{number}")
            ours_rates.append(rate_of_adding(retriever, arguments.collection))
            with in_float32():
                float32_rates.append(
                    rate_of_adding(Retriever.open(Path(temporary) / f"float32-{number}"), arguments.collection)
                )
            table = retriever.snapshot().chunks.to_table(columns=["document", "context", "vector"])
            contexts = table["context"].to_pylist()
            began = time.perf_counter()
            their_vectors = theirs.encode(contexts, show_progress_bar=False)
            theirs_rates.append(len(contexts) / (time.perf_counter() - began))
        paths = {row["id"]: row["path"] for row in retriever.documents()}
        owners = [paths[number] for number in table["document"].to_pylist()]
        our_vectors = table["vector"].combine_chunks().flatten().to_numpy().reshape(len(contexts), -1)
    qrels = beir.qrels(arguments.collection, "test")
    queries = beir.queries(arguments.collection)
    names = list(qrels)
    our_queries = retriever.encoder.encode([queries[name] for name in names], kind="query")
    their_queries = theirs.encode([queries[name] for name in names], show_progress_bar=False)
    results = {
        "passages": len(contexts),
        "binocle_index_passages_per_second": [round(rate, 1) for rate in ours_rates],
        "binocle_float32_passages_per_second": [round(rate, 1) for rate in float32_rates],
        "sentence_transformers_encode_passages_per_second": [round(rate, 1) for rate in theirs_rates],
        "ratio_of_medians": round(statistics.median(ours_rates) / statistics.median(theirs_rates), 2),
        "ratio_of_medians_float32": round(statistics.median(float32_rates) / statistics.median(theirs_rates), 2),
        "cosine_to_sentence_transformers": {
            "mean": round(float((our_vectors * their_vectors).sum(1).mean()), 6),
            "minimum": round(float((our_vectors * their_vectors).sum(1).min()), 6),
        },
        "semantic_ndcg_at_10": {
            "binocle": round(ndcg_at_10(qrels, rank(our_vectors, owners, our_queries, names)), 4),
            "sentence_transformers": round(ndcg_at_10(qrels, rank(their_vectors, owners, their_queries, names)), 4),
        },
    }
    save("encoding", results)


if __name__ == "__main__":
    main()
