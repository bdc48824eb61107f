"""Correction: a text is changed where that brings its vector nearer, and the nearest one comes back."""

from __future__ import annotations

import numpy as np
import pytest

from binocle.retriever.inversion.correction import Change, apply_changes, correct

TOKENS = 12
VECTORS = np.linalg.qr(np.random.default_rng(0).standard_normal((16, TOKENS)))[0].T.astype(np.float32)


def embed(texts):
    """Each text as the mean of its tokens' vectors, a little of the order in it."""
    vectors = np.array([sum(VECTORS[token] * (1 + 0.05 * at) for at, token in enumerate(ids)) for ids in texts])
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


class Anything:
    """Thinks every change alike."""

    def changes(self, ids, own):
        everywhere = [(0.0, Change(at, "replace", token)) for at in range(len(ids)) for token in range(TOKENS)]
        everywhere += [(0.0, Change(at, "insert", token)) for at in range(len(ids) + 1) for token in range(TOKENS)]
        return everywhere + [(0.0, Change(at, "delete")) for at in range(len(ids))]

    def likelihood(self, ids):
        return 0.0


@pytest.mark.parametrize("true", [(1, 2, 3), (7, 7, 0, 4), (5, 8)], ids=str)
def test_the_true_words_are_found_when_every_change_may_be_tried(true):
    result = correct(embed([true])[0], [(0, 1, 2)], Anything(), embed, seconds=60, seed=1, rounds=20)
    assert set(result.ids) == set(true)
    assert result.cosine > 0.995


class Nothing(Anything):
    """Knows no change."""

    def changes(self, ids, own):
        return []


def test_the_right_words_are_put_into_order_without_any_change():
    true = (1, 2, 3, 4, 5, 6, 7)
    places = np.linalg.qr(np.random.default_rng(1).standard_normal((16, 16)))[0].astype(np.float32)

    def ordered(texts):
        vectors = np.array([sum(places[at] * (1 + token) for at, token in enumerate(ids)) for ids in texts])
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)

    result = correct(ordered([true])[0], [(5, 6, 7, 1, 4, 3, 2)], Nothing(), ordered, seconds=60, rounds=40)
    assert result.ids == true


def test_a_search_that_no_longer_rises_begins_again_and_gets_further():
    def trap(texts):  # two changes at once are right, and one alone leads away
        cosines = {0: 0.9, 1: 0.8, 2: 1.0}
        values = [cosines[ids.count(7)] if len(ids) == 2 else 0.1 for ids in texts]
        return np.array([(value, (1 - value**2) ** 0.5) for value in values], np.float32)

    start = [(0, 0)]
    few = correct(np.array([1, 0], np.float32), start, Anything(), trap, seconds=60, rounds=4)
    many = correct(np.array([1, 0], np.float32), start, Anything(), trap, seconds=60, rounds=400)
    assert few.ids == (0, 0) and many.ids == (7, 7) and few.rounds < many.rounds < 400
    alone = correct(np.array([1, 0], np.float32), start, Anything(), trap, seconds=60, rounds=400, starts=0)
    assert alone.ids == (0, 0) and alone.rounds == few.rounds  # it ends where a new start would begin
    once = correct(np.array([1, 0], np.float32), start, Anything(), trap, seconds=60, rounds=400, starts=1)
    assert once.rounds > few.rounds


class Habit(Anything):
    """Thinks every token likely but 7 and 8, which cost a text of two tokens a nat each per token."""

    def likelihood(self, ids):
        return -2.0 * (ids.count(7) + ids.count(8)) / len(ids)


def test_near_the_vector_the_cosine_decides_and_far_from_it_the_likelihood():
    def heights(*cosines):  # the cosine of a text with neither of these tokens, with one and with both
        def embed_heights(texts):
            reached = [cosines[len({7, 8} & set(ids))] if len(ids) == 2 else 0.1 for ids in texts]
            return np.array([(cosine, (1 - cosine**2) ** 0.5) for cosine in reached], np.float32)

        return embed_heights

    target, start = np.array([1, 0], np.float32), [(0, 0)]
    near = correct(target, start, Habit(), heights(0.98, 0.99, 1.0), seconds=60, rounds=10)
    assert set(near.ids) == {7, 8}
    far = correct(target, start, Habit(), heights(0.60, 0.61, 0.62), seconds=60, rounds=10)
    assert not {7, 8} & set(far.ids)


def test_no_time_gives_the_nearest_proposal():
    vector = embed([(1, 2, 3)])[0]
    result = correct(vector, [(4, 5), (1, 2), (8,)], Anything(), embed, seconds=0)
    assert (result.ids, result.rounds) == ((1, 2), 0)
    assert result.cosine == pytest.approx(float(embed([(1, 2)])[0] @ vector))


def test_no_proposal_gives_no_text():
    assert correct(VECTORS[0], [(), ()], Anything(), embed, seconds=1).ids == ()


def test_a_change_that_leaves_nothing_is_no_way_nearer():
    def bags(texts):  # token 0 stands for white space, of which some encoders make no vector at all
        counts = np.array([[ids.count(token) for token in range(1, TOKENS)] for ids in texts], np.float32)
        return counts / np.maximum(np.linalg.norm(counts, axis=1, keepdims=True), 1e-12)

    result = correct(bags([(1, 2)])[0], [(5,)], Anything(), bags, seconds=60, seed=1, rounds=5)
    assert set(result.ids) - {0} == {1, 2}


def test_no_text_is_longer_than_asked():
    result = correct(embed([(1, 2, 3, 4, 5, 6)])[0], [(1, 2)], Anything(), embed, seconds=60, longest=4, rounds=5)
    assert 1 <= len(result.ids) <= 4


def test_the_cosine_never_falls():
    vector = embed([(3, 1, 4, 1, 5)])[0]
    proposals = [(9, 2), (6, 5, 3)]
    assert correct(vector, proposals, Anything(), embed, seconds=60, rounds=5).cosine >= max(embed(proposals) @ vector)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (Change(1, "replace", 9), (1, 9, 3)),
        (Change(0, "insert", 9), (9, 1, 2, 3)),
        (Change(3, "insert", 9), (1, 2, 3, 9)),
        (Change(2, "delete"), (1, 2)),
    ],
    ids=str,
)
def test_a_change_is_made_at_its_position(change, expected):
    assert change((1, 2, 3)) == expected


def test_changes_that_were_measured_alone_are_joined_many_at_a_time():
    true, wrong = (0, 1, 2, 3, 4, 5), (6, 7, 8, 9, 10, 11)
    result = correct(embed([true])[0], [wrong], Anything(), embed, seconds=20, seed=3)
    assert set(result.ids) == set(true)
    assert result.rounds < 15


def test_changes_of_one_text_are_made_together():
    changes = [Change(0, "insert", 7), Change(0, "delete"), Change(2, "replace", 9), Change(3, "insert", 8)]
    assert apply_changes((1, 2, 3), changes) == (7, 2, 9, 8)
