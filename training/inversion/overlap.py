"""Which texts stand for the most part in others: by their runs of five tokens (shingles: Broder 1997).

What was learned from is no test of what was learned; neither is a copy of it in which a word was changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

_LONG = 5  # tokens of a run
_MOST = 0.5  # share of a text's runs up to which it is another text
_FACTORS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x27D4EB2F165667C5, 1], np.uint64)


class Known:
    """The runs of some texts, each as token ids; 8 bytes a run."""

    def __init__(self, texts: Iterable[Sequence[int] | NDArray[np.int64]]) -> None:
        found = [_runs(text) for text in texts]
        self._runs = np.unique(np.concatenate(found)) if found else np.empty(0, np.uint64)

    def holds(self, text: Sequence[int] | NDArray[np.int64]) -> bool:
        """Whether more than half of the runs of a text are in those of the texts."""
        runs = _runs(text)
        if not len(runs) or not len(self._runs):
            return False
        places = np.searchsorted(self._runs, runs).clip(max=len(self._runs) - 1)
        return bool((self._runs[places] == runs).mean() > _MOST)


def _runs(text: Sequence[int] | NDArray[np.int64]) -> NDArray[np.uint64]:
    """A number for each run; of a text that is shorter one."""
    ids = np.asarray(text, np.uint64)
    long = min(_LONG, len(ids))
    if not long:
        return ids
    windows = np.lib.stride_tricks.sliding_window_view(ids + np.uint64(1), long)
    runs: NDArray[np.uint64] = (windows * _FACTORS[:long]).sum(axis=1, dtype=np.uint64)
    return runs
