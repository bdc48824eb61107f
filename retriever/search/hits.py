"""The hits of one query."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .hit import Hit

if TYPE_CHECKING:
    from collections.abc import Iterable


class Hits(list[Hit]):
    """The hits of a query, best first, and what holds for all of them.

    >>> hits = Hits([])
    >>> hits.answerable, len(hits)
    (False, 0)
    """

    def __init__(
        self, hits: Iterable[Hit] = (), *, answerable: bool = False, corrections: dict[str, str] | None = None
    ) -> None:
        """:param answerable: whether the index seems to answer the query: the best hit is not weak.
        :param corrections: words of the query that the index does not know -> those that were searched for instead.
        """
        super().__init__(hits)
        self.answerable = answerable
        self.corrections = corrections or {}

    def replaced_by(self, hits: Iterable[Hit]) -> Hits:
        """Other hits of the same query."""
        return Hits(hits, answerable=self.answerable, corrections=self.corrections)

    def after(self, offset: int) -> Hits:
        """The hits after the first ones."""
        return self.replaced_by(self[offset:])

    def from_relevance(self, threshold: float) -> Hits:
        """The hits with at least this relevance."""
        hits = [hit for hit in self if hit.relevance >= threshold]
        return Hits(hits, answerable=self.answerable and bool(hits), corrections=self.corrections)
