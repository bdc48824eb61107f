"""Find texts that repeat others, by their runs of tokens (shingles: Broder 1997).

Texts that a model learned from cannot test it; neither can copies of them with a changed word.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

LONG_RUN = 32  # tokens in a row; two texts that share this many have a common source
_RUN = 5  # tokens
_SHARED = 0.5  # maximum share of known runs in an unknown text
_FACTORS = np.cumprod(np.full(LONG_RUN, 0x9E3779B97F4A7C15, np.uint64), dtype=np.uint64)  # of a polynomial, mod 2**64


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


class RepeatedTexts:
    """Finds which of some texts are repeated in a stream of others; only the former are kept in memory.

    :param texts: as token ids.
    """

    def __init__(self, texts: Iterable[Sequence[int]]) -> None:
        rows = list(texts)
        self._short = _Marked([_runs(row) for row in rows])
        self._long = _Marked([_runs(row, LONG_RUN) if len(row) >= LONG_RUN else _NONE for row in rows])

    def meet(self, texts: Sequence[Sequence[int]]) -> None:
        """Mark the runs that these texts hold as well."""
        self._short.mark([_runs(text) for text in texts])
        self._long.mark([_runs(text, LONG_RUN) for text in texts if len(text) >= LONG_RUN])

    def copies(self) -> list[bool]:
        """Whether more than half of each text's runs stand in texts that were met, as in `KnownTexts.holds`."""
        return [bool(share > _SHARED) for share in self._short.shares()]

    def sharing(self) -> list[bool]:
        """Whether `LONG_RUN` neighbouring tokens of each text stand in a text that was met."""
        return [share > 0 for share in self._long.shares()]


class _Marked:
    """The hashed runs of several texts, and which of them were met."""

    def __init__(self, rows: Sequence[NDArray[np.uint64]]) -> None:
        self._runs, inverse = np.unique(np.concatenate([*rows, _NONE]), return_inverse=True)
        self._rows = np.split(inverse, np.cumsum([len(row) for row in rows])[:-1]) if rows else []
        self._is_met = np.zeros(len(self._runs), bool)

    def mark(self, rows: Sequence[NDArray[np.uint64]]) -> None:
        runs = np.concatenate([*rows, _NONE])
        if len(self._runs):
            positions = np.searchsorted(self._runs, runs).clip(max=len(self._runs) - 1)
            self._is_met[positions[self._runs[positions] == runs]] = True

    def shares(self) -> list[float]:
        """The share of each text's runs that were met; 0 of a text without runs."""
        return [float(self._is_met[row].mean()) if len(row) else 0.0 for row in self._rows]


_NONE = np.empty(0, np.uint64)


def _runs(text: Sequence[int] | NDArray[np.int64], length: int = _RUN) -> NDArray[np.uint64]:
    """Hash each run of a text; a text shorter than a run is one run."""
    ids = np.asarray(text, np.uint64)
    length = min(length, len(ids))
    if not length:
        return ids
    windows = np.lib.stride_tricks.sliding_window_view(ids + np.uint64(1), length)
    hashes: NDArray[np.uint64] = (windows * _FACTORS[:length]).sum(axis=1, dtype=np.uint64)
    return hashes
