"""Draw the curves of an audit as SVG: recovered tokens against the search quality of each setting.

They are drawn here, not with matplotlib as in `runs.plots`, for three reasons. Each point shows its values when the
mouse is over it (`<title>`), which matplotlib does not write. A page can be drawn from report.json without the extra
`train`. The text stays text, so a page of six charts has 30 kB.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from ....core.printable import printable
from ....core.words import encodable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Report = Mapping[str, Any]

_COLOURS = {  # Okabe and Ito's by kind of defence, darker on a light page and lighter on a dark one
    "none": ("#000000", "#ffffff"),
    "noise": ("#c24e00", "#f58a4b"),
    "truncate": ("#0072b2", "#4da6e0"),
    "int8": ("#00795a", "#2cc799"),
    "binary": ("#b5538a", "#e39bc6"),
    "pq": ("#9a6a00", "#f0b53c"),
    "rotation": ("#2e86c1", "#8fd0f7"),
}


def colours(*, dark: bool) -> str:
    """Return the style of the kinds of defences, for a light page or a dark one."""
    return "".join(f".{kind}{{color:{pair[dark]}}}" for kind, pair in _COLOURS.items())


def escaped(value: object) -> str:
    """Escape any text for HTML, without control characters."""
    return escape(printable(encodable(str(value))))


@dataclass(frozen=True, slots=True)
class _Point:
    """A setting in a chart: the share of nDCG@10 that is kept, and F1 with its interval."""

    keep: float
    f1: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class _Axes:
    """The pixels of a chart's box, and the values at its borders; F1 begins at 0."""

    left: int
    right: int
    top: int
    bottom: int
    lowest_keep: float
    highest_keep: float
    highest_f1: float

    def x(self, keep: float) -> float:
        share = (keep - self.lowest_keep) / (self.highest_keep - self.lowest_keep)
        return self.left + share * (self.right - self.left)

    def y(self, f1: float) -> float:
        return self.bottom - f1 / self.highest_f1 * (self.bottom - self.top)

    def draw(self) -> Iterable[str]:
        left, right, top, bottom = self.left, self.right, self.top, self.bottom
        for keep in _ticks(self.lowest_keep, self.highest_keep):
            x = self.x(keep)
            yield _line([(x, top), (x, bottom)], "grid")
            yield f'<text x="{x:.1f}" y="{bottom + 15}" font-size="11" text-anchor="middle">{keep:.4g}</text>'
        for f1 in _ticks(0, self.highest_f1):
            y = self.y(f1)
            yield _line([(left, y), (right, y)], "grid")
            yield f'<text x="{left - 6}" y="{y + 4:.1f}" font-size="11" text-anchor="end">{f1:.4g}</text>'
        yield _line([(left, top), (left, bottom), (right, bottom)], "axis")
        centre, middle = (left + right) / 2, (top + bottom) / 2
        yield f'<text x="{centre}" y="{bottom + 33}" font-size="12" text-anchor="middle">nDCG@10 kept</text>'
        yield (
            f'<text x="14" y="{middle}" font-size="12" text-anchor="middle" '
            f'transform="rotate(-90 14 {middle})">token F1 recovered</text>'
        )


def chart(report: Report, length: str | None) -> str:
    """Draw F1 against the quality kept, for texts of one length or, without one, at each setting's worst length."""
    width, height, left, bottom, top, right = (
        (760, 430, 56, 46, 34, 180) if length is None else (370, 300, 50, 44, 34, 12)
    )
    points = [_point(report, setting, length) for setting in report["settings"]]
    lowest = min(point.keep for point in points)
    axes = _Axes(
        *(left, width - right, top, height - bottom),
        lowest_keep=max(0.0, lowest - 0.1 * (1.02 - lowest) - 0.01),
        highest_keep=max(1.02, *(point.keep + 0.01 for point in points)),
        highest_f1=min(1.0, max(0.1, *(point.high for point in points)) * 1.12),
    )
    title = escaped("token F1 at its worst length" if length is None else texts_of(report, length))
    parts = [f'<text x="{left}" y="18" font-size="14" font-weight="600">{title}</text>', *axes.draw()]
    if length is not None:
        y = axes.y(report["frequent"][length]["f1"]["value"])
        parts.append(_line([(axes.left, y), (axes.right, y)], "axis", 'stroke-dasharray="2 3"'))
        parts.append(f'<text x="{left + 4}" y="{y - 4:.1f}" font-size="10">most frequent tokens</text>')
    parts += _curves(report, points, axes)
    parts += _points(report, points, axes)
    parts += _without_pairs(report, length, axes)
    if length is None:
        parts += _legend(report, axes.right + 14, top + 8)
    size = ' class="wide"' if length is None else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg"{size} viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" font-family="system-ui,sans-serif"><title>{title}</title>{"".join(parts)}</svg>'
    )


