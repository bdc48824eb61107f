from __future__ import annotations

import numpy as np
import pytest

from binocle.training.inversion.overlap import LONG_RUN, KnownTexts, RepeatedTexts


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


def test_repeated_texts_are_those_that_known_texts_hold_and_those_with_a_long_run_of_another():
    random = np.random.default_rng(1)
    known = [random.integers(0, 500, 60).tolist() for _ in range(20)]
    texts: list[list[int]] = [[], [7], known[0][:3], [1, 2, 3]]
    for row in known:
        first, length = random.integers(0, 20), random.integers(1, 40)
        own = random.integers(500, 900, random.integers(0, 60)).tolist()
        texts.append([*own, *row[first : first + length]])
    known.append([1, 2, 3])
    repeated = RepeatedTexts(texts)
    for start in range(0, len(known), 4):
        repeated.meet(known[start : start + 4])
    expected = KnownTexts(known)
    assert repeated.copies() == [expected.holds(text) for text in texts]
    runs = {tuple(row[at : at + LONG_RUN]) for row in known for at in range(len(row) - LONG_RUN + 1)}
    sharing = [any(tuple(text[at : at + LONG_RUN]) in runs for at in range(len(text))) for text in texts]
    assert repeated.sharing() == sharing and 0 < sum(sharing) < len(texts) - 4


def test_no_text_repeats_another_before_any_was_met():
    assert RepeatedTexts([[1, 2, 3]]).copies() == RepeatedTexts([[1, 2, 3]]).sharing() == [False]
    assert RepeatedTexts([]).copies() == []
