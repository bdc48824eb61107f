"""Reranking against `CrossEncoder.predict`, the same pairs by the same model in the same run.

    python -m benchmarks.search.reranking [--rounds 7] [--pairs 50] [--trained DIR --collection DIR]

The model is all-MiniLM-L6-v2 with a random head, which has the size and so the speed of the usual MS MARCO
cross-encoder of 6 layers. Pairs are a query and passages of different lengths, 167 tokens in the mean. Theirs is torch
in float32 with the defaults of `predict`. Rounds take turns. Also: how far time budgets get, and the cost of the first
call of a process. A trained cross-encoder and a collection in BEIR's layout show how int8 changes the order of
passages.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from binocle.retriever.models import model_files
from binocle.retriever.models.int8_check import check_int8_reranker
from binocle.retriever.models.load import load_reranker
from binocle.retriever.models.model_files import INT8
from binocle.training.data import beir

from ..machine import save

if TYPE_CHECKING:
    from collections.abc import Callable

    from binocle.retriever.models.reranker import Reranker

_BUDGETS = (0.05, 0.1, 0.2, 0.5)
_COLD = """
import sys, time
from binocle.retriever.models.load import load_reranker
passages = sys.stdin.read().split("\\n")
began = time.perf_counter()
reranker = load_reranker(sys.argv[1])
loaded = time.perf_counter()
reranker.score(sys.argv[2], passages)
print(loaded - began, time.perf_counter() - loaded)
"""
_THEIRS = "CrossEncoder.predict"
_QUERY = "how is a task that was sent to a worker cancelled before it has begun?"


def passages(count: int, seed: int) -> list[str]:
    """Of 20 to 277 words, each one token: 167 tokens a pair on average, the query and special tokens included."""
    random = np.random.default_rng(seed)
    words = [
        "index",
        "holds",
        "a",
        "vector",
        "for",
        "each",
        "passage",
        "and",
        "its",
        "text",
        "that",
        "can",
        "be",
        "found",
    ]
    return [" ".join(random.choice(words, int(length))) for length in random.permutation(np.linspace(20, 277, count))]


def build(folder: Path, seed: int) -> None:
    import torch
    from sentence_transformers import CrossEncoder

    torch.manual_seed(seed)
    encoder = model_files.find(model_files.DEFAULT_MODEL)
    CrossEncoder(str(encoder), num_labels=1, device="cpu", local_files_only=True).save_pretrained(str(folder))


def in_turns(contenders: dict[str, Callable[[], Any]], rounds: int) -> dict[str, dict[str, list[float]]]:
    """The seconds of each contender in each round: as they pass, and of the processor."""
    seconds: dict[str, dict[str, list[float]]] = {name: {"seconds": [], "processor": []} for name in contenders}
    for _ in range(rounds):
        for name, act in contenders.items():
            began, processor = time.perf_counter(), time.process_time()
            act()
            seconds[name]["processor"].append(round(time.process_time() - processor, 4))
            seconds[name]["seconds"].append(round(time.perf_counter() - began, 4))
    return seconds


def times_as_fast(seconds: dict[str, dict[str, list[float]]]) -> dict[str, dict[str, float]]:
    """The median time of `predict` divided by that of each other contender."""
    median = {
        name: {clock: statistics.median(row) for clock, row in clocks.items()} for name, clocks in seconds.items()
    }
    theirs = median.pop(_THEIRS)
    return {name: {clock: round(theirs[clock] / row[clock], 2) for clock in row} for name, row in median.items()}


def within(reranker: Reranker, seconds: float, texts: list[str], rounds: int) -> dict[str, float]:
    """How many passages a time budget reaches, and how long that really takes."""
    reached, spent = [], []
    for _ in range(rounds):
        began = time.perf_counter()
        reached.append(len(reranker.score_within(seconds, _QUERY, texts)))
        spent.append(time.perf_counter() - began)
    median = statistics.median(spent)
    return {"reached": int(statistics.median(reached)), "seconds": round(median, 3), "longest": round(max(spent), 3)}


def cold(folder: Path, texts: list[str]) -> dict[str, float]:
    """Seconds that a new process takes to load the model, and to score for the first time."""
    command = [sys.executable, "-c", _COLD, str(folder), _QUERY]
    done = subprocess.run(command, input="\n".join(texts), capture_output=True, text=True, check=True)
    loaded, scored = map(float, done.stdout.split())
    return {"load": round(loaded, 3), "first_score": round(scored, 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--pairs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trained", help="a cross-encoder to check in int8, with --collection")
    parser.add_argument("--collection", type=Path)
    arguments = parser.parse_args()
    from sentence_transformers import CrossEncoder
    from torch.nn import Identity

    texts = passages(arguments.pairs, arguments.seed)
    pairs = [(_QUERY, text) for text in texts]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "cross-encoder"
        build(folder, arguments.seed)
        ours, int8 = load_reranker(folder), load_reranker(f"{folder}{INT8}")
        theirs = CrossEncoder(str(folder), device="cpu", local_files_only=True)
        tokens = theirs.tokenizer([_QUERY] * len(texts), texts, truncation=True)["input_ids"]
        int8.score(_QUERY, texts)  # the first run prepares the graph for each shape
        scores, expected = ours.score(_QUERY, texts), theirs.predict(pairs, activation_fn=Identity())
        contenders: dict[str, Callable[[], Any]] = {
            "binocle": lambda: ours.score(_QUERY, texts),
            "binocle int8": lambda: int8.score(_QUERY, texts),
            _THEIRS: lambda: theirs.predict(pairs, show_progress_bar=False),
        }
        seconds = in_turns(contenders, arguments.rounds)
        budgets = {str(seconds): within(ours, seconds, texts, arguments.rounds) for seconds in _BUDGETS}
        results = {
            "pairs": len(pairs),
            "tokens_per_pair": round(statistics.mean(map(len, tokens)), 1),
            "of_each": seconds,
            "times_as_fast_as_predict": times_as_fast(seconds),
            "correlation_of_scores": round(float(np.corrcoef(scores, expected)[0, 1]), 6),
            "budgets": budgets,
            "new_process_seconds": cold(folder, texts),
            "torch_threads": os.environ.get("OMP_NUM_THREADS", "default"),
        }
    if arguments.trained:
        rows = [beir.passage(row) for row in beir.documents(arguments.collection)]
        results["int8_on_a_collection"] = asdict(check_int8_reranker(arguments.trained, rows))
    save("reranking", results, seed=arguments.seed)


if __name__ == "__main__":
    main()
