"""Encoding by Binocle and by sentence-transformers' backends, side by side, and the processor's own limit.

    python -m benchmarks.encoding.encoding --collection DIR --work DIR [--openvino PYTHON] [--onnx PYTHON]
    python -m benchmarks.encoding.encoding --collection DIR --indexing [--rounds 3]

DIR is a test collection in BEIR's layout (scifact). Each encoder has the same model (`--model`), by default
all-MiniLM-L6-v2, its defaults and a process of its own, and they take turns. Long texts are documents, in one call;
short texts are queries, in one call and one by one. Static int8 is calibrated with other documents and queries of the
collection.

Vectors are compared with torch's in float32: equal are cosines above .999, in int8 above .98. The run fails if ours are
not equal; the results say it of the others. The limit is torch's rate for the matrix products of the model's dense
layers. An encoder's share counts the operations of real tokens, of dense layers and attention, in the time of whole
calls, tokenizing included.

Two backends of sentence-transformers need an older transformers than its newest: optimum-intel one below 5.6,
optimum-onnx one below 4.58. No environment holds both beside the pinned 5.23, so each has its own, and its Python is
named. A backend that cannot be loaded is left out, with the reason in the results. Measured, with datasets 4.5.0:

    openvino    sentence-transformers 6.2.0, transformers 5.5.4, optimum-intel 2.2.0 (torchvision is not needed)
    onnx        sentence-transformers 5.7.0, transformers 4.57.6, optimum-onnx 0.1.0

`--indexing` compares a whole index run with `SentenceTransformer.encode`. Our rate counts reading the corpus, cutting
it, encoding, committing, both indexes. Theirs counts `encode` alone, on the very texts that our encoder was given.
Rounds take turns: the processor's own precision, float32, theirs. Quality: semantic nDCG@10 with either's vectors, by
the same ranking.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from binocle.retriever.models import model_files
from binocle.retriever.models.load import load_encoder
from binocle.retriever.retriever import Retriever
from binocle.training.data import beir
from binocle.training.evaluation.measures import ndcg_at_10

from ..machine import save
from .encoding_process import ENCODERS, PEAK

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


_SEED, _CALIBRATION = 0, 150  # documents, and queries, that static int8 is calibrated with; none is timed
_INT8_COSINE, _COSINE = 0.98, 0.999


class Process:
    """An encoder, or the measurement of the limit, in a process of its own.

    :param python: its interpreter.
    """

    def __init__(self, name: str, python: Path, model: Path, work: Path) -> None:
        self.name = name
        command = [python, "-m", "benchmarks.encoding.encoding_process", name, model, work]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the process of {self.name} ended: its error is above")
        return json.loads(line)

    def ask(self, **request: Any) -> Any:
        assert self._process.stdin is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return self.answer()

    def close(self) -> None:
        self._process.communicate()


def compare_encoders(options: argparse.Namespace) -> dict[str, Any]:
    """Time every encoder that can be loaded, in turns, and state its share of the limit."""
    model, work = model_files.find(options.model), options.work.resolve()
    texts = choose_texts(options, work)
    pythons = {"ONNX": options.onnx, "OpenVINO": options.openvino, "OpenVINO int8": options.openvino}
    processes = [Process(name, pythons.get(name, sys.executable), model, work) for name in (*ENCODERS, PEAK)]
    try:
        about = {process.name: process.answer() for process in processes}
        running = [process for process in processes if process.name != PEAK and "error" not in about[process.name]]
        vectors = {process.name: all_vectors(process, texts) for process in running}
        for name in vectors:
            about[name]["cosine"] = agreement(vectors, name)
        config = json.loads((model / "config.json").read_text("utf-8"))
        seconds, limits = take_turns(running, processes[-1], texts, config, options.rounds)
    finally:
        for process in processes:
            process.close()
    tokens = count_tokens(model, texts)
    work_of = {name: sum(map(operations(config), lengths)) for name, lengths in tokens.items()}
    for name, times in seconds.items():
        about[name] |= rates(times, tokens)
        limit = limits.get(about[name]["precision"])
        if limit:
            share = work_of["documents"] / statistics.median(times["documents"]) / statistics.median(limit)
            about[name]["documents"]["share_of_limit"] = round(share, 3)
    return {
        "texts": {name: {"texts": len(lengths), "tokens": sum(lengths)} for name, lengths in tokens.items()},
        "limit_gigaflops": {name: spread([rate / 1e9 for rate in values], 0) for name, values in limits.items()},
        "encoders": {name: about[name] for name in ENCODERS if "error" not in about[name]},
        "not_measured": {name: about[name]["error"] for name in ENCODERS if "error" in about[name]},
        "times_as_fast": {
            ours: {theirs: ratios(seconds[ours], seconds[theirs]) for theirs in seconds if theirs != ours}
            for ours in seconds
            if ours.startswith("Binocle")
        },
    }


def choose_texts(options: argparse.Namespace, work: Path) -> dict[str, list[str]]:
    """Choose documents at random and the judged queries, and write others for the calibration of static int8."""
    documents = [beir.passage(document) for document in beir.documents(options.collection)]
    random.Random(_SEED).shuffle(documents)
    queries = beir.queries(options.collection)
    judged = [queries[name] for name in beir.qrels(options.collection, "test")]
    calibration = work / "calibration" / "train.jsonl"
    calibration.parent.mkdir(parents=True, exist_ok=True)
    unjudged = [queries[name] for name in queries if queries[name] not in judged][:_CALIBRATION]
    lines = [json.dumps({"text": text}) + "\n" for text in documents[-_CALIBRATION:] + unjudged]
    calibration.write_text("".join(lines), "utf-8")
    return {
        "documents": documents[: options.documents],
        "queries": judged[: options.queries],
        "alone": judged[: options.alone],
    }


def all_vectors(process: Process, texts: dict[str, list[str]]) -> np.ndarray:
    """Encode every text once, which also prepares the process for timing."""
    process.ask(what="alone", texts=texts["alone"])
    return np.array(process.ask(what="vectors", texts=texts["documents"] + texts["queries"]), np.float32)


def agreement(vectors: dict[str, np.ndarray], name: str) -> dict[str, Any]:
    """Return the cosines with torch's vectors in float32, and whether all are high enough for the precision.

    :raises SystemExit: when one of ours is too low.
    """
    own, exact = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (vectors[name], vectors["torch fp32"]))
    cosines = (own * exact).sum(1)
    minimum = float(cosines.min())
    is_equal = minimum > (_INT8_COSINE if "int8" in name else _COSINE)
    if name.startswith("Binocle") and not is_equal:
        raise SystemExit(f"{name} gives other vectors than torch in float32: the lowest cosine is {minimum:.4f}")
    return {"mean": round(float(cosines.mean()), 5), "least": round(minimum, 5), "is_equal": is_equal}


def take_turns(
    running: Sequence[Process], peak: Process, texts: dict[str, list[str]], config: dict[str, Any], rounds: int
) -> tuple[dict[str, dict[str, list[float]]], dict[str, list[float]]]:
    """Return the seconds of each encoder and set of texts, and the operations a second of each precision, by round."""
    seconds: dict[str, dict[str, list[float]]] = {process.name: {name: [] for name in texts} for process in running}
    limits: dict[str, list[float]] = {"float32": [], "bfloat16": []}
    sizes = {"dim": config["hidden_size"], "wide": config["intermediate_size"]}
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        first = number % len(running)  # none is always after the same one's heat
        for process in (*running[first:], *running[:first]):
            for name, chosen in texts.items():
                what = "alone" if name == "alone" else "together"
                seconds[process.name][name].append(process.ask(what=what, texts=chosen))
        for precision, values in limits.items():
            values.append(peak.ask(precision=precision, **sizes))
    return seconds, limits


def count_tokens(model: Path, texts: dict[str, list[str]]) -> dict[str, list[int]]:
    """The tokens of each text of a set, with [CLS] and [SEP], truncated as the model does."""
    encoder = load_encoder(model)
    return {
        name: [min(len(tokens), encoder.max_tokens) + 2 for tokens in encoder.offsets(chosen)]
        for name, chosen in texts.items()
    }


def operations(config: dict[str, Any]) -> Any:
    """Return a function from the number of tokens of a text to the number of its operations."""
    layers, dim, wide = config["num_hidden_layers"], config["hidden_size"], config["intermediate_size"]
    return lambda tokens: layers * (2 * (4 * dim**2 + 2 * dim * wide) * tokens + 4 * dim * tokens**2)


def rates(times: dict[str, list[float]], tokens: dict[str, list[int]]) -> dict[str, Any]:
    results: dict[str, Any] = {"milliseconds_alone": spread([1e3 * time for time in times["alone"]], 2)}
    for name in ("documents", "queries"):
        count, total = len(tokens[name]), sum(tokens[name])
        results[name] = {
            "texts_per_second": spread([count / time for time in times[name]], 1),
            "tokens_per_second": spread([total / time for time in times[name]], 0),
        }
    return results


def ratios(ours: dict[str, list[float]], theirs: dict[str, list[float]]) -> dict[str, Any]:
    """Their seconds by ours, in the same round."""
    results = {}
    for name, seconds in ours.items():
        by_round = spread([their / our for our, their in zip(seconds, theirs[name], strict=True)], 2)
        results[name] = {key: by_round[key] for key in ("median", "least", "most")}
    return results


def spread(values: Sequence[float], digits: int) -> dict[str, Any]:
    return {
        "median": round(statistics.median(values), digits),
        "least": round(min(values), digits),
        "most": round(max(values), digits),
        "rounds": [round(value, digits) for value in values],
    }


def rank(vectors: np.ndarray, owners: list[str], queries: np.ndarray, names: list[str]) -> dict[str, Any]:
    """Documents by the cosine of their best passage."""
    run = {}
    for name, scores in zip(names, queries @ vectors.T, strict=True):
        best: dict[str, float] = {}
        for position in np.argsort(-scores, kind="stable")[:400]:
            best.setdefault(owners[position], float(scores[position]))
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


def compare_indexing(collection: Path, rounds: int) -> dict[str, Any]:
    """Compare a whole index run with their encoding, and the quality of either's vectors."""
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(str(model_files.find(model_files.DEFAULT_MODEL)), device="cpu")
    ours_rates, float32_rates, theirs_rates = [], [], []
    with tempfile.TemporaryDirectory() as temporary:
        for number in range(rounds):
            retriever = Retriever.open(Path(temporary) / f"index-{number}")
            ours_rates.append(rate_of_adding(retriever, collection))
            with in_float32():
                float32_rates.append(rate_of_adding(Retriever.open(Path(temporary) / f"float32-{number}"), collection))
            table = retriever.snapshot().chunks.to_table(columns=["document", "context", "vector"])
            contexts = table["context"].to_pylist()
            began = time.perf_counter()
            their_vectors = theirs.encode(contexts, show_progress_bar=False)
            theirs_rates.append(len(contexts) / (time.perf_counter() - began))
        paths = {row["id"]: row["path"] for row in retriever.documents()}
        owners = [paths[number] for number in table["document"].to_pylist()]
        our_vectors = table["vector"].combine_chunks().flatten().to_numpy().reshape(len(contexts), -1)
    qrels = beir.qrels(collection, "test")
    queries = beir.queries(collection)
    names = list(qrels)
    our_queries = retriever.encoder.encode([queries[name] for name in names], kind="query")
    their_queries = theirs.encode([queries[name] for name in names], show_progress_bar=False)
    return {
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collection", type=Path, required=True)
    parser.add_argument("--model", default=model_files.DEFAULT_MODEL)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", type=Path, help="a folder for exported models, kept from run to run")
    parser.add_argument("--openvino", type=Path, default=sys.executable, help="Python with the backend openvino")
    parser.add_argument("--onnx", type=Path, default=sys.executable, help="Python with the backend onnx")
    parser.add_argument("--documents", type=int, default=192, help="encoded in one call")
    parser.add_argument("--queries", type=int, default=300, help="encoded in one call")
    parser.add_argument("--alone", type=int, default=30, help="queries that are encoded one by one")
    parser.add_argument("--indexing", action="store_true", help="compare index runs instead")
    options = parser.parse_args()
    if options.indexing:
        save("encoding", compare_indexing(options.collection, options.rounds))
        return
    if options.work is None:
        parser.error("--work is missing: a folder for exported models")
    name = Path(options.model).name
    suffix = "" if name == Path(model_files.DEFAULT_MODEL).name else f"-{name}"
    save(f"encoding-backends{suffix}", compare_encoders(options), seed=_SEED)


if __name__ == "__main__":
    main()
