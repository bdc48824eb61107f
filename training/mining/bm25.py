"""BM25 (Robertson and Zaragoza 2009) over passages in memory, for teachers, verdicts and held-out queries.

Searches use `indexes/inverted/lexical_index.py`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.terms import query_stems
from ...core.words import UNSPACED, split_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from ...core.arrays import Floats

COMMON = 0.2  # a word in a larger share of the passages does not tell them apart
_K1, _B = 1.2, 0.75


def split_terms(text: str) -> list[str]:
    """Return the words of a text in order, case folded; scripts without spaces give overlapping pairs of characters."""
    terms = []
    for word in split_words(text.casefold(), elisions=True):
        if len(word) > 2 and UNSPACED.search(word):
            terms += [word[start : start + 2] for start in range(len(word) - 1)]
        else:
            terms.append(word)
    return terms


def inverse_frequency(passages_with_term: ArrayLike, passages: int) -> NDArray[np.float64]:
    """Return the inverse document frequency of terms."""
    frequency = np.asarray(passages_with_term)
    idf: NDArray[np.float64] = np.log1p((passages - np.minimum(frequency, passages) + 0.5) / (frequency + 0.5))
    return idf


def term_scores(idf: Any, counts: Any, relative_length: Any) -> Any:
    """Return the score of terms in a passage.

    :param counts: of the terms in the passage.
    :param relative_length: words of the passage, as a multiple of the mean.
    """
    return idf * counts * (_K1 + 1) / (counts + _K1 * (1 - _B + _B * relative_length))


@dataclass(frozen=True, slots=True)
class BM25:
    """An inverted index of passages by the stems of full-text search, without stems that are too common."""

    size: int  # passages
    numbers: dict[str, int]  # stem -> its number
    starts: NDArray[np.intp]  # where the postings of each stem begin, shape (stems + 1,)
    passages: NDArray[np.int32]  # the passage of each posting
    weights: Floats  # the score of each posting

    @classmethod
    def of(cls, passages: Sequence[str]) -> BM25:
        """Index passages."""
        counted = [Counter(query_stems(text)) for text in passages]
        frequency = Counter(stem for counts in counted for stem in counts)
        maximum = max(2, COMMON * len(passages))
        indexed = [stem for stem, number in frequency.items() if number <= maximum]
        numbers = {stem: number for number, stem in enumerate(indexed)}
        postings = [
            (numbers[stem], passage, count)
            for passage, counts in enumerate(counted)
            for stem, count in counts.items()
            if stem in numbers
        ]
        table = np.array(postings, np.int32).reshape(-1, 3)
        table = table[np.argsort(table[:, 0], kind="stable")]
        starts = np.searchsorted(table[:, 0], np.arange(len(indexed) + 1))
        lengths = np.array([counts.total() for counts in counted], np.float32)
        relative = lengths / max(1.0, float(lengths.sum()) / max(1, len(lengths)))
        idf = inverse_frequency(np.diff(starts), len(passages))
        scores = term_scores(idf[table[:, 0]], table[:, 2].astype(np.float32), relative[table[:, 1]])
        return cls(len(passages), numbers, starts, table[:, 1], scores.astype(np.float32))

    def scores(self, query: str) -> Floats:
        """Return the score of every passage, shape (passages,); each different word of the query counts once."""
        scores = np.zeros(self.size, np.float32)
        for stem in set(query_stems(query)):
            number = self.numbers.get(stem)
            if number is not None:
                postings = slice(self.starts[number], self.starts[number + 1])
                scores[self.passages[postings]] += self.weights[postings]
        return scores
