"""A reranker for collections that it has never seen, measured on four of them.

    python -m benchmarks.models.general_reranker --data DIR --work DIR [--queries 120]

DIR holds squad11, docs_rust_book, scifact, cranfield, debian_descriptions and docs_tldr.tar.gz. The reranker learns
from

- questions of SQuAD's train split, each with one to four sentences of its paragraph, the answer among them
- queries made from other paragraphs of SQuAD and from half of the Rust book

and reranks the best 50 of hybrid search on scifact, cranfield, Debian's descriptions and tldr pages. No text of these
is learned. The gain is of nDCG@10, with p by randomisation over the queries. Work of an earlier call is not done again.

It trains by the recipe `general`. With a `training.json` and a folder `reranker` in the work folder, it only measures:
the model of the committed result was trained on a GPU, and the result names its settings.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from binocle import Retriever
from binocle.commands.models.recipes import BUILT_IN
from binocle.core import sentences
from binocle.retriever.models.load import load_reranker
from binocle.training.data import beir
from binocle.training.evaluation import significance
from binocle.training.rerankers.config import RerankerConfig
from binocle.training.rerankers.first_stage_weight import WEIGHTS, gains_by_weight
from binocle.training.rerankers.train import train_reranker

from .. import collections
from ..machine import save

if TYPE_CHECKING:
    from collections.abc import Iterator

    from binocle.core.progress import Progress
    from binocle.training.encoders.result import TrainingResult

BASE = "sentence-transformers/all-MiniLM-L6-v2"
SEED = 0
ARTICLES, MORE_ARTICLES = 100, 5  # of SQuAD: articles with questions, and articles that give documents
QUESTIONS = 3_500  # of SQuAD
MOST_SENTENCES = 4  # of a passage of SQuAD


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--queries", type=int, default=120, help="of a collection")
    parser.add_argument("--steps", type=int, help="of training; by default once through the data")
    parser.add_argument("--questions", type=int, default=QUESTIONS, help="of SQuAD to learn from")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    training = train(arguments.data, arguments.work, arguments.questions, arguments.steps)
    gains = {
        name: gain(name, folder, arguments.work, arguments.queries)
        for name, folder in judged(arguments.data, arguments.work).items()
    }
    mean = sum(row["difference"] for row in gains.values()) / len(gains)
    save("general_reranker", {"training": training, "gains": gains, "mean_difference": round(mean, 4)}, seed=SEED)


def train(data: Path, work: Path, questions: int, steps: int | None) -> dict[str, Any]:
    """Train the reranker, or read the figures of an earlier training in this folder."""
    figures = work / "training.json"
    if not figures.is_file():
        squad = pairs(data, work, questions)
        sources = {"squad": squad, "paragraphs": paragraphs(data, work), "book": book(data, work)}
        config = RerankerConfig(**BUILT_IN["reranker"]["general"], steps=steps)
        start = time.process_time()
        result = train_reranker(sources, work / "reranker", base=BASE, config=config, progress=say)
        figures.write_text(json.dumps(figures_of(result, time.process_time() - start)), "utf-8")
    facts: dict[str, Any] = json.loads(figures.read_text("utf-8"))
    return facts


def figures_of(result: TrainingResult, seconds: float) -> dict[str, Any]:
    card = json.loads((result.folder / "binocle.json").read_text("utf-8"))
    names = ("steps", "rows", "measures", "first_stage_weight")
    return {"processor_seconds": round(seconds)} | {name: card.get(name, result.as_dict().get(name)) for name in names}


def say(event: Progress) -> None:
    if event.stage == "training" and event.done and event.done % 20 == 0:
        print(event.done, event.total, event.message, time.process_time(), flush=True)
    elif event.message:
        print(event.message, flush=True)


# The training data


def articles(data: Path) -> list[list[dict[str, Any]]]:
    """Return the paragraphs of each article of SQuAD's train split, the articles in random order."""
    by_title: dict[str, list[dict[str, Any]]] = {}
    with gzip.open(data / "squad11" / "squad11_train.jsonl.gz", "rt", encoding="utf-8") as stream:
        for row in map(json.loads, stream):
            by_title.setdefault(row["title"], []).append(row)
    texts = list(by_title.values())
    random.Random(SEED).shuffle(texts)
    return texts


