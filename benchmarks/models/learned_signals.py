"""Late interaction and learned sparse vectors, trained on SQuAD, as signals beside the default search.

    OMP_NUM_THREADS=1 python -m benchmarks.models.learned_signals --data DIR --work DIR [--signals late sparse]

DIR of the data holds scifact/ and cranfield/ in BEIR's layout, squad11/ and debian_descriptions/. Each collection keeps
the documents that are judged for 300 queries at most, and others up to 1,100. The default search gives the 50 best
passages of each query. A signal orders these alone, and then with a weight beside the default score, both as standard
scores: what a search would do that stores it for its passages. Recall stays as it is. Models and indexes are kept in
the folder of work. `token_models` has the models.

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
from binocle.retriever.documents.chunker import context_of
from binocle.retriever.retriever import Retriever
from binocle.retriever.search.query import Query
from binocle.retriever.search.ranking.fusion import reranked_score, standard_scores
from binocle.training.data import beir
from binocle.training.evaluation.indexed_collection import fill
from binocle.training.evaluation.measures import mean, values
from binocle.training.evaluation.significance import align, difference

from .. import collections
from ..machine import save
from . import token_models
from .token_models import Base, SparseTerms, TokenVectors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from binocle.core.arrays import Floats

DOCUMENTS, QUERIES, DEPTH = 1_100, 300, 50
WEIGHTS = (0.1, 0.2, 0.3, 0.5)
STEPS = {"late": 150, "sparse": 100}
_TOKENS = 4_096  # of a batch of passages
_PASSAGE_TOKENS = 256
Models = dict[str, TokenVectors | SparseTerms]


# Collections


def made(data: Path, work: Path) -> dict[str, Path]:
    """The four collections in BEIR's layout, cut to their size."""
    whole = {
        "scifact": lambda _: data / "scifact",
        "cranfield": lambda _: data / "cranfield",
        "squad": lambda out: collections.squad(data / "squad11" / "squad11_dev.jsonl.gz", out, count=QUERIES),
        "debian": lambda out: collections.debian(
            data / "debian_descriptions" / "debian12_descriptions.jsonl.gz", out, count=QUERIES
        ),
    }
    return {name: cut(make(work / "whole" / name), work / name) for name, make in whole.items()}


def cut(folder: Path, out: Path) -> Path:
    """The documents judged for some queries, and others up to `DOCUMENTS`."""
    draw, qrels, texts = random.Random(0), beir.qrels(folder, "test"), beir.queries(folder)
    queries = draw.sample(sorted(qrels), min(QUERIES, len(qrels)))
    rows = {row["id"]: row for row in beir.documents(folder)}
    judged = {document for query in queries for document in qrels[query] if document in rows}
    others = [name for name in rows if name not in judged]
    names = [*sorted(judged), *draw.sample(others, max(0, min(len(others), DOCUMENTS - len(judged))))]
    (out / "qrels").mkdir(parents=True, exist_ok=True)
    documents = (rows[name] for name in names)
    _write(out / "corpus.jsonl", ({"_id": row["id"], "title": row["title"], "text": row["text"]} for row in documents))
    _write(out / "queries.jsonl", ({"_id": query, "text": texts[query]} for query in queries))
    grades = [f"{query}\t{name}\t{grade}\n" for query in queries for name, grade in qrels[query].items()]
    (out / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(grades), "utf-8")
    return out


