"""Draw the measurements of `optimize` as SVG: recall against queries a second.

The SVG is written by hand, because a search installation has no plotting library.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from ...core.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from .benchmark import Measurement
    from .requirements import Requirements

    Scale = Callable[[float], float]

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 740, 420, 70, 190, 40, 50
# The palette of Okabe and Ito (jfly.uni-koeln.de/color). Each kind has a shape too, for readers who see no colours.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#303030", "#9AA0A6")
_SHAPES = ("M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0", "M-4 -4h8v8h-8z", "M0 -5l5 9h-10z", "M0 -5l5 5l-5 5l-5 -5z")
_STEPS = (0.2, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 1.0)


def plot_svg(points: Sequence[Measurement], requirements: Requirements, chosen: Measurement | None = None) -> str:
    """Return an SVG of each kind's best settings, with the required recall as a line and the chosen setting ringed.

    A setting is drawn unless another one of its kind beats it in both recall and rate. The recall axis shows the
    missing share in powers of ten, so that .99 and .999 lie apart.
    """
    points = [point for point in points if point.recall >= _STEPS[0] and point.rate > 0]
    rates = [math.log10(point.rate) for point in points] or [0.0]
    low, high = math.floor(min(rates)), max(math.floor(min(rates)) + 1, math.ceil(max(rates)))
    minimum = min([0.98, requirements.recall, *(point.recall for point in points)])
    first = max((step for step in _STEPS if step <= minimum), default=_STEPS[0])

    def x(recall: float) -> float:
        share = (_missing(first) - _missing(recall)) / (_missing(first) - _missing(1))
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * share

    def y(rate: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * (math.log10(rate) - low) / (high - low)

    lines = list(_grid(x, y, first, low, high))
    line = x(max(first, requirements.recall))
    lines.append(f'<path d="M{line:.1f} {_TOP}V{_HEIGHT - _BOTTOM}" stroke="#D55E00" stroke-dasharray="5 4"/>')
    lines.append(_text(line, _TOP - 8, f"recall {requirements.recall:g} required", "middle"))
    for number, kind in enumerate(sorted({point.kind for point in points})):
        lines += _curve(x, y, number, pareto_front(point for point in points if point.kind == kind))
    if chosen:
        lines.append(
            f'<circle cx="{x(chosen.recall):.1f}" cy="{y(chosen.rate):.1f}" r="9" fill="none" stroke="#303030" '
            'stroke-width="1.5"/>'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'font-family="DejaVu Sans, sans-serif" font-size="12" fill="#303030">\n'
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>\n' + "\n".join(lines) + "\n</svg>\n"
    )


def _curve(x: Scale, y: Scale, number: int, points: list[Measurement]) -> Iterator[str]:
    """Yield the curve of one kind and its entry in the legend, which is row `number`."""
    colour, shape = _COLOURS[number % len(_COLOURS)], _SHAPES[number % len(_SHAPES)]
    line = " ".join(f"{x(point.recall):.1f},{y(point.rate):.1f}" for point in points)
    yield f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
    marks = [(x(point.recall), y(point.rate)) for point in points] + [(_WIDTH - _RIGHT + 20, _TOP + 20 * number + 8)]
    for left, top in marks:
        yield f'<path d="{shape}" transform="translate({left:.1f} {top:.1f})" fill="{colour}"/>'
    size = format_bytes(min(point.memory for point in points))
    yield _text(_WIDTH - _RIGHT + 32, _TOP + 20 * number + 12, f"{points[0].kind}, {size}")


def pareto_front(points: Iterable[Measurement]) -> list[Measurement]:
    """Return the points that no other one beats in both recall and rate, by ascending recall."""
    front: list[Measurement] = []
    for point in sorted(points, key=lambda point: (point.recall, point.rate), reverse=True):
        if not front or point.rate > front[-1].rate:
            front.append(point)
    return front[::-1]


def _missing(recall: float) -> float:
    """Return the logarithm of the missing recall; a recall of 1 stays finite."""
    return math.log10(1.0005 - min(1.0, recall))


def _grid(x: Scale, y: Scale, first: float, low: int, high: int) -> Iterator[str]:
    for step in _STEPS:
        if step >= first:
            yield f'<path d="M{x(step):.1f} {_TOP}V{_HEIGHT - _BOTTOM}" stroke="#E8E8E8"/>'
            yield _text(x(step), _HEIGHT - _BOTTOM + 18, f"{step:g}", "middle")
    for power in range(low, high + 1):
        yield f'<path d="M{_LEFT} {y(10**power):.1f}H{_WIDTH - _RIGHT}" stroke="#E8E8E8"/>'
        yield _text(_LEFT - 8, y(10**power) + 4, f"{10**power:,}", "end")
    yield _text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 10, "recall@10", "middle")
    yield _text(10, 20, "queries a second")


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
