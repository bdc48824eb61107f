"""Measure how often a tagger marks the right names: span F1, as seqeval computes it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from ..result import JudgedRowsResult
from ..significance import Statistic, Weighted

if TYPE_CHECKING:
    from ....core.arrays import Doubles
    from ....retriever.models.heads.tagger import Tagger
    from ..judged_rows import TaggedTexts


def evaluate_names(rows: TaggedTexts, tagger: Tagger) -> JudgedRowsResult:
    """Evaluate a tagger on texts with marked names. A span is right if its label and both ends are."""
    began = time.monotonic()
    tagged = tagger.tag([row.text for row in rows.texts])
    seconds = time.monotonic() - began
    marked = [{(entity.label, entity.start, entity.end) for entity in entities} for entities in tagged]
    true = [set(row.spans) for row in rows.texts]
    scores = np.array([(len(own & known), len(own)) for own, known in zip(marked, true, strict=True)], np.float64)
    gold = np.array([len(known) for known in true], np.float64)
    return JudgedRowsResult.of(
        MEASURES,
        scores,
        gold,
        seconds=seconds,
        kind="names",
        data=rows.name,
        model=tagger.name,
        score="right names, marked names",
    )


def _share(right: Doubles, total: Doubles) -> Doubles:
    return np.divide(right, total, out=np.zeros_like(right), where=total > 0)


def _span_f1(scores: Doubles, gold: Doubles) -> Weighted:
    """:param scores: (texts, 2), the right and the marked names of each; `gold` has the number of true ones."""
    right, marked = scores.T
    return lambda weights: _share(2 * (weights @ right), weights @ (marked + gold))


def _span_precision(scores: Doubles, _gold: Doubles) -> Weighted:
    right, marked = scores.T
    return lambda weights: _share(weights @ right, weights @ marked)


def _span_recall(scores: Doubles, gold: Doubles) -> Weighted:
    return lambda weights: _share(weights @ scores[:, 0], weights @ gold)


MEASURES = {
    "Span F1": Statistic(_span_f1, lambda scores: scores),
    "Span precision": Statistic(_span_precision, lambda scores: scores),
    "Span recall": Statistic(_span_recall, lambda scores: scores),
}
