"""Copies among the first ten hits, with and without collapsing, over trees that hold exact and near copies.

    python -m benchmarks.passages.copies --tree vendored=FOLDER --tree samples=FOLDER [--debian FILE] [--indexes DIR]

FILE is debian12_descriptions.jsonl.gz: 1,500 packages in a row, so that families with the same text stay together.
Each query is a dozen words in a row of a random passage. A hit is an exact copy of an earlier one if its words are
the same. It is a near copy if nine tenths of the rows of three words of both are the same.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from binocle.retriever.retriever import Retriever

from ..machine import save

if TYPE_CHECKING:
    from collections.abc import Sequence

    from binocle.retriever.search.results.hit import Hit

SEED, QUERIES, PACKAGES, WORDS, TOP = 0, 200, 1_500, 12, 10


def words_of(text: str) -> list[str]:
    return text.casefold().split()


def likeness(text: str, previous: str) -> float:
    """The share of the rows of three words that two texts have in common; 1 if their words are the same."""
    first, second = words_of(text), words_of(previous)
    if first == second:
        return 1.0
    rows, previous_rows = ({tuple(words[at : at + 3]) for at in range(len(words) - 2)} for words in (first, second))
    return min(len(rows & previous_rows) / max(1, len(rows | previous_rows)), 0.999)


def copies(hits: Sequence[Hit]) -> tuple[int, int]:
    """How many hits are exact copies of an earlier one, and how many near ones."""
    best = [
        max((likeness(hit.text, before.text) for before in hits[:rank]), default=0.0) for rank, hit in enumerate(hits)
    ]
    return sum(value == 1 for value in best), sum(0.9 <= value < 1 for value in best)


def queries(retriever: Retriever, count: int) -> list[str]:
    """Rows of words of random passages."""
    draw = random.Random(SEED)
    texts = [row.split() for row in retriever.snapshot().read("chunks", ["text"])["text"].to_pylist()]
    long = [words for words in texts if len(words) > WORDS]
    starts = ((words, draw.randrange(len(words) - WORDS)) for words in draw.sample(long, min(count, len(long))))
    return [" ".join(words[start : start + WORDS]).replace('"', " ") for words, start in starts]


def measure(retriever: Retriever, count: int) -> dict[str, Any]:
    texts = queries(retriever, count)
    result: dict[str, Any] = {"passages": retriever.snapshot().chunks.count_rows(), "queries": len(texts)}
    for name, collapse in (("before", False), ("after", True)):
        counts = [copies(retriever.search(text, TOP, collapse=collapse)) for text in texts]
        result[name] = {
            "exact": sum(exact for exact, _ in counts),
            "near": sum(near for _, near in counts),
            "queries_with_copies": sum(any(pair) for pair in counts),
        }
    return result


def fill_debian(retriever: Retriever, file: Path) -> None:
    with gzip.open(file, "rt", encoding="utf-8") as stream:
        rows = [json.loads(line) for line in stream]
    start = random.Random(SEED).randrange(len(rows) - PACKAGES)
    retriever.add(
        {"id": str(number), "title": row["short"], "text": row["long"]}
        for number, row in enumerate(rows[start : start + PACKAGES])
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", action="append", default=[], metavar="NAME=FOLDER")
    parser.add_argument("--debian", type=Path)
    parser.add_argument("--indexes", type=Path, help="keep the indexes here, to measure them again")
    parser.add_argument("--count", type=int, default=QUERIES, help="queries of each tree")
    options = parser.parse_args()
    results = {}
    with tempfile.TemporaryDirectory() as temporary:
        for tree in [*options.tree, *(["debian="] if options.debian else [])]:
            name, _, folder = tree.partition("=")
            retriever = Retriever.open((options.indexes or Path(temporary)) / name)
            if not (retriever.path / "HEAD.json").exists():
                retriever.sync(folder) if folder else fill_debian(retriever, options.debian)
            results[name] = measure(retriever, options.count)
            print(name, json.dumps(results[name]), flush=True)
    save("copies", results, seed=SEED)


if __name__ == "__main__":
    main()
