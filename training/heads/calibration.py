"""The meaning of a head's scores: probabilities fitted on held-out rows, and measures of their reliability."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ..encoders import heldout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...core.arrays import Doubles, Integers
    from ...retriever.models.heads.promised_precision import Precisions
    from ..encoders.heldout import Estimate

_BINS = 10
_STEPS = 100  # of Newton's method, which needs about ten
TEMPERATURES: tuple[float, ...] = tuple(np.geomspace(0.2, 5, 65).tolist())  # to choose from; the middle one is 1
_PRECISIONS = 40  # steps of the table of probability and precision
_COVERAGES = (0.5, 0.8)  # shares of the rows, the surest first; the card has their errors


def platt(scores: Doubles, right: Doubles) -> tuple[float, float]:
    """Return slope and offset of the logistic function that gives the probability of being right.

    Platt 1999, with his targets just inside 0 and 1, so that separable scores have a finite slope.

    :param scores: (rows,).
    :param right: 1 or 0 for each row.
    :returns: 0 and the logit of the targets where all rows are right or all are wrong, since no slope follows from
        them; 1 and 0, which change nothing, without rows.
    """
    positives = right.sum()
    if not len(right):
        return 1.0, 0.0
    if positives in (0, len(right)):
        return 0.0, math.log((positives + 1) / (len(right) - positives + 1))
    targets = np.where(right > 0, (positives + 1) / (positives + 2), 1 / (len(right) - positives + 2))
    scale = max(float(np.abs(scores).max()), 1e-9)
    design = np.stack([scores / scale, np.ones(len(scores))], 1)
    weights = np.zeros(2)
    for _ in range(_STEPS):
        likely = probabilities(design @ weights)
        curvature = design.T @ (design * (likely * (1 - likely))[:, None]) + 1e-9 * np.eye(2)
        step = np.linalg.solve(curvature, design.T @ (targets - likely))
        weights += step * min(1.0, 5 / max(float(np.abs(step).max()), 1e-9))
        if np.abs(step).max() < 1e-9:
            break
    return max(0.0, float(weights[0] / scale)), float(weights[1])


def probabilities(logits: Doubles) -> Doubles:
    """Return the logistic function of logits."""
    likely: Doubles = 1 / (1 + np.exp(-np.clip(logits, -500, 500)))
    return likely


def best_temperature(losses: Sequence[float] | Doubles) -> float:
    """Return the temperature with the least cross-entropy on held-out rows (Guo et al. 2017, arXiv:1706.04599).

    :param losses: the cross-entropy of logits that are divided by each of `TEMPERATURES`.
    """
    return TEMPERATURES[int(np.argmin(losses))]


def calibration_error(likely: Doubles, right: Doubles) -> float:
    """Return the expected calibration error of probabilities, over ten bins (Guo et al. 2017, arXiv:1706.04599)."""
    gaps = np.bincount(_bins(likely), likely - right, minlength=_BINS)
    return float(np.abs(gaps).sum()) / max(1, len(right))


def _bins(likely: Doubles) -> Integers:
    bins: Integers = np.minimum((likely * _BINS).astype(np.int64), _BINS - 1)
    return bins


def precisions(likely: Doubles, right: Doubles) -> Precisions:
    """Return probabilities with the precision of the rows that are as sure or surer, the surest first.

    One right and one wrong row are added (Laplace's rule of succession), so that a few right rows promise little: two
    of two promise 0.75, and 98 of 98 promise 0.99.
    """
    order = np.argsort(-likely, kind="stable")
    sure, precision = likely[order], (np.cumsum(right[order]) + 1) / (np.arange(1, len(order) + 1) + 2)
    ends = np.linspace(0, len(order), _PRECISIONS + 1).astype(int)
    ends = np.unique(np.searchsorted(-sure, -sure[ends[ends > 0] - 1], side="right"))  # with all that are equally sure
    return tuple((float(sure[end - 1]), float(precision[end - 1])) for end in ends)


def measures(likely: Doubles, right: Doubles, seed: int, owners: Integers | None = None) -> list[Estimate]:
    """Return the calibration error, and the errors among the surest answers (risk and coverage, arXiv:1705.08500).

    :param owners: the row of each answer; None: one answer a row. The intervals draw whole rows, since the answers of a
        row depend on each other.
    """
    if not len(right):
        return []
    owners = np.arange(len(right)) if owners is None else np.unique(owners, return_inverse=True)[1]
    gaps = np.zeros((owners.max() + 1, _BINS))
    np.add.at(gaps, (owners, _bins(likely)), likely - right)
    estimates = [heldout.resampled("calibration error", _error_of_rows, gaps, np.bincount(owners), seed)]
    order = np.argsort(-likely, kind="stable")
    for share in _COVERAGES:
        surest = order[: max(1, round(share * len(order)))]
        counts, wrong = np.bincount(owners[surest]), np.bincount(owners[surest], 1 - right[surest])
        name, rows = f"wrong among the surest {share:.0%}", counts > 0
        estimates.append(heldout.resampled(name, _share_of_rows, wrong[rows], counts[rows], seed))
    return estimates


def _error_of_rows(gaps: Doubles, counts: Integers) -> float:
    """Return the calibration error from each row's gap in each bin, and its number of answers."""
    return float(np.abs(gaps.sum(0)).sum() / counts.sum())


def _share_of_rows(wrong: Doubles, counts: Integers) -> float:
    return float(wrong.sum() / counts.sum())
