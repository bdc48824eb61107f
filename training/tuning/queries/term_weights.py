"""Weights of the words and sentences of a collection, from one pass over it in bounded memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from ....core.sentences import spans
from ....core.words import split_words
from ...mining.bm25 import COMMON, inverse_frequency, split_terms, term_scores

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from ...data.source_documents import Source

_BOILERPLATE = 3  # a sentence in this number of documents is boilerplate


def normalised(text: str) -> str:
    """Return a form that is equal for texts that differ only in case, punctuation and spacing."""
    return " ".join(split_words(text.casefold(), elisions=True))


class CountSketch:
    """How often each text was added: never too low, rarely too high, in 16 MiB for any number of texts.

    A count-min sketch of two rows (Cormode and Muthukrishnan 2005).
    """

    def __init__(self, bits: int = 21) -> None:
        self._mask = (1 << bits) - 1
        self._rows = np.zeros((2, 1 << bits), np.int32)

    def add(self, texts: Iterable[str]) -> None:
        """Count each different text once."""
        for row, cells in zip(self._rows, self._cells(texts), strict=True):
            row[np.unique(cells)] += 1

    def of(self, texts: Iterable[str]) -> NDArray[np.int32]:
        """Return the count of each text."""
        first, second = self._cells(texts)
        counts: NDArray[np.int32] = np.minimum(self._rows[0, first], self._rows[1, second])
        return counts

    def _cells(self, texts: Iterable[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        keys = np.array([_key(text) for text in texts], np.int64)
        return keys & self._mask, (keys >> 31) & self._mask


@lru_cache(maxsize=1 << 16)
def _key(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big") >> 1


@dataclass(frozen=True, slots=True)
class TermWeights:
    """Document frequencies of a collection's words, with passages as documents, and its repeated sentences."""

    passages: int
    mean_length: float  # words of a passage
    term_counts: CountSketch  # passages with each word
    sentence_counts: CountSketch  # documents with each sentence

    @classmethod
    def of(cls, documents: Iterable[Source]) -> TermWeights:
        """Count the words and the sentences of documents, in one pass."""
        term_counts, sentence_counts = CountSketch(), CountSketch()
        passages = length = 0
        for source in documents:
            sentences: set[str] = set()
            for passage in source.passages:
                terms = split_terms(passage.context)
                term_counts.add(set(terms))
                passages += 1
                length += len(terms)
                sentences.update(normalised(passage.text[start:end]) for start, end in spans(passage.text))
            sentence_counts.add(sentences)
        return cls(passages, length / max(1, passages), term_counts, sentence_counts)

    def idf(self, terms: Sequence[str]) -> NDArray[np.float64]:
        """Return BM25's inverse document frequency of each term."""
        return inverse_frequency(self.term_counts.of(terms), self.passages)

    def content(self, terms: Iterable[str]) -> list[str]:
        """Return the different terms of two characters or more that few passages contain, in order."""
        different = [term for term in dict.fromkeys(terms) if len(term) > 1]
        limit = max(2, COMMON * self.passages)
        is_rare = self.term_counts.of(different) <= limit
        return [term for term, rare in zip(different, is_rare.tolist(), strict=True) if rare]

    def is_boilerplate(self, sentence: str) -> bool:
        """Check whether several documents repeat a sentence."""
        return bool(self.sentence_counts.of([normalised(sentence)])[0] >= _BOILERPLATE)

    def terms(self, text: str) -> dict[str, float]:
        """Return each content term of a text with its share of the text's BM25 score."""
        terms = split_terms(text)
        counts = dict.fromkeys(self.content(terms), 0)
        for term in terms:
            if term in counts:
                counts[term] += 1
        relative_length = len(terms) / max(1.0, self.mean_length)
        scores = term_scores(self.idf(list(counts)), np.array(list(counts.values()), np.float64), relative_length)
        total = float(scores.sum())
        return {term: score / total for term, score in zip(counts, scores.tolist(), strict=True)} if total else {}

    def centrality(self, sentence: str, terms: dict[str, float]) -> float:
        """Return how central a sentence is to a text: the weight of its terms, relative to its length.

        :param terms: of the text.
        """
        content = self.content(split_terms(sentence))
        return sum(terms.get(term, 0.0) for term in content) / math.sqrt(len(content) + 4)
