"""Noise averages out over vectors that are nearly equal."""

from __future__ import annotations

import numpy as np
import pytest

from binocle.indexes.metric import normalized
from binocle.training.audit.attacks.averaging import with_neighbours
from binocle.training.audit.attacks.ridge import RidgeBag
from binocle.training.inversion.metrics import overlap

TOPICS, COPIES, DIM = 120, 12, 48


@pytest.fixture(scope="session")
def noisy():
    """Texts of five tokens, each a dozen times in the index with noise of its own."""
    random = np.random.default_rng(0)
    words = random.standard_normal((60, DIM))
    texts = [random.choice(60, 5, replace=False).tolist() for _ in range(TOPICS)]
    texts = [text for text in texts for _ in range(COPIES)]
    plain = normalized(np.array([words[text].sum(0) for text in texts], np.float32))
    return texts, normalized(plain + 0.15 * random.standard_normal(plain.shape).astype(np.float32))


def test_near_copies_give_away_what_noise_hides_in_one(noisy):
    texts, vectors = noisy
    known = 100 * COPIES

    def f1(inputs):
        bag = RidgeBag.fit(inputs[:known], texts[:known], 5)
        return np.mean([overlap(*pair)[2] for pair in zip(texts[known:], bag.tokens(inputs[known:]), strict=True)])

    assert f1(with_neighbours(vectors, vectors)) > f1(vectors) + 0.1


def test_a_vector_is_no_neighbour_of_itself():
    store = np.eye(4, dtype=np.float32)
    assert with_neighbours(store[:1], store).tolist() == [[1, 0, 0, 0, 0, 0, 0, 0]]
    near = normalized(np.array([[1, 1, 0, 0], [1, 0, 0, 0]], np.float32))
    assert with_neighbours(near[1:], near)[0, 4:] == pytest.approx(0.5 * near[0], abs=1e-6)
