"""The attack in closed form: it reads tokens that depend on the vector, and falls back on guessing under noise."""

from __future__ import annotations

import numpy as np
import pytest

from binocle.training.audit.attacks.ridge import RidgeBag
from binocle.training.inversion.metrics import overlap

TOKENS, LENGTH = 60, 8


@pytest.fixture(scope="session")
def data():
    """Texts of random tokens, some of them twice, with the sums of their tokens' vectors."""
    random = np.random.default_rng(0)
    shares = 1 / np.arange(3, TOKENS + 3)
    texts = [random.choice(TOKENS, LENGTH, p=shares / shares.sum()).tolist() for _ in range(1_500)]
    words = random.standard_normal((TOKENS, 40))
    return texts, np.array([words[text].sum(0) for text in texts], np.float32)


def f1(true, guesses) -> float:
    return float(np.mean([overlap(*pair)[2] for pair in zip(true, guesses, strict=True)]))


def test_it_reads_tokens_from_vectors_and_a_repeated_token_twice(data):
    texts, vectors = data
    guesses = RidgeBag.fit(vectors[:1_400], texts[:1_400], LENGTH).tokens(vectors[1_400:])
    guess = RidgeBag.fit(vectors[:1_400] * 0, texts[:1_400], LENGTH).tokens(vectors[1_400:])
    assert f1(texts[1_400:], guesses) > f1(texts[1_400:], guess) + 0.3
    assert any(len(set(row)) < len(row) for row in guesses)


def test_noise_that_hides_all_leaves_what_guessing_has(data):
    texts, vectors = data
    noisy = np.random.default_rng(1).standard_normal(vectors.shape).astype(np.float32)
    guess = RidgeBag.fit(vectors[:1_400] * 0, texts[:1_400], LENGTH).tokens(vectors[1_400:])
    read = RidgeBag.fit(noisy[:1_400], texts[:1_400], LENGTH).tokens(noisy[1_400:])
    assert f1(texts[1_400:], read) == pytest.approx(f1(texts[1_400:], guess), abs=0.02)


def test_a_few_texts_are_enough_for_a_guess():
    assert RidgeBag.fit(np.eye(4, dtype=np.float32), [[1], [2], [3], [1]], 1).tokens(np.eye(4, dtype=np.float32))
