"""The hits of one query."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .hit import Hit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Hits(list[Hit]):
    """The hits of a query, best first, with facts about the whole search.

    >>> hits = Hits([])
    >>> hits.answerable, len(hits)
    (False, 0)
    """

    def __init__(
        self,
        hits: Iterable[Hit] = (),
        *,
        answerable: bool | None = False,
        corrections: dict[str, str] | None = None,
        seconds: Mapping[str, float] | None = None,
        version: int = 0,
        total: int = 0,
    ) -> None:
        """:param answerable: whether the index seems to answer the query: the best hit is not weak. None where this was
            not judged: in mode "lexical", in `similar`, or if the index was not measured, or is often wrong about it.
            False without any hit.
        :param corrections: unknown words of the query -> the words that were searched for instead.
        :param seconds: stage of the search -> how long it took; words and vectors are searched at the same time.
        :param version: of the index: it grows with each commit.
        :param total: the number of passages that were searched: all of the index, or all that pass the filter.
        """
        super().__init__(hits)
        self.answerable = answerable
        self.corrections = corrections or {}
        self.seconds = dict(seconds or {})
        self.version = version
        self.total = total

    def replaced_by(self, hits: Iterable[Hit]) -> Hits:
        """Other hits of the same query."""
        return Hits(
            hits,
            answerable=self.answerable,
            corrections=self.corrections,
            seconds=self.seconds,
            version=self.version,
            total=self.total,
        )

    def after(self, offset: int) -> Hits:
        """The hits without the first `offset` ones."""
        return self.replaced_by(self[offset:])

    def from_relevance(self, threshold: float, offset: int = 0) -> Hits:
        """The hits with at least the relevance `threshold`, from 0 to 1.

        :param offset: the number of hits on earlier pages. They stay, so that no hit moves to an earlier page.
        """
        remaining = self.replaced_by([*self[:offset], *(hit for hit in self[offset:] if hit.relevance >= threshold)])
        remaining.answerable = self.answerable if any(hit.relevance >= threshold for hit in self) else False
        return remaining
