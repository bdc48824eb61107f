from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest

from binocle.core.errors import InputError
from binocle.training.evaluation import significance
from binocle.training.evaluation.significance import (
    Statistic,
    align,
    bootstrap,
    bounds,
    difference,
    holm,
    interval,
    mean,
    paired_interval,
    randomisation,
    reach,
)

MEAN = Statistic(lambda scores, gold: mean(scores), lambda scores: scores)


def random(seed):
    return np.random.default_rng(seed)


def systems(seed, rows, gain):
    """Values of two systems, the first of them better by `gain` in the mean."""
    a, b = random(seed).random((2, rows))
    return a + gain, b


# The randomisation test


def test_four_queries_won_by_one_are_two_of_sixteen_patterns():
    assert randomisation([2, 3, 4, 5], [1, 1, 1, 1]) == 2 / 16


def test_a_case_counted_by_hand():
    """Differences 3, 1 and -1: sums of the eight patterns are ±3, ±3, ±5, ±1; at least 3 in size are 6."""
    assert randomisation([3, 1, 0], [0, 0, 1]) == 6 / 8


def test_equal_systems_differ_by_chance_with_certainty():
    assert randomisation([0.1, 0.7], [0.1, 0.7]) == 1
    assert difference([0.1, 0.7], [0.1, 0.7]) == significance.Difference(0, 0, 0, 1)


def test_queries_on_which_both_agree_change_nothing():
    a, b = random(0).random((2, 9))
    assert randomisation([*a, *np.ones(50)], [*b, *np.ones(50)]) == randomisation(a, b)


@pytest.mark.parametrize("rows", range(1, 11))
def test_exact_p_is_that_of_every_pattern_tried_one_by_one(rows):
    differences = random(rows).integers(-3, 4, rows)
    differences[0] = 2
    sums = [
        abs(sum(s * d for s, d in zip(signs, differences, strict=True)))
        for signs in itertools.product([1, -1], repeat=rows)
    ]
    expected = sum(total >= abs(differences.sum()) for total in sums) / len(sums)
    assert randomisation(differences / 10, np.zeros(rows)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_exact_p_is_that_of_scipy(seed):
    stats = pytest.importorskip("scipy.stats")
    a, b = systems(seed, 12, 0.2)

    def gap(x, y, axis):
        return np.mean(x - y, axis=axis)

    theirs = stats.permutation_test((a, b), gap, permutation_type="samples", vectorized=True, n_resamples=np.inf)
    assert randomisation(a, b) == pytest.approx(theirs.pvalue, abs=1e-12)


def test_sampled_p_is_near_that_of_scipy():
    stats = pytest.importorskip("scipy.stats")
    a, b = systems(4, 80, 0.06)
    theirs = stats.permutation_test(
        (a, b), lambda x, y, axis: np.mean(x - y, axis=axis), permutation_type="samples", n_resamples=20_000, rng=1
    )
    assert 0.01 < theirs.pvalue < 0.5
    assert randomisation(a, b, samples=20_000) == pytest.approx(theirs.pvalue, abs=0.012)


def test_sampled_and_exact_p_agree_where_both_can_be_had(monkeypatch):
    a, b = systems(2, 14, 0.15)
    exact = randomisation(a, b)
    monkeypatch.setattr(significance, "_EXACT", 0)
    assert randomisation(a, b, samples=40_000) == pytest.approx(exact, abs=0.01)


def test_p_is_never_zero():
    assert randomisation(np.arange(1, 101), np.zeros(100)) == 1 / 10_001


def test_p_does_not_depend_on_who_is_first_or_on_the_scale():
    a, b = random(3).random((2, 60))
    assert randomisation(a, b) == randomisation(b, a) == randomisation(1e-6 * a, 1e-6 * b)


def test_the_same_seed_gives_the_same_and_another_seed_another_p():
    a, b = random(5).random((2, 60))
    assert randomisation(a, b) == randomisation(a, b)
    assert randomisation(a, b) != randomisation(a, b, seed=1)


def test_one_in_twenty_null_data_is_called_real():
    """Of 600 pairs of equally good systems, 5 % +- 3 standard errors (2.7 %)."""
    called = 0
    for seed in range(600):
        base, noise = random(seed).random(40), random(10_000 + seed).normal(0, 0.2, (2, 40))
        called += randomisation(base + noise[0], base + noise[1], samples=600) < 0.05
    assert 0.023 < called / 600 < 0.077


# Intervals


def test_an_interval_of_a_mean_is_that_of_the_normal_where_rows_are_many():
    values = random(0).normal(0.5, 0.2, 2_000)
    low, high = interval(values)
    half = 1.96 * values.std() / 2_000**0.5
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=half / 10)


def test_an_interval_is_that_of_scipy():
    stats = pytest.importorskip("scipy.stats")
    values = random(1).beta(0.4, 0.2, 120)
    theirs = stats.bootstrap((values,), np.mean, n_resamples=20_000, method="percentile", rng=1).confidence_interval
    assert interval(values, samples=20_000) == pytest.approx((theirs.low, theirs.high), abs=0.003)


def test_nineteen_of_twenty_intervals_hold_the_mean():
    held = 0
    for seed in range(300):
        low, high = interval(random(seed).normal(0.3, 1, 60), samples=500)
        held += low <= 0.3 <= high
    assert 0.90 < held / 300 < 0.98


