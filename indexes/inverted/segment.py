"""A segment: the terms of some passages as arrays, in memory or mapped from one file.

    ids          int64   (passages,)     ascending
    lengths      uint32  (passages,)     stems of each passage, with repetitions
    of each field, `stems` and `whole`:
      vocabulary uint8   (bytes,)        the terms in UTF-8, sorted, one after another
      ends       uint32  (terms,)        where each term ends in the vocabulary
      stops      uint32  (terms,)        where the postings of each term end
      rows       uint16  (postings,)     the passages with a term, as places in `ids`, ascending
      counts     uint8   (postings,)     how often it occurs there, up to 255; of `stems` alone

A file may come from a stranger. Its size and the sizes of its arrays are checked when it is opened, and the postings of
a term when they are read: opening reads a few pages only.
"""

from __future__ import annotations

import mmap
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...core.errors import DamagedError
from ...core.files import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ...core.arrays import Ids, Positions

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.uint32]

Rows = NDArray[np.uint16]

MAX_ROWS = 65_536  # so that a row fits into 16 bits
MAX_COUNT = 255
MAX_ASCII = 127
_FOREIGN = np.uint32(1 << 31)
_SIGNS = np.full(256, 1 << 26, np.uint32)  # a bit for each letter, one for all other signs of ASCII, and one for others
_SIGNS[ord("a") : ord("z") + 1] = 1 << np.arange(26)
_SIGNS[MAX_ASCII + 1 :] = _FOREIGN
_ALIGNMENT = 8
_CACHED_TERMS = 8_192  # terms that a field remembers the places of


