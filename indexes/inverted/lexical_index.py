"""Search the segments of an inverted index as one: BM25, frequencies, whole tokens and the vocabulary.

BM25 (Robertson and Zaragoza 2009) with k1 1.2 and b .75: the score of a passage is the sum over the query's terms of

    idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * length / average length)),  idf = ln(1 + (n - df + .5) / (df + .5))

A term counts as often as the query has it. Statistics count the live passages of all segments.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.arrays import isin_sorted
from ...core.errors import DamagedError
from ...core.terms import query_whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from ...core.arrays import Floats, Ids, Mask, Positions
    from .segment import Field, Numbers, Rows, Segment

_K1 = 1.2
_B = 0.75
_LONG = 8  # a binary search is faster if a posting list has more than this many rows for each row to find


@dataclass(frozen=True, slots=True)
class Part:
    """A segment, and which of its rows are live; None if all are."""

    segment: Segment
    live: Mask | None = None

    @property
    def passages(self) -> int:
        """The number of live rows."""
        return len(self.segment) if self.live is None else int(self.live.sum())

    def lengths(self) -> Numbers:
        """The length of each row; 0 where it is deleted."""
        lengths: Numbers = self.segment.lengths if self.live is None else np.where(self.live, self.segment.lengths, 0)
        return lengths

    def stems(self, terms: Iterable[str]) -> list[tuple[Rows, NDArray[np.uint8]]]:
        """Return, for each of these stems, the live rows with it and how often each holds it."""
        postings = self.segment.postings(self.segment.stems, terms)
        if self.live is None:
            return postings
        return [(rows[self.live[rows]], counts[self.live[rows]]) for rows, counts in postings]

    def whole(self, term: str) -> Ids:
        """Return the ids of the live rows with a whole token."""
        [(rows, _)] = self.segment.postings(self.segment.whole, [term])
        return self.segment.ids[rows if self.live is None else rows[self.live[rows]]]

    def words(self, prefix: bytes, like: str = "", errors: int = 0) -> Iterator[tuple[str, int]]:
        """Yield whole tokens with this prefix, and in how many live rows each is.

        :param like: only tokens that have most letters of this word, as `Field.similar` finds them.
        :raises DamagedError: when the field holds impossible values.
        """
        field = self.segment.whole
        if not field.has_postings(len(self.segment)):
            raise DamagedError("a segment of the inverted index holds impossible values")
        first, last = field.first_from(prefix), field.first_from(prefix + b"\xff")
        if like:
            for number in field.similar(like, errors, first, last).tolist():
                word = field.term(number).decode("utf-8", "replace")
                if frequency := len(self.whole(word)):
                    yield word, frequency
            return
        for term, frequency in zip(field.terms(first, last), self._frequencies(field, first, last), strict=True):
            if frequency:
                yield term.decode("utf-8", "replace"), frequency

    def _frequencies(self, field: Field, first: int, last: int) -> list[int]:
        start = int(field.stops[first - 1]) if first else 0
        bounds = np.append(np.int64(start), field.stops[first:last].astype(np.int64))
        if self.live is None or last <= first:
            frequencies: list[int] = np.diff(bounds).tolist()
            return frequencies
        totals = np.append(np.int64(0), np.cumsum(self.live[field.rows[start : int(bounds[-1])]]))
        live: list[int] = np.diff(totals[bounds - start]).tolist()
        return live


class LexicalIndex:
    """The passages of one state of the store by their words.

    :param parts: segments, each with higher ids than the one before.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = tuple(parts)
        self._firsts = np.cumsum([0, *(len(part.segment) for part in parts)])
        self.passages = sum(part.passages for part in parts)

    @cached_property
    def average_length(self) -> float:
        """The mean number of stems of a passage; at least a tiny one, to divide by."""
        total = sum(int(part.lengths().sum(dtype=np.int64)) for part in self._parts)
        return max(total / max(self.passages, 1), 1e-9)

    @cached_property
    def _norms(self) -> list[Floats]:
        """What BM25 adds to the frequency in the denominator, for each row of each segment."""
        slope = np.float32(_K1 * _B / self.average_length)
        return [part.segment.lengths * slope + np.float32(_K1 * (1 - _B)) for part in self._parts]

    def document_frequencies(self, terms: Sequence[str]) -> list[int]:
        """Return the number of passages with each stem."""
        totals = [0] * len(terms)
        for part in self._parts:
            for number, (rows, _) in enumerate(part.stems(terms)):
                totals[number] += len(rows)
        return totals

    def idf(self, terms: Sequence[str]) -> list[float]:
        """Return the inverse document frequency of each stem."""
        return list(map(self._idf, self.document_frequencies(terms)))

    def _idf(self, document_frequency: int) -> float:
        frequency = min(document_frequency, self.passages)  # a damaged posting list may repeat a row
        return math.log1p((self.passages - frequency + 0.5) / (frequency + 0.5))

    def search(
        self, terms: Sequence[str], k: int, *, allowed: Ids | None = None, every: bool = False
    ) -> tuple[Floats, Ids]:
        """Return scores and ids of the k best passages by BM25, best first; of equal ones the lower id first.

        :param terms: stems, as `core.terms.query_stems` returns them.
        :param allowed: ids, ascending: no other passage is returned.
        :param every: only passages with all of the terms.
        :raises DamagedError: when a posting list is damaged.
        """
        scores = np.zeros(int(self._firsts[-1]), np.float32)
        matches = np.zeros(len(scores), np.uint16) if every else None
        weights = Counter(terms)
        by_part = [part.stems(weights) for part in self._parts]
        for number, weight in enumerate(weights.values()):
            self._add([postings[number] for postings in by_part], weight, scores, matches)
        rows = np.flatnonzero(scores > 0 if matches is None else matches == max(1, len(weights)))
        ids, scores = self._ids(rows), scores[rows]
        if allowed is not None:
            passing = isin_sorted(ids, allowed)
            ids, scores = ids[passing], scores[passing]
        return _best(scores, ids, k)

    def _add(
        self,
        postings: Sequence[tuple[Rows, NDArray[np.uint8]]],
        weight: int,
        scores: Floats,
        matches: NDArray[np.uint16] | None,
    ) -> None:
        """Add a term's part to the score of each row.

        :param postings: of the term, in each segment.
        """
        frequency = sum(len(rows) for rows, _ in postings)
        factor = np.float32(weight * self._idf(frequency) * (_K1 + 1))
        for (rows, counts), norms, first in zip(postings, self._norms, self._firsts[:-1], strict=True):
            tf = counts.astype(np.float32)
            scores[first:][rows] += factor * tf / (tf + norms[rows])
            if matches is not None:
                matches[first:][rows] += 1

    def _ids(self, rows: NDArray[np.intp]) -> Ids:
        """Return the ids of rows that are counted through all segments, ascending."""
        bounds = np.searchsorted(rows, self._firsts)
        ids = [
            part.segment.ids[rows[start:stop] - first]
            for part, first, start, stop in zip(self._parts, self._firsts[:-1], bounds[:-1], bounds[1:], strict=True)
        ]
        return np.concatenate([np.empty(0, np.int64), *ids])

    def frequency_table(self, terms: Sequence[str], ids: Ids) -> tuple[NDArray[np.uint8], list[float]]:
        """Return the count of each stem in each passage, up to 255, and the weight of each stem.

        :returns: an array of shape (len(terms), len(ids)), and the inverse document frequencies.
        """
        table, totals = np.zeros((len(terms), len(ids)), np.uint8), [0] * len(terms)
        for part in self._parts:
            by_row = np.zeros(len(part.segment.ids), np.uint8)
            rows, own = self._rows(part, ids)
            columns: Any = slice(None) if len(own) == len(ids) else own
            for number, (with_term, counts) in enumerate(part.stems(terms)):
                if len(with_term) > _LONG * len(rows):
                    table[number, columns] = _frequencies_of(rows, with_term, counts)
                else:
                    by_row[with_term] = counts
                    table[number, columns] = by_row[rows]
                    by_row[with_term] = 0
                totals[number] += len(with_term)
        return table, list(map(self._idf, totals))

    def lengths(self, ids: Ids) -> NDArray[np.int32]:
        """Return the number of stems of each of these passages, shape (len(ids),)."""
        lengths = np.zeros(len(ids), np.int32)
        for part in self._parts:
            rows, positions = self._rows(part, ids)
            lengths[positions] = part.segment.lengths[rows]
        return lengths

    @staticmethod
    def _rows(part: Part, ids: Ids) -> tuple[Positions, Positions]:
        """Return the rows of the passages that a segment has, and their positions in `ids`."""
        own = part.segment.ids
        if not len(own):
            return np.empty(0, np.intp), np.empty(0, np.intp)
        rows = np.searchsorted(own, ids).clip(max=len(own) - 1)
        positions = np.flatnonzero(own[rows] == ids)
        return rows[positions], positions

    def words(self, prefix: str = "", *, like: str = "", errors: int = 0) -> dict[str, int]:
        """Return the whole tokens that begin with a prefix, in lower case, and the number of passages with each.

        :param like: keep all words within `errors` wrong letters of this one, and few others.
        """
        words: Counter[str] = Counter()
        for part in self._parts:
            for word, frequency in part.words(prefix.encode(), like, errors):
                words[word] += frequency
        return dict(words)

    def whole(self, token: str) -> Ids:
        """Return the passages that hold a whole token in any case, ids ascending.

        An identifier, a word or a number is one token. A path, a version or a phrase has several: then these are the
        passages with all of its tokens, in which the caller looks for the literal itself.
        """
        distinct = list(dict.fromkeys(query_whole(token)))
        passages = [self._with_token(term) for term in distinct] or [np.empty(0, np.int64)]
        passages.sort(key=len)
        common = passages[0]
        for ids in passages[1:]:
            common = common[isin_sorted(common, ids)]
        return common

    def _with_token(self, term: str) -> Ids:
        return np.concatenate([np.empty(0, np.int64), *(part.whole(term) for part in self._parts)])


def _frequencies_of(rows: Positions, with_term: Rows, counts: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return how often each row has the term of a posting list; 0 for a row that is not in the list.

    :param with_term: the rows of the posting list, in ascending order, one for each of `counts`.
    """
    own = rows.astype(with_term.dtype)
    positions = np.searchsorted(with_term, own).clip(max=len(with_term) - 1)
    result: NDArray[np.uint8] = np.where(with_term[positions] == own, counts[positions], np.uint8(0))
    return result


def _best(scores: Floats, ids: Ids, k: int) -> tuple[Floats, Ids]:
    """Return the k highest scores and their ids, which ascend where scores are equal."""
    if 0 < k < len(scores):
        high = scores >= np.partition(scores, len(scores) - k)[len(scores) - k]
        scores, ids = scores[high], ids[high]
    best = np.lexsort((ids, -scores))[: max(k, 0)]
    return scores[best], ids[best]
