"""Align stolen vectors with an encoder's own vectors, without one known pair.

A thief has vectors that a secret orthogonal matrix has turned, the public encoder, and other texts of the same kind.
Both sets of vectors have the same shape. Their principal axes agree, apart from signs and noise. The steps:

1. Try all signs of the first seven axes, and keep the ones with the nearest neighbours across both sets.
2. Match each vector with its neighbours in the other set, and turn one set onto the other by those matches
   (Schönemann 1966, the orthogonal Procrustes problem). Repeat with more and more axes, up to all.
3. Grow twice more, from 90 and from 45 axes of the map so far, then with fewer neighbours and with more vectors.

Neighbours are compared by CSLS, which corrects for vectors that are near to all others (Conneau et al. 2018,
arXiv:1710.04087). vec2vec (Jha et al. 2025, arXiv:2505.12540) and mini-vec2vec (arXiv:2510.02348) showed that
embeddings of two models can be translated without pairs.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from ....core.errors import InputError
from ....indexes.metric import normalized

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ....core.arrays import Floats

    Neighbours = tuple[Floats, Floats]

_SIGNED = 7  # axes; their 128 signs are tried
_COSTED = 700  # vectors of each set that the signs are compared on
_STARTS = 3  # of the signs, followed until `_DECIDED` axes
_GROWTH = (7, 10, 15, 22, 32, 45, 64, 90, 128, 180, 256)  # axes, before all of them
_DECIDED = 32
_COARSE = 2_250  # vectors of each set while the axes grow
_ALL = 10_000  # vectors of each set at the end
_ROUNDS = 3  # for each number of axes
_LAST = 2  # with all vectors
_NEIGHBOURS = 8  # in the other set; a vector is matched with their mean
_AGAIN = ((90, 4), (45, 8))  # axes to grow from once more, and neighbours
_AGAIN_GROWTH = (45, 90, 180)
_LAST_NEIGHBOURS = 3  # neighbours at the end
_HOOD = 10  # neighbours that the density around a vector is measured by
_MIN_VECTORS = 10  # vectors of each set
_CELLS = 2_000_000  # of a block of cosines


def align(stolen: Floats, own: Floats, *, seed: int = 0) -> Callable[[Floats], Floats]:
    """Return the map from stolen vectors into the space of `own`, as unit vectors.

    :param stolen: (n, dim), of unknown texts.
    :param own: (m, dim), of other texts of the same kind; no text needs to be in both sets.
    :raises InputError: for sets of fewer than 10 vectors, or of different dimensions.
    """
    if min(len(stolen), len(own)) < _MIN_VECTORS or stolen.shape[1] != own.shape[1]:
        raise InputError(
            f"an alignment needs two sets of at least {_MIN_VECTORS} vectors of one dimension, not {stolen.shape} and "
            f"{own.shape}"
        )
    random = np.random.default_rng(seed)
    stolen, own = (vectors[random.permutation(len(vectors))[:_ALL]] for vectors in (stolen, own))
    centre, target = stolen.mean(0), own.mean(0)
    turned, plain = normalized(stolen - centre), normalized(own - target)
    axes, plain_axes = _principal_axes(turned), _principal_axes(plain)
    turn = axes @ _turn(turned @ axes, plain @ plain_axes) @ plain_axes.T
    return lambda vectors: normalized((vectors - centre) @ turn + target)


def _turn(first: Floats, second: Floats) -> Floats:
    """Find the orthogonal map from one set to the other, both in their own principal axes."""
    dim = first.shape[1]
    sizes = [size for size in _GROWTH if size < dim]
    left, right = first[:_COARSE], second[:_COARSE]
    starts = [_grown(left, right, turn, [k for k in sizes if k <= _DECIDED]) for turn in _starts(left, right)]
    turn = max(starts, key=lambda start: _nearness(left, right, start))
    turn = _grown(left, right, turn, [*(k for k in sizes if k > _DECIDED), dim])
    for axes, neighbours in ((axes, neighbours) for axes, neighbours in _AGAIN if axes < dim):
        begin = _nearest_orthogonal(turn[:axes, :axes])
        turn = _grown(left, right, begin, [*(k for k in _AGAIN_GROWTH if axes <= k < dim), dim], neighbours)
    for _ in range(_ROUNDS):
        turn = _procrustes(left, right, turn, dim, _LAST_NEIGHBOURS)
    for _ in range(_LAST if max(len(first), len(second)) > _COARSE else 0):
        turn = _procrustes(first, second, turn, dim)
    return turn


def _principal_axes(vectors: Floats) -> Floats:
    """The eigenvectors of the covariance as columns, the longest axis first."""
    return np.ascontiguousarray(np.linalg.eigh(vectors.T @ vectors)[1][:, ::-1])


def _starts(first: Floats, second: Floats) -> list[Floats]:
    """The best maps between the first axes, one for each choice of signs."""
    count = min(_SIGNED, first.shape[1])
    first, second = first[:_COSTED, :count], second[:_COSTED, :count]
    squares = (first**2).sum(1)[:, None] + (second**2).sum(1)
    costs = []
    for signs in itertools.product((1, -1), repeat=count):
        turn = np.diag(np.array(signs, np.float32))
        for _ in range(4):
            near = 2 * (first @ turn) @ second.T - squares
            turn = _orthogonal(first, second, second[near.argmax(1)], first[near.argmax(0)])
        costs.append((-float(near.max(1).mean() + near.max(0).mean()), turn))
    return [turn for _, turn in sorted(costs, key=lambda cost_and_turn: cost_and_turn[0])[:_STARTS]]


def _grown(first: Floats, second: Floats, turn: Floats, sizes: Iterable[int], neighbours: int = _NEIGHBOURS) -> Floats:
    for size in sizes:
        for _ in range(_ROUNDS):
            turn = _procrustes(first, second, turn, size, neighbours)
    return turn


def _procrustes(first: Floats, second: Floats, turn: Floats, size: int, neighbours: int = _NEIGHBOURS) -> Floats:
    """Match both sets by a map of few axes, and return the map of the first `size` axes that fits the matches."""
    count = len(turn)
    left, right = normalized(first[:, :count] @ turn), normalized(second[:, :count])
    first, second = first[:, :size], second[:, :size]
    matches = _matched(left, right, _density(right, left), second, neighbours)
    back_matches = _matched(right, left, _density(left, right), first, neighbours)
    return _orthogonal(first, second, matches, back_matches)


def _orthogonal(first: Floats, second: Floats, matches: Floats, back_matches: Floats) -> Floats:
    """The orthogonal map that brings `first` nearest to `matches`, and `back_matches` nearest to `second`."""
    return _nearest_orthogonal(first.T @ matches + back_matches.T @ second)


def _nearest_orthogonal(matrix: Floats) -> Floats:
    left, _, right = np.linalg.svd(matrix)
    turn: Floats = (left @ right).astype(np.float32)
    return turn


def _density(vectors: Floats, targets: Floats) -> Floats:
    """The mean cosine of each vector with its nearest targets (n,)."""
    hood = min(_HOOD, len(targets))
    blocks = (np.partition(block, -hood, axis=1)[:, -hood:] for block in _cosines(vectors, targets))
    return np.concatenate([block.mean(1) for block in blocks])


def _matched(vectors: Floats, targets: Floats, density: Floats, values: Floats, neighbours: int) -> Floats:
    """The mean of the `values` of each vector's nearest targets, by CSLS.

    :param density: of each target among the vectors.
    """
    count = min(neighbours, len(targets))
    blocks = (np.argpartition(density - 2 * block, count - 1, axis=1) for block in _cosines(vectors, targets))
    return np.concatenate([values[block[:, :count]].mean(1) for block in blocks])


def _cosines(vectors: Floats, targets: Floats) -> Iterator[Floats]:
    """Blocks of rows of the cosines (n, targets), of bounded memory."""
    rows = max(1, _CELLS // len(targets))
    for start in range(0, len(vectors), rows):
        yield vectors[start : start + rows] @ targets.T


def _nearness(first: Floats, second: Floats, turn: Floats) -> float:
    """The mean cosine of a vector with the nearest one of the other set."""
    count = len(turn)
    left, right = normalized(first[:, :count] @ turn), normalized(second[:, :count])
    nearest = [block.max(1) for pair in ((left, right), (right, left)) for block in _cosines(*pair)]
    return float(np.concatenate(nearest).mean())
