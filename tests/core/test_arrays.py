import numpy as np
import pytest

from binocle.core import arrays
from binocle.core.arrays import Keys, distinct, isin_sorted

LEAST, MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


def drawn(random, count):
    """Dense or sparse, some more than once, perhaps none."""
    high = random.choice([5, 300, 2**24, MOST])
    some = random.integers(-high, high, random.integers(count + 1))
    return np.concatenate([some, random.choice([LEAST, -1, 0, 1, MOST], random.integers(4))])


@pytest.mark.parametrize("seed", range(200))
def test_are_among_answers_as_isin_does(seed):
    random = np.random.default_rng(seed)
    known, ids = np.sort(drawn(random, 200)), drawn(random, 50)
    ids = random.permutation(np.concatenate([ids, known[::3]]))
    found = isin_sorted(ids, known)
    assert found.dtype == np.bool_
    np.testing.assert_array_equal(found, np.isin(ids, known))


@pytest.mark.parametrize("seed", range(50))
def test_distinct_values_are_those_of_numpy(seed):
    values = drawn(np.random.default_rng(seed), 200)
    different = distinct(values)
    assert different.dtype == np.int64
    np.testing.assert_array_equal(different, np.unique(values))


def test_nothing_is_among_nothing():
    none = np.empty(0, np.int64)
    assert isin_sorted(np.array([0, 5]), none).tolist() == [False, False]
    assert isin_sorted(none, np.array([0, 5])).tolist() == isin_sorted(none, none).tolist() == []


@pytest.mark.parametrize("seed", range(50))
def test_keys_contain_what_they_began_with_and_what_was_added(seed, monkeypatch):
    monkeypatch.setattr(arrays, "_MAX_NEW", 20)
    random = np.random.default_rng(seed)
    every = drawn(random, 30)
    keys = Keys(every)
    for _ in range(8):
        more = drawn(random, 15)
        keys.add(more)
        every = np.concatenate([every, more])
        asked = np.concatenate([drawn(random, 10), every[::2]])
        np.testing.assert_array_equal(keys.contains(asked), np.isin(asked, every))


def test_adding_keys_does_not_sort_the_ones_there_are_again():
    keys = Keys(np.arange(1_000))
    before = keys._sorted
    keys.add(np.array([5_000]))
    assert keys._sorted is before
    assert keys.contains(np.array([4, 5_000, 5_001])).tolist() == [True, True, False]
