"""Exact match and F1 of a trained reader on questions of SQuAD's development set, each with its own paragraph.

    binocle train reader /data/squad11/squad11_train.jsonl.gz --out my-reader --minutes 60
    python -m benchmarks.heads.reader --data /data --reader my-reader --core-minutes 60

With `--teacher large-reader` the training learns the probabilities of a larger one too, and the result names it.

SQuAD's script compares with each answer of a question and takes the best; several people gave these answers. The
training set has one answer to each question, so the same reader scores lower on the questions that training holds out.
The benchmark therefore also measures against the first answer alone.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from binocle.retriever.models.heads.reader import load_reader
from binocle.training.data.heads.squad import read_questions
from binocle.training.evaluation.heads import span_metrics
from binocle.training.evaluation.significance import interval

from ..machine import save

if TYPE_CHECKING:
    from collections.abc import Sequence

    from binocle.training.data.heads.squad import Question

_MEASURES = {"exact match": span_metrics.exact_match, "F1": span_metrics.f1}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="with squad11/squad11_dev.jsonl.gz")
    parser.add_argument("--reader", required=True, type=Path)
    parser.add_argument("--questions", type=int, default=2_000, help="drawn by chance")
    trained = parser.add_mutually_exclusive_group(required=True)
    trained.add_argument("--core-minutes", type=float, help="of the training, as 'time' measured it")
    trained.add_argument("--gpu", help="that trained it, shared with other work or not")
    parser.add_argument("--name", default="reader", help="name of the file in results/")
    options = parser.parse_args()
    questions = read_questions(options.data / "squad11" / "squad11_dev.jsonl.gz")
    questions = random.Random(0).sample(questions, min(options.questions, len(questions)))
    reader = load_reader(options.reader)
    start = time.process_time()
    spans = reader.read_pairs([(question.text, question.passage) for question in questions])
    seconds = time.process_time() - start
    texts = [span.text if span else "" for span in spans]
    firsts = [question.answers[:1] for question in questions]
    measures = {
        "questions": len(questions),
        "all answers": _measured(texts, [question.answers for question in questions]),
        "first answer alone": _measured(texts, firsts),
        "answers differ": round(_differing(questions), 4),
        "seconds of CPU a question": round(seconds / len(questions), 4),
        "training": _training(options.reader)
        | ({"gpu": options.gpu} if options.gpu else {"core-minutes": options.core_minutes}),
    }
    save(options.name, measures, seed=0)


def _measured(texts: Sequence[str], answers: Sequence[Sequence[str]]) -> dict[str, Any]:
    values = {
        name: [100 * measure(text, of_question) for text, of_question in zip(texts, answers, strict=True)]
        for name, measure in _MEASURES.items()
    }
    return {
        name: {"value": round(sum(of_name) / len(of_name), 1), "interval": [round(end, 1) for end in interval(of_name)]}
        for name, of_name in values.items()
    }


def _differing(questions: Sequence[Question]) -> float:
    """Return the share of questions with two or more different answers."""
    return sum(len(set(map(span_metrics.normal, question.answers))) > 1 for question in questions) / len(questions)


def _training(folder: Path) -> dict[str, Any]:
    """Return the facts of the training, from the folder's card."""
    card = json.loads((folder / "binocle.json").read_text("utf-8"))
    config = card["config"]
    taught = {"teacher": card["data"]["teacher"]} if "teacher" in card["data"] else {}
    return taught | {
        "steps": card["steps"],
        "questions a step": config["batch_size"],
        "learning rate": config["learning_rate"],
        "unanswerable": config["unanswerable"],
        "minutes by the clock": round(card["seconds"] / 60, 1),
        "held-out questions": {row["name"]: row["value"] for row in card["measures"]},
    }


if __name__ == "__main__":
    main()
