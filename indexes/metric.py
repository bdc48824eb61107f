"""By what vectors are compared. Every score is higher the better, and the same whatever kind of index gives it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..core.errors import InputError

if TYPE_CHECKING:
    from ..core.arrays import Floats


@dataclass(frozen=True, slots=True)
class Metric:
    faiss: int  # its number in FAISS
    sign: int  # what FAISS's number is multiplied with
    normalizes: bool = False

    def prepared(self, vectors: Floats) -> Floats:
        """As FAISS is given them."""
        return normalized(vectors) if self.normalizes else np.ascontiguousarray(vectors, np.float32)


METRICS = {
    "ip": Metric(0, 1),  # the inner product: of unit vectors the cosine
    "cosine": Metric(0, 1, normalizes=True),  # 0 where a vector is zero
    "l2": Metric(1, -1),  # minus the squared Euclidean distance
}


def metric_of(name: str) -> Metric:
    if name not in METRICS:
        raise InputError(f"there is no metric {name!r}: expected one of {', '.join(METRICS)}")
    return METRICS[name]


def normalized(vectors: Floats) -> Floats:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Floats = np.divide(vectors, norms, out=np.zeros(vectors.shape, np.float32), where=norms > 0)
    return unit


def cosines(one: Floats, other: Floats) -> Floats:
    """Of each row of one with the same row of the other; 0 where either is zero."""
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    found: Floats = (one * other).sum(1) / np.maximum(lengths, 1e-12)
    return found
