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

_BLOCK = 50  # candidates: those of the next block come after all of this one, so that a page never repeats a hit


@dataclass(frozen=True, slots=True)
class Diversity:
    """How much hits are to differ."""

    weight: float  # of relevance, against novelty
    minimum: float = 0.0  # relevance of a hit

    @staticmethod
    def pool_of(k: int) -> int:
        """The number of candidates to choose k hits from: whole blocks."""
        return -(-k // _BLOCK) * _BLOCK

    @staticmethod
    def blocks(pool: int) -> range:
        """Where the blocks of a pool end."""
        return range(_BLOCK, pool + 1, _BLOCK)

    def choose(
        self,
        candidates: Candidates,
        copies: Mapping[int, list[int]],
        relevance: NDArray[np.float64],
        k: int,
        vectors_of: Callable[[Ids], Floats],
    ) -> dict[int, list[int]]:
        """Return k passages that are relevant and differ, each with its copies, in the order to show them.

        :param copies: the passages to choose among, in blocks, each with its copies.
        :param relevance: of the first candidates, with all of these.
        :param vectors_of: gives the stored vectors of passages.
        """
        rows_of = {number: row for row, number in enumerate(candidates.ids.tolist())}
        rows = np.array([rows_of[number] for number in copies], np.intp)
        # The irrelevant ones of a block come after the others. They are left out later: pages count them.
        blocks = np.arange(len(rows)) // _BLOCK * 2 + (relevance[rows].round(4) < self.minimum)
        order = np.argsort(blocks, kind="stable")
        rows, blocks = rows[order], blocks[order]
        scores, ids = candidates.score[rows], candidates.ids[rows]
        if not np.array_equal(scores, candidates.semantic[rows]):
            for block in np.unique(blocks):
                scores[blocks == block] = as_cosines(scores[blocks == block])
        order = mmr(scores, vectors_of(ids), self.weight, k, blocks)
        return {number: copies[number] for number in ids[order].tolist()}


def mmr(scores: Floats, vectors: Floats, weight: float, k: int, blocks: Positions | None = None) -> Positions:
    """Return the positions of the k candidates to show, in their order; the first among equals.

    :param scores: comparable with cosines, shape (n,).
    :param vectors: of length 1, shape (n, dim).
    :param weight: of the score; 1 keeps the order of the scores.
    :param blocks: number of the block of each, ascending: a block begins when all of the previous block are chosen.
    """
    numbers = np.zeros(len(scores), np.intp) if blocks is None else blocks
    selected: list[int] = []
    while (start := len(selected)) < min(k, len(scores)):  # all before are chosen
        end = int(np.searchsorted(numbers, numbers[start], "right"))
        nearest = (vectors[start:end] @ vectors[:start].T).max(axis=1) if start else None
        block = _mmr_of_block(scores[start:end], vectors[start:end], weight, k - start, nearest)
        selected += [start + position for position in block]
    return np.array(selected, np.intp)


def _mmr_of_block(scores: Floats, vectors: Floats, weight: float, k: int, nearest: Floats | None) -> list[int]:
    """Return the positions of the k candidates to show of one block.

    :param nearest: the cosine of each with the most similar one that is chosen already; None: none is.
    """
    left = np.ones(len(scores), np.bool_)
    selected: list[int] = []
    while len(selected) < min(k, len(scores)):
        known = np.float32(0) if nearest is None else nearest
        best = int(np.where(left, weight * scores - (1 - weight) * known, -np.inf).argmax())
        cosines = vectors @ vectors[best]
        nearest = cosines if nearest is None else np.maximum(nearest, cosines)
        left[best] = False
        selected.append(best)
    return selected


def as_cosines(scores: Floats) -> Floats:
    """Bring scores to a range from 0 to 1."""
    spread = float(np.ptp(scores)) if len(scores) else 0.0
    result: Floats = ((scores - scores.min()) / spread).astype(np.float32) if spread else np.ones_like(scores)
    return result
