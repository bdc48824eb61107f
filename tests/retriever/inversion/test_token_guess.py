"""The tokens of a bag: as many as give the highest expected F1."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from binocle.retriever.inversion.token_guess import bag_tokens, expected_tokens


def test_no_other_number_of_tokens_has_a_higher_expected_f1():
    shares = np.array([0.4, 0.2, 0.15, 0.1, 0.05, 0.05, 0.03, 0.02])
    for count in (1.0, 4.0, 12.0):
        ranked = expected_tokens(shares, count, 0.0, 8)
        sums = itertools.accumulate(chance for _, chance in ranked)
        f1s = [2 * total / (count + size) for size, total in enumerate(sums, 1)]
        tokens = bag_tokens(shares, count)
        assert f1s[len(tokens) - 1] == pytest.approx(max(f1s))
        assert tokens == [token for token, _ in ranked[: len(tokens)]]


def test_a_token_that_is_expected_often_comes_often():
    assert bag_tokens(np.array([0.9, 0.05, 0.05]), 5.0).count(0) >= 3


def test_a_bag_without_tokens_gives_none():
    assert bag_tokens(np.array([1.0, 0.0]), 0.0) == []