def texts_of(report: Report, length: str) -> str:
    """Name the attacked texts of a length."""
    whole = length == str(report["stored_length"])
    return f"stored passages, about {length} tokens" if whole else f"texts of {length} tokens"


def _point(report: Report, setting: Report, length: str | None) -> _Point:
    """Take the highest F1 of a setting, of all attackers."""
    attacks = (attack["lengths"] for attack in setting["attacks"].values())
    answers = [*attacks, setting["nearest"], report["frequent"]]
    f1s = [values["f1"] for lengths in answers for key, values in lengths.items() if length in (None, key)]
    highest = max(f1s, key=lambda f1: f1["value"])
    return _Point(setting["keep"], highest["value"], highest["low"], highest["high"])


def _ticks(low: float, high: float) -> list[float]:
    step = next(step for step in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5) if (high - low) / step <= 7 or step == 0.5)
    return [round(number * step, 4) for number in range(int(low / step) + 1, int(high / step) + 1)] or [round(high, 4)]


def _line(corners: Sequence[tuple[float, float]], name: str, attributes: str = "") -> str:
    """Draw a line in the colour of a class of the page's style."""
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
    return f'<polyline class="{name}" points="{points}" fill="none" stroke="currentColor" {attributes}/>'


def _curves(report: Report, points: Sequence[_Point], axes: _Axes) -> Iterable[str]:
    """Join the strengths of each kind, starting without a defence."""
    settings = report["settings"]
    for kind in dict.fromkeys(setting["kind"] for setting in settings if setting["kind"] != "none"):
        strengths = [point for setting, point in zip(settings, points, strict=True) if setting["kind"] == kind]
        corners = [(axes.x(point.keep), axes.y(point.f1)) for point in (points[0], *strengths)]
        yield _line(corners, kind, 'stroke-width="1.3" opacity="0.6"')


def _without_pairs(report: Report, length: str | None, axes: _Axes) -> Iterable[str]:
    """Draw a hollow point for the F1 of each attacker without pairs."""
    for setting in report["settings"]:
        without = {name: attack for name, attack in setting["attacks"].items() if name.endswith("without pairs")}
        for name, attack in without.items():
            f1 = max(values["f1"]["value"] for key, values in attack["lengths"].items() if length in (None, key))
            title = escaped(f"{setting['name']}, {name}: F1 {f1:.3f}")
            yield (
                f'<circle cx="{axes.x(setting["keep"]):.1f}" cy="{axes.y(f1):.1f}" r="4" class="hollow '
                f'{setting["kind"]}" stroke="currentColor" stroke-width="2"><title>{title}</title></circle>'
            )


def _points(report: Report, points: Sequence[_Point], axes: _Axes) -> Iterable[str]:
    """Draw each setting with its interval and number; a ring marks the Pareto front."""
    taken: list[tuple[float, float]] = []
    for number, (setting, point) in enumerate(zip(report["settings"], points, strict=True), 1):
        kind, x, y = setting["kind"], axes.x(point.keep), axes.y(point.f1)
        yield _line([(x, axes.y(point.low)), (x, axes.y(point.high))], kind, 'opacity="0.5"')
        if setting["name"] in report["front"]:
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="7" fill="none" stroke="currentColor" stroke-width="1.5"/>'
        interval = f"[{point.low:.3f}, {point.high:.3f}]"
        title = escaped(f"{setting['name']}: F1 {point.f1:.3f} {interval}, nDCG@10 kept {point.keep:.3f}")
        centre = f'cx="{x:.1f}" cy="{y:.1f}"'
        yield f'<circle {centre} r="4" class="{kind}" fill="currentColor"><title>{title}</title></circle>'
        label = _label_position(x, y, taken)
        taken += [label, (x, y)]
        yield (f'<text x="{label[0]:.1f}" y="{label[1] + 4:.1f}" font-size="11" text-anchor="middle">{number}</text>')


def _label_position(x: float, y: float, taken: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Find room for a label beside a point; the first position if there is none."""
    directions = ((1, 0), (0, -1), (-1, 0), (0, 1), (1, 1))
    around = [(x + far * right, y + far * down) for far in (14, 24, 36) for right, down in directions]
    clear = ((left, top) for left, top in around if all(abs(left - a) > 13 or abs(top - b) > 11 for a, b in taken))
    return next(clear, around[0])


def _legend(report: Report, x: int, y: int) -> Iterable[str]:
    for number, setting in enumerate(report["settings"], 1):
        centre = f'cx="{x}" cy="{y + 18 * number - 4}"'
        yield f'<circle {centre} r="4" class="{setting["kind"]}" fill="currentColor"/>'
        yield f'<text x="{x + 10}" y="{y + 18 * number}" font-size="12">{number} {escaped(setting["name"])}</text>'
