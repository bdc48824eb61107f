"""Draw the charts of docs/measurements.md from the committed results: `python -m benchmarks.charts`.

Each chart is a small SVG, written here by hand: the same results give the same bytes on every machine.
"""

from __future__ import annotations

import json
import math
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
CHARTS = Path(__file__).parents[1] / "docs" / "charts"

# The first seven are Okabe and Ito's (jfly.uni-koeln.de/color), told apart by people who are colour-blind.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#9A8B00", "#303030")
_WIDTH, _LEFT, _RIGHT, _TOP = 760, 210, 70, 44  # pixels
_STYLE = "font-family:system-ui,sans-serif;font-size:13px;fill:#222"

Group = tuple[str, Sequence[tuple[str, float]]]  # a label, and its bars: series and value
Point = tuple[float, float]


def bars(title: str, groups: Sequence[Group], *, digits: int, unit: str = "") -> str:
    """Draw horizontal bars, one colour a series, with the value at the end of each."""
    series = list(dict.fromkeys(name for _, values in groups for name, _ in values))
    largest = max(value for _, values in groups for _, value in values)
    scale = (_WIDTH - _LEFT - _RIGHT) / largest
    parts, y = [], _TOP + 22.0
    for column, name in enumerate(series):
        x = _LEFT + 150 * column
        parts += [_box(x, _TOP - 8, 12, 12, column), _text(x + 18, _TOP + 3, name)]
    for label, values in groups:
        parts.append(_text(_LEFT - 10, y + 9 * len(values) + 4, label, anchor="end"))
        for name, value in values:
            parts.append(_box(_LEFT, y, value * scale, 15, series.index(name)))
            parts.append(_text(_LEFT + value * scale + 6, y + 12, f"{value:,.{digits}f}{unit}"))
            y += 18
        y += 12
    return _svg(title, parts, y)


def lines(title: str, curves: Mapping[str, Sequence[Point]], *, x_label: str, y_label: str) -> str:
    """Draw curves over a linear x axis and a logarithmic y axis."""
    xs = [x for points in curves.values() for x, _ in points]
    ys = [y for points in curves.values() for _, y in points]
    low, high = math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys)))
    left, right, top, bottom = 70.0, 480.0, _TOP + 10.0, 330.0
    first, last = math.floor(min(xs) * 20) / 20, 1.0

    def at(x: float, y: float) -> Point:
        across = left + (x - first) / (last - first) * (right - left)
        return across, bottom - (math.log10(y) - low) / (high - low) * (bottom - top)

    parts = []
    for power in range(low, high + 1):
        _, y = at(last, 10**power)
        parts += [_line(left, y, right, y), _text(left - 8, y + 4, f"{10**power:,}", anchor="end")]
    for step in range(round(first * 20), 21):
        x, _ = at(step / 20, 10**low)
        parts += [_line(x, top, x, bottom), _text(x, bottom + 18, f"{step / 20:.2f}", anchor="middle")]
    parts += [_text((left + right) / 2, bottom + 38, x_label, anchor="middle"), _text(left, top - 8, y_label)]
    for number, (name, points) in enumerate(curves.items()):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*point) for point in sorted(points)))
        width = 3 if name.startswith("Binocle") else 1.5
        parts.append(f'<polyline points="{path}" fill="none" stroke="{_COLOURS[number]}" stroke-width="{width}"/>')
        parts += [_box(right + 20, top + 22 * number, 12, 12, number), _text(right + 38, top + 22 * number + 11, name)]
    return _svg(title, parts, bottom + 50)


_LABELS = {"above": (0, -9, "middle"), "below": (0, 17, "middle"), "left": (-9, 4, "end"), "right": (9, 4, "start")}


def points(title: str, labelled: dict[str, Point], sides: dict[str, str], *, x_label: str, y_label: str) -> str:
    """Draw labelled points over two linear axes; `sides` moves labels that would overlap."""
    left, right, top, bottom = 70.0, 640.0, _TOP + 10.0, 380.0
    low, high = 0.80, 1.02
    first, last = 0.28, 0.50
    parts = []
    for step in range(5):
        y = bottom - step / 4 * (bottom - top)
        parts += [
            _line(left, y, right, y),
            _text(left - 8, y + 4, f"{low + step / 4 * (high - low):.2f}", anchor="end"),
        ]
        x = left + step / 4 * (right - left)
        parts.append(_text(x, bottom + 18, f"{first + step / 4 * (last - first):.2f}", anchor="middle"))
    parts += [_text((left + right) / 2, bottom + 38, x_label, anchor="middle"), _text(left, top - 8, y_label)]
    for name, (across, up) in labelled.items():
        x = left + (across - first) / (last - first) * (right - left)
        y = bottom - (up - low) / (high - low) * (bottom - top)
        aside, down, anchor = _LABELS[sides.get(name, "below")]
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{_COLOURS[0]}"/>')
        parts.append(_text(x + aside, y + down, name, anchor=anchor))
    return _svg(title, parts, bottom + 50)


