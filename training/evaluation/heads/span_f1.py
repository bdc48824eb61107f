"""The F1 of spans with labels, as conlleval and seqeval compute it: label and both ends must be right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from numpy.typing import NDArray


def counts(
    predicted: Sequence[Sequence[Hashable]], true: Sequence[Sequence[Hashable]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return for each text the number of right spans, and of predicted and true ones together."""
    hits = [len(set(own) & set(known)) for own, known in zip(predicted, true, strict=True)]
    totals = [len(set(own)) + len(set(known)) for own, known in zip(predicted, true, strict=True)]
    return np.array(hits, np.int64), np.array(totals, np.int64)


def span_f1(hits: NDArray[Any], totals: NDArray[Any]) -> float:
    """Return F1 over all spans of all texts; 0 without spans, as in seqeval."""
    total = totals.sum()
    return float(2 * hits.sum() / total) if total else 0.0
