"""Late interaction and learned sparse vectors, trained on pairs, as signals beside the default search.

    OMP_NUM_THREADS=1 python -m benchmarks.models.learned_signals --data DIR --work DIR [--signals late sparse]

DIR of the data holds scifact/ and cranfield/ in BEIR's layout, squad11/ and debian_descriptions/. Each collection keeps
the documents that are relevant to 100 or 300 queries, and others up to some hundred. The default search
gives the 50 best passages of each query. A signal orders these alone, and then with a weight beside the default score,
both as standard scores: as a search with stored token vectors would add it. Recall does not change. Models and
indexes are kept in the folder of work. `token_models` has the models.

The control is the cosine between the means of the same token vectors: what training alone gains, without interaction.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import load_model, save_model
from torch.nn.functional import normalize

from binocle.core.progress import ignore
from binocle.retriever.documents.document import context_of
from binocle.retriever.retriever import Retriever
from binocle.retriever.search.query import Query
from binocle.retriever.search.ranking.fusion import reranked_score, standard_scores
from binocle.training.data import beir
from binocle.training.evaluation.indexed_collection import fill
from binocle.training.evaluation.measures import mean, relevant, values
from binocle.training.evaluation.significance import align, difference

from .. import collections
from ..machine import save
from . import token_models
from .token_models import Base, SparseTerms, States, TokenVectors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from torch import Tensor

    from binocle.core.arrays import Floats
    from binocle.retriever.models.encoder import Encoder, Kind

    from .token_models import Article

DEPTH = 50
QUERIES = {"scifact": 300, "cranfield": 100, "squad": 300, "debian": 300}
DOCUMENTS = {"scifact": 320, "cranfield": 450, "squad": 400, "debian": 400}
WEIGHTS = (0.1, 0.2, 0.3, 0.5)
STEPS = {"late": 100, "sparse": 30}
_BATCH = 32  # passages
Model = TokenVectors | SparseTerms
MODELS: dict[str, Any] = {  # how each begins, and its loss
    "late": (token_models.new_token_vectors, token_models.late_interaction_loss),
    "sparse": (token_models.new_sparse_terms, token_models.sparse_loss),
}


# Collections


def make_models(data: Path, work: Path) -> dict[str, Path]:
    """The four collections in BEIR's layout, cut to their size."""
    whole = {
        "scifact": lambda _: data / "scifact",
        "cranfield": lambda _: data / "cranfield",
        "squad": lambda out: collections.squad(data / "squad11" / "squad11_dev.jsonl.gz", out, count=300),
        "debian": lambda out: collections.debian(_debian(data), out, count=300),
    }
    return {name: cut(make(work / "whole" / name), work / name, name) for name, make in whole.items()}


def _debian(data: Path) -> Path:
    return data / "debian_descriptions" / "debian12_descriptions.jsonl.gz"


def cut(folder: Path, out: Path, name: str) -> Path:
    """The documents that are relevant to some queries, and others up to the number of this collection."""
    draw, qrels, texts = random.Random(0), beir.qrels(folder, "test"), beir.queries(folder)
    queries = draw.sample(sorted(qrels), min(QUERIES[name], len(qrels)))
    rows = {row["id"]: row for row in beir.documents(folder)}
    judged = {document for query in queries for document in relevant(qrels[query])}
    rest = [number for number in rows if number not in judged]
    documents = [
        rows[number] for number in (*sorted(judged), *draw.sample(rest, max(0, DOCUMENTS[name] - len(judged))))
    ]
    (out / "qrels").mkdir(parents=True, exist_ok=True)
    _write(out / "corpus.jsonl", ({"_id": row["id"], "title": row["title"], "text": row["text"]} for row in documents))
    _write(out / "queries.jsonl", ({"_id": query, "text": texts[query]} for query in queries))
    grades = [f"{query}\t{number}\t{grade}\n" for query in queries for number, grade in qrels[query].items()]
    (out / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(grades), "utf-8")
    return out


