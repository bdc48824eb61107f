"""The choice of a search: how many candidates it takes, which of them a reranker reads, and which become hits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...core.arrays import Floats
    from ..models.reranker import Reranker
    from ..store.filters.filter import Filter
    from .deadline import Deadline
    from .mode import Mode
    from .results.diversity import Diversity

DEEPER = 8  # times as many candidates, if too few hits remain without copies
_DEEPEST = 100_000  # candidates of a query with excluded words: their vectors take 150 MB


@dataclass(frozen=True, slots=True)
class Reranking:
    """A reranker and its limits."""

    reranker: Reranker
    depth: int  # the number of best passages of the first stage that it reads
    seconds: float | None  # the time for its scores; None: no limit

    def scores(self, query: str, passages: list[str], deadline: Deadline | None = None) -> Floats:
        """Score the passages from the first on, until the time is over."""
        remaining = None if deadline is None else deadline.remaining
        limits = [limit for limit in (self.seconds, remaining) if limit is not None]
        if not limits:
            return self.reranker.score(query, passages)
        if min(limits) <= 0:
            return np.empty(0, np.float32)
        return self.reranker.score_within(min(limits), query, passages)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which passages become hits."""

    k: int
    mode: Mode
    where: Filter | None
    without: int | None = None  # the id of a passage to leave out
    reranking: Reranking | None = None
    per_document: int | None = None  # passages of a document, as in `duplicates.select`
    collapse: bool = True  # leave out copies, and passages beyond the limit of a document
    with_vectors: bool = False  # give each hit the stored vector of its passage
    by_document: bool = False  # give the best passage of each of k documents
    diversity: Diversity | None = None  # choose among more than k passages, for hits that differ
    offset: int = 0  # passages on earlier pages, the first of the k

    @property
    def pool(self) -> int:
        """The number of passages to choose the hits from."""
        return self.diversity.pool_of(self.k) if self.diversity else self.k

    @property
    def pages(self) -> Sequence[int]:
        """The numbers of passages at which pages end."""
        return self.diversity.blocks(self.pool) if self.diversity else [self.offset]

    def deepest(self, depth: int, passages: int, *, excludes_words: bool) -> int:
        """Return the maximum of candidates to take, if the first `depth` fill no page.

        :param passages: the number of passages that may be taken.
        """
        if self.by_document:
            return passages
        deepest = DEEPER * max(depth, self.k) if self.collapse else self.k
        if excludes_words:
            deepest = max(deepest, _DEEPEST)  # the best candidates may all hold an excluded word
        return min(passages, deepest)