def _write(file: Path, rows: Iterator[dict[str, str]]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


@dataclass(frozen=True, slots=True)
class Pool:
    """The best passages of one query as the default search ranks them, with its scores."""

    query: str
    passages: list[int]
    documents: list[str]
    default: Floats
    words: Floats  # BM25, 0 where the words did not find it
    meaning: Floats  # cosines


def pools(retriever: Retriever, queries: dict[str, str]) -> list[Pool]:
    """One for each query."""
    snapshot = retriever.snapshot()
    paths = {row["id"]: row["path"] for row in retriever.documents()}
    table = snapshot.chunk_ids
    owners = dict(zip(table["id"].to_pylist(), table["document"].to_pylist(), strict=True))
    result = []
    for text in queries.values():
        vector = retriever.encoder.encode([text], kind="query")
        found = Query(snapshot, text, lambda vector=vector: vector).candidates(DEPTH)
        found = found.take(np.arange(min(DEPTH, len(found.ids))))
        ids = found.ids.tolist()
        documents = [paths[owners[number]] for number in ids]
        result.append(Pool(text, ids, documents, found.score, np.nan_to_num(found.lexical), found.semantic))
    return result


# Signals


def rows_of(output: Tensor, mask: Tensor) -> list[Tensor]:
    """What a model gives for each text: token vectors without padding, or weights."""
    return [row[kept] for row, kept in zip(output, mask, strict=True)] if output.ndim == 3 else list(output)


def interaction(query: Tensor, passage: Tensor) -> float:
    """MaxSim of token vectors without padding."""
    return float((query @ passage.T).amax(1).mean())


def cosine_of_means(query: Tensor, passage: Tensor) -> float:
    return float(normalize(query.mean(0), dim=0) @ normalize(passage.mean(0), dim=0))


def product(query: Tensor, passage: Tensor) -> float:
    return float(query @ passage)


SIGNALS: dict[str, tuple[str, Callable[[Tensor, Tensor], float]]] = {  # model and score
    "untrained MaxSim": ("untrained", interaction),
    "MaxSim": ("late", interaction),
    "cosine of the means": ("late", cosine_of_means),
    "sparse": ("sparse", product),
}


@torch.inference_mode()
def scored(base: Base, models: Models, pooled: Sequence[Pool], contexts: dict[int, str]) -> tuple[Any, Any]:
    """For each signal the scores of each pool's passages; and what they cost."""
    asked, terms = _queries(base, models, [pool.query for pool in pooled])
    places: dict[int, list[tuple[int, int]]] = {}
    for query, pool in enumerate(pooled):
        for place, passage in enumerate(pool.passages):
            places.setdefault(passage, []).append((query, place))
    used = {name: signal for name, signal in SIGNALS.items() if signal[0] in models}
    scores = {name: [np.zeros(len(pool.passages), np.float32) for pool in pooled] for name in used}
    seconds, tokens = dict.fromkeys(used, 0.0), 0
    for batch in _batches(contexts):
        read = base.read([contexts[number] for number in batch], _PASSAGE_TOKENS)
        tokens += int(read.mask.sum())
        lower = base.lower(read)
        outputs = {
            name: rows_of(
                model.only(lower, read.mask, terms) if isinstance(model, SparseTerms) else model(lower, read.mask),
                read.mask,
            )
            for name, model in models.items()
        }
        for name, (model_name, score) in used.items():
            began = time.process_time()
            for number, passage in zip(batch, outputs[model_name], strict=True):
                for query, place in places[number]:
                    scores[name][query][place] = score(asked[model_name][query], passage)
            seconds[name] += time.process_time() - began
    cost = {
        "passages": len(contexts),
        "tokens_a_passage": round(tokens / len(contexts), 1),
        "milliseconds_a_query": {name: round(1e3 * value / len(pooled), 2) for name, value in seconds.items()},
    }
    return scores, cost


def _queries(base: Base, models: Models, texts: list[str]) -> tuple[dict[str, list[Tensor]], Tensor]:
    """Queries by each model; of sparse ones only the terms that any has, and these."""
    read = base.read(texts, token_models.QUERY_TOKENS)
    lower = base.lower(read)
    outputs = {name: model(lower, read.mask) for name, model in models.items()}
    terms = torch.empty(0, dtype=torch.long)
    if "sparse" in outputs:
        terms = outputs["sparse"].amax(0).nonzero()[:, 0]
        outputs["sparse"] = outputs["sparse"][:, terms]
    return {name: rows_of(output, read.mask) for name, output in outputs.items()}, terms


def _batches(contexts: dict[int, str]) -> Iterator[list[int]]:
    """Passages of like length."""
    batch: list[int] = []
    for number in sorted(contexts, key=lambda number: len(contexts[number])):
        if (len(batch) + 1) * min(_PASSAGE_TOKENS, len(contexts[number]) // 4) > _TOKENS:
            yield batch
            batch = []
        batch.append(number)
    yield batch


# Judgement


def measured(folder: Path, pooled: list[Pool], scores: dict[str, list[Floats]]) -> dict[str, Any]:
    """nDCG@10 of each ranking, and its difference to the one that it would replace."""
    queries, qrels = beir.queries(folder), beir.qrels(folder, "test")

    def of(rank: Callable[[int, Pool], Floats]) -> dict[str, float]:
        rankings = [ranked(pool, rank(row, pool)) for row, pool in enumerate(pooled)]
        run = dict(zip(queries, rankings, strict=True))
        return values(qrels, run)["nDCG@10"]

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


def compared(run: dict[str, float], **others: dict[str, float]) -> dict[str, Any]:
    gains = {f"minus {name}": difference(*align(run, other)).as_dict() for name, other in others.items()}
    return {"nDCG@10": round(mean(run), 4), **gains}


def ranked(pool: Pool, scores: Floats) -> list[tuple[str, float]]:
    """Documents by their best passage."""
    best: dict[str, float] = {}
    for place in np.argsort(-scores, kind="stable"):
        best.setdefault(pool.documents[place], float(scores[place]))
    return list(best.items())


# The experiment


def trained(name: str, base: Base, data: Path, work: Path, steps: int) -> tuple[TokenVectors | SparseTerms, Any]:
    """A trained model and the report of its training, which may be an earlier run's."""
    articles = token_models.articles(data / "squad11" / "squad11_train.jsonl.gz")
    texts = [text for article in articles for text, _ in article]
    random.Random(0).shuffle(texts)
    make, loss = {
        "late": (token_models.new_token_vectors, token_models.late_interaction_loss),
        "sparse": (token_models.new_sparse_terms, token_models.sparse_loss),
    }[name]
    model: Any = make(base, texts[:5_000])
    file, report = work / f"{name}-{steps}.safetensors", work / f"{name}-{steps}.json"
    if not report.is_file():
        report.write_text(json.dumps(token_models.train(model, loss, base, articles, steps)), "utf-8")
        save_model(model, str(file))
    load_model(model, str(file))
    return model.eval(), json.loads(report.read_text("utf-8"))


@torch.inference_mode()
def terms_a_text(base: Base, model: SparseTerms, texts: list[str]) -> float:
    """Mean number of weights above 0."""
    read = base.read(texts, _PASSAGE_TOKENS)
    return round(float((model(base.lower(read), read.mask) > 0).sum(1).float().mean()), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--signals", nargs="*", choices=list(STEPS), default=list(STEPS))
    parser.add_argument("--collections", nargs="*", default=["scifact", "cranfield", "squad", "debian"])
    parser.add_argument("--steps", type=int, help="of each model, by default those of the committed result")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    base = Base.load()
    models: Models = {"untrained": TokenVectors(base.upper()).eval()}
    results: dict[str, Any] = {"training": {}}
    for name in arguments.signals:
        steps = arguments.steps or STEPS[name]
        models[name], results["training"][name] = trained(name, base, arguments.data, arguments.work, steps)
    for name, folder in made(arguments.data, arguments.work).items():
        if name not in arguments.collections:
            continue
        retriever = Retriever.open(arguments.work / f"{name}-index")
        fill(retriever, folder, ignore)
        pooled = pools(retriever, beir.queries(folder))
        rows = retriever.snapshot().cited_passages.of({number for pool in pooled for number in pool.passages})
        contexts = {number: context_of(row["heading"], row["text"]) for number, row in rows.items()}
        scores, cost = scored(base, models, pooled, contexts)
        if isinstance(sparse := models.get("sparse"), SparseTerms):
            some = [*contexts.values()][:64]
            cost["terms"] = {
                "passage": terms_a_text(base, sparse, some),
                "query": terms_a_text(base, sparse, [pool.query for pool in pooled]),
            }
        results[name] = {"queries": len(pooled), "cost": cost, "rankings": measured(folder, pooled, scores)}
        print(name, json.dumps(results[name], indent=1), flush=True)
    save("learned_signals", results, seed=0)


if __name__ == "__main__":
    main()
