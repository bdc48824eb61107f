"""Measures of predicted classes and labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def macro_f1(predicted: NDArray[np.int64], classes: NDArray[np.int64]) -> float:
    """Return the mean F1 of the classes that are predicted or true, as scikit-learn computes it.

    :param predicted: the class of each row, by its number; `classes` is the true one.
    """
    size = int(max(predicted.max(), classes.max())) + 1
    hits = np.bincount(classes[predicted == classes], minlength=size)
    total = np.bincount(predicted, minlength=size) + np.bincount(classes, minlength=size)
    return float((2 * hits[total > 0] / total[total > 0]).mean())


def micro_f1(predicted: NDArray[np.bool_], labels: NDArray[np.bool_]) -> float:
    """Return the F1 over all labels of all rows, both (rows, labels); 1 where nothing is predicted or true."""
    total = predicted.sum() + labels.sum()
    return float(2 * (predicted & labels).sum() / total) if total else 1.0
