"""Calibrate a classifier on held-out rows, and measure it there. Needs no torch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ....retriever.models.heads.classifier import ClassifierSettings, probabilities
from ...encoders import heldout
from ...evaluation.heads import label_metrics
from .. import calibration

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ....core.arrays import Doubles, Floats
    from ...encoders.heldout import Estimate

METRICS = {"classes": "macro-F1", "labels": "micro-F1", "number": "spearman"}


def judge(
    logits: Floats, targets: Floats, settings: ClassifierSettings, seed: int
) -> tuple[ClassifierSettings, list[Estimate]]:
    """Calibrate a classifier on held-out rows, and measure it there.

    :param logits: (rows, labels), like `targets`.
    :returns: the settings with temperature and precisions, and the measures.
    """
    if not len(targets):
        return settings, []
    if settings.task == "number":
        scores, numbers = logits[:, 0], targets[:, 0]
        return settings, [heldout.resampled("spearman", heldout.spearman, scores, numbers, seed)]
    settings = replace(settings, temperature=_temperature(logits, targets, settings))
    likely = probabilities(logits, settings)
    if settings.task == "labels":
        micro = heldout.resampled("micro-F1", label_metrics.micro_f1, likely >= 0.5, targets > 0, seed)
        right = ((likely >= 0.5) == (targets > 0)).ravel().astype(np.float64)
        sure = np.maximum(likely, 1 - likely).ravel().astype(np.float64)
        owners = np.repeat(np.arange(len(likely)), likely.shape[1])
        return settings, [micro, *calibration.measures(sure, right, seed, owners)]
    predicted, classes = likely.argmax(1), targets.argmax(1)
    right, sure = (predicted == classes).astype(np.float64), likely.max(1).astype(np.float64)
    settings = replace(settings, sure=calibration.precisions(sure, right))
    rows = [
        heldout.resampled("macro-F1", label_metrics.macro_f1, predicted, classes, seed),
        heldout.mean("accuracy", right.astype(np.float32), seed),
    ]
    return settings, [*rows, *calibration.measures(sure, right, seed)]


def values(logits: Floats, targets: Floats, settings: ClassifierSettings) -> Doubles:
    """Return how right each row is, to compare two classifiers on the same rows."""
    if settings.task == "number":
        right: NDArray[Any] = -np.abs(logits - targets)[:, 0]
    elif settings.task == "labels":
        right = ((probabilities(logits, settings) >= 0.5) == (targets > 0)).mean(1)
    else:
        right = logits.argmax(1) == targets.argmax(1)
    return right.astype(np.float64)


def _temperature(logits: Floats, targets: Floats, settings: ClassifierSettings) -> float:
    """Return the temperature with the least cross-entropy on held-out rows."""
    losses = []
    for temperature in calibration.TEMPERATURES:
        likely = probabilities(logits, replace(settings, temperature=temperature)).clip(1e-7, 1 - 1e-7)
        loss = targets * np.log(likely)
        losses.append(-float((loss + (1 - targets) * np.log(1 - likely) * (settings.task == "labels")).mean()))
    return calibration.best_temperature(losses)


def facts_of(settings: ClassifierSettings) -> dict[str, Any]:
    """Return the line of the card on the data."""
    return {"task": settings.task, "labels": len(settings.labels)}
