"""Chains of labels are decoded, and their loss computed, as by brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from binocle.retriever.models.heads.chain import marginals, valid, viterbi

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch and transformers about themselves


def test_viterbi_gives_the_best_valid_sequence():
    labels = ["O", "B-A", "I-A", "B-B", "I-B"]
    random = np.random.default_rng(0)

    def is_valid(path):
        tags = ["O", *(labels[number] for number in path)]
        return all(tag[0] != "I" or before in (tag, f"B{tag[1:]}") for before, tag in itertools.pairwise(tags))

    steps = valid(labels)[[0, 1, 0, 1]]
    for _ in range(20):
        scores = random.normal(size=(4, 5)).astype(np.float32)
        paths = filter(is_valid, itertools.product(range(5), repeat=4))
        best = max(paths, key=lambda path: sum(scores[row, column] for row, column in enumerate(path)))
        assert viterbi(scores, steps) == list(best)
    assert viterbi(np.empty((0, 5), np.float32), steps[:0]) == []
    assert viterbi(np.array([[0, 1]], np.float32), valid(["O", "I-A"])[[0]]) == [1]  # labels without B-A


def all_sequences(scores, steps):
    """Every sequence of labels with the sum of its scores."""
    words, labels = scores.shape
    paths = np.array([*itertools.product(range(labels), repeat=words)])
    before = np.column_stack([np.full(len(paths), labels), paths[:, :-1]])
    return paths, sum(scores[i, paths[:, i]] + steps[i, before[:, i], paths[:, i]] for i in range(words))


def test_a_chain_is_decoded_as_by_brute_force():
    random = np.random.default_rng(0)
    table = np.log(random.dirichlet(np.ones(4), (2, 5))).astype(np.float32)
    for words in (1, 2, 5):
        scores, steps = random.normal(size=(words, 4)).astype(np.float32), table[random.integers(0, 2, words)]
        paths, sums = all_sequences(scores, steps)
        assert viterbi(scores, steps) == paths[sums.argmax()].tolist()
        shares = np.exp(sums) / np.exp(sums).sum()
        expected = [[shares[paths[:, word] == label].sum() for label in range(4)] for word in range(words)]
        np.testing.assert_allclose(np.exp(marginals(scores, steps)), expected, atol=1e-5)


def test_marginals_of_scores_that_contradict_each_other_are_numbers():
    scores = np.array([[1e4, 0, 0], [0, 0, 1e4]], np.float32)  # O, then I-X, which may not follow
    likely = np.exp(marginals(scores, np.repeat(valid(["O", "B-X", "I-X"])[:1], 2, axis=0)))
    np.testing.assert_allclose(likely.sum(1), 1, atol=1e-5)


def test_the_loss_is_the_likelihood_among_all_sequences():
    torch = pytest.importorskip("torch")
    from binocle.training.heads.crf import negative_log_likelihood

    random = np.random.default_rng(0)
    table = np.log(random.dirichlet(np.ones(4), (2, 5))).astype(np.float32)
    scores, counts = random.normal(size=(3, 4, 4)).astype(np.float32), np.array([4, 2, 0])
    labels, touch = random.integers(0, 4, (3, 4)), random.integers(0, 2, (3, 4))
    expected = 0.0
    for text, words in enumerate(counts[:2]):
        paths, sums = all_sequences(scores[text, :words], table[touch[text, :words]])
        expected += np.log(np.exp(sums).sum()) - sums[(paths == labels[text, :words]).all(1)].item()
    loss = negative_log_likelihood(*map(torch.from_numpy, (scores, labels, touch, counts, table)))
    assert loss.item() == pytest.approx(expected / 6, abs=1e-5)
