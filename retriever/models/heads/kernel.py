"""The weights of a head on an encoder's vectors, and its logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ....core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ....core.arrays import Floats
    from .bag_of_words import BagOfWords

_BLOCK = 2_000  # rows of the kernel in memory at a time


@dataclass(frozen=True, slots=True)
class KernelWeights:
    """logits = gaussian(vectors, landmarks) @ weights.T + bias. Without landmarks the head is linear on the vectors.

    With a bag of words, bag.rows(texts) @ word_weights.T is added.
    """

    weights: Floats  # (labels, landmarks), or (labels, dim)
    bias: Floats  # (labels,)
    landmarks: Floats | None = None  # (landmarks, dim)
    precision: float = 1.0  # 1 / the squared distance at which the kernel is 1/e
    bag: BagOfWords | None = None
    word_weights: Floats | None = None  # (labels, words of the bag)

    @classmethod
    def of(
        cls, arrays: Mapping[str, Floats], file: Path, labels: int, dim: int, bag: BagOfWords | None = None
    ) -> KernelWeights:
        """Take the weights from the arrays of a file, which may have been damaged.

        :raises InputError: when one is missing or has another shape.
        """
        landmarks, precision = arrays.get("landmarks"), arrays.get("precision", np.ones(1, np.float32))
        width = dim if landmarks is None else len(landmarks)
        parts = {name: arrays.get(name, np.empty(0, np.float32)) for name in ("weight", "bias")}
        expected = {"weight": (labels, width), "bias": (labels,)}
        if bag:
            parts["words"] = arrays.get("words", np.empty(0, np.float32))
            expected["words"] = labels, len(bag.columns)
        is_other = landmarks is not None and landmarks.shape != (width, dim)
        if is_other or precision.shape != (1,) or {name: part.shape for name, part in parts.items()} != expected:
            raise InputError(
                f"{file} has weights of another shape than {labels} labels and {dim} dimensions: copy the folder again"
            )
        return cls(parts["weight"], parts["bias"], landmarks, float(precision[0]), bag, parts.get("words"))

    def arrays(self) -> dict[str, Floats]:
        """Return the weights for a file, row after row: safetensors writes other arrays wrongly."""
        arrays = {"weight": self.weights, "bias": self.bias}
        if self.landmarks is not None:
            arrays |= {"landmarks": self.landmarks, "precision": np.array([self.precision], np.float32)}
        if self.bag is not None and self.word_weights is not None:
            arrays |= {"words": self.word_weights, "rarity": self.bag.rarity}
        return {name: np.ascontiguousarray(array, np.float32) for name, array in arrays.items()}

    def tobytes(self) -> bytes:
        """Return all weights, to hash them."""
        names = " ".join(self.bag.columns).encode() if self.bag else b""
        return b"".join(array.tobytes() for array in self.arrays().values()) + names

    def logits(self, vectors: Floats, texts: Sequence[str] = ()) -> Floats:
        """Return logits, shape (vectors, labels).

        :param texts: of the vectors, where the head has a bag of words.
        """
        logits = self._vector_logits(vectors)
        if self.bag is not None and self.word_weights is not None:
            for start in range(0, len(vectors), _BLOCK):
                part = slice(start, start + _BLOCK)
                logits[part] += self.bag.rows(texts[part]) @ self.word_weights.T
        return logits

    def _vector_logits(self, vectors: Floats) -> Floats:
        if self.landmarks is None:
            linear: Floats = vectors @ self.weights.T + self.bias
            return linear
        logits = np.empty((len(vectors), len(self.bias)), np.float32)
        for start in range(0, len(vectors), _BLOCK):
            near = gaussian(vectors[start : start + _BLOCK], self.landmarks, self.precision)
            logits[start : start + _BLOCK] = near @ self.weights.T + self.bias
        return logits


def gaussian(vectors: Floats, landmarks: Floats, precision: float) -> Floats:
    """Return exp(-precision * squared distance) of vectors and landmarks, (vectors, landmarks)."""
    centre = landmarks.mean(0)  # of vectors that are much alike the distances would vanish in rounding
    vectors, landmarks = vectors - centre, landmarks - centre
    squares = vectors @ (-2 * landmarks.T)
    squares += (landmarks**2).sum(1)
    squares += (vectors**2).sum(1)[:, None]
    np.maximum(squares, 0, out=squares)
    squares *= np.float32(-precision)
    near: Floats = np.exp(squares, out=squares)
    return near
