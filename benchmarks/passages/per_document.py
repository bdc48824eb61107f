"""Measure the cost of a limit on the passages of a document, where documents are long.

    python -m benchmarks.passages.per_document --squad squad11_dev.jsonl.gz [--index DIR] [--count 400]

Each of the 48 articles of SQuAD's development set is one document. A hit is right if it overlaps the paragraph of the
question and holds the answer.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from binocle.retriever.retriever import Retriever

from ..machine import save

if TYPE_CHECKING:
    from binocle.retriever.search.results.hit import Hit

SEED, QUESTIONS, TOP = 7, 400, 10
LIMITS = {"default": None, "no limit": 0, "3 at most": 3}


class Question(NamedTuple):
    text: str
    article: str
    start: int  # of the paragraph
    end: int
    answer: str

    def is_answered(self, hit: Hit) -> bool:
        overlaps = hit.char_start < self.end and hit.char_end > self.start
        return hit.path == self.article and overlaps and self.answer in hit.text


def articles(file: Path, count: int) -> tuple[dict[str, str], list[Question]]:
    """The text of each article, and questions on them."""
    with gzip.open(file, "rt", encoding="utf-8") as stream:
        rows = [json.loads(line) for line in stream]
    texts: dict[str, str] = {}
    questions = []
    for row in rows:
        before = texts.get(row["title"], "")
        start = len(before)
        texts[row["title"]] = before + row["context"] + "\n\n"
        questions += [
            Question(item["question"], row["title"], start, start + len(row["context"]), item["answers"][0])
            for item in row["qas"]
        ]
    return texts, random.Random(SEED).sample(questions, count)


def measure(retriever: Retriever, questions: list[Question], per_document: int | None) -> dict[str, Any]:
    ranks, documents = [], 0
    for question in questions:
        hits = retriever.search(question.text, TOP, per_document=per_document)
        documents += len({hit.document for hit in hits})
        ranks += [rank for rank, hit in enumerate(hits, 1) if question.is_answered(hit)][:1]
    count = len(questions)
    shares = {f"found_at_{k}": round(sum(rank <= k for rank in ranks) / count, 4) for k in (1, 3, 5, TOP)}
    return shares | {"mrr": round(sum(1 / rank for rank in ranks) / count, 4), "documents": round(documents / count, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--squad", type=Path, required=True)
    parser.add_argument("--index", type=Path, help="keep the index here, to measure it again")
    parser.add_argument("--count", type=int, default=QUESTIONS, help="questions")
    options = parser.parse_args()
    texts, questions = articles(options.squad, options.count)
    with tempfile.TemporaryDirectory() as temporary:
        retriever = Retriever.open(options.index or Path(temporary) / "index")
        if not (retriever.path / "HEAD.json").exists():
            retriever.add({"id": title, "text": text.strip()} for title, text in texts.items())
        results = {name: measure(retriever, questions, limit) for name, limit in LIMITS.items()}
    save("per_document", {"questions": len(questions), **results}, seed=SEED)


if __name__ == "__main__":
    main()