def _write(file: Path, rows: Iterable[dict[str, str]]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


@dataclass(frozen=True, slots=True)
class Pool:
    """The best passages of one query as the default search ranks them, with its scores."""

    query: str
    texts: list[str]
    documents: list[str]
    default: Floats
    words: Floats  # BM25, 0 where the words did not find it
    meaning: Floats  # cosines


class RecordingEncoder:
    """The default encoder, computed from states that are kept: a text is encoded once for the index and all models."""

    def __init__(self, encoder: Encoder, states: States) -> None:
        self.name, self.dim, self.max_tokens = encoder.name, encoder.dim, encoder.max_tokens
        self.fingerprint, self.offsets = encoder.fingerprint, encoder.offsets
        self._states = states

    def encode(self, texts: Sequence[str], *, kind: Kind = "document") -> Floats:  # noqa: ARG002
        self._states.add(texts)
        means = torch.stack([self._states.final(text).mean(0) for text in texts])
        vectors: Floats = normalize(means, dim=1).numpy()
        return vectors


def pools(folder: Path, index: Path, states: States) -> list[Pool]:
    """Index a collection and search it by the default; one pool for each query."""
    retriever = Retriever.open(index)
    retriever._index.models.use(RecordingEncoder(retriever.encoder, states))  # noqa: SLF001
    fill(retriever, folder, ignore)
    queries = beir.queries(folder)
    vectors = retriever.encoder.encode([*queries.values()], kind="query")
    snapshot = retriever.snapshot()
    paths = {row["id"]: row["path"] for row in retriever.documents()}
    result = []
    for text, vector in zip(queries.values(), vectors, strict=True):
        candidates = Query(snapshot, text, lambda vector=vector: vector[None]).candidates(DEPTH)
        best = candidates.take(np.arange(min(DEPTH, len(candidates.ids))))
        rows = snapshot.passages.of(best.ids.tolist()).values()
        texts = [context_of(row["heading"], row["text"]) for row in rows]
        documents = [paths[row["document"]] for row in rows]
        result.append(Pool(text, texts, documents, best.score, np.nan_to_num(best.lexical), best.semantic))
    return result


# Signals


def interaction(query: Tensor, passage: Tensor) -> float:
    """MaxSim of token vectors without padding."""
    return float((query @ passage.T).amax(1).mean())


def cosine_of_means(query: Tensor, passage: Tensor) -> float:
    return float(normalize(query.mean(0), dim=0) @ normalize(passage.mean(0), dim=0))


def product(query: Tensor, passage: Tensor) -> float:
    return float(query @ passage)


SIGNALS: dict[str, dict[str, Callable[[Tensor, Tensor], float]]] = {  # the scores that each model gives
    "untrained": {"untrained MaxSim": interaction},
    "late": {"MaxSim": interaction, "cosine of the means": cosine_of_means},
    "sparse": {"sparse": product},
}


@torch.inference_mode()
def scored(name: str, model: Model, pooled: Sequence[Pool], states: States) -> dict[str, Any]:
    """For each signal of a model the scores (queries, places) of the pools' passages; and their milliseconds."""
    output, mask = encoded(model, [pool.query for pool in pooled], states)
    terms = output.amax(0).nonzero()[:, 0] if isinstance(model, SparseTerms) else None
    queries = unpadded(output, mask) if terms is None else [*output[:, terms]]
    occurrences: dict[str, list[tuple[int, int]]] = {}
    for query, pool in enumerate(pooled):
        for position, text in enumerate(pool.texts):
            occurrences.setdefault(text, []).append((query, position))
    scores = {signal: [np.zeros(len(pool.texts), np.float32) for pool in pooled] for signal in SIGNALS[name]}
    seconds = dict.fromkeys(scores, 0.0)
    texts = sorted(occurrences, key=len)
    for start in range(0, len(texts), _BATCH):
        batch = texts[start : start + _BATCH]
        output, mask = encoded(model, batch, states, terms)
        passages = unpadded(output, mask) if terms is None else [*output]
        for signal, score in SIGNALS[name].items():
            began = time.process_time()
            for text, passage in zip(batch, passages, strict=True):
                for query, position in occurrences[text]:
                    scores[signal][query][position] = score(queries[query], passage)
            seconds[signal] += time.process_time() - began
    milliseconds = {signal: round(1e3 * value / len(pooled), 2) for signal, value in seconds.items()}
    return {"scores": scores, "milliseconds_a_query": milliseconds}


def encoded(model: Model, texts: Sequence[str], states: States, terms: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The output of a model for texts, and the mask of tokens. A sparse one may be asked for some terms only."""
    rows, mask = states.padded(texts)
    if isinstance(model, SparseTerms) and terms is not None:
        return model.only(rows, mask, terms), mask
    return model(rows, mask), mask


def unpadded(rows: Tensor, mask: Tensor) -> list[Tensor]:
    """Token vectors of each text without padding."""
    return [row[is_token] for row, is_token in zip(rows, mask, strict=True)]


# Judgement


def measured(folder: Path, pooled: list[Pool], scores: dict[str, list[Floats]]) -> dict[str, Any]:
    """nDCG@10 of each ranking, and its difference to the ranking that it would replace."""
    queries, qrels = beir.queries(folder), beir.qrels(folder, "test")

    def of(rank: Callable[[int, Pool], Floats]) -> dict[str, float]:
        rankings = [ranked(pool, rank(row, pool)) for row, pool in enumerate(pooled)]
        return values(qrels, dict(zip(queries, rankings, strict=True)))["nDCG@10"]

    default, cosine, bm25 = of(lambda _, p: p.default), of(lambda _, p: p.meaning), of(lambda _, p: p.words)
    both = of(lambda _, p: standard_scores(p.words) + standard_scores(p.meaning))
    rows = {name: compared(run) for name, run in (("default", default), ("cosine", cosine), ("BM25", bm25))}
    rows["BM25 and cosine"] = compared(both)
    for name, signal in scores.items():
        alone = of(lambda row, _, signal=signal: signal[row])
        rows[f"{name} alone"] = compared(alone, cosine=cosine, BM25=bm25, default=default)
        replaced = of(lambda row, p, signal=signal: standard_scores(signal[row]) + standard_scores(p.meaning))
        rows[f"{name} and cosine"] = compared(replaced, **{"BM25 and cosine": both, "default": default})
        for weight in WEIGHTS:
            beside = of(lambda row, p, s=signal, w=weight: reranked_score(s[row], p.default, 1 - w))
            rows[f"{name} {weight:.1f} beside default"] = compared(beside, default=default)
    return rows


def compared(run: dict[str, float], **baselines: dict[str, float]) -> dict[str, Any]:
    gains = {f"minus {name}": difference(*align(run, baseline)).as_dict() for name, baseline in baselines.items()}
    return {"nDCG@10": round(mean(run), 4), **gains}


def ranked(pool: Pool, scores: Floats) -> list[tuple[str, float]]:
    """Documents by their best passage."""
    best: dict[str, float] = {}
    for position in np.argsort(-scores, kind="stable"):
        best.setdefault(pool.documents[position], float(scores[position]))
    return list(best.items())


# The experiment


def training_sources(data: Path, whole_debian: Path) -> list[list[Article]]:
    judged = {row["text"] for row in beir.documents(whole_debian)}
    return [
        token_models.squad_articles(data / "squad11" / "squad11_train.jsonl.gz"),
        token_models.debian_articles(_debian(data), judged),
    ]


def trained(name: str, states: States, sources: list[list[Article]], file: Path, steps: int) -> tuple[Model, Any]:
    """A trained model and the report of its training, which may be an earlier run's."""
    make, loss = MODELS[name]
    model: Any = make(states, [text for source in sources for article in source for text, _ in article])
    report = file.with_suffix(".json")
    if not report.is_file():
        report.write_text(json.dumps(token_models.train(model, loss, states, sources, steps)), "utf-8")
        save_model(model, str(file))
    load_model(model, str(file))
    return model.eval(), json.loads(report.read_text("utf-8"))


class Collection:
    """A collection's queries with their best passages, and the output of the models for them so far."""

    def __init__(self, name: str, folder: Path, base: Base, work: Path) -> None:
        self._folder = folder
        self._states = States(base, work / f"{name}-states.safetensors")
        self._pooled = pools(folder, work / f"{name}-index", self._states)
        self._texts = list(dict.fromkeys(text for pool in self._pooled for text in pool.texts))
        self._states.add(self._texts)
        self._signals: dict[str, Any] = {}
        lengths = [len(self._states.final(text)) for text in self._texts]
        self._cost: dict[str, Any] = {"tokens_a_passage": round(float(np.mean(lengths)), 1)}

    def score(self, name: str, model: Model) -> None:
        """Score the passages by a model."""
        self._signals[name] = scored(name, model, self._pooled, self._states)
        if isinstance(model, SparseTerms):
            samples = {"passage": self._texts[:64], "query": [pool.query for pool in self._pooled]}
            self._cost["terms"] = {kind: terms_a_text(model, texts, self._states) for kind, texts in samples.items()}

    def result(self) -> dict[str, Any]:
        cost = {**self._cost, "milliseconds_a_query": joined(self._signals, "milliseconds_a_query")}
        rankings = measured(self._folder, self._pooled, joined(self._signals, "scores"))
        return {"queries": len(self._pooled), "scored_passages": len(self._texts), "cost": cost, "rankings": rankings}


@torch.inference_mode()
def terms_a_text(model: Model, texts: Sequence[str], states: States) -> float:
    """Mean number of weights above 0."""
    return round(float((encoded(model, texts, states)[0] > 0).sum(1).float().mean()), 1)


def joined(signals: dict[str, Any], part: str) -> dict[str, Any]:
    """One part of the output of all models, by signal."""
    return {name: value for signal in signals.values() for name, value in signal[part].items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--signals", nargs="*", choices=list(STEPS), default=["late"])
    parser.add_argument("--collections", nargs="*", default=list(DOCUMENTS))
    parser.add_argument("--trained-layers", type=int, choices=[0, 1], default=0, help="of the encoder, the last")
    parser.add_argument("--steps", type=int, help="of each model, by default those of the committed result")
    arguments = parser.parse_args()
    work, layers = arguments.work, arguments.trained_layers
    folders = make_models(arguments.data, work)
    base = Base(layers)
    prepared = {name: Collection(name, folders[name], base, work) for name in arguments.collections}
    models: dict[str, Model] = {"untrained": TokenVectors(base.upper()).eval()}
    training: dict[str, Any] = {}
    sources = training_sources(arguments.data, work / "whole" / "debian")
    states = States(base, work / "training-states.safetensors")
    states.add(text for source in sources for article in source for pair in article for text in (pair[0], *pair[1]))
    for name in ("untrained", *arguments.signals):
        if name != "untrained":
            steps = arguments.steps or STEPS[name]
            file = work / f"{name}-{layers}-{steps}.safetensors"
            models[name], training[name] = trained(name, states, sources, file, steps)
        for collection in prepared.values():
            collection.score(name, models[name])
        if name in training:  # a run that is stopped has the signals so far
            judged = {key: collection.result() for key, collection in prepared.items()}
            save("learned_signals", {"trained_layers": layers, "training": training, **judged}, seed=0)


if __name__ == "__main__":
    main()
