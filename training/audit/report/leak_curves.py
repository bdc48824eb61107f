"""Draw the charts of an audit as SVG: the recovered share against the search quality of each setting.

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


_NDCG = "nDCG@10 kept"
_RECOVERED = {  # measure -> title, label of the axis, and its value for all of them
    "content_f1": ("content words", "content F1 recovered", 1),
    "names": ("names", "names recovered, of 10", 10),
    "numbers": ("numbers", "numbers recovered, of 10", 10),
}
_SMALL = (370, 300)  # width and height of a chart: three are beside each other on a wide screen


def colours(*, dark: bool) -> str:
    """Return the style of the kinds of defences, for a light page or a dark one."""
    return "".join(f".{kind}{{color:{pair[dark]}}}" for kind, pair in _COLOURS.items())


def escaped(value: object) -> str:
    """Escape any text for HTML, without control characters."""
    return escape(printable(encodable(str(value))))


@dataclass(frozen=True, slots=True)
class _Point:
    """A setting in a chart, with the ends of its interval."""

    x: float
    y: float
    ends: tuple[tuple[float, float], tuple[float, float]]
    title: str


@dataclass(frozen=True, slots=True)
class _Axes:
    """The pixels of a chart's box, and the values at its borders."""

    left: int
    right: int
    top: int
    bottom: int
    across: tuple[float, float]  # lowest and highest value
    up: tuple[float, float]
    labels: tuple[str, str]

    def x(self, value: float) -> float:
        low, high = self.across
        return self.left + (value - low) / (high - low) * (self.right - self.left)

    def y(self, value: float) -> float:
        low, high = self.up
        return self.bottom - (value - low) / (high - low) * (self.bottom - self.top)

    def draw(self) -> Iterable[str]:
        left, right, top, bottom = self.left, self.right, self.top, self.bottom
        for value in _ticks(*self.across):
            x = self.x(value)
            yield _line([(x, top), (x, bottom)], "grid")
            yield f'<text x="{x:.1f}" y="{bottom + 15}" font-size="11" text-anchor="middle">{value:.4g}</text>'
        for value in _ticks(*self.up):
            y = self.y(value)
            yield _line([(left, y), (right, y)], "grid")
            yield f'<text x="{left - 6}" y="{y + 4:.1f}" font-size="11" text-anchor="end">{value:.4g}</text>'
        yield _line([(left, top), (left, bottom), (right, bottom)], "axis")
        centre, middle = (left + right) / 2, (top + bottom) / 2
        across, up = self.labels
        yield f'<text x="{centre}" y="{bottom + 33}" font-size="12" text-anchor="middle">{across}</text>'
        yield (
            f'<text x="14" y="{middle}" font-size="12" text-anchor="middle" '
            f'transform="rotate(-90 14 {middle})">{up}</text>'
        )


def overview(report: Report) -> Iterable[str]:
    """Draw the recovered content words, names and numbers, each against the search quality that is kept."""
    for measure, (title, label, whole) in _RECOVERED.items():
        values = [setting[f"highest_{measure}"] for setting in report["settings"]]
        if any(value["value"] is None for value in values):
            continue  # no attacked text has a name, or a number
        points = [
            _recovered(setting, value, f"{setting['name']}: {label}", whole)
            for setting, value in zip(report["settings"], values, strict=True)
        ]
        highest = max(point.ends[1][0] for point in points) / whole
        axes = _Axes(
            *(50, _SMALL[0] - 12, 34, _SMALL[1] - 44),
            across=(0, whole * max(0.1, highest) * 1.12),
            up=_range_of_kept(report),
            labels=(label, _NDCG),
        )
        guesses = [of_length[measure]["value"] or 0 for of_length in report["frequent"].values()]
        parts = [*_guessing_across(whole * max(guesses), axes), *_curves(report, points, axes)]
        yield _drawing(title, axes, [*parts, *_points(report, points, axes)], _SMALL)


