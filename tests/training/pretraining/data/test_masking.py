"""Which tokens are asked for and what stands in their places: exact where it can be, by rates where it is drawn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from binocle.training.pretraining.data.masking import IGNORED, Masking, choose_tokens, choose_words

MASK, SPECIAL, SIZE = 4, range(5), 1_000
MASKING = Masking.of(MASK, SPECIAL, SIZE)
WHOLE = Masking.of(MASK, SPECIAL, SIZE, whole_words=True)


def text(length: int, seed: int = 0, *, per_word: int = 1):
    """Tokens, none of them special, and starts of words of so many pieces."""
    tokens = np.random.default_rng(seed).integers(5, SIZE, length)
    return tokens, np.arange(length) % per_word == 0


def many(masking: Masking, length: int, times: int, **options):
    tokens, starts = text(length, **options)
    batches = [masking(tokens, starts, np.random.default_rng(seed)) for seed in range(times)]
    return tokens, np.array([masked for masked, _ in batches]), np.array([labels for _, labels in batches])


@pytest.mark.parametrize(("length", "count"), [(1, 1), (3, 1), (10, 2), (20, 3), (100, 15), (126, 19), (510, 76)])
def test_fifteen_in_a_hundred_tokens_are_asked_for_and_one_at_least(length, count):
    _, _, labels = many(MASKING, length, 20)
    assert ((labels != IGNORED).sum(1) == count).all()


def test_of_those_eighty_in_a_hundred_are_masks_ten_random_and_ten_unchanged():
    tokens, masked, labels = many(MASKING, 400, 1_000)
    chosen = labels != IGNORED
    count = chosen.sum()
    assert count == 60_000
    masks = (masked == MASK)[chosen].sum() / count
    same = (masked == tokens)[chosen].sum() / count
    deviation = (0.16 / count) ** 0.5
    assert abs(masks - 0.8) < 5 * deviation
    assert abs(same - 0.1 - 0.1 / 995) < 5 * deviation  # a random token is the true one now and then
    assert abs(1 - masks - same - 0.1) < 5 * deviation


def test_every_place_is_asked_for_as_often_as_any_other():
    _, _, labels = many(MASKING, 40, 5_000)
    often = (labels != IGNORED).mean(0)
    assert np.abs(often - 6 / 40).max() < 5 * (0.15 * 0.85 / 5_000) ** 0.5


def test_random_tokens_come_from_the_whole_vocabulary_but_are_never_special():
    tokens, masked, labels = many(MASKING, 400, 3_000)
    put_in = masked[(labels != IGNORED) & (masked != MASK) & (masked != tokens)]
    assert set(np.unique(put_in)) == set(range(5, SIZE))


def test_labels_are_the_true_tokens_and_what_is_not_asked_for_stays_as_it_is():
    tokens, masked, labels = many(MASKING, 100, 50)
    chosen = labels != IGNORED
    assert (labels[chosen] == np.broadcast_to(tokens, labels.shape)[chosen]).all()
    assert (masked[~chosen] == np.broadcast_to(tokens, masked.shape)[~chosen]).all()


@pytest.mark.parametrize("masking", [MASKING, WHOLE])
def test_special_tokens_are_never_asked_for_and_do_not_count(masking):
    tokens, starts = text(40)
    tokens[::2] = np.resize(list(SPECIAL), 20)
    for seed in range(50):
        masked, labels = masking(tokens, starts, np.random.default_rng(seed))
        assert (labels[::2] == IGNORED).all()
        assert (masked[::2] == tokens[::2]).all()
        assert (labels != IGNORED).sum() == 3  # of twenty


@pytest.mark.parametrize("masking", [MASKING, WHOLE])
def test_a_text_of_special_tokens_alone_is_left_alone(masking):
    tokens, starts = np.array([0, 1, 2, 3]), np.ones(4, bool)
    masked, labels = masking(tokens, starts, np.random.default_rng(0))
    assert masked.tolist() == [0, 1, 2, 3]
    assert (labels == IGNORED).all()


@pytest.mark.parametrize("masking", [MASKING, WHOLE])
def test_a_text_without_tokens_stays_empty(masking):
    masked, labels = masking(np.empty(0, np.int64), np.empty(0, bool), np.random.default_rng(0))
    assert (masked.shape, labels.shape) == ((0,), (0,))


def test_the_label_of_other_tokens_is_the_one_that_cross_entropy_ignores():
    torch = pytest.importorskip("torch")
    assert torch.nn.CrossEntropyLoss().ignore_index == IGNORED


@pytest.mark.parametrize("masking", [MASKING, WHOLE])
def test_the_same_generator_masks_the_same_and_another_does_not(masking):
    tokens, starts = text(200, per_word=2)
    first, again, reseeded = (masking(tokens, starts, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    assert (first[1] != reseeded[1]).any()


@given(st.lists(st.integers(1, 6), min_size=1, max_size=60), st.integers(0, 1_000))
@settings(max_examples=200, deadline=None)
def test_a_word_is_chosen_whole_or_not_at_all_and_the_share_counts_pieces(sizes, seed):
    starts = np.concatenate([[True, *[False] * (size - 1)] for size in sizes])
    chosen = choose_words(np.ones(len(starts), bool), starts, 0.15, np.random.default_rng(seed))
    word = np.cumsum(starts) - 1
    whole = [chosen[word == number] for number in range(len(sizes))]
    assert all(word.all() or not word.any() for word in whole)
    taken = [size for size, word in zip(sizes, whole, strict=True) if word[0]]
    budget = max(1, round(len(starts) * 0.15))
    assert taken
    assert sum(taken) <= budget or len(taken) == 1
    left = [size for size, word in zip(sizes, whole, strict=True) if not word[0]]
    assert not left or sum(taken) + min(left) > budget  # no word that still fits is left out


def test_words_of_one_piece_are_chosen_as_tokens_are_in_number():
    for length in (5, 30, 126):
        chosen = choose_words(np.ones(length, bool), np.ones(length, bool), 0.15, np.random.default_rng(length))
        assert chosen.sum() == choose_tokens(np.ones(length, bool), chosen, 0.15, np.random.default_rng(0)).sum()


def test_every_word_is_chosen_as_often_as_any_other_of_its_size():
    starts = np.tile([True, False], 20)
    often = np.mean([choose_words(np.ones(40, bool), starts, 0.15, np.random.default_rng(s)) for s in range(4_000)], 0)
    assert np.abs(often - 6 / 40).max() < 5 * (0.15 * 0.85 / 4_000) ** 0.5


def test_the_rest_of_a_word_at_the_beginning_of_a_row_is_a_word():
    starts = np.array([False, False, True, True])
    choices = {
        tuple(choose_words(np.ones(4, bool), starts, 0.5, np.random.default_rng(s)).tolist()) for s in range(100)
    }
    assert choices == {(True, True, False, False), (False, False, True, True)}


def test_pieces_of_a_chosen_word_are_hidden_each_for_itself():
    _, masked, labels = many(WHOLE, 400, 300, per_word=2)
    chosen = (labels != IGNORED)[:, ::2]
    both = (masked == MASK)[:, ::2] & (masked == MASK)[:, 1::2]
    assert abs(both[chosen].mean() - 0.64) < 5 * (0.64 * 0.36 / chosen.sum()) ** 0.5
