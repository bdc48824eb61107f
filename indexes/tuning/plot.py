"""A picture of what was measured while an index was chosen: recall against queries a second, as SVG."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from ...core.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from .benchmark import Point, Requirements

    Scale = Callable[[float], float]

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 740, 420, 70, 190, 40, 50
# Of Okabe and Ito (jfly.uni-koeln.de/color); each kind has its shape too, so that nothing is said by colour alone.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#303030", "#9AA0A6")
_SHAPES = ("M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0", "M-4 -4h8v8h-8z", "M0 -5l5 9h-10z", "M0 -5l5 5l-5 5l-5 -5z")
_STEPS = (0.2, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 1.0)


def frontier(points: Sequence[Point], demand: Requirements, chosen: Point | None = None) -> str:
    """Each kind's settings that no other of it beats in both, joined; the demand as a line, the chosen one ringed.

    Recall is drawn by how much is missing, in powers of ten, so that .99 and .999 lie apart.
    """
    points = [point for point in points if point.recall >= _STEPS[0] and point.rate > 0]
    rates = [math.log10(point.rate) for point in points] or [0.0]
    low, high = math.floor(min(rates)), max(math.floor(min(rates)) + 1, math.ceil(max(rates)))
    least = min([0.98, demand.recall, *(point.recall for point in points)])
    first = max((step for step in _STEPS if step <= least), default=_STEPS[0])

    def x(recall: float) -> float:
        share = (_missing(first) - _missing(recall)) / (_missing(first) - _missing(1))
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * share

    def y(rate: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * (math.log10(rate) - low) / (high - low)

    lines = list(_grid(x, y, first, low, high))
    line = x(max(first, demand.recall))
    lines.append(f'<path d="M{line:.1f} {_TOP}V{_HEIGHT - _BOTTOM}" stroke="#D55E00" stroke-dasharray="5 4"/>')
    lines.append(_text(line, _TOP - 8, f"recall {demand.recall:g} demanded", "middle"))
    for place, kind in enumerate(sorted({point.kind for point in points})):
        colour, shape = _COLOURS[place % len(_COLOURS)], _SHAPES[place % len(_SHAPES)]
        own = best([point for point in points if point.kind == kind])
        way = " ".join(f"{x(point.recall):.1f},{y(point.rate):.1f}" for point in own)
        lines.append(f'<polyline points="{way}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        places = [(x(point.recall), y(point.rate)) for point in own] + [(_WIDTH - _RIGHT + 20, _TOP + 20 * place + 8)]
        lines += [f'<path d="{shape}" transform="translate({a:.1f} {b:.1f})" fill="{colour}"/>' for a, b in places]
        size = format_bytes(min(point.memory for point in own))
        lines.append(_text(_WIDTH - _RIGHT + 32, _TOP + 20 * place + 12, f"{kind}, {size}"))
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


def best(points: Iterable[Point]) -> list[Point]:
    """Those that none beats in both recall and rate, by recall."""
    found: list[Point] = []
    for point in sorted(points, key=lambda one: (one.recall, one.rate), reverse=True):
        if not found or point.rate > found[-1].rate:
            found.append(point)
    return found[::-1]


def _missing(recall: float) -> float:
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
