"""The loss of a linear chain of labels, and the scores of its steps. `retriever.models.heads.chain` decodes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor

    from ...core.arrays import Floats, Integers

_ADDED = 0.5  # to each count: Jeffreys' prior


def log_transitions(sequences: Iterable[tuple[Sequence[int], Integers]], labels: int) -> Floats:
    """Return the logarithm of how often each label follows another, (2, labels + 1, labels).

    :param sequences: the labels of a text's words, with 1 for each word that touches the word before it.
    :returns: one table for words apart and one for words that touch. The last row is for the first word.
    """
    table = np.full((2, labels + 1, labels), _ADDED)
    for numbers, touch in sequences:
        if len(numbers):
            np.add.at(table, (touch, np.array([labels, *numbers[:-1]]), np.array(numbers)), 1)
    log: Floats = np.log(table / table.sum(2, keepdims=True)).astype(np.float32)
    return log


def negative_log_likelihood(scores: Tensor, labels: Tensor, touch: Tensor, counts: Tensor, table: Tensor) -> Tensor:
    """Return -log p(labels) of all texts over the number of their words (Lample et al. 2016, arXiv:1603.01360).

    p is exp(the sum of the scores of words and steps), over the same of all sequences, by the forward algorithm.

    :param scores: (texts, words, labels).
    :param labels: (texts, words), as `touch`, which has 1 for each word that touches the word before it.
    :param counts: number of words of each text; the rest is filler.
    :param table: scores of steps, (2, labels + 1, labels), the last row for the first word.
    """
    before = torch.nn.functional.pad(labels[:, :-1], (1, 0), value=scores.shape[2])
    real = torch.arange(scores.shape[1], device=scores.device) < counts[:, None]
    of_labels = scores.gather(2, labels[:, :, None])[:, :, 0] + table[touch, before, labels]
    steps = table[touch]  # (texts, words, labels + 1, labels)
    total = scores[:, 0] + steps[:, 0, -1]
    for word in range(1, scores.shape[1]):
        longer = torch.logsumexp(total[:, :, None] + steps[:, word, :-1], 1) + scores[:, word]
        total = torch.where(real[:, word, None], longer, total)
    has_words = counts > 0
    return (torch.logsumexp(total, 1)[has_words].sum() - of_labels[real].sum()) / counts.sum().clamp(min=1)
