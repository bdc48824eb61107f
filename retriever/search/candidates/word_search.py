"""Search the passages of an index by the words of one query."""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING

import numpy as np

from ....core.arrays import isin_sorted
from ....core.errors import DamagedError
from ....core.terms import query_stems
from ...store.tables import rows_among

if TYPE_CHECKING:
    import pyarrow as pa

    from ....core.arrays import Floats, Ids, Mask
    from ...store.snapshot import Passing, Snapshot

MAX_TERMS = 2_048  # of a query: users paste long texts
_MAX_WORDS = 256  # distinct words of a query that full-text search looks up; more do not help
_SPARE = 1.5  # times the full-text results that are expected to suffice for a filter
_MORE = 4  # times as many in the next attempt


class WordSearch:
    """Searches one snapshot by the words of a query: BM25 over the inverted index, or over Lance's if there is none.

    :ivar stems: of the query, in order and with repetitions.
    """

    def __init__(self, snapshot: Snapshot, text: str) -> None:
        self._snapshot = snapshot
        self._text = text
        self.stems = query_stems(text)

    def best(self, depth: int, passing: Passing | None = None) -> tuple[Floats, Ids]:
        """Scores and ids of the `depth` best passages or more."""
        return self._search(self._text, depth, passing)

    def scores(self, ids: Ids) -> tuple[Floats, Ids]:
        """Return scores and ids of the passages that hold a word of the query.

        :param ids: of the passages to search, ascending.
        """
        return self._search(self._text, len(ids), among=ids)

    def hold_all(self, ids: Ids) -> Mask:
        """Whether each of these passages holds all words of the query."""
        return isin_sorted(ids, np.sort(self._search(self._text, len(ids), among=np.sort(ids), every=True)[1]))

    def with_tokens(self, words: str) -> Ids | None:
        """Passages with all whole tokens of these words, ascending; None without an inverted index."""
        for index in self._snapshot.lexical_indexes():
            with contextlib.suppress(DamagedError):
                return index.whole(words)
        return None

    def best_of(self, ids: Ids | None, words: str, limit: int, passing: Passing | None = None) -> Ids:
        """Return the passages with all tokens of these words that pass a filter; if there are many, the best ones.

        :param ids: what `with_tokens` returned for the words.
        """
        if ids is None:
            return self._search(words, limit, passing, every=True)[1]
        ids = ids if passing is None else ids[isin_sorted(ids, passing.chunks)]
        best = ids if len(ids) <= limit else self._search(words, limit, among=ids)[1]
        return best if len(best) else ids[:limit]

    def _search(
        self, text: str, depth: int, passing: Passing | None = None, *, among: Ids | None = None, every: bool = False
    ) -> tuple[Floats, Ids]:
        """Scores and ids of the best passages for a text.

        :param among: ids, ascending: search among these passages only.
        :param every: a passage has all words.
        """
        allowed = passing.chunks if passing and among is None else among
        for index in self._snapshot.lexical_indexes():
            with contextlib.suppress(DamagedError):
                stems = self.stems if text == self._text else query_stems(text)
                return index.search(stems[:MAX_TERMS], depth, allowed=allowed, every=every)
        words = " ".join(list(dict.fromkeys(text.split()))[:_MAX_WORDS])
        if among is None:
            table = self._full_text(words, depth, passing, every=every)
        else:
            table = self._snapshot.full_text(words, depth, rows_among("id", among.tolist()), every=every)
        return table["_score"].to_numpy().astype(np.float32), table["id"].to_numpy()

    def _full_text(self, words: str, depth: int, passing: Passing | None, *, every: bool = False) -> pa.Table:
        """The `depth` best chunks by words that pass the filter, or more.

        For Lance, each document in a condition costs about as much as one more result. So if many documents pass, a
        search without a condition takes more results, and again more while too few of them pass.
        """
        if passing is None:
            return self._snapshot.full_text(words, depth, every=every)
        share = len(passing.chunks) / self._snapshot.passage_count
        limit = math.ceil(_SPARE * depth / share)
        while limit < len(passing.documents):
            table = self._snapshot.full_text(words, limit, every=every)
            matches = table.filter(isin_sorted(table["id"].to_numpy(), passing.chunks))
            if len(matches) >= depth or len(table) < limit:
                return matches
            limit *= _MORE
        if len(passing.chunks) < len(self._snapshot.chunks_of(passing.documents)):
            return self._snapshot.full_text(words, depth, rows_among("id", passing.chunks.tolist()), every=every)
        return self._snapshot.full_text(words, depth, rows_among("document", passing.documents.tolist()), every=every)
