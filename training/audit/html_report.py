"""An audit as one page that needs nothing else: curves drawn as SVG, tables, examples.

Texts of documents, and what was recovered of them, may be anything: every one is escaped, and a policy in the page
forbids scripts and whatever would be fetched.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from ...core.words import encodable
from ...retriever.search.snippet import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Report = Mapping[str, Any]

_COLOURS = {  # Okabe and Ito's, by kind of defence
    "none": "#000000",
    "noise": "#D55E00",
    "truncate": "#0072B2",
    "int8": "#009E73",
    "binary": "#CC79A7",
    "pq": "#E69F00",
    "rotation": "#56B4E9",
}
_NAMES = {
    "precision": "token precision",
    "recall": "token recall",
    "f1": "token F1",
    "exact": "exact",
    "bleu": "BLEU",
    "sentence_bleu": "sentence BLEU",
    "rouge_l": "ROUGE-L",
    "cosine": "cosine",
    "numbers": "numbers",
    "names": "names",
}
_CURVES = (
    "<p>Each point is a setting: how much of the search quality is left, and the F1 of the tokens that the attacker "
    "recovered, or that the nearest text which he had learned from has if that is more. Low and right is good. Ringed "
    "points and the dashed line are the Pareto front: no setting is better in one without being worse in the other. "
    "Hollow: a secret rotation against an attacker without pairs.</p>"
)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;color:#222;background:#fff;max-width:75rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.6rem}h2{font-size:1.2rem;margin-top:2.2rem}h3{font-size:1rem}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin:.6rem 0}
th,td{padding:.25rem .7rem;border-bottom:1px solid #ddd;text-align:right;vertical-align:top}
th:first-child,td:first-child,td.text,th.text{text-align:left}
td.text{overflow-wrap:anywhere;min-width:14rem}small,.faint{color:#666}.front{font-weight:600}
.scroll{overflow-x:auto}svg{max-width:100%;height:auto;background:#fff}figure{display:inline-block;margin:.3rem}
"""


def page(report: Report) -> str:
    """The page of a report as `Audit.as_dict` gives it."""
    parts = [
        f"<h1>Leak audit of {_text(report['index'])}</h1>",
        _heading(report),
        "<h2>Leak against search quality</h2>",
        _CURVES,
        f"<figure>{_chart(report, None)}</figure>",
        "".join(f"<figure>{_chart(report, length)}</figure>" for length in report["frequent"]),
        "<h2>Settings</h2>",
        _settings(report),
        "<h2>What is to be said</h2>",
        f"<ul>{''.join(f'<li>{_text(statement)}</li>' for statement in report['statements'])}</ul>",
        "<h2>All measures</h2>",
        f"<p><small>With 95 % intervals over texts. BLEU: {_text(report['bleu'])}.</small></p>",
        *(_measures(report, length) for length in report["frequent"]),
        "<h2>What each defence does</h2>",
        _defences(report),
        *_examples(report),
    ]
    title = _text(f"Leak audit of {report['index']}")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width"><meta name="referrer" content="no-referrer">'
        f"<title>{title}</title><style>{_STYLE}</style></head>\n<body>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def _text(value: object) -> str:
    return escape(printable(encodable(str(value))))


def _heading(report: Report) -> str:
    facts = (
        f"{_text(report['model'])}, fingerprint {_text(report['fingerprint'][:8])}",
        f"{report['documents']:,} documents, {report['passages']:,} passages",
        f"the attacker learned from {report['learned']:,} texts, for {report['seconds_each']:g} s a setting",
        f"{report['queries']:,} queries: {_text(report['query_source'])}",
        f"seed {report['seed']}, {report['seconds']:,.0f} s in all",
    )
    return f"<p>{'<br>'.join(facts)}</p>"


# The curves


