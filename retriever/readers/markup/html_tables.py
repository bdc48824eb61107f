"""Tables of HTML while they are read: cells that span rows and columns, and names of columns."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..document_builder import PARAGRAPH, Heading

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_SPAN_COLUMN = 1000  # row spans are ignored from this column on


@dataclass(slots=True)
class Block:
    """A block of text, with its lines in the file and the headings above it."""

    text: str
    line: int
    heading: Heading
    kind: str
    gap: str
    last_line: int


@dataclass(slots=True)
class Table:
    """A table while it is read: the current row, and for each column the first row below a cell that spans rows."""

    row: int = 0
    free: dict[int, int] = field(default_factory=dict)
    header: list[str] = field(default_factory=list)  # the cells of a first row of names
    waiting: list[Block] = field(default_factory=list)  # the rows so far, until it is known whether the table is long

    def reserve(self, columns: range, rows: int) -> None:
        """Reserve columns for a cell that spans several rows."""
        self.free |= dict.fromkeys(columns, self.row + rows)


@dataclass(slots=True)
class Row:
    """A table row while it is read: the blocks of each cell, and whether the row only serves the layout."""

    gap: str
    table: Table
    cells: list[list[Block]] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)  # the first column of each cell
    is_header: bool = True  # all cells are names
    width: int = 0  # columns so far
    layout: bool = False

    def begin_cell(self, name: str, attributes: Mapping[str, str]) -> None:
        """Begin a cell in the next free column.

        :param name: of its element, td or th.
        """
        self.is_header = self.is_header and name == "th"
        while self.table.free.get(self.width, 0) > self.table.row:
            self.width += 1
        start, self.width = self.width, self.width + _span(attributes, "colspan")
        self.cells.append([])
        self.columns.append(start)
        if (rows := _span(attributes, "rowspan")) > 1:
            self.table.reserve(range(start, min(self.width, _MAX_SPAN_COLUMN)), rows)


def _span(attributes: Mapping[str, str], name: str) -> int:
    value = attributes.get(name, "")
    return int(value) if re.fullmatch("[1-9][0-9]{0,2}", value) else 1


def on_one_line(cell: list[Block]) -> str:
    """Write the blocks of a table cell on one line, with a mark between paragraphs and between items of a list."""
    marked = (part for block in cell for part in (PARAGRAPH if block.gap == "\n\n" else " ", block.text))
    return "".join(list(marked)[1:])
