"""How telling a word or a sentence is in its collection, from one pass over it in bounded memory."""

from __future__ import annotations

import math
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from ...core.sentences import spans
from ...core.words import UNSPACED, split_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from ..data.documents import Source

_COMMON = 0.2  # share of the passages from which on a word says nothing
_BOILERPLATE = 3  # documents from which on a sentence is boilerplate


def words(text: str) -> list[str]:
    """The words of a text in order, case folded; of scripts without spaces, overlapping pairs of characters."""
    found = []
    for word in _words(text):
        if len(word) > 2 and UNSPACED.search(word):
            found += [word[place : place + 2] for place in range(len(word) - 1)]
        else:
            found.append(word)
    return found


def normalised(text: str) -> str:
    """Equal for texts that differ in case, punctuation and spacing only."""
    return " ".join(_words(text))


def _words(text: str) -> list[str]:
    return split_words(text.casefold(), elisions=True)


class Counts:
    """How often each text was added: never too low, rarely too high, in 16 MiB whatever their number.

    A count-min sketch of two rows (Cormode and Muthukrishnan 2005).
    """

    def __init__(self, bits: int = 21) -> None:
        self._mask = (1 << bits) - 1
        self._rows = np.zeros((2, 1 << bits), np.int32)

    def add(self, texts: Iterable[str]) -> None:
        """Count each different text of these once."""
        for row, cells in zip(self._rows, self._cells(texts), strict=True):
            row[np.unique(cells)] += 1

    def of(self, texts: Iterable[str]) -> NDArray[np.int32]:
        first, second = self._cells(texts)
        counts: NDArray[np.int32] = np.minimum(self._rows[0, first], self._rows[1, second])
        return counts

    def _cells(self, texts: Iterable[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        keys = np.array([_key(text) for text in texts], np.int64)
        return keys & self._mask, (keys >> 31) & self._mask


@lru_cache(maxsize=1 << 16)
def _key(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big") >> 1


class Salience:
    """Document frequencies of a collection's words, a passage counting as one document, and its repeated sentences."""

    def __init__(self, documents: Iterable[Source]) -> None:
        self.passages = 0
        self._words = Counts()
        self._sentences = Counts()
        length = 0
        for source in documents:
            inside: set[str] = set()
            for passage in source.passages:
                found = words(passage.context)
                self._words.add(set(found))
                self.passages += 1
                length += len(found)
                inside.update(normalised(passage.text[start:end]) for start, end in spans(passage.text))
            self._sentences.add(inside)
        self.mean_length = length / max(1, self.passages)  # words of a passage

    def idf(self, of: Sequence[str]) -> NDArray[np.float64]:
        """BM25's inverse document frequency of each word (Robertson and Zaragoza 2009)."""
        frequency = self._words.of(of)
        idf: NDArray[np.float64] = np.log1p(
            (self.passages - np.minimum(frequency, self.passages) + 0.5) / (frequency + 0.5)
        )
        return idf

    def content(self, of: Iterable[str]) -> list[str]:
        """The different words of these that are not common to many passages, in order; of two characters at least."""
        different = [word for word in dict.fromkeys(of) if len(word) > 1]
        limit = max(2, _COMMON * self.passages)
        kept = self._words.of(different) <= limit
        return [word for word, keep in zip(different, kept.tolist(), strict=True) if keep]

    def is_boilerplate(self, sentence: str) -> bool:
        return bool(self._sentences.of([normalised(sentence)])[0] >= _BOILERPLATE)

    def terms(self, text: str) -> dict[str, float]:
        """Each content word of a text with its share of the text's BM25 score, k1 = 1.2 and b = 0.75."""
        found = words(text)
        content = self.content(found)
        norm = 1.2 * (0.25 + 0.75 * len(found) / max(1.0, self.mean_length))
        times = dict.fromkeys(content, 0)
        for word in found:
            if word in times:
                times[word] += 1
        gains = {
            word: weight * 2.2 * times[word] / (times[word] + norm)
            for word, weight in zip(content, self.idf(content).tolist(), strict=True)
        }
        total = sum(gains.values())
        return {word: gain / total for word, gain in gains.items()} if total else {}

    def centrality(self, sentence: str, terms: dict[str, float]) -> float:
        """How much of a text (its `terms`) a sentence says, for its length."""
        content = self.content(words(sentence))
        return sum(terms.get(word, 0.0) for word in content) / math.sqrt(len(content) + 4)