def _chart(report: Report, length: str | None) -> str:
    """F1 against the quality kept, at one length or at the worst of each setting."""
    width, height, left, bottom, top, right = (
        (760, 430, 56, 46, 34, 180) if length is None else (370, 300, 50, 44, 34, 12)
    )
    points = [_point(setting, length) for setting in report["settings"]]
    lowest = min(point[0] for point in points)
    x_min, x_max = max(0.0, lowest - 0.1 * (1.02 - lowest) - 0.01), max(1.02, *(point[0] + 0.01 for point in points))
    y_max = min(1.0, max(0.1, *(point[3] for point in points)) * 1.12)

    def x(value: float) -> float:
        return left + (value - x_min) / (x_max - x_min) * (width - left - right)

    def y(value: float) -> float:
        return height - bottom - value / y_max * (height - bottom - top)

    title = "token F1 at its worst length" if length is None else f"texts of {length} tokens"
    drawn = [f'<text x="{left}" y="18" font-size="14" font-weight="600">{_text(title)}</text>']
    drawn += _axes(x, y, (x_min, x_max), y_max, (left, width - right, top, height - bottom))
    if length is not None:
        at = y(report["frequent"][length]["f1"]["value"])
        drawn.append(_line([(left, at), (width - right, at)], "#999", 'stroke-dasharray="2 3"'))
        drawn.append(f'<text x="{left + 4}" y="{at - 4:.1f}" font-size="10">most frequent tokens</text>')
    drawn += _curves(report, points, x, y)
    drawn += _points(report, points, x, y)
    drawn += _without_pairs(report, length, x, y)
    if length is None:
        drawn += _legend(report, width - right + 14, top + 8)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" font-family="system-ui,sans-serif"><title>{_text(title)}</title>{"".join(drawn)}</svg>'
    )


def _point(setting: Report, length: str | None) -> tuple[float, float, float, float]:
    """Quality kept, and F1 with its interval: the worst attacker's, or that of the nearest text of his own."""
    every = [*(attack["lengths"] for attack in setting["attacks"].values()), setting["nearest"]]
    found = [values["f1"] for lengths in every for at, values in lengths.items() if length in (None, at)]
    worst = max(found, key=lambda one: one["value"])
    return setting["keep"], worst["value"], worst["low"], worst["high"]


def _axes(x: Any, y: Any, xs: tuple[float, float], y_max: float, box: tuple[int, int, int, int]) -> Iterable[str]:
    left, right, top, bottom = box
    for value in _ticks(*xs):
        yield _line([(x(value), top), (x(value), bottom)], "#eee")
        yield f'<text x="{x(value):.1f}" y="{bottom + 15}" font-size="11" text-anchor="middle">{value:.4g}</text>'
    for value in _ticks(0, y_max):
        yield _line([(left, y(value)), (right, y(value))], "#eee")
        yield f'<text x="{left - 6}" y="{y(value) + 4:.1f}" font-size="11" text-anchor="end">{value:.4g}</text>'
    yield _line([(left, top), (left, bottom), (right, bottom)], "#888")
    yield f'<text x="{(left + right) / 2}" y="{bottom + 33}" font-size="12" text-anchor="middle">nDCG@10 kept</text>'
    middle = (top + bottom) / 2
    yield (
        f'<text x="14" y="{middle}" font-size="12" text-anchor="middle" '
        f'transform="rotate(-90 14 {middle})">token F1 recovered</text>'
    )


def _ticks(low: float, high: float) -> list[float]:
    step = next(step for step in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5) if (high - low) / step <= 7 or step == 0.5)
    return [round(place * step, 4) for place in range(int(low / step) + 1, int(high / step) + 1)] or [round(high, 4)]


def _line(places: Sequence[tuple[float, float]], colour: str, more: str = "") -> str:
    way = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return f'<polyline points="{way}" fill="none" stroke="{colour}" {more}/>'


