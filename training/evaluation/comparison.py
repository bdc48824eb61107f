"""What a comparison found: a table of values with intervals, and which differences to the baseline are real."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ..runs.plots import Bar, Verdict
from .significance import LEVEL, SAMPLES, Difference

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .result import JudgedRowsResult
    from .retrieval import Evaluation

_WIDTH = 100  # of plain text
_GAP = "   "


@dataclass(frozen=True, slots=True)
class Column:
    """A measure on a data set."""

    data: str
    measure: str

    def __str__(self) -> str:
        return f"{self.data} {self.measure}"


@dataclass(frozen=True, slots=True)
class Cell:
    """One contender's value of a column. The baseline has no difference, nor has what could not be measured."""

    value: float
    low: float
    high: float
    verdict: Verdict
    difference: Difference | None = None
    p: float | None = None  # of the difference, corrected for the number of contenders (Holm)

    @property
    def lines(self) -> tuple[str, str]:
        """The value, and its difference to the baseline, for people."""
        value = f"{self.value:.4f} [{self.low:.3f}, {self.high:.3f}]"
        if self.difference is None or self.p is None:
            return value, "baseline" if self.verdict == "baseline" else ""
        word = "" if self.verdict == "same" else f" {self.verdict}"
        return value, f"{self.difference.value:+.4f} p {shown(self.p)}{word}"


NOTHING = Cell(math.nan, math.nan, math.nan, "same")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Cells by contender and column; None where a contender cannot be measured so, as words alone on similarity."""

    contenders: tuple[str, ...]
    baseline: str
    columns: tuple[Column, ...]
    cells: Mapping[tuple[str, Column], Cell | None]
    evaluations: Mapping[tuple[str, str], Evaluation | JudgedRowsResult]  # contender and data set
    mode: str | None = None  # of all contenders, where it is the same

    def is_same(self, contender: str) -> bool:
        """Whether no difference of this contender to the baseline is real."""
        cells = [self.cells[contender, column] for column in self.columns]
        return self._is_compared(contender) and not any(cell and cell.verdict in ("better", "worse") for cell in cells)

    def _is_compared(self, contender: str) -> bool:
        """Whether anything was measured of both the contender and the baseline."""
        both = [(self.cells[contender, column], self.cells[self.baseline, column]) for column in self.columns]
        return contender != self.baseline and any(one and other for one, other in both)

    def statements(self) -> list[str]:
        """For each contender a sentence that says where it is better or worse than the baseline, and where not."""
        return [self._statement(contender) for contender in self.contenders if contender != self.baseline]

    def _statement(self, contender: str) -> str:
        if not self._is_compared(contender):
            return f"{contender}: nothing here can be measured of both it and {self.baseline}."
        if self.is_same(contender):
            return f"{contender}: no real difference from {self.baseline} on anything measured here."
        found: dict[str, list[str]] = {"better": [], "worse": [], "same": []}
        for column in self.columns:
            cell = self.cells[contender, column]
            if cell and cell.difference and cell.p is not None:
                found[cell.verdict].append(f"{column} ({cell.difference.value:+.4f}, p {shown(cell.p)})")
        says = {"better": f"better than {self.baseline}", "worse": f"worse than {self.baseline}"}
        parts = [f"{says.get(verdict, 'no real difference')} on {_listed(on)}" for verdict, on in found.items() if on]
        return f"{contender}: {'; '.join(parts)}."

    def title(self) -> str:
        mode = f", {self.mode}" if self.mode else ""
        return f"{len(self.contenders)} contenders{mode}; differences are to {self.baseline}"

    def note(self) -> str:
        several = ", corrected for several contenders (Holm)" if len(self.contenders) > 2 else ""
        return f"In brackets the 95 % interval (bootstrap); p by Fisher's randomisation test{several}."

    def text(self) -> str:
        """Title, table, statements and how they were come by, as aligned plain text."""
        tables = "\n".join(self._table(columns) for columns in self.blocks(_WIDTH))
        return "\n".join([self.title(), "", tables, *self.statements(), self.note(), ""])

    def blocks(self, width: int) -> list[list[Column]]:
        """The columns in groups that fit a table of that width."""
        first = max(map(len, (*self.contenders, "no real difference"))) + len(_GAP)
        blocks: list[list[Column]] = []
        room = 0
        for column in self.columns:
            need = max(len(line) for row in self._column(column) for line in row) + len(_GAP)
            if not blocks or need > room:
                blocks.append([])
                room = width - first
            blocks[-1].append(column)
            room -= need
        return blocks

    def _column(self, column: Column) -> list[tuple[str, str]]:
        """Heading and cells, two lines each."""
        return [(column.data, column.measure), *(self.lines(contender, column) for contender in self.contenders)]

    def lines(self, contender: str, column: Column) -> tuple[str, str]:
        cell = self.cells[contender, column]
        return cell.lines if cell else ("–", "")

    def label(self, contender: str) -> tuple[str, str]:
        """What stands in front of a row: the name, and whether anything in it is real."""
        return contender, "no real difference" if self.is_same(contender) else ""

    def _table(self, columns: Sequence[Column]) -> str:
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
        """For `plots.comparison`."""
        return [
            Bar(str(column), contender, cell.value, cell.low, cell.high, cell.verdict)
            for column in self.columns
            for contender in self.contenders
            if (cell := self.cells[contender, column]) and math.isfinite(cell.value)
        ]

    def as_dict(self, *, per_query: bool = False) -> dict[str, Any]:
        """For JSON; the values of each query or row only if asked."""
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
                {"contender": contender, **found.as_dict(per_query=per_query), "data": data}
                for (contender, data), found in self.evaluations.items()
            ],
        }


def _result(contender: str, column: Column, cell: Cell) -> dict[str, Any]:
    row = {"contender": contender, **asdict(column), "value": cell.value, "interval": [cell.low, cell.high]}
    if cell.difference:
        row |= {
            "difference": round(cell.difference.value, 6),
            "difference_interval": [round(cell.difference.low, 6), round(cell.difference.high, 6)],
            "p": cell.difference.p,
            "p_corrected": cell.p,
        }
    return {**row, "verdict": cell.verdict} if math.isfinite(cell.value) else {**row, "value": None, "interval": None}


def shown(p: float) -> str:
    """A p for people: three digits, and never 0."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _listed(things: Sequence[str]) -> str:
    return things[0] if len(things) == 1 else f"{', '.join(things[:-1])} and {things[-1]}"
