"""Answers from a whole collection: questions of SQuAD's development set, with all its paragraphs indexed.

    python -m benchmarks.heads.answers --data /data --reader my-reader --work /tmp/answers

Each question is asked twice: of all paragraphs, and of all paragraphs outside its article, where the engine should
refuse. It reports the share refused at two thresholds: the reader's own, and a stricter one, which loses 5 % of the
exact answers. A citation opens where the document has the answer at the characters that the answer cites.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from binocle import Retriever
from binocle.retriever.models.heads.reader import load_reader
from binocle.training.evaluation.heads import span_metrics

from ..machine import save

if TYPE_CHECKING:
    from collections.abc import Sequence

    from binocle.retriever.models.heads.reader import Reader
    from binocle.retriever.search.results.hit import Hit

_MAX_LOSS = 0.05  # share of the exact answers that the threshold may lose
_DEEP = 300  # hits to read, then the hits of other articles are kept


@dataclass(frozen=True, slots=True)
class DrawnQuestion:
    """A question with its answers, and the number of its paragraph."""

    text: str
    answers: tuple[str, ...]
    paragraph: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="with squad11/squad11_dev.jsonl.gz")
    parser.add_argument("--reader", required=True)
    parser.add_argument("--work", type=Path, required=True, help="keeps the index")
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("-k", type=int, default=5, help="passages that are read")
    options = parser.parse_args()
    with gzip.open(options.data / "squad11" / "squad11_dev.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    retriever = Retriever.open(options.work / "index")
    if not (options.work / "index").is_dir() or len(retriever) < len(rows):
        retriever.add(
            [
                {"id": f"p{number}", "title": row["title"].replace("_", " "), "text": row["context"]}
                for number, row in enumerate(rows)
            ]
        )
    reader = load_reader(options.reader)
    threshold = reader.settings.threshold
    reader.settings = replace(reader.settings, threshold=float("-inf"))
    save("answers", measure(retriever, reader, rows, _drawn(rows, options.questions), options.k, threshold), seed=0)


def _drawn(rows: list[dict[str, Any]], count: int) -> list[DrawnQuestion]:
    questions = [
        DrawnQuestion(question["question"], tuple(map(_text, question["answers"])), number)
        for number, row in enumerate(rows)
        for question in row["qas"]
    ]
    return random.Random(0).sample(questions, min(count, len(questions)))


def _text(answer: Any) -> str:
    return answer["text"] if isinstance(answer, dict) else answer


def measure(
    retriever: Retriever,
    reader: Reader,
    rows: list[dict[str, Any]],
    questions: Sequence[DrawnQuestion],
    k: int,
    threshold: float,
) -> dict[str, Any]:
    """Ask all questions twice, and measure the answers.

    :param threshold: the least score that the reader answers with.
    """
    scores, exact, f1, opens, without, in_hits = [], [], [], [], [], []
    start = time.process_time()
    for question in questions:
        article = rows[question.paragraph]["title"]
        hits = retriever.search(question.text, _DEEP)
        first = retriever.answer(question.text, reader=reader, hits=hits[:k])
        elsewhere = [hit for hit in hits if rows[_number(hit)]["title"] != article][:k]
        rest = retriever.answer(question.text, reader=reader, hits=elsewhere)
        in_hits.append(any(_number(hit) == question.paragraph for hit in hits[:k]))
        text = first[0].text if first else ""
        scores.append(first[0].score if first else -np.inf)
        exact.append(span_metrics.exact_match(text, question.answers))
        f1.append(span_metrics.f1(text, question.answers))
        opens += [
            rows[_number(answer.hit)]["context"][answer.char_start : answer.char_end] == answer.text for answer in first
        ]
        without.append(rest[0].score if rest else -np.inf)
    seconds = time.process_time() - start
    highest, right, taken = np.array(scores), np.array(exact) > 0, np.array(without)
    cutoff = float(np.quantile(highest[right], _MAX_LOSS)) if right.any() else 0.0
    return {
        "reader": Path(reader.name).name,
        "paragraphs": len(rows),
        "questions": len(questions),
        "passages read": k,
        "paragraph among them": round(float(np.mean(in_hits)), 3),
        "exact match": round(100 * float(right.mean()), 1),
        "F1": round(100 * float(np.mean(f1)), 1),
        "exact match, own threshold": round(100 * float((right & (highest >= threshold)).mean()), 1),
        "refused without the article, own threshold": round(float((taken < threshold).mean()), 3),
        "good answers lost, own threshold": round(float((highest[right] < threshold).mean()), 3)
        if right.any()
        else None,
        f"refused without the article, losing {_MAX_LOSS:.0%} of the exact answers": round(
            float((taken < cutoff).mean()), 3
        ),
        "citations": len(opens),
        "citations that open on the answer": int(np.sum(opens)),
        "seconds of CPU a question": round(seconds / (2 * len(questions)), 2),
    }


def _number(hit: Hit) -> int:
    """Return the number of a hit's paragraph."""
    return int(hit.path.removeprefix("p"))


if __name__ == "__main__":
    main()
