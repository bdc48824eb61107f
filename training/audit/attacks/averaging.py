"""Average stolen vectors that are near to each other: independent noise cancels, the common part of the texts remains.

A thief has every vector of an index. Passages that overlap or share boilerplate have nearly equal vectors, each with
noise of its own. This is the denoising by non-local means (Buades et al. 2005, doi:10.1109/CVPR.2005.38). A ridge that
reads a vector beside the sum of its neighbours finds out from the thief's pairs how much to trust each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ....core.arrays import Floats

_NEIGHBOURS = 16
_SAME = 1 - 1e-5  # cosine of a vector with itself: it has no noise of its own
_CELLS = 20_000_000  # of a block of cosines


def with_neighbours(vectors: Floats, store: Floats) -> Floats:
    """Put the sum of a vector's nearest others beside it, each weighted by its squared cosine: (n, 2 * dim).

    :param vectors: (n, dim) of length 1.
    :param store: all stolen vectors (m, dim) of length 1; these may be among them.
    """
    count = min(_NEIGHBOURS, len(store))
    rows = max(1, _CELLS // len(store))
    sums = [_neighbour_sums(vectors[start : start + rows], store, count) for start in range(0, len(vectors), rows)]
    return np.hstack([vectors, np.concatenate(sums)]).astype(np.float32)


def _neighbour_sums(vectors: Floats, store: Floats, count: int) -> Floats:
    cosines = vectors @ store.T
    cosines[cosines > _SAME] = 0
    nearest = np.argpartition(-cosines, count - 1, axis=1)[:, :count]
    weights = np.take_along_axis(cosines, nearest, 1).clip(0) ** 2
    sums: Floats = np.einsum("nk,nkd->nd", weights, store[nearest])
    return sums
