from __future__ import annotations

import numpy as np

from binocle.retriever.search.ranking.fusion import Candidates


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
