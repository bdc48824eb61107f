"""Stolen vectors that a secret matrix has turned are turned back without one known pair."""

from __future__ import annotations

import numpy as np
import pytest

from binocle.core.errors import InputError
from binocle.indexes import metric
from binocle.training.audit.attacks.alignment import align

DIM = 32


def vectors(count: int, seed: int) -> np.ndarray:
    """Vectors as of texts: sums of a few of many topics; some topics are more frequent."""
    topics = np.random.default_rng(0).standard_normal((120, DIM)) * 0.85 ** np.arange(DIM)
    random = np.random.default_rng(seed)
    shares = 1 / np.arange(5, 125)
    texts = [topics[random.choice(120, 3, replace=False, p=shares / shares.sum())].sum(0) for _ in range(count)]
    return metric.normalized(np.array(texts, np.float32) + 0.5)


def rotation(seed: int = 1) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((DIM, DIM)))[0].astype(np.float32)


@pytest.mark.slow
def test_a_rotation_is_undone_without_a_known_pair():
    true, own = vectors(1_200, seed=2), vectors(1_000, seed=12)
    stolen = true @ rotation(2)
    turned_back = align(stolen, own)(stolen)
    assert metric.cosines(stolen, true).mean() < 0.4
    assert metric.cosines(turned_back, true).mean() > 0.75
    assert turned_back.dtype == np.float32 and np.allclose(np.linalg.norm(turned_back, axis=1), 1, atol=1e-5)


def test_the_same_sets_give_the_same_map():
    stolen, own = vectors(300, 1) @ rotation(), vectors(300, 2)
    assert (align(stolen, own)(stolen) == align(stolen, own)(stolen)).all()


def test_a_dozen_vectors_are_enough_for_a_map():
    stolen, own = vectors(12, 1) @ rotation(), vectors(12, 2)
    assert align(stolen, own)(stolen).shape == stolen.shape


@pytest.mark.parametrize(("count", "dim"), [(9, DIM), (100, DIM - 1)])
def test_sets_that_cannot_be_aligned_are_refused(count, dim):
    with pytest.raises(InputError, match="two sets of at least 10 vectors of one dimension"):
        align(vectors(100, 1), vectors(count, 2)[:, :dim])
