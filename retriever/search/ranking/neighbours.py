"""Rank the candidates of word search and vector search with the help of their neighbours.

A passage says little in its own words; its neighbours say the same in others. For each candidate d, N(d) are its 50
nearest passages of other documents. Three steps, each from the result of the step before:

1. Words. The frequency of a term is tf(d) + .02 * the sum of tf(n) over N(d); the length of d is the sum of these
   frequencies. BM25 counts with both (document expansion: Tao et al. 2006, "Language Model Information Retrieval with
   Document Expansion").
2. Meaning. The cosine is the mean of the passage's and of its document's mean vector's.
   The score is the mean of both as standard scores.
3. Smoothing. A score moves towards those of the 5 most similar candidates of other documents, but only a little down
   (Diaz 2005, "Regularizing Ad Hoc Retrieval Scores").

`docs/fusion.md` has what each step gains.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .fusion import fused_score, join

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ....core.arrays import Floats, Ids
    from ....indexes.inverted.lexical_index import LexicalIndex
    from ...store.derived.live_neighbourhood import LiveNeighbourhood
    from .fusion import Candidates

_K1, _B = 0.7, 0.75  # lower than the 1.2 of the words alone: neighbours add to most frequencies
_WEIGHT = 0.02  # of a neighbour's words
_SIMILAR = 5  # candidates that smooth a score
_POWER = 4  # of their cosines, which weight them
_COPY = 0.9999  # from this cosine passages are copies, which are left out: they would only repeat the score
_SHARE = 0.4  # how far a score moves towards the mean of its neighbours
_LOWEST = np.float32(-0.2)  # the most that a score is lowered: a passage may stand out for good reason


@dataclass(frozen=True, slots=True)
class Ranking:
    """The rankings of one state of the store."""

    lexical: LexicalIndex
    neighbourhood: LiveNeighbourhood
    vectors_of: Callable[[Ids], Floats]  # of unit length

    def fuse(self, by_words: Candidates, by_meaning: Candidates, terms: Sequence[str], vector: Floats) -> Candidates:
        """Join both sides; neighbours smooth the score.

        :param by_words: best first, as `by_meaning`: means and deviations are taken over the `SEARCH_DEPTH` best of
            either, and no others are smoothed.
        :param terms: the stems of the query.
        :param vector: of the query, shape (dim,).
        """
        candidates, leading = join(by_words, by_meaning)
        ids, vectors = candidates.ids, self.vectors_of(candidates.ids)
        words = expanded_bm25(self.lexical, terms, *self.neighbourhood.around(ids))
        cosines = vectors @ vector
        meaning = (cosines + self.neighbourhood.document_cosines(ids, vector, cosines)) / np.float32(2)
        score = fused_score(words, meaning, leading)
        score[leading] = smoothed(score[leading], vectors[leading], self.neighbourhood.documents(ids[leading]))
        semantic = np.where(np.isnan(candidates.semantic), cosines, candidates.semantic)
        return replace(candidates, semantic=semantic, score=score, neighbours=words)


def expanded_bm25(lexical: LexicalIndex, terms: Sequence[str], passages: Ids, indices: NDArray[np.int32]) -> Floats:
    """Return BM25 of passages that have the words of their neighbours too, shape (n,).

    :param terms: stems of the query; a repeated stem counts several times.
    :param passages: ids, ascending.
    :param indices: shape (n, 1 + m): where in `passages` the passage and its neighbours are; -1 for none.
    """
    counts = Counter(terms)
    frequencies, weights = lexical.frequency_table(list(counts), passages)
    own, nearest = indices[:, 0], np.ascontiguousarray(indices[:, 1:].T)

    def expanded(values: NDArray[Any]) -> Floats:
        padded = np.append(values, 0).astype(np.float32)  # so that the index -1 holds 0
        total: Floats = padded[own] + np.float32(_WEIGHT) * padded.take(nearest, mode="wrap").sum(axis=0)
        return total

    average = lexical.average_length * (1 + _WEIGHT * len(nearest))
    norms = np.float32(_K1 * (1 - _B)) + expanded(lexical.lengths(passages)) * np.float32(_K1 * _B / average)
    scores = np.zeros(len(indices), np.float32)
    for row, idf, count in zip(frequencies, weights, counts.values(), strict=True):
        tf = expanded(row)
        scores += np.float32(count * idf * (_K1 + 1)) * tf / (tf + norms)
    return scores


def smoothed(scores: Floats, vectors: Floats, documents: Ids) -> Floats:
    """Move each score towards the mean of its most similar candidates of other documents.

    :param vectors: of the candidates, of unit length, shape (n, dim).
    :param documents: the document of each.
    """
    cosines = vectors @ np.ascontiguousarray(vectors.T)  # of a matrix with its own view numpy makes a slower product
    np.maximum(cosines, 0, out=cosines)
    equal = cosines > _COPY
    excluded = equal | (documents[:, None] == documents)
    if np.count_nonzero(equal) > np.count_nonzero(equal.diagonal()):
        excluded |= np.triu(equal, 1).any(axis=0)  # a copy of a candidate before it
    np.copyto(cosines, 0, where=excluded)
    rows, total, sums = np.arange(len(scores)), np.zeros_like(scores), np.zeros_like(scores)
    for _ in range(min(_SIMILAR, len(scores))):
        nearest = cosines.argmax(axis=1)
        weights = cosines[rows, nearest] ** _POWER
        total += weights
        sums += weights * scores[nearest]
        cosines[rows, nearest] = 0
    mean = np.where(total > 0, sums / np.maximum(total, np.float32(1e-9)), scores)
    result: Floats = scores + np.maximum(np.float32(_SHARE) * (mean - scores), _LOWEST)
    return result
