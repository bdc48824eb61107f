r"""Contexts for a prompt: do they hold the answer, repeat nothing, and how much do they cost?

    OPENBLAS_NUM_THREADS=1 python -m benchmarks.passages.context --squad squad11_dev.jsonl.gz --squad-index FOLDER \
        --scifact FOLDER --scifact-index FOLDER --book-index FOLDER

Recall is the share of SQuAD's questions with one of their answers in the context. For scifact it is the share of the
sentences that prove or disprove its claims. It is compared with plain top-k: the best hits, in order and without
citations, while they fit; `won` and `lost` count the questions where they differ. Nearly all answers of SQuAD are in
both, so its sample is larger. For this, contexts are also packed where a search says that nothing answers; `refused` is
their share. The book is an index of the Rust book; its queries are 30 of its headings. Two passages are alike by the
Jaccard index of their words, of rows of two words and of rows of three. Times are CPU seconds of this process, search
and context in turn.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import random
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from binocle import Retriever

from ..machine import save

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from binocle import Hit

LIMITS = (500, 1_000, 2_000)  # tokens of the encoder
QUESTIONS, MANY_QUESTIONS, TIMED, CONTEXTS, SEED = 200, 1_000, 40, 30, 0
Question = tuple[str, list[list[str]]]  # a query, and the variants of each of its answers
ALIKE = 0.8


def questions(file: Path) -> list[Question]:
    """Return a sample of SQuAD's questions with their answers."""
    with gzip.open(file, "rt", encoding="utf-8") as stream:
        pairs = [(qa["question"], [qa["answers"]]) for line in stream for qa in json.loads(line)["qas"][:1]]
    return random.Random(SEED).sample(pairs, MANY_QUESTIONS)


def claims(folder: Path) -> list[Question]:
    """Return a sample of scifact's claims with the sentences that prove or disprove them."""
    corpus, queries = (
        [json.loads(line) for line in (folder / f"{name}.jsonl").read_text("utf-8").splitlines()]
        for name in ("corpus", "queries")
    )
    sentences = {row["_id"]: re.split(r"(?<=[.!?])\s+(?=[A-Z])", row["text"]) for row in corpus}
    pairs = []
    for row in queries:
        numbers = [(name, at) for name, sets in row["metadata"].items() for facts in sets for at in facts["sentences"]]
        evidence = [[sentences[name][at]] for name, at in numbers if at < len(sentences[name])]
        if evidence:
            pairs.append((row["text"], evidence))
    return random.Random(SEED).sample(pairs, QUESTIONS)


def plain(hits: Sequence[Hit], limit: int, count: Callable[[str], int]) -> str:
    """Return the best hits that fit, in order."""
    texts: list[str] = []
    for hit in hits:
        if count("\n\n".join([*texts, hit.text])) > limit:
            break
        texts.append(hit.text)
    return "\n\n".join(texts)


def recall(retriever: Retriever, sample: list[Question]) -> list[dict[str, Any]]:
    """Return the share of answers in the text, for each limit."""
    encoder, rows = retriever.encoder, []

    def count(text: str) -> int:
        return len(encoder.offsets([text])[0])

    def answered_share(text: str, answers: list[list[str]]) -> float:
        return float(np.mean([any(variant in text for variant in answer) for answer in answers]))

    hits = [retriever.search(query, k=30) for query, _ in sample]
    for limit in LIMITS:
        contexts = [retriever.context(query, max_tokens=limit, min_relevance=0) for query, _ in sample]
        assert all(context.tokens == count(context.text) <= limit for context in contexts)
        packed = np.array(
            [answered_share(context.text, answers) for context, (_, answers) in zip(contexts, sample, strict=True)]
        )
        best = np.array(
            [answered_share(plain(top, limit, count), answers) for top, (_, answers) in zip(hits, sample, strict=True)]
        )
        rows.append(
            {
                "tokens": limit,
                "recall": round(float(packed.mean()), 4),
                "plain_recall": round(float(best.mean()), 4),
                "difference": difference(packed - best),
                "questions": len(sample),
                "won": int((packed > best).sum()),
                "lost": int((packed < best).sum()),
                "passages": round(float(np.mean([len(context.passages) for context in contexts])), 1),
                "refused": round(float(np.mean([not context.answerable for context in contexts])), 4),
            }
        )
        print(rows[-1], flush=True)
    return rows


def difference(differences: NDArray[np.float64]) -> list[float]:
    """Return the mean of paired differences, and the ends of its 95 % interval by 10,000 bootstrap samples."""
    random = np.random.default_rng(SEED)
    means = differences[random.integers(0, len(differences), (10_000, len(differences)))].mean(1)
    return [round(float(value), 4) for value in (differences.mean(), *np.percentile(means, [2.5, 97.5]))]


def headings(retriever: Retriever) -> list[str]:
    """Return a sample of the headings of an index."""
    rows = retriever.snapshot().read("chunks", ["heading"])["heading"].to_pylist()
    return random.Random(SEED).sample(sorted({row[-1] for row in rows if row}), CONTEXTS)


def likeness(left: str, right: str) -> float:
    """Return the largest Jaccard index of rows of one, two and three words."""
    words = [re.findall(r"\w+", text.lower()) for text in (left, right)]
    indices = [0.0]
    for size in (1, 2, 3):
        first, second = ({tuple(row[at : at + size]) for at in range(len(row) - size + 1)} for row in words)
        if first or second:
            indices.append(len(first & second) / len(first | second))
    return max(indices)


def repetition(retriever: Retriever) -> dict[str, Any]:
    """Count pairs of passages that are alike, and the lowest rank in a context."""
    pairs, ranks, tokens = [], [], []
    for query in headings(retriever):
        context = retriever.context(query)
        texts = [passage.text for passage in context.passages]
        pairs += [likeness(*pair) for pair in itertools.combinations(texts, 2)]
        ranks.append(max((hit.rank for passage in context.passages for hit in passage.hits), default=0))
        tokens.append(context.tokens)
    return {
        "contexts": CONTEXTS,
        "pairs": len(pairs),
        "pairs_alike": sum(likeness >= ALIKE for likeness in pairs),
        "most_alike": round(max(pairs), 3),
        "lowest_rank": max(ranks),
        "median_tokens": int(np.median(tokens)),
    }


def cost(retriever: Retriever) -> dict[str, Any]:
    """Return the median CPU milliseconds of a search and of a context of the same query."""
    retriever.warm_up()
    seconds = []
    for query in (headings(retriever) * 2)[:TIMED]:
        start = time.process_time()
        retriever.search(query)
        middle = time.process_time()
        retriever.context(query)
        seconds.append((middle - start, time.process_time() - middle))
    search, context = (1e3 * float(np.median(column)) for column in zip(*seconds, strict=True))
    return {"search_ms": round(search, 1), "context_ms": round(context, 1), "ratio": round(context / search, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--squad", type=Path, required=True)
    parser.add_argument("--squad-index", type=Path, required=True)
    parser.add_argument("--scifact", type=Path, required=True)
    parser.add_argument("--scifact-index", type=Path, required=True)
    parser.add_argument("--book-index", type=Path, required=True)
    arguments = parser.parse_args()
    book = Retriever.open(arguments.book_index, trust=True)
    results: dict[str, Any] = {"book": repetition(book), "cost": cost(book)}
    print(results, flush=True)
    results["squad"] = recall(Retriever.open(arguments.squad_index, trust=True), questions(arguments.squad))
    results["scifact"] = recall(Retriever.open(arguments.scifact_index, trust=True), claims(arguments.scifact))
    save("context", results, seed=SEED)


if __name__ == "__main__":
    main()