@dataclass(frozen=True, slots=True)
class FieldPostings:
    """The terms of one kind, and their postings."""

    vocabulary: Bytes
    ends: Numbers
    stops: Numbers
    rows: Rows
    counts: Bytes  # empty if the field has none
    _bounds: dict[str, tuple[int, int]] = field(default_factory=dict, compare=False, repr=False)  # of postings, by term

    def __len__(self) -> int:
        return len(self.ends)

    def term(self, number: int) -> bytes:
        """Return a term by its place in the vocabulary."""
        start = int(self.ends[number - 1]) if number else 0
        return self.vocabulary[start : int(self.ends[number])].tobytes()

    def first_from(self, term: bytes) -> int:
        """Return the place of the first term that is not before this one."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self.term(middle) < term:
                low = middle + 1
            else:
                high = middle
        return low

    def postings(self, term: str, size: int) -> tuple[Rows, Bytes]:
        """Return the rows with a term and how often each holds it; empty arrays if none does.

        The next query with this term finds its place at once.

        :param size: of the segment.
        :raises DamagedError: when they are no rows of the segment.
        """
        bounds = self._bounds.get(term)
        if bounds is None:
            bounds = self._bounds_of(term.encode(), size)
            if len(self._bounds) >= _CACHED_TERMS:
                self._bounds.clear()
            self._bounds[term] = bounds
        return self.rows[slice(*bounds)], self.counts[slice(*bounds)]

    def _bounds_of(self, term: bytes, size: int) -> tuple[int, int]:
        number = self.first_from(term)
        if number == len(self) or self.term(number) != term:
            return 0, 0
        return self._bounds_at(number, size)

    def _bounds_at(self, number: int, size: int) -> tuple[int, int]:
        start = int(self.stops[number - 1]) if number else 0
        stop = int(self.stops[number])
        if not start <= stop <= len(self.rows):
            raise DamagedError("a posting list of the inverted index does not lie within it")
        if stop > start and int(self.rows[start:stop].max()) >= size:
            raise DamagedError("a posting list of the inverted index names passages that it does not have")
        return start, stop

    def rows_at(self, number: int, size: int) -> Rows:
        """Return the rows with the term at this place in the vocabulary.

        :param size: of the segment.
        :raises DamagedError: when they are no rows of the segment.
        """
        return self.rows[slice(*self._bounds_at(number, size))]

    def terms(self, first: int = 0, last: int | None = None) -> list[bytes]:
        """Return the terms from one place in the vocabulary up to another."""
        ends = self.ends[first:last].tolist()
        start = int(self.ends[first - 1]) if first else 0
        text = self.vocabulary[start : ends[-1] if ends else start].tobytes()
        bounds = [0, *(end - start for end in ends)]
        return [text[first:last] for first, last in pairwise(bounds)]

    def similar(self, word: str, errors: int, first: int, last: int) -> Positions:
        """Return the positions of all terms within a few errors of a word, and of some others, from `first` to `last`.

        Terms of ASCII are chosen by length and shared letters, all others by their least length alone.

        :raises DamagedError: when the ends of the terms do not ascend.
        """
        bounds = np.concatenate([self.ends[first - 1 : first] if first else [0], self.ends[first:last]]).astype(
            np.int64
        )
        starts, lengths = bounds[:-1], np.diff(bounds)
        if len(lengths) and (lengths.min() < 1 or bounds[-1] > len(self.vocabulary)):
            raise DamagedError("the terms of the inverted index do not lie one after another")
        if not len(lengths):
            return starts
        signs = np.bitwise_or.reduceat(_SIGNS[self.vocabulary[starts[0] : bounds[-1]]], starts - starts[0])
        letters_of_word = np.frombuffer(word.encode("ascii", "ignore"), np.uint8)
        own = np.bitwise_or.reduce(_SIGNS[letters_of_word], initial=np.uint32(0))
        is_foreign = signs >= _FOREIGN
        missing, more = np.bitwise_count(own & ~signs), np.bitwise_count(signs & ~own)
        near = np.flatnonzero(
            ~is_foreign & (np.abs(lengths - len(word)) <= errors) & (missing <= errors) & (more <= errors)
        )
        offsets = np.arange(len(word) + errors)
        letters = self.vocabulary[np.minimum(starts[near, None] + offsets, len(self.vocabulary) - 1)]
        letters[offsets >= lengths[near, None]] = 0
        shared = np.zeros(len(near), np.int64)
        for letter, count in Counter(word).items():
            shared += np.minimum(np.count_nonzero(letters == ord(letter), axis=1), count)
        near = near[shared >= np.maximum(lengths[near], len(word)) - errors]
        return first + np.sort(np.concatenate([near, np.flatnonzero(is_foreign & (lengths >= len(word) - errors))]))

    def document_frequencies(self) -> Numbers:
        """Return the number of rows of each term."""
        frequencies: Numbers = np.diff(self.stops, prepend=np.uint32(0))
        return frequencies

    def is_valid(self, size: int) -> bool:
        """Whether the arrays belong together, in an index of `size` rows; it reads all of them."""
        terms = self.terms() if _ascends(self.ends) else []
        return (
            len(terms) == len(self)
            and int(self.ends[-1] if len(terms) else 0) == len(self.vocabulary)
            and all(before < after for before, after in pairwise(terms))
            and self.has_postings(size)
        )

    def has_postings(self, size: int) -> bool:
        """Whether the posting lists lie within the field, one after another, and name rows of `size`."""
        return (
            _ascends(self.stops)
            and int(self.stops[-1] if len(self) else 0) == len(self.rows)
            and int(self.rows.max(initial=0)) < max(size, 1)
        )


@dataclass(frozen=True, slots=True)
class Segment:
    """The terms of some passages."""

    ids: Ids
    lengths: Numbers
    stems: FieldPostings
    whole: FieldPostings

    def __len__(self) -> int:
        return len(self.ids)

    def sizes(self) -> dict[str, int]:
        """The number of items in each array, by name."""
        return {name: len(array) for name, array in _arrays(self)}

    def write(self, file: Path) -> None:
        """Write the arrays to a new file, one after another, each from a multiple of 8 bytes."""
        with file.open("xb") as stream:
            for _, array in _arrays(self):
                stream.write(np.ascontiguousarray(array).data)
                stream.write(bytes(-stream.tell() % _ALIGNMENT))

    @classmethod
    def open(cls, file: Path, sizes: Any) -> Segment:
        """Map a file.

        :param sizes: what `sizes` returned.
        :raises DamagedError: when the file cannot have these arrays.
        """
        if not _are_sizes(sizes):
            raise DamagedError(f"{file} does not have the arrays of an inverted index")
        try:
            with open_regular(file) as stream:
                content = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise DamagedError(f"{file} cannot be read: {error}") from error
        if len(content) != sum(_padded(sizes[name] * _TYPES[name].itemsize) for name in _TYPES):
            raise DamagedError(f"{file} has {len(content)} bytes, which do not fit its arrays")
        arrays, offset = {}, 0
        for name, kind in _TYPES.items():
            arrays[name] = np.frombuffer(content, kind, sizes[name], offset)
            offset += _padded(sizes[name] * kind.itemsize)
        return cls(arrays["ids"], arrays["lengths"], _field(arrays, "stems"), _field(arrays, "whole"))

    def check(self) -> None:
        """Check the values of all arrays.

        :raises DamagedError: when no segment can have them.
        """
        if not (_ascends(self.ids) and self.stems.is_valid(len(self)) and self.whole.is_valid(len(self))):
            raise DamagedError("a segment of the inverted index holds impossible values")

    def postings(self, field: FieldPostings, term: str) -> tuple[Rows, Bytes]:
        """Return the rows with a term of a field, and how often each holds it.

        :raises DamagedError: when they are no rows of this segment.
        """
        return field.postings(term, len(self))


_FIELD_TYPES = {"vocabulary": np.uint8, "ends": np.uint32, "stops": np.uint32, "rows": np.uint16, "counts": np.uint8}
_TYPES: dict[str, np.dtype[Any]] = {
    "ids": np.dtype("<i8"),
    "lengths": np.dtype("<u4"),
    **{
        f"{field}.{name}": np.dtype(kind).newbyteorder("<")
        for field in ("stems", "whole")
        for name, kind in _FIELD_TYPES.items()
    },
}


def _are_sizes(sizes: Any) -> bool:
    return (
        isinstance(sizes, dict)
        and sizes.keys() == _TYPES.keys()
        and all(type(size) is int and 0 <= size < 2**40 for size in sizes.values())
        and sizes["ids"] == sizes["lengths"] <= MAX_ROWS
        and all(sizes[f"{field}.ends"] == sizes[f"{field}.stops"] for field in ("stems", "whole"))
        and sizes["stems.counts"] == sizes["stems.rows"]
        and sizes["whole.counts"] == 0
    )


def _ascends(array: NDArray[Any]) -> bool:
    """Whether each value is greater than the value before it."""
    return bool((array[1:] > array[:-1]).all())


def _padded(size: int) -> int:
    return size + -size % _ALIGNMENT


def _arrays(segment: Segment) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield the arrays in the order of the file."""
    for name in _TYPES:
        field, _, part = name.rpartition(".")
        yield name, getattr(getattr(segment, field) if field else segment, part)


def _field(arrays: dict[str, NDArray[Any]], name: str) -> FieldPostings:
    return FieldPostings(**{part: arrays[f"{name}.{part}"] for part in _FIELD_TYPES})  # type: ignore[arg-type]
