"""Files that are their own text: prose, source code, JSON, delimited tables."""

from __future__ import annotations

import csv
import json
import re
from itertools import islice

from ..documents.document import Document
from .base import LONGEST, Cut, cut
from .encoding import decode

_ESCAPES = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)
_DELIMITERS = ",;\t|"


def read_text(data: bytes, form: str) -> Document:
    return _whole(decode(data), form, "prose")


def read_code(data: bytes, form: str) -> Document:
    return _whole(decode(data), form, "code")


def _whole(text: str, form: str, kind: str, heading: tuple[str, ...] = ()) -> Document:
    return Document(text, cut(text, [Cut(0, heading, kind)]), format=form)


def read_json(data: bytes, form: str) -> Document:
    return _whole(unescape(decode(data)), form, "code")


def read_json_lines(data: bytes, form: str) -> Document:
    """A record a line, so rows are what may be cut at."""
    return _whole(unescape(decode(data)), form, "table")


def unescape(text: str) -> str:
    r"""JSON with its \uXXXX written out, except those that would change what the JSON means or its lines."""
    return _join_halves(_ESCAPES.sub(_character, text)) if "\\u" in text else text


def _character(found: re.Match[str]) -> str:
    if not found[1]:
        return found[0]
    code = int(found[1], 16)
    if code < 0xA0 or code in {0x2028, 0x2029, 0xFEFF, 0xFFFE, 0xFFFF}:
        plain = 0x20 <= code < 0x7F and chr(code) not in '"\\'
        return chr(code) if plain else found[0]
    return chr(code)


def _join_halves(text: str) -> str:
    """Surrogate pairs as the characters they mean, and halves without a partner as U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def looks_like_json(text: str) -> bool:
    if len(text) > 10_000_000 or text[:1] not in "{[" or text.rstrip()[-1:] not in "}]":
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def read_delimited(data: bytes, form: str) -> Document:
    """CSV and its kin; the header row is the heading, so that a row far below still says what its columns are."""
    text = decode(data)
    header = _header(text, "\t" if form == "tsv" else None)
    return _whole(text, form, "table", (header,) if header else ())


def _header(text: str, delimiter: str | None) -> str:
    head = text.lstrip("\ufeff\n")[:16_384]
    first = head.partition("\n")[0]
    if first.lower().startswith("sep=") and len(first) == 5:  # Excel's own way of naming the delimiter
        delimiter, head = first[4], head.partition("\n")[2]
    delimiter = delimiter or max(_DELIMITERS, key=first.count)
    try:
        rows = list(islice(csv.reader(head.split("\n"), delimiter=delimiter), 6))
    except csv.Error:
        return ""
    names, *below = [[cell.strip() for cell in row] for row in rows if any(row)] or [[]]
    if not below or not _are_names(names):
        return ""
    if len(names) == 1 and not any(_is_number(row[0]) for row in below):
        return ""
    return ", ".join(name for name in names if name)[:LONGEST]


def _are_names(cells: list[str]) -> bool:
    named = [cell for cell in cells if cell]
    distinct = len(set(named)) == len(named)
    short = all(len(cell) <= 60 and not _is_number(cell) for cell in named)
    return bool(named) and distinct and short and len(named) * 2 > len(cells)


def _is_number(cell: str) -> bool:
    return bool(re.fullmatch(r"[-+(]?[\d.,:/%\s€$£-]*\d[\d.,:/%\s€$£)-]*", cell))