def _recovered(setting: Report, value: Report, name: str, whole: int) -> _Point:
    x, low, high = (whole * value[part] for part in ("value", "low", "high"))
    keep = setting["keep"]
    return _Point(x, keep, ((low, keep), (high, keep)), f"{name} {x:.3g} [{low:.3g}, {high:.3g}], {_NDCG} {keep:.3f}")


def _guessing_across(x: float, axes: _Axes) -> Iterable[str]:
    """Mark the floor: the share that guessing recovers."""
    yield _line([(axes.x(x), axes.top), (axes.x(x), axes.bottom)], "axis", 'stroke-dasharray="2 3"')
    yield f'<text x="{axes.x(x) + 4:.1f}" y="{axes.bottom - 6}" font-size="10">guessing</text>'


def chart(report: Report, length: str | None) -> str:
    """Draw a chart of texts of one length; with None the worst length of each setting counts, with a legend."""
    width, height, left, bottom, top, right = (
        (760, 430, 56, 46, 34, 180) if length is None else (*_SMALL, 50, 44, 34, 12)
    )
    points = [_point(report, setting, length) for setting in report["settings"]]
    axes = _Axes(
        *(left, width - right, top, height - bottom),
        across=_range_of_kept(report),
        up=(0, min(1.0, max(0.1, *(point.ends[1][1] for point in points)) * 1.12)),
        labels=(_NDCG, "token F1 recovered"),
    )
    parts = []
    if length is not None:
        y = axes.y(report["frequent"][length]["f1"]["value"])
        parts.append(_line([(axes.left, y), (axes.right, y)], "axis", 'stroke-dasharray="2 3"'))
        parts.append(f'<text x="{left + 4}" y="{y - 4:.1f}" font-size="10">most frequent tokens</text>')
    parts += _curves(report, points, axes)
    parts += _points(report, points, axes)
    parts += _without_pairs(report, length, axes)
    if length is None:
        parts += _legend(report, axes.right + 14, top + 8)
    title = "token F1 at its worst length" if length is None else texts_of(report, length)
    return _drawing(title, axes, parts, (width, height), ' class="wide"' * (length is None))


def _drawing(title: str, axes: _Axes, parts: Iterable[str], size: tuple[int, int], attributes: str = "") -> str:
    """Put a title, the axes and the parts of a chart into an image."""
    width, height = size
    heading = f'<text x="{axes.left}" y="18" font-size="14" font-weight="600">{escaped(title)}</text>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg"{attributes} viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" font-family="system-ui,sans-serif"><title>{escaped(title)}</title>'
        f"{''.join([heading, *axes.draw(), *parts])}</svg>"
    )


def _range_of_kept(report: Report) -> tuple[float, float]:
    """The same part of the axis for every chart."""
    keeps = [setting["keep"] for setting in report["settings"]]
    lowest = min(keeps)
    return max(0.0, lowest - 0.1 * (1.02 - lowest) - 0.01), max(1.02, *(keep + 0.01 for keep in keeps))


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
    keep, f1, low, high = setting["keep"], *(highest[part] for part in ("value", "low", "high"))
    title = f"{setting['name']}: F1 {f1:.3f} [{low:.3f}, {high:.3f}], {_NDCG} {keep:.3f}"
    return _Point(keep, f1, ((keep, low), (keep, high)), title)


def _ticks(low: float, high: float) -> list[float]:
    step = next(step for step in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2) if (high - low) / step <= 7 or step == 2)
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
        corners = [(axes.x(point.x), axes.y(point.y)) for point in (points[0], *strengths)]
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
        kind, x, y = setting["kind"], axes.x(point.x), axes.y(point.y)
        yield _line([(axes.x(across), axes.y(up)) for across, up in point.ends], kind, 'opacity="0.5"')
        if setting["name"] in report["front"]:
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="7" fill="none" stroke="currentColor" stroke-width="1.5"/>'
        centre, title = f'cx="{x:.1f}" cy="{y:.1f}"', escaped(point.title)
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
