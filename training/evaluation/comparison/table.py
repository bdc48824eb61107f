"""The result of a comparison: a table of values with intervals, and the real differences to the baseline."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ...runs.plots import Bar, Verdict
from ..significance import LEVEL, SAMPLES, Difference, bounds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..result import JudgedRowsResult, RetrievalResult

_WIDTH = 100  # of plain text
_GAP = "   "


@dataclass(frozen=True, slots=True)
class MeasureColumn:
    """A measure on a data set."""

    data: str
    measure: str

    def __str__(self) -> str:
        return f"{self.data} {self.measure}"


@dataclass(frozen=True, slots=True)
class Cell:
    """One contender's value of a column. The baseline and unmeasured values have no difference."""

    value: float
    low: float
    high: float
    verdict: Verdict
    difference: Difference | None = None
    p: float | None = None  # of the difference, corrected for the number of contenders (Holm)

    @property
    def lines(self) -> tuple[str, str]:
        """The value, and its difference to the baseline, as text."""
        value = f"{self.value:.4f} [{bounds(self.value, self.low, self.high, digits=3)}]"
        if self.difference is None or self.p is None:
            return value, "baseline" if self.verdict == "baseline" else ""
        word = "" if self.verdict == "same" else f" {self.verdict}"
        return value, f"{self.difference.value:+.4f} p {format_p(self.p)}{word}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Cells by contender and column; None for a measure that a contender cannot have, such as BM25's similarity."""

    contenders: tuple[str, ...]
    baseline: str
    columns: tuple[MeasureColumn, ...]
    cells: Mapping[tuple[str, MeasureColumn], Cell | None]
    evaluations: Mapping[tuple[str, str], RetrievalResult | JudgedRowsResult]  # contender and data set
    mode: str | None = None  # of all contenders, if they share one

    def is_same(self, contender: str) -> bool:
        """Whether no difference of this contender to the baseline is real."""
        cells = [self.cells[contender, column] for column in self.columns]
        return self._is_compared(contender) and not any(cell and cell.verdict in ("better", "worse") for cell in cells)

    def _is_compared(self, contender: str) -> bool:
        """Whether anything was measured of both the contender and the baseline."""
        cells = [(self.cells[contender, column], self.cells[self.baseline, column]) for column in self.columns]
        return contender != self.baseline and any(cell and baseline for cell, baseline in cells)

    def statements(self) -> list[str]:
        """Say for each contender in a sentence where it is better than the baseline, worse, or not different."""
        return [self._statement(contender) for contender in self.contenders if contender != self.baseline]

    def _statement(self, contender: str) -> str:
        if not self._is_compared(contender):
            return f"{contender}: nothing here can be measured of both it and {self.baseline}."
        if self.is_same(contender):
            return f"{contender}: no real difference from {self.baseline} on anything measured here."
        differences: dict[str, list[str]] = {"better": [], "worse": [], "same": []}
        for column in self.columns:
            cell = self.cells[contender, column]
            if cell and cell.difference and cell.p is not None:
                differences[cell.verdict].append(f"{column} ({cell.difference.value:+.4f}, p {format_p(cell.p)})")
        says = {"better": f"better than {self.baseline}", "worse": f"worse than {self.baseline}"}
        parts = [
            f"{says.get(verdict, 'no real difference')} on {_listed(columns)}"
            for verdict, columns in differences.items()
            if columns
        ]
        return f"{contender}: {'; '.join(parts)}."

    def title(self) -> str:
        """Return a line with the number of contenders, their mode if they share one, and the baseline."""
        mode = f", {self.mode}" if self.mode else ""
        return f"{len(self.contenders)} contenders{mode}; differences are to {self.baseline}"

    def note(self) -> str:
        """Return a sentence that names the statistical tests behind intervals and p-values."""
        several = ", corrected for several contenders (Holm)" if len(self.contenders) > 2 else ""
        return f"In brackets the 95 % interval (bootstrap); p by Fisher's randomisation test{several}."

    def text(self) -> str:
        """Lay out title, table, statements and the statistical tests as aligned plain text."""
        tables = "\n".join(self._table(columns) for columns in self.blocks(_WIDTH))
        return "\n".join([self.title(), "", tables, *self.statements(), self.note(), ""])

    def blocks(self, width: int) -> list[list[MeasureColumn]]:
        """Group the columns so that each group fits a table of that width."""
        first = max(map(len, (*self.contenders, "no real difference"))) + len(_GAP)
        blocks: list[list[MeasureColumn]] = []
        room = 0
        for column in self.columns:
            need = max(len(line) for row in self._column(column) for line in row) + len(_GAP)
            if not blocks or need > room:
                blocks.append([])
                room = width - first
            blocks[-1].append(column)
            room -= need
        return blocks

    def _column(self, column: MeasureColumn) -> list[tuple[str, str]]:
        """Return heading and cells, two lines each."""
        return [(column.data, column.measure), *(self.lines(contender, column) for contender in self.contenders)]

    def lines(self, contender: str, column: MeasureColumn) -> tuple[str, str]:
        """Return the two lines of a table's cell: value, then difference; a dash for a missing cell."""
        cell = self.cells[contender, column]
        return cell.lines if cell else ("–", "")

    def label(self, contender: str) -> tuple[str, str]:
        """Return the label of a row: the name, and a note if no difference in it is real."""
        return contender, "no real difference" if self.is_same(contender) else ""

    def _table(self, columns: Sequence[MeasureColumn]) -> str:
        rows = [[("", ""), *((column.data, column.measure) for column in columns)]]
        rows += [
            [self.label(contender), *(self.lines(contender, column) for column in columns)]
            for contender in self.contenders
        ]
        widths = [max(len(line) for cell in column for line in cell) for column in zip(*rows, strict=True)]
        lines = []
        for row in rows:
            for number in (0, 1):
                cells = [cell[number].ljust(width) for cell, width in zip(row, widths, strict=True)]
                lines.append(_GAP.join(cells).rstrip())
        return "\n".join([*lines[:2], "", *lines[2:], ""])

    def bars(self) -> list[Bar]:
        """Return the bars of `plots.comparison`."""
        return [
            Bar(str(column), contender, cell.value, cell.low, cell.high, cell.verdict)
            for column in self.columns
            for contender in self.contenders
            if (cell := self.cells[contender, column]) and math.isfinite(cell.value)
        ]

    def as_dict(self, *, per_query: bool = False) -> dict[str, Any]:
        """Return all values for JSON.

        :param per_query: include the values of each query or row.
        """
        return {
            "contenders": list(self.contenders),
            "baseline": self.baseline,
            "mode": self.mode,
            "level": LEVEL,
            "test": "Fisher randomisation, two-sided",
            "samples": SAMPLES,
            "correction": "Holm, over the contenders of a column",
            "results": [
                _result(contender, column, cell)
                for column in self.columns
                for contender in self.contenders
                if (cell := self.cells[contender, column])
            ],
            "statements": self.statements(),
            "evaluations": [
                {"contender": contender, **result.as_dict(per_query=per_query), "data": data}
                for (contender, data), result in self.evaluations.items()
            ],
        }


def _bounds(measured: Cell | Difference) -> list[float] | None:
    """Return the interval for JSON; None if one query or row gives none."""
    both = [round(measured.low, 6), round(measured.high, 6)]
    return both if all(map(math.isfinite, both)) else None


def _result(contender: str, column: MeasureColumn, cell: Cell) -> dict[str, Any]:
    row = {"contender": contender, **asdict(column), "value": cell.value, "interval": _bounds(cell)}
    if cell.difference:
        row |= {
            "difference": round(cell.difference.value, 6),
            "difference_interval": _bounds(cell.difference),
            "p": cell.difference.p,
            "p_corrected": cell.p,
        }
    return {**row, "verdict": cell.verdict} if math.isfinite(cell.value) else {**row, "value": None, "interval": None}


def format_p(p: float) -> str:
    """Format p with three digits, but never as 0."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _listed(things: Sequence[str]) -> str:
    return things[0] if len(things) == 1 else f"{', '.join(things[:-1])} and {things[-1]}"
