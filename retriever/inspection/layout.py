"""Place vectors in a plane so that near vectors stay near.

The method is UMAP's (McInnes, Healy & Melville 2018). Each vector is tied to its nearest neighbours by springs,
and pushed away from others chosen at random. All springs pull at once, so that a few seconds suffice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ...core.arrays import Doubles, Floats, Positions

NEIGHBOURS = 15
_STEPS, _PUSHING = 200, 12  # others that push a point in one step
_REPULSION = 5.0  # pushes for each pull
_A, _B = 1.577, 0.895  # the curve of closeness, 1 / (1 + a d^2b), for a least distance of .1
_LONGEST = 4.0  # of a pull or a push
_BLOCK = 512  # rows of vectors that are compared at once with all
_WIDTH = 10.0  # of the picture at the beginning, as UMAP has it


def plane(vectors: Floats, *, seed: int = 0) -> Floats:
    """Return a point from 0 to 1 for each vector, shape (n, 2); equal vectors and seeds give equal points.

    :param vectors: of length 1, shape (n, dim). Time grows with n squared.
    """
    count = len(vectors)
    points = principal_axes(vectors)
    random = np.random.default_rng(seed)
    points += random.normal(0, 1e-3, points.shape)  # copies of a text do not stay at one point
    if count > 3:
        points = _settle(points, *_springs(vectors, min(NEIGHBOURS, count - 1)), random)
    low, high = points.min(0, initial=np.inf), points.max(0, initial=-np.inf)
    return np.ascontiguousarray((points - low) / np.maximum(high - low, 1e-9), np.float32)


def principal_axes(vectors: Floats) -> Doubles:
    """Return the vectors along the two directions of highest variance, shape (n, 2), from -10 to 10."""
    centred = vectors - (vectors.mean(0) if len(vectors) else 0)
    _, axes = np.linalg.eigh(centred.T.astype(np.float64) @ centred)
    points = centred @ axes[:, : -min(2, axes.shape[1]) - 1 : -1]
    points = np.pad(points, ((0, 0), (0, 2 - points.shape[1])))
    return np.asarray(points / max(np.abs(points).max(initial=0), 1e-9) * _WIDTH)


def _springs(vectors: Floats, neighbours: int) -> tuple[Positions, Positions, Doubles]:
    """Return the two ends of each spring and its strength from 0 to 1; each spring comes in both directions."""
    count = len(vectors)
    nearest = np.empty((count, neighbours), np.intp)
    strengths = np.empty((count, neighbours))
    for start in range(0, count, _BLOCK):
        rows = np.arange(start, min(start + _BLOCK, count))
        distances = 1.0 - vectors[rows] @ vectors.T
        distances[rows - start, rows] = np.inf
        nearest[rows] = np.argpartition(distances, neighbours - 1, axis=1)[:, :neighbours]
        lengths = np.take_along_axis(distances, nearest[rows], 1).astype(np.float64)
        lengths -= lengths.min(1, keepdims=True)
        strengths[rows] = np.exp(-lengths / np.maximum(lengths.mean(1, keepdims=True), 1e-9))
    sources = np.repeat(np.arange(count), neighbours)
    ends = np.stack([sources, nearest.ravel()])
    pairs, index = np.unique(ends.min(0) * count + ends.max(0), return_inverse=True)
    apart = np.ones(len(pairs))
    np.multiply.at(apart, index, 1 - strengths.ravel())  # each end has a chance to tie them
    first, second = np.divmod(pairs, count)
    both = np.concatenate([1 - apart, 1 - apart])
    return np.concatenate([first, second]), np.concatenate([second, first]), both


def _settle(
    points: Doubles,
    sources: Positions,
    targets: Positions,
    strengths: Doubles,
    random: np.random.Generator,
) -> Doubles:
    count = len(points)
    pulls = np.bincount(sources, strengths, count)
    repeated = np.repeat(np.arange(count), _PUSHING)
    push = np.repeat(_REPULSION * pulls / _PUSHING, _PUSHING)
    for step in range(_STEPS):
        partners = random.integers(0, count, len(repeated))
        apart, between = points[sources] - points[targets], points[repeated] - points[partners]
        squared, pushed = (apart**2).sum(1), (between**2).sum(1)
        pull = -2 * _A * _B * np.maximum(squared, 1e-9) ** (_B - 1) / (1 + _A * squared**_B)
        away = 2 * _B / ((0.001 + pushed) * (1 + _A * pushed**_B))
        rate = 1 - step / _STEPS
        moves = np.clip(apart * pull[:, None], -_LONGEST, _LONGEST) * strengths[:, None]
        pushes = np.clip(between * away[:, None], -_LONGEST, _LONGEST) * push[:, None]
        for axis in (0, 1):
            total = np.bincount(sources, moves[:, axis], count) + np.bincount(repeated, pushes[:, axis], count)
            points[:, axis] += rate * total / np.maximum(pulls, 1)
    return points
