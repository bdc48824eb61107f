"""The tokens of a bag: as many as give the highest expected F1."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from binocle.retriever.inversion.token_guess import expected_tokens


def occurrences(shares: np.ndarray, count: float) -> list[tuple[int, float]]:
    """Each token with the probability that it occurs at least so often: the tail of a Poisson distribution."""
    rows = [
        (token, 1 - sum(math.exp(-mean) * mean**n / math.factorial(n) for n in range(times)))
        for token, mean in enumerate((shares * count).tolist())
        for times in range(1, math.ceil(count) + 1)
    ]
    return sorted((row for row in rows if row[1] > 0.01), key=lambda row: -row[1])


def test_no_other_number_of_tokens_has_a_higher_expected_f1():
    shares = np.array([0.4, 0.2, 0.15, 0.1, 0.05, 0.045, 0.034, 0.021])
    for count in (1.0, 4.0, 12.0):
        ranked = occurrences(shares, count)
        sums = itertools.accumulate(chance for _, chance in ranked)
        f1s = [2 * total / (count + size) for size, total in enumerate(sums, 1)]
        tokens = expected_tokens(shares, count)
        assert f1s[len(tokens) - 1] == pytest.approx(max(f1s))
        assert [token for token, _ in tokens] == [token for token, _ in ranked[: len(tokens)]]
        np.testing.assert_allclose([chance for _, chance in tokens], [chance for _, chance in ranked[: len(tokens)]])


def test_a_token_that_is_expected_often_comes_often():
    tokens = [token for token, _ in expected_tokens(np.array([0.9, 0.05, 0.05]), 5.0)]
    assert tokens.count(0) >= 3


def test_a_bag_without_tokens_gives_none():
    assert expected_tokens(np.array([1.0, 0.0]), 0.0) == []
