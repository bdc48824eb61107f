"""Fuse the scores of the stages of a search.

The fusion adds, for each candidate, its standard scores: how many standard deviations its BM25 score and its cosine lie
above the mean of all candidates. Candidates are the 200 best by words and the 200 best by meaning. A candidate that
only the words found gets its true cosine; one that only the meaning found gets BM25 0. In an index with neighbours,
`neighbours` improves on both scores first. `docs/fusion.md` has the figures, also of other fusions.

On score-based fusion against ranks: Bruch et al. 2023, arXiv:2210.11934.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ....core.arrays import distinct
from ....indexes.base import SEARCH_DEPTH

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ....core.arrays import Floats, Ids, Mask


@dataclass(frozen=True, slots=True)
class Candidates:
    """Chunks and their scores, one array a stage; NaN where a stage did not score a chunk."""

    ids: Ids
    lexical: Floats  # BM25
    semantic: Floats  # cosines
    score: Floats  # what orders them
    reranker: Floats | None = None
    neighbours: Floats | None = None  # BM25 with the words of the neighbours

    @classmethod
    def by_words(cls, ids: Ids, scores: Floats) -> Candidates:
        """Candidates of the full-text index, with their BM25 scores."""
        return cls(ids, scores, np.full_like(scores, np.nan), scores)

    @classmethod
    def by_meaning(cls, ids: Ids, cosines: Floats) -> Candidates:
        """Candidates of the vector index."""
        return cls(ids, np.full_like(cosines, np.nan), cosines, cosines)

    def stages(self) -> dict[str, Floats]:
        """Map each stage that took part to its scores."""
        optional = {"neighbours": self.neighbours, "reranker": self.reranker}
        stages = {"lexical": self.lexical, "semantic": self.semantic}
        return stages | {name: scores for name, scores in optional.items() if scores is not None}

    def followed_by(self, deeper: Candidates) -> Candidates:
        """Return these candidates, then those of a deeper search. Scores of the deeper ones are lowered below these.

        Both come from the first stage, without scores of a reranker.
        """
        if not len(deeper.ids):
            return self
        lowest = self.score.min(initial=np.inf)
        lowered = deeper.score + min(0, lowest - deeper.score.max())
        deeper = replace(deeper, score=np.minimum(lowered, lowest).astype(np.float32))  # rounding may have lifted some
        neighbours = None
        if self.neighbours is not None and deeper.neighbours is not None:
            neighbours = np.concatenate([self.neighbours, deeper.neighbours])
        return Candidates(
            np.concatenate([self.ids, deeper.ids]),
            np.concatenate([self.lexical, deeper.lexical]),
            np.concatenate([self.semantic, deeper.semantic]),
            np.concatenate([self.score, deeper.score]),
            neighbours=neighbours,
        )

    def best_first(self) -> Candidates:
        """Sort by score; equal scores are in the order of the index."""
        return self.take(np.lexsort((self.ids, -self.score)))

    def take(self, rows: NDArray[np.intp]) -> Candidates:
        """These rows, in this order."""
        reranker = None if self.reranker is None else self.reranker[rows]
        neighbours = None if self.neighbours is None else self.neighbours[rows]
        return Candidates(
            self.ids[rows], self.lexical[rows], self.semantic[rows], self.score[rows], reranker, neighbours
        )


def join(by_words: Candidates, by_meaning: Candidates) -> tuple[Candidates, Mask]:
    """Join both sides, in order of ids, without a common score; tell which are among the `SEARCH_DEPTH` best of either.

    :param by_words: best first, as `by_meaning`.
    """
    ids = distinct(np.concatenate([by_words.ids, by_meaning.ids]))
    lexical = _align(ids, by_words.ids, by_words.lexical)
    semantic = _align(ids, by_meaning.ids, by_meaning.semantic)
    leading = np.zeros(len(ids), np.bool_)
    for best in (by_words.ids[:SEARCH_DEPTH], by_meaning.ids[:SEARCH_DEPTH]):
        leading[np.searchsorted(ids, best)] = True
    return Candidates(ids, lexical, semantic, np.zeros_like(lexical)), leading


def fuse(by_words: Candidates, by_meaning: Candidates, cosines_of: Callable[[Ids], Floats]) -> Candidates:
    """Join both sides; the score is the mean of the standard scores.

    :param by_words: best first, as `by_meaning`: means and deviations are taken over the `SEARCH_DEPTH` best of either.
    :param cosines_of: computes the cosines of chunks that only the words found.
    """
    candidates, leading = join(by_words, by_meaning)
    semantic = candidates.semantic
    unscored = np.isnan(semantic)
    if unscored.any():
        semantic[unscored] = cosines_of(candidates.ids[unscored])
    lexical = np.nan_to_num(candidates.lexical)
    return replace(candidates, score=fused_score(lexical, semantic, leading))


def fused_score(lexical: Floats, semantic: Floats, leading: Mask) -> Floats:
    """Return the mean of the standard scores of both sides."""
    return (standard_scores(lexical, leading) + standard_scores(semantic, leading)) / np.float32(2)


def _align(ids: Ids, scored: Ids, scores: Floats) -> Floats:
    """The scores at the rows of `ids`, sorted, which contain all of `scored`."""
    aligned = np.full(len(ids), np.nan, np.float32)
    aligned[np.searchsorted(ids, scored)] = scores
    return aligned


def standard_scores(values: Floats, leading: Mask | slice = slice(None)) -> Floats:
    """Standard deviations above the mean of the leading values, by default of all; 0 if those are all the same."""
    deviation = values[leading].std()
    if deviation < 1e-6:
        return np.zeros_like(values)
    scores: Floats = (values - values[leading].mean()) / deviation
    return scores


def reranked_score(reranker: Floats, first: Floats, first_weight: float) -> Floats:
    """The weighted mean of the standard scores of two stages for the same passages."""
    mean: Floats = (1 - first_weight) * standard_scores(reranker) + first_weight * standard_scores(first)
    return mean
