"""Search the segments of an inverted index as one: BM25, frequencies, whole tokens and the vocabulary.

BM25 (Robertson and Zaragoza 2009) with k1 1.2 and b .75: the score of a passage is the sum over the query's terms of

    idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * length / average length)),  idf = ln(1 + (n - df + .5) / (df + .5))

A term counts as often as the query has it. Statistics count the live passages of all segments.

A search adds up the terms from the rarest to the most frequent. No term adds more than weight * idf * (k1 + 1). At some
point the remaining terms together cannot lift a new passage among the k best. From there on, only the best passages are
looked up in the posting lists, which are the longest ones (MaxScore: Turtle and Flood 1995, "Query Evaluation:
Strategies and Optimizations").
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ...core.arrays import isin_sorted
from ...core.errors import DamagedError
from ...core.terms import query_whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from ...core.arrays import Floats, Ids, Mask, Positions
    from .segment import Bytes, FieldPostings, Numbers, Rows, Segment

_K1 = 1.2
_B = 0.75
_EXACT = 1 - 1e-5  # of a sum of float32: the order of its terms changes it by less than the rest
_LOOKUP = 5  # postings are added in the time of one row's look-up
_RECENT = 32  # number of terms to keep the postings of; a segment with deleted rows copies the live ones
_LONG = 4  # a binary search is faster if a posting list has more than this many rows for each row to find


@dataclass(frozen=True, slots=True)
class LiveSegment:
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

    def stem(self, term: str) -> tuple[Rows, Bytes]:
        """Return the live rows with a stem, and how often each holds it."""
        rows, counts = self.segment.postings(self.segment.stems, term)
        if self.live is None:
            return rows, counts
        live = self.live[rows]
        return rows[live], counts[live]

    def whole(self, term: str) -> Ids:
        """Return the ids of the live rows with a whole token."""
        rows, _ = self.segment.postings(self.segment.whole, term)
        return self.segment.ids[rows if self.live is None else rows[self.live[rows]]]

    def words(self, prefix: bytes, like: str = "", errors: int = 0) -> Iterator[tuple[str, int]]:
        """Yield whole tokens with this prefix, each with the number of its live rows.

        :param like: only tokens that have most letters of this word, as `FieldPostings.similar` finds them.
        :raises DamagedError: when the field holds impossible values.
        """
        field = self.segment.whole
        first, last = field.first_from(prefix), field.first_from(prefix + b"\xff")
        if like:
            for number in field.similar(like, errors, first, last).tolist():
                rows = field.rows_at(number, len(self.segment))
                if frequency := len(rows) if self.live is None else np.count_nonzero(self.live[rows]):
                    yield field.term(number).decode("utf-8", "replace"), int(frequency)
            return
        if not field.has_postings(len(self.segment)):
            raise DamagedError("a segment of the inverted index holds impossible values")
        for term, frequency in zip(field.terms(first, last), self._frequencies(field, first, last), strict=True):
            if frequency:
                yield term.decode("utf-8", "replace"), frequency

    def _frequencies(self, field: FieldPostings, first: int, last: int) -> list[int]:
        start = int(field.stops[first - 1]) if first else 0
        bounds = np.append(np.int64(start), field.stops[first:last].astype(np.int64))
        if self.live is None or last <= first:
            frequencies: list[int] = np.diff(bounds).tolist()
            return frequencies
        totals = np.append(np.int64(0), np.cumsum(self.live[field.rows[start : int(bounds[-1])]]))
        live: list[int] = np.diff(totals[bounds - start]).tolist()
        return live


@dataclass(frozen=True, slots=True)
class _Postings:
    """The passages with a stem."""

    lists: Sequence[tuple[Rows, Bytes]]  # rows and counts in each segment
    frequency: int  # the number of passages


@dataclass(frozen=True, slots=True)
class _Term:
    """A term of a query."""

    bound: float  # weight * idf * (k1 + 1): it adds less to any score
    postings: _Postings


class LexicalIndex:
    """The passages of one state of the store by their words.

    :param parts: segments, each with higher ids than the previous segment.
    """

    def __init__(self, parts: Sequence[LiveSegment]) -> None:
        self._parts = tuple(parts)
        self._firsts = np.cumsum([0, *(len(part.segment) for part in parts)])
        self.passages = sum(part.passages for part in parts)
        self._recent: dict[str, _Postings] = {}  # the stages of a search ask for the same terms

    def __len__(self) -> int:
        """The number of rows, the deleted ones too."""
        return int(self._firsts[-1])

    @cached_property
    def average_length(self) -> float:
        """The mean number of stems of a passage; at least a tiny one, to divide by."""
        total = sum(int(part.lengths().sum(dtype=np.int64)) for part in self._parts)
        return max(total / max(self.passages, 1), 1e-9)

    @cached_property
    def _norms(self) -> list[Floats]:
        """The length norm of BM25, added to the frequency in the denominator: one array a segment, shape (rows,)."""
        slope = np.float32(_K1 * _B / self.average_length)
        return [part.segment.lengths * slope + np.float32(_K1 * (1 - _B)) for part in self._parts]

    def document_frequencies(self, terms: Iterable[str]) -> list[int]:
        """Return the number of passages with each stem."""
        return [postings.frequency for postings in self._postings(terms)]

    def _postings(self, terms: Iterable[str]) -> list[_Postings]:
        return [self._recent.get(term) or self._read(term) for term in terms]

    def _read(self, term: str) -> _Postings:
        lists = [part.stem(term) for part in self._parts]
        postings = _Postings(lists, sum(len(rows) for rows, _ in lists))
        if len(self._recent) >= _RECENT:
            self._recent.clear()
        self._recent[term] = postings
        return postings

    def idf(self, terms: Sequence[str]) -> list[float]:
        """Return the inverse document frequency of each stem."""
        return list(map(self._idf, self.document_frequencies(terms)))

    def _idf(self, document_frequency: int) -> float:
        frequency = min(document_frequency, self.passages)  # a damaged posting list may repeat a row
        return math.log1p((self.passages - frequency + 0.5) / (frequency + 0.5))

    def search(
        self, terms: Sequence[str], k: int, *, allowed: Ids | None = None, every: bool = False
    ) -> tuple[Floats, Ids]:
        """Return scores and ids of the k best passages by BM25, best first; the lower id first among equal scores.

        :param terms: stems, as `core.terms.query_stems` returns them.
        :param allowed: ids, ascending: no other passage is returned.
        :param every: only passages with all of the terms.
        :raises DamagedError: when a posting list is damaged.
        """
        weighted = self._weighted(terms)
        if every or allowed is not None:
            rows, scores = self._all_scores(weighted, every=every)
        else:
            rows, scores = self._highest_scores(weighted, k)
        ids = self._ids(rows)
        if allowed is not None:
            passing = isin_sorted(ids, allowed)
            ids, scores = ids[passing], scores[passing]
        return _best(scores, ids, k)

    def _weighted(self, terms: Sequence[str]) -> list[_Term]:
        """Return the distinct terms with their postings, in descending order of their greatest possible score."""
        weights = Counter(terms)
        weighted = [
            _Term(weight * self._idf(postings.frequency) * (_K1 + 1), postings)
            for weight, postings in zip(weights.values(), self._postings(weights), strict=True)
        ]
        return sorted(weighted, key=lambda term: -term.bound)

    def _all_scores(self, terms: Sequence[_Term], *, every: bool) -> tuple[Positions, Floats]:
        """Return the rows with a term, or with every term, and their scores."""
        scores = np.zeros(len(self), np.float32)
        for term in terms:
            self._add(term, scores)
        rows_with_terms = np.flatnonzero(scores > 0)
        if every:
            counts = np.zeros(len(self), np.uint16)  # the number of terms
            for term in terms:
                for (rows, _), first in zip(term.postings.lists, self._firsts[:-1], strict=True):
                    counts[first:][rows] += 1
            rows_with_terms = rows_with_terms[counts[rows_with_terms] == len(terms)]
        return rows_with_terms, scores[rows_with_terms]

    def _highest_scores(self, terms: Sequence[_Term], k: int) -> tuple[Positions, Floats]:
        """Return rows with a term, among them the k best, and their scores."""
        scores = np.zeros(len(self), np.float32)
        added, remaining, threshold = 0.0, sum(term.bound for term in terms), 0.0
        for number, term in enumerate(terms, 1):
            updated = self._add(term, scores)
            added, remaining = added + term.bound, remaining - term.bound
            if number < len(terms) and remaining < added and 0 < k <= len(updated):
                threshold = max(threshold, _EXACT * float(np.partition(updated, len(updated) - k)[len(updated) - k]))
                if remaining < threshold:
                    above = scores >= threshold - remaining
                    postings = sum(term.postings.frequency for term in terms[number:])
                    if _LOOKUP * np.count_nonzero(above) * (len(terms) - number) < postings:
                        rows = np.flatnonzero(above)
                        return rows, self._completed(rows, scores[rows], terms[number:])
        rows = np.flatnonzero(scores > 0)
        return rows, scores[rows]

    def _add(self, term: _Term, scores: Floats) -> Floats:
        """Add the share of a term to the score of each row; return the new scores of the rows that have it."""
        updated = [np.empty(0, np.float32)]
        for (rows, counts), norms, first in zip(term.postings.lists, self._norms, self._firsts[:-1], strict=True):
            own = scores[first:]
            indices = rows.astype(np.intp)  # else each use converts them
            tf = counts.astype(np.float32)
            values = norms[indices]
            values += tf
            np.divide(tf, values, out=values)
            values *= term.bound
            values += own[indices]
            own[indices] = values
            updated.append(values)
        return np.concatenate(updated)

    def _completed(self, rows: Positions, scores: Floats, terms: Sequence[_Term]) -> Floats:
        """Return the scores of some rows, with more terms added.

        :param rows: ascending.
        """
        bounds = np.searchsorted(rows, self._firsts)
        for number, (norms, first) in enumerate(zip(self._norms, self._firsts[:-1], strict=True)):
            part = slice(bounds[number], bounds[number + 1])
            own = rows[part] - first
            for term in terms:
                tf = _frequencies_of(own, *term.postings.lists[number]).astype(np.float32)
                scores[part] += term.bound * tf / (tf + norms[own])
        return scores

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

        :param ids: ascending.
        :returns: an array of shape (len(terms), len(ids)), and the inverse document frequencies.
        """
        table, postings = np.zeros((len(terms), len(ids)), np.uint8), self._postings(terms)
        for number, rows, columns in self._rows(ids):
            by_row = np.zeros(len(self._parts[number].segment), np.uint8)
            for frequencies, of_term in zip(table, postings, strict=True):
                with_term, counts = of_term.lists[number]
                if len(with_term) > _LONG * len(rows):
                    frequencies[columns] = _frequencies_of(rows, with_term, counts)
                else:
                    by_row[with_term] = counts
                    frequencies[columns] = by_row[rows]
                    by_row.fill(0)
        return table, [self._idf(of_term.frequency) for of_term in postings]

    def lengths(self, ids: Ids) -> NDArray[np.int32]:
        """Return the number of stems of each of these passages, shape (len(ids),).

        :param ids: ascending.
        """
        lengths = np.zeros(len(ids), np.int32)
        for number, rows, positions in self._rows(ids):
            lengths[positions] = self._parts[number].segment.lengths[rows]
        return lengths

    @cached_property
    def _outer_ids(self) -> Ids:
        """The first id of each segment, and one more than its last, shape (segments, 2)."""
        parts = [part.segment.ids for part in self._parts]
        return np.array([(ids[0], ids[-1] + 1) if len(ids) else (0, 0) for ids in parts], np.int64).reshape(-1, 2)

    def _rows(self, ids: Ids) -> Iterator[tuple[int, Positions, Positions | slice]]:
        """Yield the number of each segment with some of these passages, their rows, and their positions in `ids`.

        :param ids: ascending.
        """
        bounds = np.searchsorted(ids, self._outer_ids)
        for number in np.flatnonzero(bounds[:, 1] > bounds[:, 0]).tolist():
            own, (first_id, end_id), (start, stop) = (
                self._parts[number].segment.ids,
                self._outer_ids[number],
                bounds[number],
            )
            if end_id - first_id == len(own):  # no id is missing
                yield number, ids[start:stop] - first_id, slice(start, stop)
                continue
            rows = np.searchsorted(own, ids[start:stop])
            exists = own[rows] == ids[start:stop]
            if exists.any():
                yield number, rows[exists], start + np.flatnonzero(exists)

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
        passages with all of its tokens, and the caller looks for the literal itself in them.
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

    :param with_term: the rows of the posting list, in ascending order, one for each of `counts`. There may be none.
    """
    if not len(with_term):
        return np.zeros(len(rows), np.uint8)
    own = rows.astype(with_term.dtype)
    positions = np.searchsorted(with_term, own)
    np.minimum(positions, len(with_term) - 1, out=positions)
    frequencies: NDArray[np.uint8] = counts.take(positions)
    frequencies *= with_term.take(positions) == own
    return frequencies


def _best(scores: Floats, ids: Ids, k: int) -> tuple[Floats, Ids]:
    """Return the k highest scores and their ids; equal scores in ascending order of id."""
    if 0 < k < len(scores):
        high = scores >= np.partition(scores, len(scores) - k)[len(scores) - k]
        scores, ids = scores[high], ids[high]
    best = np.lexsort((ids, -scores))[: max(k, 0)]
    return scores[best], ids[best]
