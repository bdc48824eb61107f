from __future__ import annotations

import numpy as np
import pytest

from binocle.training.inversion.overlap import KnownTexts


def test_a_text_of_which_more_than_half_of_the_runs_are_known_is_held():
    known = KnownTexts([range(100, 120), range(50, 60)])
    assert known.holds(list(range(100, 120)))
    assert known.holds([*range(100, 115), 7])  # 11 of 12 runs
    assert not known.holds([*range(100, 107), *range(1, 5)])  # 3 of 7
    assert not known.holds(list(range(120, 100, -1)))


def test_a_short_text_is_one_run():
    known = KnownTexts([[1, 2, 3], [4, 5, 6, 7, 8, 9]])
    assert known.holds([1, 2, 3])
    assert not known.holds([2, 3])
    assert not known.holds([4, 5, 6])
    assert not known.holds([])


def test_nothing_is_held_where_nothing_is_known():
    assert not KnownTexts([]).holds([1, 2, 3, 4, 5, 6])
    assert not KnownTexts([[]]).holds([1, 2, 3, 4, 5, 6])


@pytest.mark.parametrize("long", [3, 5, 8])
def test_runs_of_other_tokens_or_order_are_other_runs(long):
    random = np.random.default_rng(0)
    texts = [tuple(random.integers(0, 30, long).tolist()) for _ in range(2_000)]
    half = set(texts[:1_000])
    known = KnownTexts(half)
    inside = {text[at : at + 5] for text in half for at in range(max(1, long - 4))}
    for text in texts[1_000:]:
        own = [text[at : at + 5] in inside for at in range(max(1, long - 4))]
        assert known.holds(text) == (np.mean(own) > 0.5)
