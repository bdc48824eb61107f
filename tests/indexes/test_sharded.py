"""An index of several shards answers as one index over all vectors does."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from binocle.core.errors import DamagedError, InputError
from binocle.indexes.flat import FlatIndex
from binocle.indexes.sharded import ShardedIndex

DIM = 8
IDS = np.array([1, 4, 5, 9, 12, 13, 20, 31, 32, 40], np.int64)
VECTORS = np.random.default_rng(3).standard_normal((len(IDS), DIM)).astype(np.float32)
QUERIES = np.random.default_rng(4).standard_normal((3, DIM)).astype(np.float32)
WHOLE = FlatIndex(IDS, VECTORS)


def sharded(*ends):
    bounds = [0, *ends, len(IDS)]
    parts = [slice(start, end) for start, end in pairwise(bounds)]
    return ShardedIndex([FlatIndex(IDS[part], VECTORS[part]) for part in parts])


def assert_same(answer, expected):
    np.testing.assert_array_equal(answer[1], expected[1])
    np.testing.assert_allclose(answer[0], expected[0], atol=1e-6)


@pytest.mark.parametrize("ends", [(), (4,), (2, 3, 7)])
@pytest.mark.parametrize("k", [1, 4, 10, 13])
def test_search_equals_the_search_of_one_index(ends, k):
    assert_same(sharded(*ends).search(QUERIES, k), WHOLE.search(QUERIES, k))


@pytest.mark.parametrize("rows", [[], [0], [3, 4], [1, 2, 5, 6, 9], list(range(10))])
@pytest.mark.parametrize("as_mask", [False, True])
def test_each_shard_gets_its_part_of_a_filter(rows, as_mask):
    allowed = np.array(rows, np.intp)
    if as_mask:
        allowed = np.isin(np.arange(len(IDS)), rows)
    assert_same(sharded(4, 7).search(QUERIES, 5, allowed=allowed), WHOLE.search(QUERIES, 5, allowed=allowed))


@pytest.mark.parametrize("ids", [[], [1], [40, 5, 13, 1], [31, 32], [9, 9, 4]])
def test_vectors_come_back_in_the_order_of_their_ids(ids):
    vectors = sharded(4, 7).reconstruct(np.array(ids, np.int64))
    np.testing.assert_array_equal(vectors, WHOLE.reconstruct(np.array(ids, np.int64)))
    assert vectors.shape == (len(ids), DIM)


def test_an_unknown_id_is_refused():
    with pytest.raises(InputError, match="ids that the index does not hold"):
        sharded(4).reconstruct(np.array([1, 2], np.int64))


def test_shards_with_overlapping_ids_are_damaged():
    first, second = FlatIndex(IDS[:5], VECTORS[:5]), FlatIndex(IDS[4:], VECTORS[4:])
    with pytest.raises(DamagedError, match="overlap"):
        ShardedIndex([first, second])
