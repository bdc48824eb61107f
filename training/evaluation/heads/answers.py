"""Measure how often a reader answers a question about a passage: exact match and F1, as SQuAD's script has them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from ..result import JudgedRowsResult
from ..significance import interval
from . import span_metrics

if TYPE_CHECKING:
    from ....retriever.models.heads.reader import Reader
    from ..judged_rows import Questions

MEASURES = {"Exact match": span_metrics.exact_match, "F1 of words": span_metrics.f1}


def evaluate_answers(rows: Questions, reader: Reader) -> JudgedRowsResult:
    """Evaluate a reader on questions, each with its passage.

    If some questions have no answer, the reader gives none below its threshold, as in SQuAD 2.0. Else it gives its best
    span for each question, as in SQuAD 1.1.
    """
    began = time.monotonic()
    spans = reader.read_pairs([(question.text, question.passage) for question in rows.questions])
    seconds = time.monotonic() - began
    lowest = -np.inf if all(question.answers for question in rows.questions) else reader.settings.threshold
    texts = [span.text if span and span.score >= lowest else "" for span in spans]
    values = {
        name: [measure(text, question.answers) for text, question in zip(texts, rows.questions, strict=True)]
        for name, measure in MEASURES.items()
    }
    intervals = {name: interval(of_rows) for name, of_rows in values.items()}
    return JudgedRowsResult(
        kind="answers",
        data=rows.name,
        model=reader.name,
        measures={name: round(float(np.mean(of_rows)), 4) for name, of_rows in values.items()},
        intervals={name: (round(low, 4), round(high, 4)) for name, (low, high) in intervals.items()},
        rows=len(texts),
        seconds=round(seconds, 3),
        per_query={name: {str(row): value for row, value in enumerate(of_rows, 1)} for name, of_rows in values.items()},
        score="words in common with the answer",
    )
