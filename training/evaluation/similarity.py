"""How well a model's scores agree with what people said of pairs: graded similarity, and same or not.

Graded (the STS benchmark: Cer et al. 2017, arXiv:1708.00055): Spearman's rank correlation and Pearson's of the scores,
as Reimers and Gurevych 2019, arXiv:1908.10084, report them. Labelled: average precision, the area under the ROC curve,
and accuracy and F1 at the threshold that is best on these very pairs, a flattering choice that all who publish them
make. Equal scores are one threshold, so the order of rows never matters.

Every measure here is a function of weights, for `significance`: rows are sorted once, and each sample is a matter of
sums along that order.
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
    from .labelled import Pairs
    from .scorers import Model


def evaluate_pairs(pairs: Pairs, model: Model) -> JudgedRowsResult:
    """The measures of a model's scores on judged pairs: cosines of an encoder, or a cross-encoder's own."""
    began = time.monotonic()
    scores = pair_scores(model, pairs.left, pairs.right)
    seconds = time.monotonic() - began
    gold = np.array(pairs.gold)
    statistics = MEASURES[pairs.kind]
    intervals = {name: statistic.interval(scores, gold) for name, statistic in statistics.items()}
    return JudgedRowsResult(
        kind=pairs.kind,
        data=pairs.name,
        model=model.name,
        measures={name: round(statistic.value(scores, gold), 4) for name, statistic in statistics.items()},
        intervals={name: (round(low, 4), round(high, 4)) for name, (low, high) in intervals.items()},
        rows=len(gold),
        seconds=round(seconds, 3),
        thresholds={} if pairs.kind == "similarity" else thresholds(scores, gold),
        scores=scores,
        gold=gold,
        score=score_name(model),
    )


# Correlation with graded scores


def _pearson(scores: Doubles, gold: Doubles) -> Weighted:
    x, y = scores - scores.mean(), gold - gold.mean()
    columns = np.stack([x, y, x * x, y * y, x * y], axis=1)

    def of(weights: Doubles) -> Doubles:
        sums = weights @ columns / weights.sum(1, keepdims=True)
        return _correlation(*sums.T)

    return of


def _correlation(x: Doubles, y: Doubles, xx: Doubles, yy: Doubles, xy: Doubles) -> Doubles:
    """Pearson's r of the weighted means of x, y and their products; NaN where one of them is constant."""
    x_variance, y_variance = xx - x * x, yy - y * y
    constant = (x_variance <= 1e-12 * np.abs(xx)) | (y_variance <= 1e-12 * np.abs(yy))
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Doubles = np.where(constant, np.nan, (xy - x * y) / np.sqrt(x_variance * y_variance))
    return found


def _spearman(scores: Doubles, gold: Doubles) -> Weighted:
    """Pearson's r of the ranks, equal values having the mean of theirs, ranked anew in each sample."""
    x_ranks, y_ranks = _ranks_under_weights(scores), _ranks_under_weights(gold)

    def of(weights: Doubles) -> Doubles:
        x, y = x_ranks(weights), y_ranks(weights)  # both centred: the mean of ranks is known
        total = weights.sum(1)
        xx, yy, xy = ((weights * a * b).sum(1) / total for a, b in ((x, x), (y, y), (x, y)))
        nothing = np.zeros(len(total))
        return _correlation(nothing, nothing, xx, yy, xy)

    return of


def _ranks_under_weights(values: Doubles) -> Weighted:
    """Ranks, less their mean, of rows that are there as often as their weights say; shape (samples, rows)."""
    order, starts, group = _sorted_groups(values)

    def of(weights: Doubles) -> Doubles:
        counts = np.add.reduceat(weights[:, order], starts, axis=1)
        ends = counts.cumsum(1)
        centred = ends - counts / 2 - ends[:, -1:] / 2
        return centred[:, group]

    return of


def _sorted_groups(values: Doubles) -> tuple[Positions, Positions, Positions]:
    """The ascending order, where each group of equal values starts in it, and the group of each row."""
    order = np.argsort(values, kind="stable")
    new = np.diff(values[order], prepend=np.nan) != 0
    group = np.empty(len(values), np.intp)
    group[order] = new.cumsum() - 1
    return order, np.flatnonzero(new), group


# Telling two classes apart


def _by_threshold(of: Callable[[Doubles, Doubles], Doubles]) -> Callable[[Doubles, Doubles], Weighted]:
    """A measure of how many of either class are at or above each threshold, the highest threshold first.

    `of(right, wrong)` gets both counts, shape (samples, thresholds); the lowest threshold lets every pair pass.
    """

    def weighted(scores: Doubles, gold: Doubles) -> Weighted:
        order, starts, _ = _sorted_groups(-scores)
        positive = gold[order]

        def measure(weights: Doubles) -> Doubles:
            ordered = weights[:, order]
            right = np.add.reduceat(ordered * positive, starts, axis=1).cumsum(1)
            every = np.add.reduceat(ordered, starts, axis=1).cumsum(1)
            with np.errstate(invalid="ignore", divide="ignore"):  # a sample may have one class only: NaN
                return of(right, every - right)

        return measure

    return weighted


def _average_precision(right: Doubles, wrong: Doubles) -> Doubles:
    """Precision at each threshold, weighted by the recall it adds; no interpolation."""
    there = right + wrong > 0
    precision = np.divide(right, right + wrong, out=np.zeros_like(right), where=there)
    found: Doubles = (precision * np.diff(right, axis=1, prepend=0)).sum(1) / right[:, -1]
    return found


def _area(right: Doubles, wrong: Doubles) -> Doubles:
    """The chance that a positive pair scores higher than a negative one, half of it where they are equal."""
    above = right - np.diff(right, axis=1, prepend=0) / 2
    found: Doubles = (above * np.diff(wrong, axis=1, prepend=0)).sum(1) / (right[:, -1] * wrong[:, -1])
    return found


def _accuracies(right: Doubles, wrong: Doubles) -> Doubles:
    """With one threshold more, above every score, which lets nothing pass; it comes first."""
    correct = right + wrong[:, -1:] - wrong
    found: Doubles = np.hstack([wrong[:, -1:], correct]) / (right[:, -1:] + wrong[:, -1:])
    return found


def _f1s(right: Doubles, wrong: Doubles) -> Doubles:
    found: Doubles = 2 * right / (right + wrong + right[:, -1:])
    return found


def thresholds(scores: Doubles, gold: Doubles) -> dict[str, float]:
    """Where accuracy and F1 are best: a pair that scores at least this much counts as positive.

    Half way to the next score below, as sentence-transformers puts it.
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


# What makes the scores of two systems exchangeable


def _ranked(scores: Doubles) -> Doubles:
    ranks: Doubles = _ranks_under_weights(scores)(np.ones((1, len(scores))))[0]
    return ranks


def _standardised(scores: Doubles) -> Doubles:
    found: Doubles = (scores - scores.mean()) / max(float(scores.std()), 1e-12)
    return found


MEASURES: dict[str, dict[str, Statistic]] = {  # kind of pairs -> its measures, the first for a table
    "similarity": {"Spearman": Statistic(_spearman, _ranked), "Pearson": Statistic(_pearson, _standardised)},
    "pairs": {
        "AP": Statistic(_by_threshold(_average_precision), _ranked),
        "AUC": Statistic(_by_threshold(_area), _ranked),
        "Accuracy": Statistic(_by_threshold(lambda right, wrong: _accuracies(right, wrong).max(1)), _ranked),
        "F1": Statistic(_by_threshold(lambda right, wrong: _f1s(right, wrong).max(1)), _ranked),
    },
}
