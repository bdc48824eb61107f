"""Find texts that mostly repeat others, by their runs of five tokens (shingles: Broder 1997).

Texts that a model learned from cannot test it; neither can copies of them with a changed word.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

_RUN = 5  # tokens
_SHARED = 0.5  # maximum share of known runs in an unknown text
_FACTORS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x27D4EB2F165667C5, 1], np.uint64)


class KnownTexts:
    """The hashed runs of texts given as token ids; 8 bytes a run."""

    def __init__(self, texts: Iterable[Sequence[int] | NDArray[np.int64]]) -> None:
        runs = [_runs(text) for text in texts]
        self._runs = np.unique(np.concatenate(runs)) if runs else np.empty(0, np.uint64)

    def holds(self, text: Sequence[int] | NDArray[np.int64]) -> bool:
        """Whether more than half of a text's runs are known."""
        runs = _runs(text)
        if not len(runs) or not len(self._runs):
            return False
        rows = np.searchsorted(self._runs, runs).clip(max=len(self._runs) - 1)
        return bool((self._runs[rows] == runs).mean() > _SHARED)


def _runs(text: Sequence[int] | NDArray[np.int64]) -> NDArray[np.uint64]:
    """Hash each run of a text; a text shorter than a run is one run."""
    ids = np.asarray(text, np.uint64)
    length = min(_RUN, len(ids))
    if not length:
        return ids
    windows = np.lib.stride_tricks.sliding_window_view(ids + np.uint64(1), length)
    hashes: NDArray[np.uint64] = (windows * _FACTORS[:length]).sum(axis=1, dtype=np.uint64)
    return hashes
