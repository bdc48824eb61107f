"""Pairs of neighbouring segments for the two objectives that ask how segments belong together.

Next sentence (NSP; Devlin et al. 2019, arXiv:1810.04805, section 3.1): the second segment follows the first, or half
of the time comes from another document. Sentence order (SOP; Lan et al. 2020, arXiv:1909.11942, section 3.1): both are
neighbours, and half of the time swapped. Segments begin where sentences do, whatever the label, so that only what
they say can tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..data.tokenized import INSIDE, SENTENCE, Row
from .masking import IGNORED

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..data.tokenized import Rows

GENUINE, CHANGED = 0, 1  # labels as transformers' BERT and ALBERT heads have them


@dataclass(frozen=True, slots=True)
class Pair:
    """`second` is None and `label` is `IGNORED` for a row of one sentence, which cannot be cut in two."""

    first: Row
    second: Row | None = None
    label: int = IGNORED


def alone(rows: Rows, number: int, random: np.random.Generator) -> Pair:  # noqa: ARG001 - one signature in the table
    return Pair(rows[number])


def sentence_order(rows: Rows, number: int, random: np.random.Generator) -> Pair:
    """A row cut in two at a sentence, the parts swapped half of the time."""
    row = rows[number]
    at = _place(row, random)
    if at is None:
        return Pair(row)
    first, second = row[:at], row[at:]
    return Pair(second, first, CHANGED) if random.random() < 0.5 else Pair(first, second, GENUINE)


def next_sentence(rows: Rows, number: int, random: np.random.Generator) -> Pair:
    """A row cut in two at a sentence, the second part half of the time from another document.

    It is then as long as the one it replaces, as far as its document goes, so that the length does not tell.
    """
    row = rows[number]
    at = _place(row, random)
    if at is None:
        return Pair(row)
    if random.random() < 0.5:
        return Pair(row[:at], row[at:], GENUINE)
    return Pair(row[:at], _from(rows, elsewhere(rows, number, random), len(row) - at, random), CHANGED)


OBJECTIVES: dict[str, Callable[[Rows, int, np.random.Generator], Pair]] = {
    "mlm": alone,
    "mlm+nsp": next_sentence,
    "mlm+sop": sentence_order,
}


def elsewhere(rows: Rows, number: int, random: np.random.Generator) -> int:
    """Any row of another document, each as likely; the rows of a document stand together."""
    low, high = np.searchsorted(rows.documents, rows.documents[number] + np.array([0, 1]))
    other = int(random.integers(0, len(rows) - (high - low)))
    return other if other < low else other + int(high - low)


def _from(rows: Rows, number: int, length: int, random: np.random.Generator) -> Row:
    """Up to `length` tokens of a document, from the beginning of a sentence in that row."""
    row = rows[number]
    row = row[_place(row, random) or 0 :]
    document = rows.documents[number]
    while len(row) <= length and number + 1 < len(rows) and rows.documents[number + 1] == document:
        number += 1
        row = row + rows[number]
    end = min(length, len(row))
    while 1 < end < len(row) and row.starts[end] == INSIDE:
        end -= 1
    return row[:end]


def _place(row: Row, random: np.random.Generator) -> int | None:
    """Where in the row one of its sentences begins, the first left out."""
    places = np.flatnonzero(row.starts[1:] == SENTENCE)
    return 1 + int(places[random.integers(0, len(places))]) if len(places) else None
