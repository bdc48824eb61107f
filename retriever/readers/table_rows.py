"""Add the rows of a sheet or of a database's table. Column names are headings of a long table."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .document_builder import MAX_TITLE, DocumentBuilder, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_BATCH = 200  # rows
_SHORT = 600  # characters: a table up to this length is one passage, and so has the names of its columns in it
_TITLE_ROWS = 5  # rows at the top that may come before the names of the columns


def add_rows(
    builder: DocumentBuilder, rows: Iterable[str], page: int | None, name: str, columns: Sequence[str] | None = None
) -> None:
    """Add the rows of a sheet, each with tabs between its cells; an empty string stands for empty rows.

    :param page: the number of the sheet.
    :param name: of the sheet, its heading.
    :param columns: the names of the columns, where they are known.
    """
    table = _Table(builder, page, name, columns)
    for row in rows:
        table.add(row)
    table.flush(is_last=True)


class _Table:
    """The rows of a sheet that wait to be added. A row of names behind an empty one begins another table."""

    def __init__(self, builder: DocumentBuilder, page: int | None, name: str, columns: Sequence[str] | None) -> None:
        self._builder, self._page, self._name, self._known = builder, page, name, columns
        self._rows: list[str] = []
        self._columns: str | None = None
        self._after_gap = False
        self._gap = "\n\n"

    def add(self, row: str) -> None:
        if not row:
            self._after_gap = True
            return
        if self._after_gap and self._known is None and self._rows and is_header(_cells(row)):
            self.flush(is_last=True)
        self._after_gap = False
        self._rows.append(row)
        if len(self._rows) == _BATCH:
            self.flush(is_last=False)

    def flush(self, *, is_last: bool) -> None:
        """Add the waiting rows. :param is_last: no row of the same table follows."""
        text = "\n".join(self._rows)
        if self._columns is None:
            is_long = not is_last or len(text) > _SHORT
            known = _columns(self._rows) if self._known is None else column_names(self._known)
            self._columns = known if is_long else ""
        heading = tuple(filter(None, (self._name, self._columns)))
        self._builder.add(text, page=self._page, heading=heading, kind="table", gap=self._gap)
        self._rows, self._gap = [], "\n"
        self._columns = None if is_last else self._columns


def columns_heading(rows: Sequence[str], header: Iterable[str]) -> tuple[str, ...]:
    """The names of the columns as a heading below the others, where a table in a text is long; none where it is short.

    :param rows: of the table, one text each.
    :param header: the cells with the names; none if the table has no names.
    """
    names = column_names(shown(cell) for cell in header)
    return (names,) if names and sum(map(len, rows)) > _SHORT else ()


def _columns(rows: Sequence[str]) -> str:
    """The names of the columns of a table, "" if it has none."""
    for row in rows[:_TITLE_ROWS]:
        cells = _cells(row)
        if sum(map(bool, cells)) > 1:
            return column_names(cells) if is_header(cells) else ""
    return ""


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in shown(row).strip("\t").split("\t")]


def column_names(cells: Iterable[str]) -> str:
    """The names of columns as one heading."""
    return ", ".join(filter(None, cells))[:MAX_TITLE]


def is_header(cells: Sequence[str]) -> bool:
    """Whether the cells of a row are names of columns: distinct, short and without numbers."""
    named = [cell for cell in cells if cell]
    distinct = len(set(named)) == len(named)
    short = all(len(cell) <= 60 and not is_number(cell) for cell in named)
    return bool(named) and distinct and short and len(named) * 2 > len(cells)


def is_number(cell: str) -> bool:
    """Whether a cell is a number, a date or an amount."""
    return bool(re.fullmatch(r"[-+(]?[\d.,:/%\s€$£-]*\d[\d.,:/%\s€$£)-]*", cell))
