"""BM25 over passages in memory: what full-text search says, for as many queries as training asks."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from .term_weights import words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...core.arrays import Floats


_STEM = 7  # letters: what a word and its inflections share, in most languages that have spaces
_COMMON = 0.2  # share of the passages from which on a word says nothing
_K1, _B = 1.2, 0.75


class BM25:
    """Passages by what their words weigh (Robertson and Zaragoza 2009)."""

    def __init__(self, passages: Sequence[str]) -> None:
        counted = [Counter(stems(text)) for text in passages]
        held = Counter(stem for counts in counted for stem in counts)
        most = max(2, _COMMON * len(passages))
        self._size = len(passages)
        kept = [stem for stem, number in held.items() if number <= most]
        self._places = {stem: place for place, stem in enumerate(kept)}
        postings = [
            (self._places[stem], passage, times)
            for passage, counts in enumerate(counted)
            for stem, times in counts.items()
            if stem in self._places
        ]
        table = np.array(postings, np.int32).reshape(-1, 3)
        table = table[np.argsort(table[:, 0], kind="stable")]
        self._starts = np.searchsorted(table[:, 0], np.arange(len(kept) + 1))
        self._passages = table[:, 1]
        lengths = np.array([counts.total() for counts in counted], np.float32)
        norm = _K1 * (1 - _B + _B * lengths / max(1.0, float(lengths.mean())))
        often = table[:, 2].astype(np.float32)
        number = np.diff(self._starts)
        idf = np.log1p((self._size - number + 0.5) / (number + 0.5))
        self._weights = (idf[table[:, 0]] * often * (_K1 + 1) / (often + norm[self._passages])).astype(np.float32)

    def scores(self, query: str) -> Floats:
        """Of every passage, shape (passages,); each different word of the query counts once."""
        found = np.zeros(self._size, np.float32)
        for stem in set(stems(query)):
            place = self._places.get(stem)
            if place is not None:
                these = slice(self._starts[place], self._starts[place + 1])
                found[self._passages[these]] += self._weights[these]
        return found


def stems(text: str) -> list[str]:
    """The beginnings of a text's words, in order; letters and digits that stand alone left out."""
    return [word[:_STEM] for word in words(text) if len(word) > 1]
