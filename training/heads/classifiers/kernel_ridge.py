"""Fit a head on vectors: ridge regression with a Gaussian kernel, in closed form and in numpy.

The kernel's width is the median distance of two rows. Some of the rows are its landmarks (Williams and Seeger 2001,
Using the Nyström method to speed up kernel machines). The penalty has the least leave-one-out error on a sample, which
one decomposition gives for every penalty (Rifkin and Lippert 2007, Notes on regularized least squares). As the variance
of noise it does not depend on the number of rows. A row of a rare class weighs more, by the root of its frequency.

Where the texts are there too, the dot product of their bags of words is added to the kernel. Both have
equal weight: each is at most 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ....retriever.models.heads.bag_of_words import BagOfWords
from ....retriever.models.heads.kernel import KernelWeights, gaussian

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ....core.arrays import Floats, Positions

_LANDMARKS = 4_000
_SAMPLE = 1_500  # rows that the penalty is chosen on
_PENALTIES = np.geomspace(3e-3, 30, 13)
_SCALES = np.geomspace(1, 100, 41)  # of the predictions, as logits
_BLOCK = 2_000  # rows of the kernel in memory at a time
_TRUST = 0.1  # weight of a row without labels
_STUBBORN = 0.3  # weight of the labelled rows' class shares beside the estimated ones, which weigh 1
_ROUNDS = 100  # of the estimate of the class shares
_JITTER = 1e-6  # added to the diagonal, in shares of its mean: a row that is there twice makes it singular


@dataclass(frozen=True, slots=True)
class KernelRows:
    """The rows of a fit, and how two of them are compared."""

    vectors: Floats  # (rows, dim)
    texts: Sequence[str]  # none, or one a row
    precision: float
    bag: BagOfWords | None

    @classmethod
    def of(cls, vectors: Floats, texts: Sequence[str], random: np.random.Generator) -> KernelRows:
        """Take the kernel's width and the words from the rows."""
        bag = BagOfWords.of(texts) if texts else None
        precision = _precision(vectors[random.permutation(len(vectors))[:_LANDMARKS]], random)
        return cls(vectors, texts, precision, bag if bag and bag.columns else None)

    def words(self, numbers: Positions) -> Floats | None:
        """Return the bags of words of rows, or None without words."""
        if self.bag is None:
            return None
        return self.bag.rows([self.texts[number] for number in numbers.tolist()])

    def near(self, numbers: Positions, landmarks: Positions, landmark_words: Floats | None) -> Floats:
        """Return the kernel of rows and landmarks, (rows, landmarks)."""
        near = gaussian(self.vectors[numbers], self.vectors[landmarks], self.precision)
        if landmark_words is not None and (words := self.words(numbers)) is not None:
            near += words @ landmark_words.T
        return near


@dataclass(frozen=True, slots=True)
class Scale:
    """The penalty of a fit, and what makes its predictions logits."""

    penalty: float
    slope: float
    offset: float


def fit(
    vectors: Floats,
    targets: Floats,
    task: str,
    seed: int = 0,
    texts: Sequence[str] = (),
    unlabelled: tuple[Floats, Sequence[str]] | None = None,
) -> KernelWeights:
    """Fit a head.

    :param vectors: (rows, dim).
    :param targets: (rows, labels), 1 for each label that a row has; (rows, 1), the number, for the task "number".
    :param task: "classes", "labels" or "number".
    :param texts: of the rows, where words count too.
    :param unlabelled: vectors and texts of rows without labels, for "classes" with few rows. A first fit estimates the
        probability of each class for these rows. A second fit learns from all rows, 4,000 at most.
    """
    random = np.random.default_rng(seed)
    order = random.permutation(len(vectors))
    rows, shares = KernelRows.of(vectors, texts, random), _shares(targets, task)
    scale = _scale(rows, targets, shares, order[:_SAMPLE], task)
    head = _head(rows, targets, shares, order[:_LANDMARKS], scale)
    room = _LANDMARKS - len(vectors)
    if unlabelled is None or task != "classes" or room <= 0 or not len(unlabelled[0]):
        return head
    sample = random.permutation(len(unlabelled[0]))[:room]
    other_vectors, other_texts = unlabelled[0][sample], [unlabelled[1][row] for row in sample] if texts else []
    likely = _soft_labels(head.logits(other_vectors, other_texts), targets.mean(0))
    rows = KernelRows.of(np.concatenate([vectors, other_vectors]), [*texts, *other_texts], random)
    targets, shares = np.concatenate([targets, likely]), np.append(shares, np.full(len(sample), _TRUST, np.float32))
    order = random.permutation(len(targets))
    second = _scale(rows, targets, shares, order[:_SAMPLE], task)
    second = replace(second, penalty=max(scale.penalty, second.penalty))  # estimated labels have little noise
    return _head(rows, targets, shares, order, second)