def quality() -> str:
    """nDCG@10 of each mode on each collection."""
    groups = [
        (f"{name} ({result['queries']} queries)", [(mode, row["nDCG@10"]) for mode, row in result["modes"].items()])
        for name, result in _results("quality").items()
        if "modes" in result
    ]
    return bars("nDCG@10 of all-MiniLM-L6-v2, without training", groups, digits=3)


def encoding() -> str:
    """Passages a second of indexing, and of encoding alone by sentence-transformers."""
    result = _results("encoding")
    rates = {
        "binocle index": result["binocle_index_passages_per_second"],
        "SentenceTransformer.encode": result["sentence_transformers_encode_passages_per_second"],
    }
    groups = [(name, [("passages a second, 2 cores", sorted(rate)[len(rate) // 2])]) for name, rate in rates.items()]
    return bars("Reading, splitting, encoding and storing, against encoding alone", groups, digits=0)


def vectors(name: str) -> Callable[[], str]:
    """Recall and speed of every setting of the vector indexes."""

    def chart() -> str:
        (size,) = _results(name)["sizes"]
        curves: dict[str, list[Point]] = {}
        for contender in size["contenders"]:
            measured = [(row["recall_at_10"], row["queries_per_second"]) for row in contender["settings"]]
            if contender["name"].startswith("binocle"):
                curves.setdefault("Binocle, chosen by optimize", []).append(measured[0])
            else:
                curves[contender["name"].split(" M 16")[0]] = measured
        title = f"{size['vectors']:,} vectors of {size['dim']} dimensions, one core, all queries in one batch"
        return lines(title, curves, x_label="recall@10", y_label="queries a second")

    return chart


def mining() -> str:
    """Time and memory of mining hard negatives."""
    result = _results("mining")
    names = {"binocle": "binocle mine", "sentence_transformers": "sentence-transformers"}
    groups = [
        ("seconds", [(label, result[name]["seconds"]) for name, label in names.items()]),
        ("peak memory, MB", [(label, float(result[name]["peak_resident_mb"])) for name, label in names.items()]),
    ]
    return bars("Hard negatives for 87,599 questions among 18,891 paragraphs, one core", groups, digits=0)


def audit() -> str:
    """What each defence leaves to the attacker and to the search."""
    settings = {name: (row["leak"], row["keep"]) for name, row in _results("candidates")["settings"].items()}
    title = "Defences of vectors, scifact, attacked in closed form: up and left is better"
    sides = {"none": "right", "int8": "above", "rotation": "left", "pq=96": "above", "pq=48": "above"}
    sides |= {"binary": "left"}
    return points(
        title, settings, sides, x_label="leak: highest token F1 at 32 tokens", y_label="share of nDCG@10 kept"
    )


CHART_OF: dict[str, Callable[[], str]] = {
    "quality": quality,
    "encoding": encoding,
    "vectors-100k": vectors("vectors-100k"),
    "vectors-1m": vectors("vectors-1m"),
    "mining": mining,
    "audit": audit,
}


def _results(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text("utf-8"))["results"]


def _box(x: float, y: float, width: float, height: float, colour: int) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}" fill="{_COLOURS[colour]}"/>'


def _line(x: float, y: float, to_x: float, to_y: float) -> str:
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" stroke="#ddd"/>'


def _text(x: float, y: float, text: str, *, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(title: str, parts: Sequence[str], height: float) -> str:
    frame = f'<rect width="{_WIDTH}" height="{height:.0f}" fill="#fff"/>'
    heading = f'<text x="16" y="24" font-weight="bold">{escape(title)}</text>'
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:.0f}" style="{_STYLE}">'
    return "\n".join([opening, f"<title>{escape(title)}</title>", frame, heading, *parts, "</svg>\n"])


def main() -> None:
    """Draw all charts, unless asked for help."""
    ArgumentParser(description=str(__doc__), formatter_class=RawDescriptionHelpFormatter).parse_args()
    CHARTS.mkdir(exist_ok=True)
    for name, draw in CHART_OF.items():
        (CHARTS / f"{name}.svg").write_text(draw(), "utf-8")


if __name__ == "__main__":
    main()
