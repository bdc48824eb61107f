"""How often the lines that are printed of a hit contain the answer: SQuAD's questions and their paragraphs.

    python -m benchmarks.passages.snippets --data squad11_dev.jsonl.gz

Each question's own paragraph is printed among nine others of the same article, as a search would print ten hits.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from pathlib import Path
from typing import Any

from binocle.retriever.search.results.hit import Hit
from binocle.retriever.search.results.snippet import blocks

from ..machine import save

_HITS = 10
_WIDTHS = (80, 100)


def printed(question: str, texts: list[str], width: int) -> str:
    """Return the lines that a search shows of the first text."""
    hits = [
        Hit(
            rank=rank,
            score=0.0,
            scores={},
            path="paragraph.txt",
            sha256="",
            char_start=0,
            char_end=len(text),
            line_start=1,
            line_end=1,
            page=None,
            heading=(),
            text=text,
            title="",
            format="text",
            metadata={},
            source="file",
            document_row=rank,
            passage=rank,
        )
        for rank, text in enumerate(texts, 1)
    ]
    block = next(iter(blocks(hits, question, colour=False, width=width)))
    return folded(" ".join(block.splitlines()[1:]))


def folded(text: str) -> str:
    return " ".join(text.replace("…", " ").casefold().split())


def measure(rows: list[dict[str, Any]], count: int, seed: int) -> dict[str, Any]:
    random_ = random.Random(seed)
    articles: dict[str, list[str]] = {}
    for row in rows:
        articles.setdefault(row["title"], []).append(row["context"])
    questions = [(row, question) for row in rows for question in row["qas"]]
    sample = []
    for row, question in random_.sample(questions, count):
        unrelated = [text for text in articles[row["title"]] if text != row["context"]]
        texts = [row["context"], *random_.sample(unrelated, min(_HITS - 1, len(unrelated)))]
        sample.append((question["question"], texts, [folded(answer) for answer in answers(question)]))
    results: dict[str, Any] = {"questions": count}
    for width in _WIDTHS:
        shown = [printed(question, texts, width) for question, texts, _ in sample]
        contained = [any(answer in text for answer in right) for text, (_, _, right) in zip(shown, sample, strict=True)]
        results[f"width {width}"] = {
            "with the answer": round(sum(contained) / count, 4),
            "share of the paragraph shown": round(
                sum(map(len, shown)) / sum(len(texts[0]) for _, texts, _ in sample), 3
            ),
        }
    return results


def answers(question: dict[str, Any]) -> list[str]:
    return [answer["text"] if isinstance(answer, dict) else answer for answer in question["answers"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--count", type=int, default=500)
    arguments = parser.parse_args()
    with gzip.open(arguments.data, "rt", encoding="utf-8") as stream:
        rows = [json.loads(line) for line in stream]
    save("snippets", measure(rows, arguments.count, seed=0), seed=0)


if __name__ == "__main__":
    main()