def test_one_value_gives_no_interval():
    assert np.isnan(interval([0.5])).all()
    assert bounds(0.5, *interval([0.5])) == "one gives no interval"
    assert reach(0.5, 0.5, 1) == reach(*interval([0.5]), 1) == "one gives no interval"
    assert reach(0.5, 0.5, 2) == "95 % 0.5000 to 0.5000"
    gain = difference([0.75], [0.5])
    assert gain.sentence("gain") == "gain +0.2500 (one gives no interval, p 1): no better and no worse"
    assert gain.as_dict() == {"value": 0.25, "low": None, "high": None, "p": 1.0, "verdict": "same"}


def test_a_higher_level_gives_a_wider_interval():
    values = random(2).random(50)
    narrow, wide = interval(values, level=0.5), interval(values, level=0.99)
    assert wide[0] < narrow[0] < values.mean() < narrow[1] < wide[1]


def test_constant_values_have_an_interval_of_nothing():
    assert interval([0.25] * 9) == (0.25, 0.25)


def test_a_paired_interval_is_of_the_differences():
    a, b = random(3).random((2, 70))
    assert paired_interval(a, b) == interval(a - b)
    low, high = paired_interval(a + 1, a)
    assert (low, high) == pytest.approx((1, 1))


def test_a_difference_that_is_real_has_an_interval_without_zero():
    a = random(4).random(100)
    found = difference(a + random(5).normal(0.1, 0.1, 100), a)
    assert found.low > 0
    assert found.p < 0.01
    assert found.low < found.value < found.high


def test_memory_is_bounded_whatever_the_number_of_samples():
    values = random(6).random(5_000)
    tracemalloc.start()
    interval(values, samples=4_000)
    randomisation(values, values[::-1], samples=4_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10e6  # all weights at once would be 160 MB, and as much for each step on the way


def test_blocks_make_no_difference_to_what_is_drawn(monkeypatch):
    values = random(7).random(30)
    whole = bootstrap(mean(values), 30, samples=100)
    monkeypatch.setattr(significance, "_CELLS", 70)
    assert bootstrap(mean(values), 30, samples=100) == pytest.approx(whole)


# Measures that are no means


def test_the_mean_as_a_statistic_is_the_mean():
    a, b = systems(0, 11, 0.1)
    actual, expected = MEAN.difference(a, b, np.zeros(11)), difference(a, b)
    assert (actual.value, actual.p) == pytest.approx((expected.value, expected.p))
    assert (actual.low, actual.high) == pytest.approx((expected.low, expected.high))
    assert MEAN.value(a, np.zeros(11)) == pytest.approx(a.mean())
    assert MEAN.interval(a, np.zeros(11)) == pytest.approx(interval(a))


def test_scores_that_are_alike_differ_by_chance_with_certainty():
    assert MEAN.difference([1, 2], [1, 2], [0, 0]).p == 1


def test_rows_of_several_values_differ_if_one_of_these_does():
    share = Statistic(
        lambda scores, gold: lambda weights: (weights @ scores[:, 0]) / (weights @ scores[:, 1]), lambda scores: scores
    )
    result = share.difference([[1, 1], [1, 1], [1, 2]], [[0, 1], [0, 1], [0, 2]], [0, 0, 0])
    assert (result.value, result.p) == (0.75, 2 / 8)  # only where one system wins all rows is the difference as large


def test_an_interval_for_people_has_four_digits():
    assert bounds(0.5, 0.123456, 1.0) == "0.1235, 1.0000"
    assert bounds(0.5, 0.123456, 1.0, digits=3) == "0.123, 1.000"


def test_samples_on_which_a_measure_is_not_defined_do_not_count():
    missing = Statistic(
        lambda scores, gold: lambda weights: np.where(weights[:, 0] == 0, np.nan, 0.5), lambda scores: scores
    )
    assert missing.interval([1, 2], [0, 0]) == (0.5, 0.5)


# Several comparisons


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_holm_of_one_is_itself_and_of_none_is_none():
    assert holm([0.03]) == [0.03]
    assert holm([]) == []


def test_holm_never_goes_below_the_p_above_one_or_out_of_order():
    for seed in range(20):
        given = random(seed).random(7) ** 2
        found = holm(given)
        assert all(p <= corrected <= 1 for p, corrected in zip(given, found, strict=True))
        assert np.array_equal(np.argsort(given), np.lexsort((given, found)))


# Input


@pytest.mark.parametrize(
    ("call", "naming"),
    [
        (lambda: randomisation([1, 2], [1]), "2 and 1"),
        (lambda: difference([], []), "at least one"),
        (lambda: interval([[1, 2]]), "(1, 2)"),
        (lambda: interval([1, 2], level=95), "95"),
        (lambda: interval([1, 2], samples=0), "0"),
        (lambda: randomisation(range(40), [0] * 40, samples=0), "0"),
        (lambda: MEAN.difference([1, 2], [1], [1, 2]), "2 and 1"),
        (lambda: align({"q1": 1, "q2": 0}, {"q1": 1}), "'q2'"),
    ],
)
def test_what_cannot_be_compared_is_told(call, naming):
    with pytest.raises(InputError) as caught:
        call()
    assert naming in str(caught.value)


def test_values_are_aligned_by_query():
    a, b = align({"q1": 1, "q2": 2}, {"q2": 20, "q1": 10})
    assert (a.tolist(), b.tolist()) == ([1, 2], [10, 20])