def pairs(data: Path, work: Path, questions: int) -> Path:
    """Write random questions of SQuAD with passages of one to four sentences."""
    file = work / "squad.jsonl"
    if file.is_file():  # a resumed training wants the same file
        return file
    rows = [row for article in articles(data)[:ARTICLES] for row in passages(article)]
    rows = random.Random(SEED).sample(rows, questions)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return file


def passages(article: list[dict[str, Any]]) -> Iterator[dict[str, str]]:
    """Yield each question with the passage that has its answer; paragraphs are cut into passages at random."""
    for number, paragraph in enumerate(article):
        text, choice = paragraph["context"], random.Random(paragraph["context"])
        spans = iter(sentences.spans(text))
        cuts = []
        while group := list(islice(spans, choice.randint(1, MOST_SENTENCES))):
            cuts.append(text[group[0][0] : group[-1][1]])
        for question in paragraph["qas"]:
            passage = next((cut for cut in cuts if question["answers"][0] in cut), None)
            if passage is not None:
                title = paragraph["title"]
                yield {"query": question["question"], "positive": passage, "document_id": f"{title} {number}"}


def paragraphs(data: Path, work: Path) -> Path:
    """Index the paragraphs of other articles of SQuAD; their documents give queries."""
    retriever = Retriever.open(work / "paragraphs")
    retriever.add(
        {"id": f"{row['title']}/{number}", "title": row["title"].replace("_", " "), "text": row["context"]}
        for article in articles(data)[ARTICLES : ARTICLES + MORE_ARTICLES]
        for number, row in enumerate(article)
    )
    return work / "paragraphs"


def book(data: Path, work: Path) -> Path:
    """Index the first ten chapters of the Rust book."""
    retriever = Retriever.open(work / "book")
    retriever.add(
        {"id": file.name, "text": file.read_text("utf-8"), "format": "markdown"}
        for file in sorted((data / "docs_rust_book" / "src").glob("ch0*.md"))
    )
    return work / "book"


# The measurement


def judged(data: Path, work: Path) -> dict[str, Path]:
    debian = data / "debian_descriptions" / "debian12_descriptions.jsonl.gz"
    return {
        "scifact": data / "scifact",
        "cranfield": data / "cranfield",
        "debian": collections.debian(debian, work / "debian"),
        "tldr": collections.tldr(data / "docs_tldr.tar.gz", work / "tldr"),
    }


def gain(name: str, folder: Path, work: Path, count: int) -> dict[str, Any]:
    """Rerank the best 50 of hybrid search for `count` random queries: nDCG@10 at the model's weight, and at others."""
    figures = work / f"{name}.json"
    if not figures.is_file():
        retriever, reranker = Retriever.open(work / f"{name}-index"), load_reranker(str(work / "reranker"))
        retriever.add(beir.documents(folder))
        queries, qrels = beir.queries(folder), beir.qrels(folder, "test")
        sample = random.Random(SEED).sample(sorted(qrels), min(count, len(qrels)))
        start = time.process_time()
        both = [gains_by_weight(reranker, retriever, queries[query], qrels[query]) for query in sample]
        facts = table([pair for pair in both if pair is not None], reranker.first_stage_weight)
        seconds = (time.process_time() - start) / len(sample)
        figures.write_text(json.dumps(facts | {"processor_seconds_a_query": round(seconds, 2)}), "utf-8")
        print(name, facts, flush=True)
    result: dict[str, Any] = json.loads(figures.read_text("utf-8"))
    return result


def table(gains: list[tuple[float, list[float]]], weight: float) -> dict[str, Any]:
    """Return the mean nDCG@10 of the first stage and at each weight, and the difference at the model's weight."""
    first = np.array([before for before, _ in gains])
    by_weight = np.array([after for _, after in gains])
    own = by_weight[:, np.abs(WEIGHTS - weight).argmin()]
    difference = significance.difference(own, first)
    return {
        "queries": len(gains),
        "hybrid": round(first.mean(), 4),
        "reranked": round(own.mean(), 4),
        "difference": round(difference.value, 4),
        "interval": [round(difference.low, 4), round(difference.high, 4)],
        "p": round(difference.p, 4),
        "by_weight_of_the_first_stage": {
            f"{weight:.1f}": round(mean, 4) for weight, mean in zip(WEIGHTS, by_weight.mean(0), strict=True)
        },
    }


if __name__ == "__main__":
    main()
