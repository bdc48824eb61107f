"""Write matrices between tokens as one self-contained HTML page: move over a token to see its partners.

The page asks no host for anything, and a policy in it forbids that. Tokens may hold any text: it travels as JSON and is
shown as text, never as markup.
"""

from __future__ import annotations

import base64
import hashlib
import json
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from ...core.printable import printable
from ...core.words import encodable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .heat_map import Matrix

_STYLE = """
body{font:16px/1.6 system-ui,sans-serif;color:#222;background:#fff;max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.3rem}select{font:inherit}p{margin:.6rem 0}.tokens{line-height:2.2}
.tokens span{display:inline-block;padding:0 .3rem;margin:0 .1rem;border-radius:.2rem;cursor:pointer}
.tokens span.chosen{outline:2px solid #222}.faint{color:#666}#value{min-height:1.6rem}
"""
_SCRIPT = """
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const lines = ["rows", "columns"].map(side => document.getElementById(side));
const choice = document.getElementById("choice"), value = document.getElementById("value");
data.matrices.forEach((matrix, number) => choice.add(new Option(matrix.title, number)));
choice.parentElement.hidden = data.matrices.length < 2;
let values, chosen = [0, 0];
function decode(matrix) {
  const bytes = Uint8Array.from(atob(matrix.values), letter => letter.charCodeAt(0));
  return Array.from(new Int16Array(bytes.buffer), part => part / 32767 * matrix.largest);
}
const at = (row, column) => values[row * data.columns.length + column];
function show() {
  const [side, token] = chosen, other = 1 - side;
  const shares = Array.from(lines[other].children, (_, number) => side ? at(number, token) : at(token, number));
  const largest = Math.max(1e-12, ...shares.map(Math.abs));
  lines.forEach((line, number) => Array.from(line.children, (span, place) => {
    const share = number === other ? shares[place] : 0, strength = Math.abs(share) / largest;
    span.style.background = `rgba(${share < 0 ? "220,50,32" : "0,90,181"},${strength})`;
    span.style.color = strength > .5 ? "#fff" : "";
    span.title = number === other ? share.toFixed(4) : "";
    span.classList.toggle("chosen", number === side && place === token);
  }));
  const best = shares.map((share, place) => [share, place]).sort((a, b) => b[0] - a[0]).slice(0, 5);
  const name = [data.rows, data.columns][side][token], names = [data.rows, data.columns][other];
  value.textContent = `${name}: ` + best.map(([share, place]) => `${names[place]} ${share.toFixed(4)}`).join(", ");
}
lines.forEach((line, side) => [data.rows, data.columns][side].forEach((name, token) => {
  const span = document.createElement("span");
  span.textContent = name;
  span.tabIndex = 0;
  const choose = () => { chosen = [side, token]; show(); };
  span.addEventListener("mouseenter", choose);
  span.addEventListener("focus", choose);
  line.append(span, " ");
}));
choice.addEventListener("change", () => { values = decode(data.matrices[choice.value]); show(); });
values = decode(data.matrices[0]);
show();
"""


def page(title: str, note: str, matrices: Sequence[Matrix]) -> str:
    """Lay out matrices that have the same rows and columns; the first is shown first, the others are in a list.

    A value is exact to 1/32,767 of the largest value of its matrix.

    :param note: a sentence on how to read the values.
    """
    script = _SCRIPT.strip()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    first = matrices[0]
    data = {
        "rows": [_visible(name) for name in first.rows],
        "columns": [_visible(name) for name in first.columns],
        "matrices": [_encoded(matrix) for matrix in matrices],
    }
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width"><meta name="referrer" content="no-referrer">'
        f"<title>{escape(_visible(title))}</title><style>{_STYLE}</style></head>\n<body>\n"
        f"<h1>{escape(_visible(title))}</h1><p>{escape(note)}</p>\n"
        '<p><label>Values <select id="choice"></select></label></p>\n'
        '<p class="faint">Rows</p><div id="rows" class="tokens"></div>\n'
        '<p class="faint">Columns</p><div id="columns" class="tokens"></div>\n<p id="value" aria-live="polite"></p>\n'
        f'<script type="application/json" id="data">{_json(data)}</script>\n<script>{script}</script>\n</body></html>\n'
    )


def _encoded(matrix: Matrix) -> dict[str, object]:
    largest = float(np.abs(matrix.values).max(initial=1e-12))
    parts = np.round(matrix.values / largest * 32_767).astype("<i2")
    return {"title": _visible(matrix.title), "largest": largest, "values": base64.b64encode(parts.tobytes()).decode()}


def _json(data: object) -> str:
    """Write JSON that cannot end the script element around it."""
    return json.dumps(data).replace("<", "\\u003c")


def _visible(text: str) -> str:
    return printable(encodable(text))
