"""Scores become probabilities that hold, and their measures follow the definitions."""

from __future__ import annotations

import numpy as np
import pytest

from binocle.training.heads import calibration
from binocle.training.heads.reader_training import best_threshold


def test_platts_fit_finds_the_slope_and_the_offset_that_made_the_answers():
    random = np.random.default_rng(0)
    scores = random.normal(0, 4, 20_000)
    right = (random.random(20_000) < calibration.probabilities(0.7 * scores - 1)).astype(float)
    assert calibration.platt(scores, right) == pytest.approx((0.7, -1), abs=0.05)
    likely = calibration.probabilities(0.7 * scores - 1)
    assert calibration.calibration_error(likely, right) < 0.01 < calibration.calibration_error(likely**2, right)


@pytest.mark.parametrize(
    ("scores", "right"), [([1, 2, 3], [1, 1, 1]), ([5, 5, 5, 5], [0, 1, 0, 1]), ([-9e8, 1, 2, 3], [0, 0, 1, 1])]
)
def test_a_fit_is_finite_whatever_the_scores(scores, right):
    slope, offset = calibration.platt(np.array(scores, float), np.array(right, float))
    assert np.isfinite([slope, offset]).all() and slope >= 0


@pytest.mark.parametrize(("right", "likely"), [(0.0, 1 / 34), (1.0, 33 / 34)])
def test_answers_that_are_all_wrong_or_all_right_have_one_probability(right, likely):
    scores = np.linspace(-2, 2, 32)
    slope, offset = calibration.platt(scores, np.full(32, right))
    assert calibration.probabilities(slope * scores + offset) == pytest.approx(np.full(32, likely))
    assert calibration.platt(np.empty(0), np.empty(0)) == (1, 0)


def test_the_calibration_error_is_the_weighted_gap_of_the_bins():
    likely, right = np.array([0.95, 0.95, 0.35, 0.35]), np.array([1.0, 0.0, 0.0, 1.0])
    assert calibration.calibration_error(likely, right) == pytest.approx(0.5 * abs(0.95 - 0.5) + 0.5 * abs(0.35 - 0.5))


def test_the_threshold_gives_the_highest_f1_over_all_questions():
    random = np.random.default_rng(0)
    for _ in range(50):
        scores, f1, has = random.normal(size=20), random.random(20), random.random(20) < 0.7
        if has.all() or not has.any():
            continue
        f1 = f1 * has

        def total(threshold, scores=scores, f1=f1, has=has):
            given = scores >= threshold
            return (f1 * given + (~has & ~given)).sum()

        best = max(total(threshold) for threshold in scores)  # a reader that never answers is none
        assert total(best_threshold(scores, f1, has)) == pytest.approx(best)


def test_a_promised_precision_counts_all_rows_that_are_equally_sure():
    likely, right = np.array([0.9] * 40 + [0.7] * 40), np.array([1.0] * 10 + [0.0] * 30 + [1.0] * 40)
    assert calibration.precisions(likely, right) == ((0.9, 11 / 42), (0.7, 51 / 82))
    assert calibration.precisions(np.empty(0), np.empty(0)) == ()


def test_a_few_right_rows_promise_little():
    likely = np.array([0.99, 0.98])
    assert calibration.precisions(likely, np.ones(2)) == ((0.99, 2 / 3), (0.98, 3 / 4))


def test_the_intervals_of_several_answers_a_row_draw_rows():
    random = np.random.default_rng(0)
    likely, right = random.random(60), (random.random(60) < 0.6).astype(float)
    single = calibration.measures(likely, right, 0)
    copied = calibration.measures(np.repeat(likely, 5), np.repeat(right, 5), 0, np.repeat(np.arange(60), 5))
    assert [row.as_dict() for row in copied] == [row.as_dict() for row in single]
    assert [row.rows for row in single] == [60, 30, 48]
    assert single[0].value == pytest.approx(calibration.calibration_error(likely, right))
    assert single[0].high - single[0].low > 0.05
    assert calibration.measures(np.empty(0), np.empty(0), 0) == []
