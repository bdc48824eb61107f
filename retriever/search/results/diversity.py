"""Order hits so that each says something new: maximal marginal relevance (Carbonell and Goldstein 1998).

    next = argmax over the rest of  weight * score(d) - (1 - weight) * max over the chosen of cosine(d, c)

The score is the cosine with the query where meaning alone ranks. Else it is the score of the search, from 0 for the
worst candidate to 1 for the best.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from ....core.arrays import Floats, Ids, Positions
    from ..ranking.fusion import Candidates

_POOL = 50


@dataclass(frozen=True, slots=True)
class Diversity:
    """How much hits are to differ."""

    weight: float  # of relevance, against novelty
    minimum: float = 0.0  # relevance of a hit
    pool: int = _POOL  # candidates at least: the page after the first is chosen from the same

    def choose(
        self,
        candidates: Candidates,
        copies: Mapping[int, list[int]],
        relevance: NDArray[np.float64],
        k: int,
        vectors_of: Callable[[Ids], Floats],
    ) -> dict[int, list[int]]:
        """Return k passages that are relevant and differ, each with its copies, in the order to show them.

        :param copies: the passages to choose among, each with its copies.
        :param relevance: of the first candidates, with all of these.
        :param vectors_of: gives the stored vectors of passages.
        """
        rows = np.flatnonzero(np.isin(candidates.ids, list(copies)))
        rows = rows[relevance[rows].round(4) >= self.minimum]  # as hits have it
        scores, ids = candidates.score[rows], candidates.ids[rows]
        by_cosine = np.array_equal(scores, candidates.semantic[rows])
        order = mmr(scores if by_cosine else as_cosines(scores), vectors_of(ids), self.weight, k)
        return {number: copies[number] for number in ids[order].tolist()}


def mmr(scores: Floats, vectors: Floats, weight: float, k: int) -> Positions:
    """Return the positions of the k candidates to show, in their order; of equal ones the first.

    :param scores: comparable with cosines, shape (n,).
    :param vectors: of length 1, shape (n, dim).
    :param weight: of the score; 1 keeps the order of the scores.
    """
    nearest = np.zeros(len(scores), np.float32)  # cosine with the most similar chosen candidate
    left = np.ones(len(scores), np.bool_)
    selected: list[int] = []
    while len(selected) < min(k, len(scores)):
        gain = np.where(left, weight * scores - (1 - weight) * nearest, -np.inf)
        best = int(gain.argmax())
        cosines = vectors @ vectors[best]
        nearest = np.maximum(nearest, cosines) if selected else cosines
        left[best] = False
        selected.append(best)
    return np.array(selected, np.intp)


def as_cosines(scores: Floats) -> Floats:
    """Bring scores to a range from 0 to 1."""
    spread = float(np.ptp(scores)) if len(scores) else 0.0
    result: Floats = ((scores - scores.min()) / spread).astype(np.float32) if spread else np.ones_like(scores)
    return result
