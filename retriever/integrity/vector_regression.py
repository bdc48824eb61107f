"""Probe: what the words of a text say about its vector, learned from the rows of an index without its encoder.

Ridge regression from the bag of a text's tokens to its vector, fitted to the rows that it is to judge. Each row is
predicted from the others, those left out that fit worst, so that wrong rows neither vouch for themselves nor, while
they are few, spoil the fit. A vector far from its prediction need not be wrong: only embedding the text anew can tell.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ...core.arrays import Floats


MOST = 3_000  # texts predicted together: memory grows with the square of it (36 MB an array), time with the cube
_RIDGE = np.float32(0.3)  # beside rows of length 1
_AT_ONCE = 1_024  # tokens multiplied at a time
_LEFT_OUT = 0.1  # of the rows, in the second fit


def leave_one_out(texts: Sequence[Sequence[str]], vectors: Floats) -> Floats:
    """For each text the vector that the others lead one to expect, shape (texts, dim).

    :param texts: each as its tokens; at most `MOST`.
    :param vectors: shape (texts, dim), of length 1.
    """
    ridge = _RIDGE * np.eye(len(texts), dtype=np.float32)
    inverse = np.linalg.inv(_likeness(texts) + ridge).astype(np.float32, copy=False)
    # A row's residual when the row itself is left out: Craven and Wahba 1979, lemma 3.1, in terms of the kernel.
    residuals = inverse @ (vectors - vectors.mean(0)) / np.diag(inverse)[:, None]
    order = np.argsort((residuals**2).sum(1), kind="stable")
    split = len(order) - int(_LEFT_OUT * len(order))
    expected: Floats = vectors - _residuals_without(inverse, vectors, order[:split], order[split:])
    return expected


def _residuals_without(inverse: Floats, vectors: Floats, kept: NDArray[np.int64], out: NDArray[np.int64]) -> Floats:
    """Residuals of all rows when those `out` are not fitted, of those kept each without itself (Schur complement)."""
    weights = inverse @ (vectors - vectors[kept].mean(0))
    across = inverse[np.ix_(kept, out)]
    corner = np.linalg.inv(inverse[np.ix_(out, out)])
    passed = across @ corner
    residuals = np.empty_like(vectors)
    residuals[out] = corner @ weights[out]
    own = np.diag(inverse)[kept] - (passed * across).sum(1)
    residuals[kept] = (weights[kept] - passed @ weights[out]) / own[:, None]
    return residuals


def _likeness(texts: Sequence[Sequence[str]]) -> Floats:
    """Cosines between the texts' bags of tokens, each token by the root of its count and of its rarity."""
    rows, tokens, weights, spread = _bags(texts)
    likeness = np.zeros((len(texts), len(texts)), np.float32)
    shared = np.flatnonzero(spread > 1)  # what only one text has is like nothing, but counts for that text's length
    order = np.argsort(tokens, kind="stable")
    rows, tokens, weights = rows[order], tokens[order], weights[order]
    for start in range(0, len(shared), _AT_ONCE):
        some = shared[start : start + _AT_ONCE]
        place = np.searchsorted(some, tokens)
        here = np.flatnonzero(some[np.minimum(place, len(some) - 1)] == tokens)
        dense = np.zeros((len(texts), len(some)), np.float32)
        dense[rows[here], place[here]] = weights[here]
        likeness += dense @ dense.T
    return likeness


def _bags(
    texts: Sequence[Sequence[str]],
) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats, NDArray[np.int64]]:
    """Of each token of each text: row, token, weight; and in how many texts each token is."""
    numbers: dict[str, int] = {}
    bags = [Counter(numbers.setdefault(token, len(numbers)) for token in text) for text in texts]
    sizes = [len(bag) for bag in bags]
    total = sum(sizes)
    rows = np.repeat(np.arange(len(texts)), sizes)
    tokens = np.fromiter((token for bag in bags for token in bag), np.int64, total)
    counts = np.fromiter((count for bag in bags for count in bag.values()), np.float64, total)
    spread = np.bincount(tokens, minlength=len(numbers))
    squares = counts * np.log(1 + len(texts) / spread[tokens])
    lengths = np.bincount(rows, squares, minlength=len(texts))
    return rows, tokens, np.sqrt(squares / lengths[rows]).astype(np.float32), spread
