"""Sample the tokens that a loss compares with, and the positions that it counts, in round numbers.

On a CPU each new size of a matrix product costs a kernel, which takes time to compile and stays in memory.
"""

from __future__ import annotations

import torch
from torch import Tensor

_CLASSES = 256
_POSITIONS = 64


def sample_vocabulary(ids: Tensor, vocabulary: Tensor, extra: int) -> Tensor:
    """The distinct tokens of `ids`, and at least `extra` random ones from `vocabulary`, in ascending order.

    Their number is a multiple of 256, or less if the vocabulary is too small.
    """
    own = torch.unique(ids)
    count = -(-(len(own) + extra) // _CLASSES) * _CLASSES
    drawn = vocabulary[torch.randperm(len(vocabulary), device=vocabulary.device)[:count]]
    return torch.cat([own, drawn[~torch.isin(drawn, own)][: count - len(own)]]).sort().values


def round_mask(mask: Tensor) -> Tensor:
    """Drop random positions of a mask until their number is a multiple of 64; keep a mask with fewer than 64."""
    positions = mask.nonzero()
    spare = len(positions) % _POSITIONS
    if spare == len(positions):
        return mask
    rounded = mask.clone()
    rounded[tuple(positions[torch.randperm(len(positions))[:spare].to(mask.device)].T)] = False
    return rounded
