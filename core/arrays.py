"""Names of array types, and membership tests on sorted int64 arrays in O(log n) per id."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Ids = NDArray[np.int64]  # of chunks, documents or keys
Integers = NDArray[np.int64]
Positions = NDArray[np.intp]  # indices into another array
Mask = NDArray[np.bool_]

_FEW = 65_536  # new keys that are sorted again whenever some are added
_NONE = np.empty(0, np.int64)


def are_among(ids: Ids, known: Ids) -> NDArray[np.bool_]:
    """As `np.isin`, where `known` ascends."""
    if not len(known):
        return np.zeros(len(ids), np.bool_)
    places = np.searchsorted(known, ids).clip(max=len(known) - 1)
    found: NDArray[np.bool_] = known[places] == ids
    return found


class Keys:
    """A growing set of numbers. The new ones are kept apart, so that few have to be sorted when some are added."""

    def __init__(self, keys: Ids) -> None:
        self._most = np.sort(keys)
        self._new = _NONE

    def add(self, keys: Ids) -> None:
        self._new = _sorted(self._new, keys)
        if len(self._new) > _FEW:
            self._most, self._new = _sorted(self._most, self._new), _NONE

    def hold(self, keys: Ids) -> NDArray[np.bool_]:
        """Which of these are in the set."""
        return are_among(keys, self._most) | are_among(keys, self._new)


def _sorted(some: Ids, others: Ids) -> Ids:
    return np.sort(np.concatenate([some, others]), kind="stable")  # which merges what is sorted already
