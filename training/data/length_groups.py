"""Groups of rows with similar lengths, and the batches that each epoch draws from them.

Rows of similar lengths in one batch need little padding. But the narrower a group, the more often its rows meet again,
and in-batch negatives should change. `group_sizes` finds the groups with the least padding, as long as rows meet
again at most about 5 times as often as by chance. `deal` draws batches so that rows meet again as late as possible.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TIMES_CHANCE = 4.8  # limit: how often two rows of a batch meet again in the next epoch, in multiples of chance
_DIVERSE = 1_024  # rows, or a fifth of all rows; a group has at least a third of them
_EDGES = 48  # positions at most where a group can end
_SAMPLE = 64  # rows between two edges, to estimate padding


def meeting_again(batch_size: int, batches: int) -> float:
    """Return the share of the pairs of a batch that are together again in the next epoch of `deal`."""
    counts = np.bincount(np.arange(batch_size) % batches)
    return float((counts * (counts - 1)).sum() / max(1, batch_size * (batch_size - 1)))


def group_sizes(lengths: NDArray[np.int32], batch_size: int) -> list[int]:
    """Return the number of batches in each group.

    Dynamic programming minimises the cells of all batches (characters with padding) plus a price for rows that meet
    again. The lowest price that keeps to the limit is taken.

    :param lengths: characters of each row's columns, shape (rows, columns), sorted by their sum. The number of rows is
        a multiple of `batch_size`.
    """
    batches = len(lengths) // batch_size
    edges = np.unique(np.linspace(0, batches, min(batches, _EDGES) + 1).astype(np.int64))
    smallest = min(_DIVERSE, len(lengths) // 5) / batch_size / 3
    limit = _TIMES_CHANCE * (batch_size - 1) / max(1, len(lengths) - 1) * batches
    size = len(edges)
    cells, repeats = np.full((size, size), np.inf), np.zeros((size, size))
    for first in range(size):
        for last in range(first + 1, size):
            group = int(edges[last] - edges[first])
            if group >= smallest or (first, last) == (0, size - 1):
                rows = lengths[edges[first] * batch_size : edges[last] * batch_size]
                step = max(1, len(rows) // (_SAMPLE * (last - first)))
                cells[first, last] = group * _expected_width(rows[::step], batch_size)
                repeats[first, last] = group * meeting_again(batch_size, group)
    groups = [0, size - 1]
    for price in float(cells[0, -1]) * np.geomspace(1e-4, 1e3, 60) / batches:
        groups = _shortest_path(cells + price * repeats)
        if sum(repeats[pair] for pair in pairwise(groups)) <= limit:
            break
    return np.diff(edges[groups]).tolist()  # type: ignore[no-any-return]


def _expected_width(lengths: NDArray[np.int32], batch_size: int) -> float:
    """Return the expected cells of a row of a random batch: the sum of the expected maxima of the columns."""
    shares = (np.arange(len(lengths) + 1) / len(lengths)) ** batch_size  # of batches with all rows among the first
    return float(np.sum(np.sort(lengths, axis=0) * np.diff(shares)[:, None]))


def _shortest_path(costs: NDArray[np.float64]) -> list[int]:
    """Return the numbers of the edges on the cheapest path from the first to the last."""
    totals, before = np.zeros(len(costs)), np.zeros(len(costs), np.int64)
    for last in range(1, len(costs)):
        paths = totals[:last] + costs[:last, last]
        before[last] = paths.argmin()
        totals[last] = paths[before[last]]
    path = [len(costs) - 1]
    while path[-1]:
        path.append(int(before[path[-1]]))
    return path[::-1]


def left_out(rows: int, count: int, epochs: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Choose the rows without a batch in the first epoch of a cycle: their positions in the order of length.

    In epoch e, the rows e positions later are left out: they have nearly the same length. No row is left out twice.

    :param count: of the positions; below `rows` / `epochs`.
    """
    edges = np.arange(count + 1) * rows // max(1, count)
    return generator.integers(edges[:-1], edges[1:] - epochs + 1)


def deal(rows: NDArray[np.uint32], batches: int, epoch: int, generator: np.random.Generator) -> NDArray[np.uint32]:
    """Return the batches of a group in an epoch, shape (batches, rows of a batch).

    The rows are blocks of `batches` neighbours, and each batch has one row of each block. In epoch e the row at y of
    block x is in batch (y + e * x) mod `batches`. So two rows of blocks x and x' meet again only if `batches` divides
    e * (x - x'): if it is a prime number and no smaller than a batch, no two rows meet twice in as many epochs.

    :param rows: of the group, sorted by length.
    :param generator: shuffles each block; it must be the same for all epochs of a cycle.
    """
    blocks = generator.permuted(rows.reshape(-1, batches), axis=1)
    shifts = epoch * np.arange(len(blocks))[:, None]
    columns = (np.arange(batches)[None, :] - shifts) % batches
    return np.take_along_axis(blocks, columns, axis=1).T
