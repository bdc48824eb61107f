"""Build segments: from texts, and from other segments without their deleted rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...core import terms
from .segment import MAX_COUNT, FieldPostings, Segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from ...core.arrays import Ids, Mask
    from .segment import Bytes, Numbers

    Integers = NDArray[np.int64]


class _Numbers(dict[str, int]):
    """Numbers each new key from 0."""

    def __missing__(self, key: str) -> int:
        number = self[key] = len(self)
        return number


class SegmentBuilder:
    """Collects passages for one segment, in ascending order of id."""

    def __init__(self) -> None:
        self._ids: list[Ids] = []
        self._tokens = _Numbers()  # unchanged from the texts: each distinct token is analysed once
        self._numbers: list[Numbers] = []
        self._counts: list[int] = []  # tokens of each passage

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, ids: Ids, texts: Iterable[str]) -> None:
        """Add passages and their texts."""
        batch: list[str] = []
        for text in texts:
            tokens = terms.tokens(text)
            batch += tokens
            self._counts.append(len(tokens))
        self._ids.append(ids)
        self._numbers.append(np.fromiter(map(self._tokens.__getitem__, batch), np.uint32, len(batch)))

    def build(self) -> Segment:
        """Return the segment of all passages so far."""
        ids = np.concatenate([np.empty(0, np.int64), *self._ids])
        numbers = np.concatenate([np.empty(0, np.uint32), *self._numbers])
        rows = np.repeat(np.arange(len(ids)), self._counts)
        stem_terms, stem_rows = self._analysed(terms.stems, numbers, rows)
        lengths = np.bincount(stem_rows, minlength=len(ids)).astype(np.uint32)
        stems = _field(*stem_terms, stem_rows, len(ids))
        whole_terms, whole_rows = self._analysed(terms.whole, numbers, rows)
        whole = _field(*whole_terms, whole_rows, len(ids))
        return Segment(ids, lengths, stems, _without_counts(whole))

    def _analysed(
        self, analyse: Callable[[str], list[str]], numbers: Numbers, rows: Integers
    ) -> tuple[tuple[list[bytes], Integers], Integers]:
        """Return the vocabulary, the term of each occurrence as a number in it, and the row of each occurrence."""
        vocabulary = _Numbers()
        lists = [analyse(token) for token in self._tokens]
        sizes = np.fromiter(map(len, lists), np.int64, len(lists))
        flat = np.fromiter((vocabulary[term] for part in lists for term in part), np.int64, int(sizes.sum()))
        order = sorted((term.encode(), number) for term, number in vocabulary.items())
        ranks = np.empty(len(order), np.int64)
        ranks[[number for _, number in order]] = np.arange(len(order))
        repeats = sizes[numbers]
        starts = np.repeat((np.cumsum(sizes) - sizes)[numbers], repeats)
        within = np.arange(len(starts)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
        return ([term for term, _ in order], ranks[flat[starts + within]]), np.repeat(rows, repeats)


def merge(segments: Sequence[Segment], live: Sequence[Mask | None]) -> Segment:
    """Return one segment of the live rows of several.

    :param segments: each with higher ids than the previous segment.
    :param live: a mask for each segment; None if all its rows are live.
    """
    masks = [np.ones(len(part), bool) if mask is None else mask for part, mask in zip(segments, live, strict=True)]
    live_rows = [np.flatnonzero(mask) for mask in masks]
    ids = np.concatenate([part.ids[rows] for part, rows in zip(segments, live_rows, strict=True)])
    lengths = np.concatenate([part.lengths[rows] for part, rows in zip(segments, live_rows, strict=True)])
    new_rows, first = [], 0
    for part, rows in zip(segments, live_rows, strict=True):
        positions = np.full(len(part), -1, np.int64)
        positions[rows] = np.arange(first, first + len(rows))
        new_rows.append(positions)
        first += len(rows)
    stems = _merge_fields([part.stems for part in segments], new_rows, len(ids))
    whole = _merge_fields([part.whole for part in segments], new_rows, len(ids))
    return Segment(ids, lengths, stems, _without_counts(whole))


def _merge_fields(fields: Sequence[FieldPostings], new_rows: Sequence[Integers], size: int) -> FieldPostings:
    """Merge fields; terms without a live row vanish.

    :param new_rows: of each field, the new row of each old one; -1 if it was deleted.
    """
    vocabularies = [field.terms() for field in fields]
    vocabulary = sorted(set().union(*vocabularies))
    ranks = {term: number for number, term in enumerate(vocabulary)}
    keys = []
    for field, words, positions in zip(fields, vocabularies, new_rows, strict=True):
        numbers = np.fromiter(map(ranks.__getitem__, words), np.int64, len(words))
        numbers = np.repeat(numbers, field.document_frequencies())
        rows = positions[field.rows]
        counts = field.counts if len(field.counts) else np.ones(len(rows), np.uint8)
        exists = rows >= 0
        keys.append((numbers[exists] * size + rows[exists]) << 8 | counts[exists])
    packed = np.sort(np.concatenate(keys))
    return _packed_field(vocabulary, packed >> 8, (packed & MAX_COUNT).astype(np.uint8), size)


def _field(vocabulary: list[bytes], numbers: Integers, rows: Integers, size: int) -> FieldPostings:
    """Return the field of these occurrences of terms in rows.

    :param numbers: the term of each occurrence, shape (n,).
    :param rows: the row of each occurrence, shape (n,).
    :param size: the number of rows.
    """
    keys = np.sort(numbers * size + rows)
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    counts = np.diff(starts, append=len(keys)).clip(max=MAX_COUNT).astype(np.uint8)
    return _packed_field(vocabulary, keys[starts], counts, size)


def _packed_field(vocabulary: list[bytes], keys: Integers, counts: Bytes, size: int) -> FieldPostings:
    """Return the field of these postings.

    :param keys: term * size + row of each posting, ascending, each once.
    """
    numbers, rows = np.divmod(keys, max(size, 1))
    frequencies = np.bincount(numbers, minlength=len(vocabulary))
    if not frequencies.all():
        vocabulary = [term for term, frequency in zip(vocabulary, frequencies.tolist(), strict=True) if frequency]
        frequencies = frequencies[frequencies > 0]
    return FieldPostings(
        np.frombuffer(b"".join(vocabulary), np.uint8),
        np.cumsum(np.fromiter(map(len, vocabulary), np.int64, len(vocabulary))).astype(np.uint32),
        np.cumsum(frequencies).astype(np.uint32),
        rows.astype(np.uint16),
        counts,
    )


def _without_counts(field: FieldPostings) -> FieldPostings:
    return FieldPostings(field.vocabulary, field.ends, field.stops, field.rows, field.counts[:0])
