from __future__ import annotations

import numpy as np

from binocle.retriever.search.ranking.fusion import Candidates, reranked_score, standard_scores


def candidates(scores, start):
    return Candidates.by_words(np.arange(start, start + len(scores)), np.array(scores, np.float32))


def test_deeper_candidates_follow_in_their_order_whatever_is_rounded():
    random = np.random.default_rng(0)
    for _ in range(1_000):
        earlier, deeper = (np.sort(random.normal(size=3).astype(np.float32))[::-1] for _ in range(2))
        joined = candidates(earlier, 0).followed_by(candidates(deeper, 3))
        assert joined.ids.tolist() == [0, 1, 2, 3, 4, 5]
        assert (np.diff(joined.score) <= 0).all()
        assert joined.score.dtype == np.float32
        np.testing.assert_allclose(np.diff(joined.score[3:]), np.diff(deeper), atol=1e-6)


def test_deeper_candidates_that_are_worse_anyway_keep_their_scores():
    joined = candidates([3, 2, 1], 0).followed_by(candidates([0.5, -1], 3))
    assert joined.score.tolist() == [3, 2, 1, 0.5, -1]


def test_a_reranked_score_is_the_mean_of_both_stages_by_weight():
    reranker, first = np.array([1, 3], np.float32), np.array([9, 5], np.float32)
    assert reranked_score(reranker, first, 0.0).tolist() == [-1, 1]
    assert reranked_score(reranker, first, 0.25).tolist() == [-0.5, 0.5]
    assert reranked_score(reranker, first, 1.0).tolist() == [1, -1]


def test_standard_scores_take_mean_and_deviation_of_the_leading_values():
    values = np.array([1, 3, 8], np.float32)
    assert standard_scores(values, np.array([True, True, False])).tolist() == [-1, 1, 6]
    assert standard_scores(np.full(3, 7, np.float32)).tolist() == [0, 0, 0]
