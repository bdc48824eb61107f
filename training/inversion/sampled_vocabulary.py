"""Which tokens a masked one is told from, and at how many places: in round numbers.

On a CPU each new size of a matrix product costs a kernel, which takes time to make and stays in memory.
"""

from __future__ import annotations

from typing import Any

_CLASSES = 256
_PLACES = 64


def sample_vocabulary(ids: Any, among: Any, others: int) -> Any:
    """The different ones of some tokens, and at least so many others drawn from `among`: a multiple of 256, ascending.

    Fewer where `among` holds fewer.
    """
    import torch

    own = torch.unique(ids)
    wanted = -(-(len(own) + others) // _CLASSES) * _CLASSES
    drawn = among[torch.randperm(len(among))[:wanted].to(among.device)]
    return torch.cat([own, drawn[~torch.isin(drawn, own)][: wanted - len(own)]]).sort().values


def round_mask(mask: Any) -> Any:
    """A mask with a multiple of 64 of its places, drawn at random; itself where it has fewer than that."""
    import torch

    places = mask.nonzero()
    spare = len(places) % _PLACES
    if spare == len(places):
        return mask
    left = mask.clone()
    left[tuple(places[torch.randperm(len(places))[:spare].to(mask.device)].T)] = False
    return left
