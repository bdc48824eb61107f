"""Measure how often a classifier is right: macro-F1, and accuracy.

Macro-F1 is the mean F1 of the classes that are predicted or true, as scikit-learn computes it. Both measures are
functions of weights, for `significance`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from ....core.errors import InputError
from ....retriever.models.heads.classifier import load_classifier
from ..result import JudgedRowsResult
from ..significance import Statistic, Weighted

if TYPE_CHECKING:
    from ....core.arrays import Doubles
    from ....retriever.models.heads.classifier import Classifier
    from ..judged_rows import LabelledTexts


def load_text_classifier(name: str) -> Classifier:
    """Load a classifier of texts into classes.

    :raises InputError: when the model gives numbers or several labels, or is no classifier.
    """
    classifier = load_classifier(name)
    if classifier.settings.task != "classes" or classifier.settings.pairs:
        raise InputError(f"{name} gives {classifier.settings.task}: expected a classifier of texts into classes")
    return classifier


def evaluate_classes(rows: LabelledTexts, classifier: Classifier) -> JudgedRowsResult:
    """Evaluate a classifier on texts with their class."""
    began = time.monotonic()
    predictions = [prediction.labels[0] for prediction in classifier.classify(rows.texts)]
    seconds = time.monotonic() - began
    names = sorted(set(rows.labels))
    names += sorted({*predictions} - {*names})
    numbers = {name: number for number, name in enumerate(names)}
    scores, gold = (np.array([numbers[name] for name in labels], np.float64) for labels in (predictions, rows.labels))
    facts = {"kind": "classes", "data": rows.name, "model": classifier.name, "score": "class", "labels": tuple(names)}
    return JudgedRowsResult.of(MEASURES, scores, gold, seconds=seconds, **facts)


def _macro_f1(predicted: Doubles, gold: Doubles) -> Weighted:
    classes = np.unique(np.concatenate([predicted, gold]))
    predicted_one_hot, one_hot = (np.equal(labels[:, None], classes).astype(np.float64) for labels in (predicted, gold))

    def weighted(weights: Doubles) -> Doubles:
        total = weights @ (predicted_one_hot + one_hot)
        hits = 2 * (weights @ (predicted_one_hot * one_hot))
        f1 = np.divide(hits, total, out=np.zeros_like(hits), where=total > 0)
        means: Doubles = f1.sum(1) / np.maximum((total > 0).sum(1), 1)
        return means

    return weighted


def _accuracy(predicted: Doubles, gold: Doubles) -> Weighted:
    right = np.equal(predicted, gold).astype(np.float64)
    return lambda weights: weights @ right / weights.sum(1)


MEASURES = {
    "Macro-F1": Statistic(_macro_f1, lambda predicted: predicted),
    "Accuracy": Statistic(_accuracy, lambda predicted: predicted),
}
