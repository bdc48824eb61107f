"""Names for array types, and sets of int64 ids with membership tests in O(log n) per id."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Ids = NDArray[np.int64]  # of chunks, documents or keys
Integers = NDArray[np.int64]
Positions = NDArray[np.intp]  # indices into another array
Mask = NDArray[np.bool_]

_Item = TypeVar("_Item", np.int64, np.intp)
_MAX_NEW = 65_536  # new keys, which are sorted again on every addition
_NONE = np.empty(0, np.int64)
_NPY = re.compile(
    rb"\x93NUMPY\x01\x00..{'descr': '(<i8|<f4)', 'fortran_order': False, "
    rb"'shape': \((\d{1,12}),(?: (\d{1,12}))?\), } *\n",
    re.DOTALL,
)


def from_npy(data: bytes) -> NDArray[Any]:
    """Return the array of one or two dimensions in a .npy file that `np.save` wrote.

    numpy's own reader allocates what a header claims before it looks at the size of the file.

    :raises ValueError: when the file has another header, or not the size that its header says.
    """
    match = _NPY.match(data)
    if match is None:
        raise ValueError("it is not an array as it was written here")
    shape = tuple(int(number) for number in match.groups()[1:] if number)
    return np.frombuffer(data, match[1].decode(), offset=match.end()).reshape(shape)


def isin_sorted(ids: Ids, known: Ids) -> Mask:
    """Return a mask of the ids that are in `known`, an ascending array; faster than `np.isin`."""
    if not len(known):
        return np.zeros(len(ids), np.bool_)
    positions = np.searchsorted(known, ids).clip(max=len(known) - 1)
    matches: Mask = known[positions] == ids
    return matches


def distinct(values: NDArray[_Item]) -> NDArray[_Item]:
    """Return the different values, ascending, as `np.unique` does.

    That one imports numpy.ma, which takes a new process 20 ms.
    """
    values = np.sort(values)
    is_first = np.ones(len(values), np.bool_)
    is_first[1:] = values[1:] != values[:-1]
    return values[is_first]


class Keys:
    """A growing set of numbers. New keys are kept apart for a while, so that an addition sorts only those."""

    def __init__(self, keys: Ids) -> None:
        self._sorted = np.sort(keys)
        self._new = _NONE

    def add(self, keys: Ids) -> None:
        """Add keys in any order; the whole set is merged anew only after 65,536 new ones."""
        self._new = _merge(self._new, keys)
        if len(self._new) > _MAX_NEW:
            self._sorted, self._new = _merge(self._sorted, self._new), _NONE

    def contains(self, keys: Ids) -> Mask:
        """Return a mask of the keys that are in the set."""
        return isin_sorted(keys, self._sorted) | isin_sorted(keys, self._new)


def _merge(left: Ids, right: Ids) -> Ids:
    return np.sort(np.concatenate([left, right]), kind="stable")  # a stable sort merges runs that are sorted already
