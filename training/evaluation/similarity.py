"""Measure how well a model's scores of pairs agree with people's judgements: graded, or same and not same.

Graded pairs (the STS benchmark: Cer et al. 2017, arXiv:1708.00055) have Spearman's rank correlation and Pearson's, as
Reimers and Gurevych 2019, arXiv:1908.10084, report them. Labelled pairs have average precision, the area under the ROC
curve, accuracy and F1. Accuracy and F1 take the threshold that is best on these very pairs: a flattering choice, but
the usual one in publications. Equal scores share one threshold, so the order of rows never matters.

Every measure here is a function of weights, for `significance`: rows are sorted once, and each sample only needs sums
along that order.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from .result import JudgedRowsResult
from .scorers import pair_scores, score_name
from .significance import Statistic, Weighted

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...core.arrays import Doubles, Positions
    from .judged_rows import Pairs
    from .scorers import Model


def evaluate_pairs(pairs: Pairs, model: Model) -> JudgedRowsResult:
    """Evaluate a model's scores of judged pairs: an encoder's cosines, or a cross-encoder's own scores."""
    began = time.monotonic()
    scores = pair_scores(model, pairs.left, pairs.right)
    seconds = time.monotonic() - began
    gold = np.array(pairs.gold)
    return JudgedRowsResult.of(
        MEASURES[pairs.kind],
        scores,
        gold,
        seconds=seconds,
        kind=pairs.kind,
        data=pairs.name,
        model=model.name,
        thresholds={} if pairs.kind == "similarity" else thresholds(scores, gold),
        score=score_name(model),
    )


# Correlation with graded scores


def _pearson(scores: Doubles, gold: Doubles) -> Weighted:
    x, y = scores - scores.mean(), gold - gold.mean()
    columns = np.stack([x, y, x * x, y * y, x * y], axis=1)

    def weighted(weights: Doubles) -> Doubles:
        sums = weights @ columns / weights.sum(1, keepdims=True)
        return _correlation(*sums.T)

    return weighted


def _correlation(x: Doubles, y: Doubles, xx: Doubles, yy: Doubles, xy: Doubles) -> Doubles:
    """Compute Pearson's r from the weighted means of x, y and their products; NaN if x or y is constant."""
    x_variance, y_variance = xx - x * x, yy - y * y
    constant = (x_variance <= 1e-12 * np.abs(xx)) | (y_variance <= 1e-12 * np.abs(yy))
    with np.errstate(invalid="ignore", divide="ignore"):
        r: Doubles = np.where(constant, np.nan, (xy - x * y) / np.sqrt(x_variance * y_variance))
    return r


def _spearman(scores: Doubles, gold: Doubles) -> Weighted:
    """Pearson's r of the ranks, taken anew in each sample; equal values share their mean rank."""
    x_ranks, y_ranks = _ranks_under_weights(scores), _ranks_under_weights(gold)

    def weighted(weights: Doubles) -> Doubles:
        x, y = x_ranks(weights), y_ranks(weights)  # both centred: the mean of ranks is known
        total = weights.sum(1)
        xx, yy, xy = ((weights * a * b).sum(1) / total for a, b in ((x, x), (y, y), (x, y)))
        zeros = np.zeros(len(total))
        return _correlation(zeros, zeros, xx, yy, xy)

    return weighted


def _ranks_under_weights(values: Doubles) -> Weighted:
    """Rank rows that occur as often as their weights say, minus the mean rank; shape (samples, rows)."""
    order, starts, group = _sorted_groups(values)

    def ranks(weights: Doubles) -> Doubles:
        counts = np.add.reduceat(weights[:, order], starts, axis=1)
        ends = counts.cumsum(1)
        centred = ends - counts / 2 - ends[:, -1:] / 2
        return centred[:, group]

    return ranks


def _sorted_groups(values: Doubles) -> tuple[Positions, Positions, Positions]:
    """Return the ascending order, the start of each group of equal values in it, and the group of each row."""
    order = np.argsort(values, kind="stable")  # NaNs are last
    ascending = values[order]
    new = np.diff(ascending, prepend=np.nan) != 0
    new[1:] &= ~(np.isnan(ascending[1:]) & np.isnan(ascending[:-1]))  # NaNs are equal
    group = np.empty(len(values), np.intp)
    group[order] = new.cumsum() - 1
    return order, np.flatnonzero(new), group