def _soft_labels(logits: Floats, prior: Floats) -> Floats:
    """Return the probability of each class for rows with other class shares than the rows of the fit.

    Expectation maximisation finds the most probable shares of these rows (Saerens, Latinne and Decaestecker 2002,
    Adjusting the outputs of a classifier to new a priori probabilities).

    :param prior: shares of the classes in the fit.
    """
    ratio = (prior > 0).astype(np.float32)  # of the shares; a class without rows stays without any
    likely = np.exp(logits - logits.max(1, keepdims=True))
    for _ in range(_ROUNDS):
        posterior = likely * ratio
        posterior /= posterior.sum(1, keepdims=True)
        shares = (posterior.mean(0) + _STUBBORN * prior) / (1 + _STUBBORN)
        ratio = np.divide(shares, prior, out=np.zeros_like(prior), where=prior > 0)
    labels: Floats = posterior.astype(np.float32)
    return labels


def _scale(rows: KernelRows, targets: Floats, shares: Floats, sample: Positions, task: str) -> Scale:
    """Choose the penalty and the scale of the logits on a sample of the rows, each left out once."""
    centre = np.average(targets, axis=0, weights=shares)
    near = rows.near(sample, sample, rows.words(sample))
    penalty, predictions = _leave_one_out(near, (targets - centre)[sample], shares[sample])
    return Scale(penalty, *_logits(predictions + centre, targets[sample], task))


def _head(rows: KernelRows, targets: Floats, shares: Floats, landmarks: Positions, scale: Scale) -> KernelWeights:
    """Return the weights that all rows give, each with its share."""
    centre = np.average(targets, axis=0, weights=shares).astype(np.float32)
    words = rows.words(landmarks)
    weights = scale.slope * _solve(rows, targets - centre, shares, landmarks, words, scale.penalty)
    return KernelWeights(
        weights.T.astype(np.float32),
        (scale.slope * centre + scale.offset).astype(np.float32),
        rows.vectors[landmarks],
        rows.precision,
        rows.bag,
        None if words is None else (weights.T @ words).astype(np.float32),
    )


def _precision(vectors: Floats, random: np.random.Generator) -> float:
    """Return 1 / the median squared distance of two rows."""
    squares = ((vectors - vectors[random.permutation(len(vectors))]) ** 2).sum(1)
    squares = squares[squares > 0]
    return float(1 / np.median(squares)) if len(squares) else 1.0


def _shares(targets: Floats, task: str) -> Floats:
    """Return the weight of each row, with a mean of 1."""
    if task != "classes":
        return np.ones(len(targets), np.float32)
    weights = 1 / np.sqrt(np.maximum(targets @ targets.sum(0), 1))
    scaled: Floats = (weights / weights.mean()).astype(np.float32)
    return scaled


def _leave_one_out(kernel: Floats, residual: Floats, shares: Floats) -> tuple[float, Floats]:
    """Return the penalty with the least error, and the prediction of each row by a fit without it."""
    root = np.sqrt(shares)[:, None]
    values, turned = np.linalg.eigh((root * kernel * root.T).astype(np.float64))
    squares, projected = turned**2, turned.T @ (root * residual)
    best, lowest = (0.0, residual), np.inf
    for penalty in _PENALTIES:
        inverse = 1 / (np.maximum(values, 0) + penalty)
        errors = turned @ (projected * inverse[:, None]) / (squares @ inverse)[:, None]
        if (total := float((errors**2).sum())) < lowest:
            best, lowest = (float(penalty), residual - errors / root), total
    return best


def _solve(
    rows: KernelRows, residual: Floats, shares: Floats, landmarks: Positions, words: Floats | None, penalty: float
) -> Floats:
    """Return the coefficients of the landmarks, (landmarks, labels).

    The products are sums in float64: in float32 their rounding would outweigh a small penalty where rows are alike.
    """
    size = len(landmarks)
    gram, products = np.zeros((size, size)), np.zeros((size, residual.shape[1]))
    for start in range(0, len(residual), _BLOCK):
        part = np.arange(start, min(start + _BLOCK, len(residual)))
        near = rows.near(part, landmarks, words).astype(np.float64)
        weighted = (near * shares[part, None]).T
        gram += weighted @ near
        products += weighted @ residual[part]
    gram += penalty * rows.near(landmarks, landmarks, words)
    gram[np.diag_indices(size)] += _JITTER * gram.trace() / size
    coefficients: Floats = np.linalg.solve(gram, products).astype(np.float32)
    return coefficients


def _logits(predictions: Floats, targets: Floats, task: str) -> tuple[float, float]:
    """Return slope and offset that make predictions the logits with the least cross-entropy."""
    if task == "number":
        return 1.0, 0.0
    losses = []
    for scale in _SCALES:
        if task == "labels":
            losses.append(np.logaddexp(0, -scale * (2 * targets - 1) * (predictions - 0.5)).mean())
        else:
            logits = scale * (predictions - predictions.max(1, keepdims=True))
            losses.append((np.log(np.exp(logits).sum(1)) - (logits * targets).sum(1)).mean())
    scale = float(_SCALES[int(np.argmin(losses))])
    return scale, -0.5 * scale if task == "labels" else 0.0
