"""Pairs of segments for the two objectives about how segments belong together.

Next sentence (NSP; Devlin et al. 2019, arXiv:1810.04805, section 3.1): the second segment follows the first, or half
of the time comes from another document. Sentence order (SOP; Lan et al. 2020, arXiv:1909.11942, section 3.1): both are
neighbours, and half of the time swapped. All segments begin at the start of a sentence, whatever the label, so that
only their meaning gives the label away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...data.tokenized import INSIDE, SENTENCE, Row
from .masking import IGNORED

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...data.tokenized import TokenRows

GENUINE, CHANGED = 0, 1  # labels as transformers' BERT and ALBERT heads have them


@dataclass(frozen=True, slots=True)
class Pair:
    """Two segments and their label; a row of one sentence has no second segment and the label `IGNORED`."""

    first: Row
    second: Row | None = None
    label: int = IGNORED


def single(rows: TokenRows, number: int, random: np.random.Generator) -> Pair:  # noqa: ARG001 - one signature in the table
    """Return the whole row as one segment, without a label."""
    return Pair(rows[number])


def sentence_order(rows: TokenRows, number: int, random: np.random.Generator) -> Pair:
    """Split a row at a sentence, and swap the parts half of the time."""
    row = rows[number]
    start = _sentence_start(row, random)
    if start is None:
        return Pair(row)
    first, second = row[:start], row[start:]
    return Pair(second, first, CHANGED) if random.random() < 0.5 else Pair(first, second, GENUINE)


def next_sentence(rows: TokenRows, number: int, random: np.random.Generator) -> Pair:
    """Split a row at a sentence, and half of the time take the second part from another document.

    It is then as long as the part that it replaces, if its document is long enough: the length must not give the label
    away.
    """
    row = rows[number]
    start = _sentence_start(row, random)
    if start is None:
        return Pair(row)
    if random.random() < 0.5:
        return Pair(row[:start], row[start:], GENUINE)
    return Pair(row[:start], _segment(rows, elsewhere(rows, number, random), len(row) - start, random), CHANGED)


OBJECTIVES: dict[str, Callable[[TokenRows, int, np.random.Generator], Pair]] = {
    "mlm": single,
    "mlm+nsp": next_sentence,
    "mlm+sop": sentence_order,
}


def elsewhere(rows: TokenRows, number: int, random: np.random.Generator) -> int:
    """A random row of another document; the rows of a document are neighbours."""
    low, high = np.searchsorted(rows.documents, rows.documents[number] + np.array([0, 1]))
    drawn = int(random.integers(0, len(rows) - (high - low)))
    return drawn if drawn < low else drawn + int(high - low)


def _segment(rows: TokenRows, number: int, length: int, random: np.random.Generator) -> Row:
    """Up to `length` tokens of a document, from the start of a sentence in this row."""
    row = rows[number]
    row = row[_sentence_start(row, random) or 0 :]
    document = rows.documents[number]
    while len(row) <= length and number + 1 < len(rows) and rows.documents[number + 1] == document:
        number += 1
        row = row + rows[number]
    end = min(length, len(row))
    while 1 < end < len(row) and row.starts[end] == INSIDE:
        end -= 1
    return row[:end]


def _sentence_start(row: Row, random: np.random.Generator) -> int | None:
    """The position of a random sentence of the row, never the first; None if there is only one."""
    positions = np.flatnonzero(row.starts[1:] == SENTENCE)
    return 1 + int(positions[random.integers(0, len(positions))]) if len(positions) else None
