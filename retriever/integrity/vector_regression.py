"""Predict the vector of a text from its words, by a regression over the rows of an index, without the encoder.

A ridge regression from the bag of a text's tokens to its vector, fitted to the rows that it judges. Each row is
predicted from the other rows, less a tenth that fits worst. So a wrong row does not vouch for itself, and a small
number of them does not spoil the fit. A vector far from its prediction need not be wrong: only embedding the text anew
can tell.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ...core.arrays import Floats


MAX_TEXTS = 3_000  # texts predicted together: memory grows with the square of it (36 MB an array), time with the cube
_RIDGE = np.float32(0.3)  # added to a diagonal of ones
_BATCH_TOKENS = 1_024  # tokens multiplied together
_LEFT_OUT = 0.1  # share of the rows that the second fit leaves out


def leave_one_out(texts: Sequence[Sequence[str]], vectors: Floats) -> Floats:
    """Predict the vector of each text from the other texts, shape (texts, dim).

    :param texts: each as its tokens; at most `MAX_TEXTS`.
    :param vectors: shape (texts, dim), of length 1.
    """
    ridge = _RIDGE * np.eye(len(texts), dtype=np.float32)
    inverse = np.linalg.inv(_similarities(texts) + ridge).astype(np.float32, copy=False)
    # A row's residual when the row itself is left out: Craven and Wahba 1979, lemma 3.1, in terms of the kernel.
    residuals = inverse @ (vectors - vectors.mean(0)) / np.diag(inverse)[:, None]
    order = np.argsort((residuals**2).sum(1), kind="stable")
    split = len(order) - int(_LEFT_OUT * len(order))
    expected: Floats = vectors - _residuals_without(inverse, vectors, order[:split], order[split:])
    return expected


def _residuals_without(inverse: Floats, vectors: Floats, fitted: NDArray[np.int64], out: NDArray[np.int64]) -> Floats:
    """Residuals of all rows when the rows `out` are not fitted; each fitted row without itself (Schur complement)."""
    weights = inverse @ (vectors - vectors[fitted].mean(0))
    across = inverse[np.ix_(fitted, out)]
    corner = np.linalg.inv(inverse[np.ix_(out, out)])
    influence = across @ corner
    residuals = np.empty_like(vectors)
    residuals[out] = corner @ weights[out]
    own = np.diag(inverse)[fitted] - (influence * across).sum(1)
    residuals[fitted] = (weights[fitted] - influence @ weights[out]) / own[:, None]
    return residuals


def _similarities(texts: Sequence[Sequence[str]]) -> Floats:
    """Cosines between the texts' bags of tokens, each token by the root of its count and of its rarity."""
    rows, tokens, weights, frequencies = _bags(texts)
    cosines = np.zeros((len(texts), len(texts)), np.float32)
    shared = np.flatnonzero(frequencies > 1)  # a token of one text matches nothing, but counts for that text's length
    order = np.argsort(tokens, kind="stable")
    rows, tokens, weights = rows[order], tokens[order], weights[order]
    for start in range(0, len(shared), _BATCH_TOKENS):
        batch = shared[start : start + _BATCH_TOKENS]
        columns = np.searchsorted(batch, tokens)
        is_here = np.flatnonzero(batch[np.minimum(columns, len(batch) - 1)] == tokens)
        dense = np.zeros((len(texts), len(batch)), np.float32)
        dense[rows[is_here], columns[is_here]] = weights[is_here]
        cosines += dense @ dense.T
    return cosines


def _bags(
    texts: Sequence[Sequence[str]],
) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats, NDArray[np.int64]]:
    """Row, token and weight of each token of each text; and the number of texts that have each token."""
    numbers: dict[str, int] = {}
    bags = [Counter(numbers.setdefault(token, len(numbers)) for token in text) for text in texts]
    sizes = [len(bag) for bag in bags]
    total = sum(sizes)
    rows = np.repeat(np.arange(len(texts)), sizes)
    tokens = np.fromiter((token for bag in bags for token in bag), np.int64, total)
    counts = np.fromiter((count for bag in bags for count in bag.values()), np.float64, total)
    frequencies = np.bincount(tokens, minlength=len(numbers))
    squares = counts * np.log(1 + len(texts) / frequencies[tokens])
    lengths = np.bincount(rows, squares, minlength=len(texts))
    return rows, tokens, np.sqrt(squares / lengths[rows]).astype(np.float32), frequencies
