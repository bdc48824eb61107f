"""Draw a matrix between tokens as SVG: a square for each pair, with its value when the mouse is over it."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from ...core.printable import printable
from ...core.words import encodable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...core.arrays import Doubles, Floats

_CELL, _LETTER = 16, 6.6  # pixels of a square and of a letter of a label
_FAINTEST = 0.02  # squares below this share of the largest stay white
_BLUE, _RED = (0, 90, 181), (220, 50, 32)  # of positive and negative values: told apart without seeing colours


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """Values between the tokens of the rows and those of the columns, shape (rows, columns)."""

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: Floats | Doubles


def heat_map(matrix: Matrix) -> str:
    """Draw a matrix as a self-contained SVG; its texts are escaped, and stay texts."""
    left = 12 + _LETTER * max(map(len, map(printable, matrix.rows)))
    top = 36 + _LETTER * max(map(len, map(printable, matrix.columns)))
    width, height = left + _CELL * len(matrix.columns) + 12, top + _CELL * len(matrix.rows) + 12
    width = max(width, 24 + _LETTER * len(matrix.title) * 1.2)
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="monospace" font-size="11" fill="#222">',
            '<rect width="100%" height="100%" fill="#fff"/>',
            f'<text x="12" y="18" font-size="13">{svg_text(matrix.title)}</text>',
            *_labels(matrix, left, top),
            *_squares(matrix, left, top),
            "</svg>\n",
        ]
    )


def _labels(matrix: Matrix, left: float, top: float) -> Iterator[str]:
    for number, name in enumerate(matrix.rows):
        y = top + _CELL * number + 12
        yield f'<text x="{left - 4:.0f}" y="{y:.0f}" text-anchor="end">{svg_text(name)}</text>'
    for number, name in enumerate(matrix.columns):
        x = left + _CELL * number + 12
        yield f'<text transform="translate({x:.0f} {top - 4:.0f}) rotate(-90)">{svg_text(name)}</text>'


def _squares(matrix: Matrix, left: float, top: float) -> Iterator[str]:
    largest = float(np.abs(matrix.values).max(initial=1e-12))
    for row, column in np.argwhere(np.abs(matrix.values) >= _FAINTEST * largest).tolist():
        value = float(matrix.values[row, column])
        x, y = left + _CELL * column, top + _CELL * row
        label = f"{svg_text(matrix.rows[row])} → {svg_text(matrix.columns[column])}: {value:.4f}"
        colour = "#" + "".join(f"{255 - round((255 - part) * abs(value) / largest):02x}" for part in _hue(value))
        yield f'<rect x="{x:.0f}" y="{y:.0f}" width="15" height="15" fill="{colour}"><title>{label}</title></rect>'


def _hue(value: float) -> tuple[int, int, int]:
    return _BLUE if value >= 0 else _RED


def svg_text(value: str) -> str:
    """Escape any text for SVG, without control characters."""
    return escape(printable(encodable(value)))
