"""Metrics to compare vectors. Higher scores are better, and every kind of index gives the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..core.errors import InputError

if TYPE_CHECKING:
    from ..core.arrays import Floats


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric as FAISS computes it, and the way from FAISS's numbers to scores."""

    faiss: int  # its number in FAISS
    sign: int  # the factor that turns FAISS's number into a score
    normalizes: bool = False

    def prepare(self, vectors: Floats) -> Floats:
        """Return the vectors as FAISS takes them: contiguous float32, of unit length if the metric asks for it."""
        return normalized(vectors) if self.normalizes else np.ascontiguousarray(vectors, np.float32)


METRICS = {
    "ip": Metric(0, 1),  # the inner product: for unit vectors the cosine
    "cosine": Metric(0, 1, normalizes=True),  # 0 if a vector is zero
    "l2": Metric(1, -1),  # minus the squared Euclidean distance
}


def metric_of(name: str) -> Metric:
    """Return the metric of this name.

    :raises InputError: when there is none.
    """
    if name not in METRICS:
        raise InputError(f"there is no metric {name!r}: expected one of {', '.join(METRICS)}")
    return METRICS[name]


def normalized(vectors: Floats) -> Floats:
    """Scale each row to unit length; a zero row stays zero."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Floats = np.divide(vectors, norms, out=np.zeros(vectors.shape, np.float32), where=norms > 0)
    return unit


def cosines(left: Floats, right: Floats) -> Floats:
    """Return the cosine of each row of `left` with the same row of `right`, (n,); 0 if either row is zero."""
    lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    cosine: Floats = (left * right).sum(1) / np.maximum(lengths, 1e-12)
    return cosine
