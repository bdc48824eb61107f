"""Compare documents with the names of labels, by an encoder alone.

The cosine of a document to a name is compared with that of all other documents, because some names are near to every
document. Then each document asks its nearest documents: if these fit another label, it may change to that one.
Last, the label is compared with a hundred other subjects, because a document may fit no name at all.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from ...core.arrays import Doubles, Floats, Integers

_NEIGHBOURS = 10  # at most; of fewer than 100 documents the root of their number, since a label then has few
_REFERENCE = 4_000  # maximum of documents that can be neighbours
_BLOCK = 1_000  # documents compared at a time
_ROUNDS = 3
_CENTRED = 0.5  # share of a name's mean cosine that is subtracted; 1 would make all labels equally frequent
_SHARPNESS = 1.6  # of a label's share, in standard deviations of the cosine
_WEIGHT = 2.0  # of the neighbours' opinion against the document's own
_FLOOR = 1e-3  # share of a label that no neighbour has
_REFUTED = 6.0  # deviations above the mean of other subjects; from there up the document is about the label


class Fit(NamedTuple):
    """The best label of each document, shape (documents,), and the evidence for it, shape (documents, 8)."""

    labels: Integers
    evidence: Doubles


def fit_labels(documents: Floats, names: Floats, subjects: Floats) -> Fit:
    """Fit labels to documents.

    :param documents: unit vectors, shape (documents, dim).
    :param names: unit vectors of the labels' names, shape (labels, dim).
    :param subjects: unit vectors of `subjects.SUBJECTS`, shape (subjects, dim).
    """
    cosines = documents @ names.T
    spread = max(float((cosines - cosines.mean(0)).std()), 1e-6)
    scores = (cosines - _CENTRED * cosines.mean(0)) / spread
    shares, around = _propagate(documents, scores)
    labels = shares.argmax(1)
    evidence = _evidence(cosines, scores, shares, around, labels, spread)
    own = cosines[np.arange(len(labels)), labels]
    return Fit(labels, np.column_stack([evidence, _above_subjects(documents @ subjects.T, own)]))


def _propagate(documents: Floats, scores: Floats) -> tuple[Floats, Floats]:
    """Return each label's share in a document and in its neighbours, each (documents, labels)."""
    neighbours = _neighbours(documents)
    shares = around = _softmax(_SHARPNESS * scores)
    for _ in range(_ROUNDS if neighbours.shape[1] else 0):
        around = shares[neighbours].mean(1)
        shares = _softmax(_SHARPNESS * scores + _WEIGHT * np.log(around + _FLOOR))
    return shares, around


def _neighbours(documents: Floats) -> Integers:
    """Return the nearest of at most `_REFERENCE` documents for each document, shape (documents, at most 10)."""
    count = len(documents)
    reference = np.sort(np.random.default_rng(0).permutation(count)[:_REFERENCE])
    depth = min(_NEIGHBOURS, math.isqrt(count), len(reference) - 1)
    nearest = np.empty((count, depth), np.int64)
    for start in range(0, count, _BLOCK):
        rows = np.arange(start, min(start + _BLOCK, count))
        cosines = documents[rows] @ documents[reference].T
        cosines[rows[:, None] == reference[None, :]] = -2  # not itself
        nearest[rows] = reference[np.argpartition(-cosines, depth - 1, axis=1)[:, :depth]] if depth else 0
    return nearest


def _evidence(
    cosines: Floats, scores: Floats, shares: Floats, around: Floats, labels: Integers, spread: float
) -> Doubles:
    """Return what speaks for each label, without the scale of the encoder's cosines."""
    rows = np.arange(len(labels))
    ordered = np.sort(scores, axis=1)
    lead = ordered[:, -1] - ordered[:, -2] if scores.shape[1] > 1 else np.zeros(len(labels))
    own = cosines[rows, labels]
    typical = (own - cosines.mean(0)[labels]) / np.maximum(cosines.std(0)[labels], 1e-6)
    columns = [
        lead,
        np.full(len(labels), np.log(scores.shape[1])),
        around[rows, labels],
        np.log(shares[rows, labels] + 1e-6),
        scores.argmax(1) == labels,
        typical,
        (own - cosines.mean()) / spread,
    ]
    return np.stack(columns, axis=1).astype(np.float64)


def _above_subjects(cosines: Floats, own: Floats) -> Doubles:
    """Return how far each label's cosine is above those of other subjects, in their standard deviations, at most 6.

    The other evidence compares documents with each other. Alone, it would call the best of them sure even if none fits.

    :param cosines: of documents and subjects, shape (documents, subjects).
    :param own: of each document and its label.
    """
    deviations = (own - cosines.mean(1)) / np.maximum(cosines.std(1), 1e-6)
    above: Doubles = np.minimum(deviations, _REFUTED).astype(np.float64)
    return above


def _softmax(scores: Floats) -> Floats:
    powers = np.exp(scores - scores.max(1, keepdims=True))
    shares: Floats = powers / powers.sum(1, keepdims=True)
    return shares
