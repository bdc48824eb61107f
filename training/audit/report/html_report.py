"""Write the report of an audit as one self-contained HTML page: curves, tables, examples.

Texts of documents and recovered texts may contain anything. Each is escaped, and a policy in the page forbids scripts
and requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .leak_curves import chart, colours, escaped, overview, texts_of
from .shared_words import marked

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Report = Mapping[str, Any]

_NAMES = {
    "precision": "token precision",
    "recall": "token recall",
    "f1": "token F1",
    "content_f1": "content F1",
    "exact": "exact",
    "bleu": "BLEU",
    "sentence_bleu": "sentence BLEU",
    "rouge_l": "ROUGE-L",
    "cosine": "cosine",
    "numbers": "numbers",
    "names": "names",
}
_OVERVIEW = (
    "<p>Each point is a setting, with its 95 % interval. Across: the highest that any attacker recovered at any "
    "length, or guessed. Up: the share of the search quality that is left. High and left is good. "
    "Ringed: the Pareto front of the leak, as in the charts below.</p>"
)
_CURVES = (
    "<p>Each point is a setting. Across: the share of the search quality that is left. Up: the token F1 of the text "
    "that was recovered, or of the nearest text that the attacker learned from, whichever is higher. Low and right is "
    "good. Ringed, and bold in the table: the Pareto front. No other setting leaks less and keeps as much, or keeps "
    "more and leaks as little, by more than a 95 % interval. Rings are of the leak at any length, in every chart. "
    "Hollow: a secret rotation that an attacker without pairs has undone as far as he can.</p>"
)
_EXAMPLES = (
    "Texts of the index: keep this page as confidential as the index. Marked: words of both texts, as often as both "
    "have them. F1 counts tokens: parts of words, and signs too."
)
_TWENTIETH = "95th percentile, of texts: one text in twenty is read at least so well, which the mean hides."
_WORDS = {
    "token F1": (
        "How much of a text was recovered, without order. It is the harmonic mean of two shares: recovered tokens that "
        "are right, and true tokens that were recovered. A token is a word, a part of one, or a sign. 1 is every token."
    ),
    "content word": (
        "A token that is not common. Common are signs, and the most frequent tokens, which make up two fifths of all. "
        "Content F1 is the F1 of content words alone: names and subjects count, 'the' and 'of' do not."
    ),
    "nDCG@10 kept": (
        "nDCG@10 says how high a search ranks the right documents among its first ten. Kept is the share that a "
        "defence leaves of it: 1 costs nothing."
    ),
    "interval": (
        "The range that holds the true value with a confidence of 95 %, by drawing the texts or queries anew. With few "
        "texts it is wide. Settings with overlapping intervals may be equally good."
    ),
    "defence": (
        "A change of the stored vectors that reduces the text that they give away. A number after its name is its "
        "strength, as in noise=0.03."
    ),
}
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_LIGHT = "--ink:#222;--page:#fff;--faint:#666;--axis:#767676;--line:#ddd;--grid:#eee;--mark:#ffe08a"
_DARK = "--ink:#e4e4e4;--page:#17191c;--faint:#a2a2a2;--axis:#8a8a8a;--line:#3b3e44;--grid:#2b2e33;--mark:#6b5200"
_STYLE = f"""
:root{{color-scheme:light dark;{_LIGHT}}}{colours(dark=False)}
@media(prefers-color-scheme:dark){{:root{{{_DARK}}}{colours(dark=True)}}}
body{{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--page);max-width:75rem;margin:2rem auto}}
body{{padding:0 1rem;overflow-wrap:anywhere}}
h1{{font-size:1.6rem}}h2{{font-size:1.2rem;margin-top:2.2rem}}h3{{font-size:1rem}}
table{{border-collapse:collapse;font-variant-numeric:tabular-nums;margin:.6rem 0;overflow-wrap:normal}}
th,td{{padding:.25rem .5rem;border-bottom:1px solid var(--line);text-align:right;vertical-align:top}}
th{{vertical-align:bottom}}td{{white-space:nowrap}}td small{{display:block}}
th:first-child,td:first-child,td.text,th.text{{text-align:left}}
th:first-child,td:first-child{{position:sticky;left:0;background:var(--page);white-space:normal}}
th:first-child,td:first-child{{max-width:40vw;overflow-wrap:break-word}}
td.text{{overflow-wrap:anywhere;white-space:normal;min-width:14rem}}small{{color:var(--faint)}}.front{{font-weight:600}}
dt{{font-weight:600}}summary{{cursor:pointer}}mark{{background:var(--mark);color:var(--ink)}}
.scroll,figure{{overflow-x:auto}}figure{{display:inline-block;max-width:100%;margin:.3rem 0}}
svg{{display:block;max-width:100%;height:auto}}svg.wide{{min-width:40rem}}
.names>span{{display:inline-block;margin-right:1rem}}
svg text{{fill:currentColor}}.grid{{color:var(--grid)}}.axis{{color:var(--axis)}}.hollow{{fill:var(--page)}}
"""


def page(report: Report) -> str:
    """Lay out the page of a report, given as `report_fields` returns it."""
    parts = [
        f"<h1>Leak audit of {escaped(report['index'])}</h1>",
        *(f"<p>{escaped(sentence)}</p>" for sentence in report["verdict"]),
        _heading(report),
        _words(),
        *_overview(report),
        "<h2>Leak against search quality</h2>",
        _CURVES,
        f"<figure>{chart(report, None)}</figure>",
        "".join(f"<figure>{chart(report, length)}</figure>" for length in report["frequent"]),
        "<h2>Settings</h2>",
        _settings(report),
        *_candidates(report),
        "<h2>What each attacker must have</h2>",
        _assumptions(report),
        "<h2>Remarks</h2>",
        f"<ul>{''.join(f'<li>{escaped(statement)}</li>' for statement in report['statements'])}</ul>",
        "<h2>All measures</h2>",
        f"<p><small>With 95 % intervals over texts. {_TWENTIETH} BLEU: {escaped(report['bleu'])}.</small></p>",
        *(_measures(report, length) for length in report["frequent"]),
        "<h2>What each defence does</h2>",
        _defences(report),
        *_examples(report),
    ]
    title = escaped(f"Leak audit of {report['index']}")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>{title}</title><style>{_STYLE}</style></head>\n<body>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def _heading(report: Report) -> str:
    steps = report["steps_each"]
    learning = f"in {steps:,} steps a setting" if steps else "in closed form"
    facts = (
        f"{escaped(report['model'])}, fingerprint {escaped(report['fingerprint'][:8])}",
        f"{report['documents']:,} documents, {report['passages']:,} passages",
        f"the attacker learned from {report['learned']:,} texts, {learning}",
        f"{report['queries']:,} queries: {escaped(report['query_source'])}",
        f"seed {report['seed']}, {report['seconds']:,.0f} s in all",
    )
    return f"<p>{'<br>'.join(facts)}</p>"


def _words() -> str:
    words = "".join(f"<dt>{escaped(word)}</dt><dd>{escaped(meaning)}</dd>" for word, meaning in _WORDS.items())
    return f"<details><summary>What the words mean</summary><dl>{words}</dl></details>"


def _overview(report: Report) -> Iterable[str]:
    """Lay out the charts beside each other, or one below the other on a narrow screen, and name the numbers."""
    drawings = list(overview(report))
    if not drawings:
        return
    yield f"<h2>What is read against search quality</h2>{_OVERVIEW}"
    yield "".join(f"<figure>{drawing}</figure>" for drawing in drawings)
    names = (
        f'<span class="{setting["kind"]}">●</span> {number} {escaped(setting["name"])}'
        for number, setting in enumerate(report["settings"], 1)
    )
    yield f'<p class="names">{" ".join(f"<span>{name}</span>" for name in names)}</p>'


def _settings(report: Report) -> str:
    rows = []
    for number, setting in enumerate(report["settings"], 1):
        mark = ' class="front"' if setting["name"] in report["front"] else ""
        change = setting["difference"]
        cells = [
            f"<td{mark}>{number} {escaped(setting['name'])}</td>",
            f"<td>{setting['bytes']:,}</td>",
            f"<td>{_value(setting['ndcg'])}</td>",
            f"<td>{setting['keep']:.3f}</td>",
            f"<td>{change['value']:+.4f} <small>p {change['p']:.3f}</small></td>",
            f"<td>{setting['leak']:.3f} <small>at most {setting['leak_high']:.3f}</small></td>",
            f"<td>{setting['leak_95th']:.3f}</td>",
            f"<td>{_value(setting['share'])}</td>",
            *(f"<td>{_value(setting[f'highest_{name}'])}</td>" for name in ("content_f1", "names", "numbers")),
        ]
        rows.append(f"<tr>{''.join(cells)}</tr>")
    heads = [
        "setting",
        "bytes a vector",
        "nDCG@10",
        "kept",
        "difference",
        "highest F1",
        "F1, 95th percentile",
        "share",
        "content F1",
        "names",
        "numbers",
    ]
    note = (
        "Bold: on the Pareto front. Highest F1: of all attackers, guessing and the nearest own text included. "
        f"{_TWENTIETH} Share: 0 is guessing, 1 the whole text."
    )
    return f"{_table(heads, rows)}<p><small>{note}</small></p>{_lengths(report)}"


def _lengths(report: Report) -> str:
    """Lay out the highest F1 of each setting and length, in a table of its own: one with all columns is too wide."""
    rows = []
    for number, setting in enumerate(report["settings"], 1):
        cells = [f"<td>{number} {escaped(setting['name'])}</td>"]
        for length in report["frequent"]:
            answers = [attack["lengths"].get(length) for attack in setting["attacks"].values()]
            f1s = [answer["f1"]["value"] for answer in answers if answer]
            cells.append(f"<td>{max(f1s):.3f}</td>")
        rows.append(f"<tr>{''.join(cells)}</tr>")
    heads = ["setting", *(texts_of(report, length) for length in report["frequent"])]
    return f"<h3>Highest F1 of the attackers, by length</h3>{_table(heads, rows)}"


def _candidates(report: Report) -> Iterable[str]:
    """Lay out the attacks with candidates: the facts that a thief picks, and the indexed texts that he recognizes."""
    kinds = list(dict.fromkeys(kind for setting in report["settings"] for kind in setting["facts"]))
    if not kinds:
        return
    known = [name for name in report["settings"][0]["facts"][kinds[0]] if name not in ("questions", "candidates")]
    rows = []
    for setting in report["settings"]:
        answers = [setting["facts"][kind][name] for kind in kinds for name in known]
        cells = [f"<td>{_value(answer | {'value': answer['first']}, 2)}</td>" for answer in answers]
        member = setting["membership"]
        cells.append(f"<td>{_value(member, 2) if member else '–'}</td>")
        rows.append(f"<tr><td>{escaped(setting['name'])}</td>{''.join(cells)}</tr>")
    heads = ["setting", *(f"{kind}, {name}" for kind in kinds for name in known), "indexed texts recognized"]
    yield "<h2>Candidates</h2><p>How often the true name, number or date is the nearest of 30 candidates, by what is "
    yield "known of the rest of the text; and the share of indexed texts that are recognized, if 1 % of other texts "
    yield "are mistaken for indexed ones.</p>"
    yield _table(heads, rows)


def _assumptions(report: Report) -> str:
    rows = (
        f'<tr><td>{escaped(name)}</td><td class="text">{escaped(sentence)}</td></tr>'
        for name, sentence in report["assumptions"].items()
    )
    return _table(["attacker", "must have"], rows)


def _value(value: Report, digits: int = 3) -> str:
    if value["value"] is None:
        return "–"
    low, high = (f"{value[name]:.{digits}f}" for name in ("low", "high"))
    return f"{value['value']:.{digits}f} <small>[{low}, {high}]</small>"


def _table(heads: Sequence[str], rows: Iterable[str]) -> str:
    head = "".join(f"<th>{escaped(name)}</th>" for name in heads)
    return f'<div class="scroll" tabindex="0"><table><tr>{head}</tr>{"".join(rows)}</table></div>'


def _measures(report: Report, length: str) -> str:
    rows = [_measured("most frequent tokens", report["frequent"][length])]
    for setting in report["settings"]:
        for name, attack in setting["attacks"].items():
            if length not in attack["lengths"]:
                continue
            attacker = f", {name}" if len(setting["attacks"]) > 1 else ""
            rows.append(_measured(f"{setting['name']}{attacker}", attack["lengths"][length]))
        rows.append(_measured(f"{setting['name']}: nearest own text", setting["nearest"][length]))
    count = report["frequent"][length]["texts"]
    return f"<h3>{count} {texts_of(report, length)}</h3>{_table(['', *_NAMES.values(), 'F1, 95th percentile'], rows)}"


def _measured(name: str, values: Report) -> str:
    cells = [_value(values[measure], 1 if "bleu" in measure else 3) for measure in _NAMES]
    cells.append("–" if values["f1_95th"] is None else f"{values['f1_95th']:.3f}")
    return f"<tr><td>{escaped(name)}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _defences(report: Report) -> str:
    kinds = {setting["kind"]: setting for setting in report["settings"]}
    rows = [
        f'<tr><td>{escaped(kind)}</td><td class="text">{escaped(setting["documents"])}</td>'
        f'<td class="text">{escaped(setting["queries"])}</td><td class="text">{escaped(setting["source"])}</td></tr>'
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
        yield f"<h2>Examples</h2><p><small>{_EXAMPLES}</small></p>"
    for name, examples in shown:
        rows = [_example(example) for example in examples]
        yield f"<h3>{escaped(name)}</h3>{_table(['tokens', 'F1', 'true', 'recovered'], rows)}"


def _example(example: Report) -> str:
    true, recovered = marked(example["true"], example["recovered"])
    return (
        f"<tr><td>{example['length']}</td><td>{example['f1']:.3f}</td>"
        f'<td class="text">{true}</td><td class="text">{recovered}</td></tr>'
    )
