"""Texts with their vectors, in a batch for each step: the training rows of a decoder of vectors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..pretraining.data.masked_batches import by_length

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from ...core.arrays import Floats


class TextBatches:
    """Texts as token ids with their vectors, in a batch for each step.

    :param tokens: the token ids of each text, by number; `lengths` has their counts.
    :param vectors: (texts, dim).
    """

    def __init__(
        self, tokens: Any, lengths: NDArray[np.int64], vectors: Floats, longest: int, *, device: str = "cpu"
    ) -> None:
        self._tokens, self._vectors, self._longest = tokens, vectors, longest
        self.lengths, self.device = np.minimum(lengths, longest), device
        self._epoch: tuple[tuple[int, int, int], NDArray[np.int64]] = ((-1, 0, 0), np.empty(0, np.int64))

    def __len__(self) -> int:
        return len(self.lengths)

    def up_to(self, length: int) -> TextBatches:
        """Return the texts of at most `length` tokens, or all texts if each is longer."""
        rows = np.flatnonzero(self.lengths <= length)
        if not len(rows):
            return self
        tokens = [self.ids(row) for row in rows.tolist()]
        return TextBatches(tokens, self.lengths[rows], self._vectors[rows], self._longest, device=self.device)

    def numbers(self, step: int, batch_size: int, seed: int) -> NDArray[np.int64]:
        """The texts of a step."""
        epoch, batch = divmod(step, max(1, math.ceil(len(self) / batch_size)))
        if self._epoch[0] != (epoch, batch_size, seed):
            order = by_length(self.lengths, batch_size, np.random.default_rng((seed, epoch)))
            self._epoch = (epoch, batch_size, seed), order
        return self._epoch[1][batch * batch_size : (batch + 1) * batch_size]

    def ids(self, number: int) -> NDArray[np.int64]:
        """Return the first token ids of a text, at most `longest`."""
        row = self._tokens[number]
        tokens: NDArray[np.int64] = getattr(row, "tokens", row)
        return np.asarray(tokens, np.int64)[: self._longest]

    def vectors(self, numbers: NDArray[np.int64]) -> Tensor:
        """Read the vectors of these texts in the file's order; return float32 (len(numbers), dim) on the device."""
        order = np.argsort(numbers)  # in the order of the file, which may be on disk
        back = np.argsort(order)
        return torch.from_numpy(np.asarray(self._vectors[numbers[order]], np.float32)[back]).to(self.device)
