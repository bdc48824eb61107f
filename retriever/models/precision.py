"""Check on the user's own texts, on this processor, whether int8 is faster and ranks nearly the same."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...core.errors import InputError
from .bert.openvino import has_int8_products
from .files import INT8
from .load import load_encoder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...core.arrays import Floats
    from .encoder import Encoder

_FEWEST = 100  # passages, to compare ten nearest among
_MOST = 400
_QUERY_WORDS = 8
_TIMED = 64  # passages, in each of the rounds
_ROUNDS = 3
# Limits for int8: minimum speedup, minimum share of the nearest ten that stay, maximum share of first places lost.
_LEAST_SPEEDUP, _LEAST_AGREEMENT, _MOST_PLACES_LOST = 1.15, 0.9, 0.02


@dataclass(frozen=True, slots=True)
class Int8Check:
    """Int8 against the encoder's own precision, on passages and on queries made of eight words of each."""

    passages: int
    speedup: float = 1.0  # processor time of the own precision by that of int8
    agreement: float = 0.0  # share of the ten nearest passages of a query that are the same
    first_places_lost: float = 0.0  # fall of the share of queries that rank their own passage first

    @property
    def passed(self) -> bool:
        """Whether int8 is faster and ranks nearly the same."""
        return (
            self.passages >= _FEWEST
            and self.speedup >= _LEAST_SPEEDUP
            and self.agreement >= _LEAST_AGREEMENT
            and self.first_places_lost <= _MOST_PLACES_LOST
        )

    def as_text(self) -> str:
        """One line for people."""
        if self.passages < _FEWEST:
            return f"not int8: {self.passages:,} passages are too few to check it on (at least {_FEWEST})"
        verdict, decrease = "int8" if self.passed else "not int8", max(0.0, self.first_places_lost)
        return (
            f"{verdict}: {self.speedup:.2f} times as fast here, {self.agreement:.0%} of the nearest ten are the same, "
            f"{decrease:.1%} of queries lost their first place ({self.passages:,} of your passages)"
        )


def reason_against_int8(model: str) -> str:
    """Return why an encoder cannot be faster in int8 here, or an empty text."""
    if not has_int8_products():
        return "this processor does not multiply int8 (AVX-512 VNNI, AVX-VNNI or AMX)"
    load_encoder(model)  # an error in its folder is raised
    try:
        load_encoder(model + INT8)
    except InputError:
        return f"{model} is no plain BERT encoder"
    return ""


def check_int8(model: str, texts: Sequence[str]) -> Int8Check:
    """Compare a plain BERT encoder with itself in int8.

    :param model: its folder or name.
    :param texts: passages; at most 400 of them, evenly spaced, are compared.
    :raises InputError: when the model cannot be computed in int8.
    """
    sample = [texts[row] for row in np.linspace(0, len(texts) - 1, min(len(texts), _MOST)).astype(np.intp)]
    own, int8 = load_encoder(model), load_encoder(model + INT8)
    if len(sample) < _FEWEST:
        return Int8Check(len(sample))
    vectors, rounded = own.encode(sample), int8.encode(sample)
    queries = own.encode([_query(text) for text in sample], kind="query")
    before, after = _nearest(queries, vectors), _nearest(queries, rounded)
    same = [len(set(left) & set(right)) for left, right in zip(before.tolist(), after.tolist(), strict=True)]
    rows = np.arange(len(sample))
    fewer_first = float((before[:, 0] == rows).mean() - (after[:, 0] == rows).mean())
    return Int8Check(
        len(sample), _speedup(own, int8, sample[:_TIMED]), float(np.mean(same)) / before.shape[1], fewer_first
    )


def _query(text: str) -> str:
    """Return words from the middle of a passage."""
    words = text.split()
    start = max(0, (len(words) - _QUERY_WORDS) // 2)
    return " ".join(words[start : start + _QUERY_WORDS])


def _nearest(queries: Floats, vectors: Floats) -> np.ndarray[tuple[int, int], np.dtype[np.intp]]:
    order: np.ndarray[tuple[int, int], np.dtype[np.intp]] = np.argsort(-(queries @ vectors.T), axis=1, kind="stable")
    return order[:, :10]


def _speedup(own: Encoder, int8: Encoder, texts: Sequence[str]) -> float:
    """Return the least processor time of one encoder by that of the other; they take turns."""
    seconds: dict[str, list[float]] = {own.fingerprint: [], int8.fingerprint: []}
    for _ in range(_ROUNDS):
        for encoder in (own, int8):
            start = time.process_time()
            encoder.encode(texts)
            seconds[encoder.fingerprint].append(time.process_time() - start)
    return min(seconds[own.fingerprint]) / min(seconds[int8.fingerprint])
