"""BM25 in memory equals its formula (Robertson and Zaragoza 2009, with k1 = 1.2 and b = .75)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from binocle.training.mining.bm25 import BM25, inverse_frequency, split_terms, term_scores

PASSAGES = ["cat cat dog", "dog ship", "moon moon moon river sea", "red wine", "old king"]


def by_formula(query, passages=PASSAGES):
    words = [passage.split() for passage in passages]
    mean = sum(map(len, words)) / len(words)
    scores = []
    for own in words:
        score = 0.0
        for word in set(query.split()):
            frequency = sum(word in other for other in words)
            idf = math.log(1 + (len(words) - frequency + 0.5) / (frequency + 0.5))
            count = own.count(word)
            score += idf * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * len(own) / mean))
        scores.append(score)
    return scores


@pytest.mark.parametrize("query", ["cat", "dog", "dog moon", "moon moon", "cat king wine", "nothing"])
def test_scores_are_those_of_the_formula(query):
    np.testing.assert_allclose(BM25.of(PASSAGES).scores(query), by_formula(query), rtol=1e-6)


def test_an_index_of_no_passages_scores_none():
    assert BM25.of([]).scores("cat").tolist() == []


def test_a_word_in_more_than_a_fifth_of_the_passages_does_not_count():
    passages = [f"the{number} cat" for number in range(10)] + ["dog ship"] * 2 + ["king"] * 3
    index = BM25.of(passages)
    assert not index.scores("cat").any()
    assert np.flatnonzero(index.scores("dog")).tolist() == [10, 11]
    assert np.flatnonzero(index.scores("king")).tolist() == [12, 13, 14]


def test_parts_of_the_formula():
    assert inverse_frequency([0, 3, 9], 3) == pytest.approx([math.log(8), math.log(8 / 7), math.log(1 + 0.5 / 9.5)])
    assert term_scores(2.0, 3.0, 1.0) == pytest.approx(2 * 3 * 2.2 / (3 + 1.2))
    assert term_scores(2.0, 0.0, 1.0) == 0


def test_terms_are_words_and_pairs_of_characters_without_spaces_between_words():
    assert split_terms("Don't STOP, 東京都 東") == ["don't", "stop", "東京", "京都", "東"]