def _curves(report: Report, points: Sequence[tuple[float, ...]], x: Any, y: Any) -> Iterable[str]:
    """Strengths of one kind joined, from no defence on, and the Pareto front."""
    settings = report["settings"]
    for kind in dict.fromkeys(setting["kind"] for setting in settings if setting["kind"] != "none"):
        places = [0, *(place for place, setting in enumerate(settings) if setting["kind"] == kind)]
        way = [(x(points[place][0]), y(points[place][1])) for place in places]
        yield _line(way, _COLOURS[kind], 'stroke-width="1.3" opacity="0.6"')
    front = sorted(points[place][:2] for place in _front(points))
    yield _line([(x(one[0]), y(one[1])) for one in front], "#333", 'stroke-dasharray="6 4" stroke-width="1.2"')


def _front(points: Sequence[tuple[float, ...]]) -> list[int]:
    """The places of the points that no other is right of or below without being left of or above."""

    def beats(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
        return one[0] >= other[0] and one[1] <= other[1] and one[:2] != other[:2]

    return [place for place, one in enumerate(points) if not any(beats(other, one) for other in points)]


def _without_pairs(report: Report, length: str | None, x: Any, y: Any) -> Iterable[str]:
    """A hollow point for what a second attacker, who has less, recovers of a setting."""
    for setting in report["settings"]:
        for name, attack in list(setting["attacks"].items())[1:]:
            found = max(values["f1"]["value"] for at, values in attack["lengths"].items() if length in (None, at))
            colour, across, down = _COLOURS[setting["kind"]], x(setting["keep"]), y(found)
            told = f"{setting['name']}, {name}: F1 {found:.3f}"
            yield (
                f'<circle cx="{across:.1f}" cy="{down:.1f}" r="4" fill="#fff" stroke="{colour}" stroke-width="2">'
                f"<title>{_text(told)}</title></circle>"
            )


def _points(report: Report, points: Sequence[tuple[float, ...]], x: Any, y: Any) -> Iterable[str]:
    taken: list[tuple[float, float]] = []
    front = _front(points)
    for number, (setting, (keep, f1, low, high)) in enumerate(zip(report["settings"], points, strict=True), 1):
        colour, across, down = _COLOURS[setting["kind"]], x(keep), y(f1)
        yield _line([(across, y(low)), (across, y(high))], colour, 'opacity="0.5"')
        if number - 1 in front:
            yield f'<circle cx="{across:.1f}" cy="{down:.1f}" r="7" fill="none" stroke="#333" stroke-width="1.5"/>'
        told = f"{setting['name']}: F1 {f1:.3f} [{low:.3f}, {high:.3f}], nDCG@10 kept {keep:.3f}"
        yield f'<circle cx="{across:.1f}" cy="{down:.1f}" r="4" fill="{colour}"><title>{_text(told)}</title></circle>'
        label = _free(across, down, taken)
        taken += [label, (across, down)]
        yield (
            f'<text x="{label[0]:.1f}" y="{label[1] + 4:.1f}" font-size="11" text-anchor="middle" '
            f'fill="{colour}">{number}</text>'
        )


def _free(x: float, y: float, taken: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """A place for a label beside a point where there is none yet."""
    around = [(x + far * a, y + far * b) for far in (14, 24, 36) for a, b in ((1, 0), (0, -1), (-1, 0), (0, 1), (1, 1))]
    clear = [one for one in around if all(abs(one[0] - a) > 13 or abs(one[1] - b) > 11 for a, b in taken)]
    return clear[0] if clear else around[0]


def _legend(report: Report, x: int, y: int) -> Iterable[str]:
    for number, setting in enumerate(report["settings"], 1):
        colour = _COLOURS[setting["kind"]]
        yield f'<circle cx="{x}" cy="{y + 18 * number - 4}" r="4" fill="{colour}"/>'
        yield f'<text x="{x + 10}" y="{y + 18 * number}" font-size="12">{number} {_text(setting["name"])}</text>'


# The tables


def _settings(report: Report) -> str:
    rows = []
    for number, setting in enumerate(report["settings"], 1):
        mark = ' class="front"' if setting["name"] in report["front"] else ""
        change = setting["difference"]
        cells = [
            f"<td{mark}>{number} {_text(setting['name'])}</td>",
            f"<td>{setting['bytes']:,}</td>",
            f"<td>{_value(setting['ndcg'])}</td>",
            f"<td>{setting['keep']:.3f}</td>",
            f"<td>{change['value']:+.4f} <small>p {change['p']:.3f}</small></td>",
            f"<td>{setting['leak']:.3f}</td>",
        ]
        for length in report["frequent"]:
            found = [f"{attack['lengths'][length]['f1']['value']:.3f}" for attack in setting["attacks"].values()]
            cells.append(f"<td>{' / '.join(found)}</td>")
        rows.append(f"<tr>{''.join(cells)}</tr>")
    heads = ["setting", "bytes a vector", "nDCG@10", "kept", "difference", "highest F1"]
    heads += [f"F1, {length} tokens" for length in report["frequent"]]
    note = (
        "Bold: on the Pareto front. Highest F1: of the attackers and of the nearest own text. Two values of a secret "
        "rotation: an attacker with pairs / with the encoder only."
    )
    return f"{_table(heads, rows)}<p><small>{note}</small></p>"


def _value(value: Report, digits: int = 3) -> str:
    if value["value"] is None:
        return "–"
    low, high = (f"{value[name]:.{digits}f}" for name in ("low", "high"))
    return f"{value['value']:.{digits}f} <small>[{low}, {high}]</small>"


def _table(heads: Sequence[str], rows: Iterable[str]) -> str:
    head = "".join(f"<th>{_text(name)}</th>" for name in heads)
    return f'<div class="scroll"><table><tr>{head}</tr>{"".join(rows)}</table></div>'


def _measures(report: Report, length: str) -> str:
    rows = [_measured("most frequent tokens", report["frequent"][length])]
    for setting in report["settings"]:
        for name, attack in setting["attacks"].items():
            which = f", {name}" if len(setting["attacks"]) > 1 else ""
            rows.append(_measured(f"{setting['name']}{which}", attack["lengths"][length]))
        rows.append(_measured(f"{setting['name']}: nearest own text", setting["nearest"][length]))
    count = report["frequent"][length]["texts"]
    return f"<h3>{length} tokens, {count} texts</h3>{_table(['', *_NAMES.values()], rows)}"


def _measured(name: str, values: Report) -> str:
    cells = [_value(values[measure], 1 if "bleu" in measure else 3) for measure in _NAMES]
    return f"<tr><td>{_text(name)}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _defences(report: Report) -> str:
    kinds = {setting["kind"]: setting for setting in report["settings"]}
    rows = [
        f'<tr><td>{_text(kind)}</td><td class="text">{_text(setting["documents"])}</td>'
        f'<td class="text">{_text(setting["queries"])}</td><td class="text">{_text(setting["source"])}</td></tr>'
        for kind, setting in kinds.items()
    ]
    return _table(["kind", "documents", "queries", "source"], rows)


def _examples(report: Report) -> Iterable[str]:
    shown = [
        (f"{setting['name']}, {name}" if len(setting["attacks"]) > 1 else setting["name"], attack["examples"])
        for setting in report["settings"]
        for name, attack in setting["attacks"].items()
        if attack["examples"]
    ]
    if shown:
        yield "<h2>Examples</h2><p><small>Texts of the index: keep this page as confidential as they are.</small></p>"
    for name, examples in shown:
        rows = [
            f"<tr><td>{one['length']}</td><td>{one['f1']:.3f}</td>"
            f'<td class="text">{_text(one["true"])}</td><td class="text">{_text(one["recovered"])}</td></tr>'
            for one in examples
        ]
        yield f"<h3>{_text(name)}</h3>{_table(['tokens', 'F1', 'true', 'recovered'], rows)}"
