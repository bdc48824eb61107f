"""Read files that are plain text: prose, source code, JSON, delimited tables."""

from __future__ import annotations

import csv
import json
import re
from io import StringIO
from itertools import islice

from ....core.words import encodable
from ...documents.document import Document
from ..document_builder import PartStart, collapse_spaces, split_parts
from ..table_rows import column_names, is_header, is_number
from .definitions import definition_starts
from .encoding import SOFT_HYPHEN, decode

_ESCAPES = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)
_CUE_TAG = re.compile(
    r"<v(?:\.[^\s<>]*)?[ \t](?P<voice>[^<>\n]+)>"
    r"|</?(?:[bciuv]|lang|ruby|rt|font)(?:[. \t][^<>\n]*)?>|<\d[\d:.]*>|\{\\[^{}\n]*\}",
    re.IGNORECASE,
)
_CUE_BREAK = re.compile(r"\\[Nnh]")
_CUE_CHARACTERS = {"amp": "&", "lt": "<", "gt": ">", "nbsp": " ", "lrm": "", "rlm": ""}
_CUE_ESCAPE = re.compile(f"&({'|'.join(_CUE_CHARACTERS)});")
_QUOTED = re.compile(r'"[^"]*"')
_DELIMITERS = ",;\t|"
_DATED = re.compile(  # a date or a time, perhaps in brackets, or behind a weekday and a month
    r"\W{0,3}(?:[^\W\d]{2,10}[, ]{1,3}){0,2}"
    r"(?:\d{1,4}([-/.])\d{1,2}\1\d{1,4}|(?:(?:\d{1,2}[-/.])?\d{1,2} )?\d{1,2}:\d{2}|\d{6,10}[-T ]{1,3}\d)"
)
_SAMPLE = 200  # lines


def read_text(data: bytes, format_name: str) -> Document:
    """Read a text file as prose; a log or an exported chat as a table, which is cut between lines."""
    text = decode(data)
    return _one_part(text, format_name, "table" if _has_dated_lines(text) else "prose")


def _has_dated_lines(text: str) -> bool:
    """Whether a third of the first lines begin with a date or a time."""
    lines = [line for line in text[: 500 * _SAMPLE].split("\n", _SAMPLE)[:_SAMPLE] if line.strip()]
    return len(lines) > 2 and 3 * sum(map(bool, map(_DATED.match, lines))) >= len(lines)


def read_properties(data: bytes, format_name: str) -> Document:
    """Read the messages of a Java program: letters outside of ASCII are often escapes there."""
    return _one_part(unescape(decode(data)), format_name, "code")


def read_code(data: bytes, format_name: str) -> Document:
    """Read a text file as source code, its parts at classes and functions."""
    text = decode(data)
    return Document(text, split_parts(text, definition_starts(text, format_name)), format=format_name)


def read_subtitles(data: bytes, format_name: str) -> Document:
    """Read subtitles without the tags of their cues; a voice tag becomes the name of who speaks."""
    text = decode(data)
    text = _CUE_TAG.sub(lambda match: f"{match['voice'].strip()}: " if match["voice"] else "", text)
    if text.startswith("[Script Info]"):  # SubStation Alpha
        text = _CUE_BREAK.sub(" ", text)
    if text.startswith("WEBVTT"):
        text = _CUE_ESCAPE.sub(lambda match: _CUE_CHARACTERS[match[1]], text)
    return _one_part(text, format_name, "prose")


def _one_part(text: str, format_name: str, kind: str, heading: tuple[str, ...] = ()) -> Document:
    return Document(text, split_parts(text, [PartStart(0, heading, kind)]), format=format_name)


def read_json(data: bytes, format_name: str) -> Document:
    """Read JSON as code, its escapes as letters."""
    return _one_part(unescape(decode(data)), format_name, "code")


def read_json_lines(data: bytes, format_name: str) -> Document:
    """Read JSON lines as a table: the chunker then splits it between records."""
    return _one_part(unescape(decode(data)), format_name, "table")


def unescape(text: str) -> str:
    r"""Replace each \uXXXX of JSON or of Java's properties by its letter, unless that changes the meaning or the lines.

    A soft hyphen is removed, as in any text.
    """
    return encodable(_ESCAPES.sub(_character, text)) if "\\u" in text else text


def _character(match: re.Match[str]) -> str:
    if not match[1]:
        return match[0]
    code = int(match[1], 16)
    if code < 0xA0 or code in {0x2028, 0x2029, 0xFEFF, 0xFFFE, 0xFFFF}:
        plain = 0x20 <= code < 0x7F and chr(code) not in '"\\'
        return chr(code) if plain else match[0]
    return chr(code).replace(SOFT_HYPHEN, "")


def looks_like_json(text: str) -> bool:
    """Whether a text of at most 10 million characters parses as a JSON object or array."""
    if len(text) > 10_000_000 or text[:1] not in "{[" or text.rstrip()[-1:] not in "}]":
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def read_delimited(data: bytes, format_name: str) -> Document:
    """Read a delimited table. Its header row becomes the heading, so that a row far below still names its columns."""
    text = decode(data)
    header = _header(text, "\t" if format_name == "tsv" else None)
    return _one_part(text, format_name, "table", (header,) if header else ())


def _header(text: str, delimiter: str | None) -> str:
    head = text.lstrip("\ufeff\n")[:16_384]
    first = head.partition("\n")[0]
    if first.lower().startswith("sep=") and len(first) == 5:  # Excel names the delimiter on such a line
        delimiter, head = first[4], head.partition("\n")[2]
    delimiter = delimiter or max(_DELIMITERS, key=_QUOTED.sub("", head).partition("\n")[0].count)
    try:
        rows = list(islice(csv.reader(StringIO(head), delimiter=delimiter), 6))
    except csv.Error:
        return ""
    names, *below = [[collapse_spaces(cell) for cell in row] for row in rows if any(row)] or [[]]
    if not below or not is_header(names):
        return ""
    if len(names) == 1 and not any(is_number(row[0]) for row in below):
        return ""
    return column_names(names)