# Measures of two classes


def _by_threshold(measure: Callable[[Doubles, Doubles], Doubles]) -> Callable[[Doubles, Doubles], Weighted]:
    """Build a measure from the number of pairs of each class at or above each threshold.

    :param measure: gets the counts of positives and negatives, shape (samples, thresholds), highest threshold first;
        at the lowest every pair passes.
    """

    def weighted(scores: Doubles, gold: Doubles) -> Weighted:
        order, starts, _ = _sorted_groups(-scores)
        positive = gold[order]

        def of_weights(weights: Doubles) -> Doubles:
            ordered = weights[:, order]
            right = np.add.reduceat(ordered * positive, starts, axis=1).cumsum(1)
            every = np.add.reduceat(ordered, starts, axis=1).cumsum(1)
            with np.errstate(invalid="ignore", divide="ignore"):  # a sample may have one class only: NaN
                return measure(right, every - right)

        return of_weights

    return weighted


def _average_precision(right: Doubles, wrong: Doubles) -> Doubles:
    """Sum precision at each threshold, weighted by the added recall; no interpolation."""
    passing = right + wrong
    precision = np.divide(right, passing, out=np.zeros_like(right), where=passing > 0)
    average: Doubles = (precision * np.diff(right, axis=1, prepend=0)).sum(1) / right[:, -1]
    return average


def _area(right: Doubles, wrong: Doubles) -> Doubles:
    """Compute the chance that a positive pair scores higher than a negative one; equal scores count half."""
    above = right - np.diff(right, axis=1, prepend=0) / 2
    area: Doubles = (above * np.diff(wrong, axis=1, prepend=0)).sum(1) / (right[:, -1] * wrong[:, -1])
    return area


def _accuracies(right: Doubles, wrong: Doubles) -> Doubles:
    """Compute accuracy at each threshold, preceded by one above every score: no pair passes it."""
    correct = right + wrong[:, -1:] - wrong
    accuracies: Doubles = np.hstack([wrong[:, -1:], correct]) / (right[:, -1:] + wrong[:, -1:])
    return accuracies


def _f1s(right: Doubles, wrong: Doubles) -> Doubles:
    f1s: Doubles = 2 * right / (right + wrong + right[:, -1:])
    return f1s


def thresholds(scores: Doubles, gold: Doubles) -> dict[str, float]:
    """Find the thresholds of the best accuracy and the best F1; a pair at or above one counts as positive.

    A threshold lies half way to the next lower score, as in sentence-transformers.
    """
    order, starts, _ = _sorted_groups(-scores)
    right = np.add.reduceat(gold[order], starts).cumsum()[None]
    every = np.add.reduceat(np.ones(len(gold)), starts).cumsum()[None]
    levels = scores[order][starts]
    cuts = (levels + np.append(levels[1:], levels[-1])) / 2
    with_none = np.insert(cuts, 0, np.nextafter(levels[0], np.inf))
    return {
        "Accuracy": float(with_none[_accuracies(right, every - right)[0].argmax()]),
        "F1": float(cuts[_f1s(right, every - right)[0].argmax()]),
    }


# Common scales: on them the scores of two systems can change places


def _ranked(scores: Doubles) -> Doubles:
    ranks: Doubles = _ranks_under_weights(scores)(np.ones((1, len(scores))))[0]
    return ranks


def _standardised(scores: Doubles) -> Doubles:
    standard: Doubles = (scores - scores.mean()) / max(float(scores.std()), 1e-12)
    return standard


MEASURES: dict[str, dict[str, Statistic]] = {  # kind of pairs -> its measures, the first for a table
    "similarity": {"Spearman": Statistic(_spearman, _ranked), "Pearson": Statistic(_pearson, _standardised)},
    "pairs": {
        "AP": Statistic(_by_threshold(_average_precision), _ranked),
        "AUC": Statistic(_by_threshold(_area), _ranked),
        "Accuracy": Statistic(_by_threshold(lambda right, wrong: _accuracies(right, wrong).max(1)), _ranked),
        "F1": Statistic(_by_threshold(lambda right, wrong: _f1s(right, wrong).max(1)), _ranked),
    },
}
