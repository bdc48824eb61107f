"""Read manual pages (man and mdoc of roff) as `man` shows them: without fonts, requests and comments.

Each line of the file is a line of the text, perhaps an empty one, so citations name the lines of the file.
Other files of roff are read as source code. So are logs, such as `syslog.1`.
"""

from __future__ import annotations

import re
import unicodedata
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from ...documents.document import Document
from ..document_builder import Heading, HeadingStack, PartStart, name_set, split_parts, table_row
from ..plain_text.encoding import decode
from ..plain_text.text import read_code

if TYPE_CHECKING:
    from collections.abc import Iterator

_DEFINITIONS = name_set("de de1 am am1 ig")
_TABLE_FORMAT = re.compile(r"\.[ \t]*$")  # it ends with a full stop
_SEPARATOR = re.compile(r"\btab *\((.)\).*;")  # between the cells of a table
_RULE = re.compile(r"[_=\s]*")  # a line across a table
_BRANCH = re.compile(r"[.'][ \t]*+(if|ie|el)\b[ \t]*+([^\s\\]*+)")
_ON_PAPER = ("t", "!n")  # conditions of typesetting, not of a terminal
_MARKER = re.compile(r"(?:[^\w\s]|\d{1,3}[.)])")  # of a list item
_MAX_TERM = 6  # lines of a term with its other spellings
_ITEMS = name_set("TP IP HP It")
_PARAGRAPHS = name_set("PP P LP sp RE")
_DEPTHS = {"RS": 1, "Bl": 1, "RE": -1, "El": -1}
_SECTION = re.compile(r"[.'][ \t]*+S[Hh]\b")
_PAGE = re.compile(r"^[.'][ \t]*+(?:TH|Dt)[ \t]", re.MULTILINE)
_MAX_REQUEST = 5_000  # characters: longer lines are no requests
_REQUEST = re.compile(r"[.'][ \t]*+([A-Za-z\d%&]*+)[ \t]*+(.*)")
_ARGUMENT = re.compile(r'"((?:[^"]|"")*+)"?|((?:\\.|[^\s"\\])(?:\\.|[^\s\\])*+)')
_COMMENT = re.compile(r"(?<!\\)\\[\"#].*")
_IN_BRACKETS, _IN_QUOTES = r"\[[^\]]{0,40}\]", "'[^']{0,80}'"
_ESCAPE = re.compile(
    rf"\\(?:[fFmMnkgYV*](?:\((?:..)?|{_IN_BRACKETS}|.)"  # fonts, colours, numbers and texts by name
    rf"|s(?:[-+]?\d|\(..|{_IN_BRACKETS}|{_IN_QUOTES})"
    rf"|[hvwlLDNbBxXZoR]{_IN_QUOTES}"
    r"|\((?P<pair>..)|\[(?P<name>[^\]]{0,40})\]|(?P<sign>.?))"
)
_SIGNS = {"e": "\\", "E": "\\", "~": " ", "0": " ", "t": "\t"} | dict.fromkeys("&/,|^c:%pdu{}azr!?()", "")
_NAMED = {
    "aq": "'", "cq": "’", "oq": "‘", "lq": "“", "rq": "”", "dq": '"', "ga": "`", "ha": "^", "ti": "~", "rs": "\\",
    "bu": "•", "em": "—", "en": "–", "hy": "-", "mi": "−", "mu": "×", "di": "÷", "pl": "+", "eq": "=", "->": "→",
    "<-": "←", "<=": "≤", ">=": "≥", "!=": "≠", "+-": "±", "co": "©", "rg": "®", "tm": "™", "de": "°", "sc": "§",
    "la": "⟨", "ra": "⟩", "lB": "[", "rB": "]", "lC": "{", "rC": "}", "at": "@", "sh": "#", "Do": "$", "or": "|",
    "ba": "|", "sl": "/", "ss": "ß", "AE": "Æ", "ae": "æ", "/o": "ø", "/O": "Ø", "oa": "å", "oA": "Å",
}  # fmt: skip
_ACCENTS = {":": "\u0308", "'": "\u0301", "`": "\u0300", "^": "\u0302", "~": "\u0303", ",": "\u0327"}

_SPACED = name_set("B I SM SB C CW R OP SY UR MT URL MTO")
_JOINED = name_set("BR RB BI IB IR RI")
_TITLES = name_set("TH Dt")
_HEADINGS = {"SH": 2, "Sh": 2, "SS": 3, "Ss": 3}
_MDOC = name_set("""
    Ad An Ap Aq Ar Bq Brq Cd Cm D1 Dl Dq Dv Em Er Ev Fa Fd Fl Fn Ft Ic In It Lb Li Lk Mt Nd Nm No Ns Oc Oo Op Pa Pf Pq
    Ql Qq Sq St Sx Sy Tn Ux Va Vt Xc Xo Xr Po Pc Do Dc So Sc Qo Qc Ao Ac Bo Bc Bro Brc Fo Fc
    %A %B %C %D %I %J %N %O %P %Q %R %T %U %V
""")
_AROUND = {"Op": "[]", "Oo": "[", "Oc": "]", "Bq": "[]", "Brq": "{}", "Aq": "<>", "Pq": "()", "Dq": "“”", "Sq": "‘’"}
_AROUND |= {
    "Po": "(",
    "Pc": ")",
    "Do": "“",
    "Dc": "”",
    "So": "‘",
    "Sc": "’",
    "Qo": '"',
    "Qc": '"',
    "Ao": "<",
    "Ac": ">",
}
_AROUND |= {"Bo": "[", "Bc": "]", "Bro": "{", "Brc": "}"}
_STRING = re.compile(r"\\\*(?:\((lq|rq|Tm)|\[(lq|rq|Tm)\]|(R))")  # that every page may use
_STRINGS = {"lq": "“", "rq": "”", "Tm": "™", "R": "®"}


def read_man(data: bytes, format_name: str) -> Document:
    """Read a manual page, its sections as headings."""
    source = decode(data)
    if not _PAGE.search(source):
        return read_code(data, format_name)
    page = _Page()
    lines: list[str] = []
    headings: list[Heading] = []
    for line in page.lines(source.split("\n")):
        lines.append(line)
        headings.append(page.headings.path)
    ends = list(accumulate(len(line) + 1 for line in lines))
    cuts = sorted(
        {0, *page.items, *(number for number, pair in enumerate(pairwise(headings), 1) if pair[0] != pair[1])}
    )
    starts = [PartStart(ends[number - 1] if number else 0, headings[number]) for number in cuts]
    text = "\n".join(lines)
    return Document(text, split_parts(text, starts), page.title, format_name)


class _Page:
    """The state of a page while its lines are read."""

    def __init__(self) -> None:
        self.headings = HeadingStack()
        self.title = ""
        self._name = ""  # what .Nm stands for
        self.items: list[int] = []  # the lines where items of the outermost lists begin, from 0
        self._number = -1  # of the line
        self._paragraph = 0  # the line where it began
        self._depth = 0  # of indented text
        self._awaited = ""  # the request for a heading that takes the next line as its title
        self._end: re.Pattern[str] | None = None  # of lines that are no text: a macro, or the format of a table
        self._separator: str | None = None  # of the cells, inside a table
        self._is_in_cell = False  # of several lines
        self._skipped = 0  # depth of the branches for paper
        self._is_else_for_paper = False
        self._marker = ""  # of a list item: the next text follows on its line

    def lines(self, source: list[str]) -> Iterator[str]:
        """The text of each line."""
        for line in source:
            self._number += 1
            text = self._line(line)
            if self._marker and text.strip():
                text, self._marker = f"{self._marker} {text}", ""
            elif line.endswith("\\c") and _MARKER.fullmatch(text.strip()):
                text, self._marker = "", text.strip()
            yield text

    def _line(self, line: str) -> str:
        if self._end:
            if self._separator is not None and (match := _SEPARATOR.search(line)):
                self._separator = match[1]
            self._end = None if self._end.search(line) else self._end
            return ""
        if self._is_skipped(line):
            return ""
        if line[:1] in (".", "'") and len(line) <= _MAX_REQUEST and (match := _REQUEST.match(line)):
            return self._request(match[1], _COMMENT.sub("", match[2]))
        if self._separator is not None:
            return self._row(_COMMENT.sub("", line))
        text = "" if line.strip() in ("T{", "T}") else _plain(_COMMENT.sub("", line))
        if self._awaited and text.strip():
            self._heading(self._awaited, [text.strip()])
        return text

    def _is_skipped(self, line: str) -> bool:
        """Whether a line is in a branch that a terminal does not show; no branch goes beyond a section."""
        opened = line.count("\\{") - line.count("\\}")
        if self._skipped and not _SECTION.match(line):
            self._skipped = max(0, self._skipped + opened)
            return True
        self._skipped = 0
        match = _BRANCH.match(line)
        if match is None:
            return False
        is_for_paper = self._is_else_for_paper if match[1] == "el" else match[2] in _ON_PAPER
        if match[1] == "ie":
            self._is_else_for_paper = not is_for_paper
        self._skipped = max(0, opened) if is_for_paper else 0
        return is_for_paper

    def _row(self, line: str) -> str:
        """The text of a row of a table; a cell between T{ and T} has lines of its own."""
        if self._is_in_cell and not line.startswith("T}"):
            return _plain(line)
        cells = [cell.strip() for cell in line.split(self._separator)]
        is_rest, self._is_in_cell = cells[0] == "T}", cells[-1] == "T{"
        texts = ["" if cell in ("T{", "T}") else _plain(cell) for cell in cells]
        if _RULE.fullmatch("".join(texts)):
            return "|" if is_rest and self._is_in_cell else ""
        return (table_row(enumerate(texts)) + " |" * self._is_in_cell).strip()

    def _request(self, name: str, rest: str) -> str:
        """The text of a request; most have none."""
        self._enter(name)
        if name in _DEFINITIONS or name in ("TS", "T&"):
            self._end = _TABLE_FORMAT if name in ("TS", "T&") else _end_of_definition(name, _arguments(rest))
        elif name in _MDOC:
            return self._mdoc([name, *_arguments(rest)])
        elif name in _SPACED or name in _JOINED:
            return (" " if name in _SPACED else "").join(_arguments(rest))
        elif name in _TITLES or name in _HEADINGS:
            return self._heading(name, _arguments(rest))
        return "".join(_arguments(rest)[:1]) if name == "IP" else ""

    def _enter(self, name: str) -> None:
        """Notice where paragraphs, indented texts, items of lists and tables begin and end."""
        if name in ("TS", "TE"):
            self._separator, self._is_in_cell = ("\t" if name == "TS" else None), False
        if name in _ITEMS and self._depth <= (name == "It"):
            self.items.append(self._number)
        elif name == "RS" and self._depth == 0 and 1 < self._number - self._paragraph <= _MAX_TERM:
            self.items.append(self._paragraph)  # of DocBook and AsciiDoc: a paragraph with the term, then the text
        if name in _PARAGRAPHS or name in _HEADINGS:
            self._paragraph = self._number
        if name in _HEADINGS:
            self._marker = ""
        self._depth = 0 if name in _HEADINGS else max(0, self._depth + _DEPTHS.get(name, 0))

    def _heading(self, name: str, arguments: list[str]) -> str:
        if name in _TITLES:
            self.title = _title(arguments)
        title = self.title if name in _TITLES else " ".join(arguments)
        self._awaited = "" if title else name
        if not title:
            return ""
        self.headings.enter(_HEADINGS.get(name, 1), title)
        return title

    def _mdoc(self, words: list[str]) -> str:
        """The text of a line of mdoc, which has macros among the words."""
        if words[0] == "Nm":
            self._name = self._name or " ".join(words[1:2])
        if words == ["Nm"]:
            return self._name
        pieces: list[str] = []
        closing = macro = dashes = ""
        for number, word in enumerate(words):
            if word in _MDOC and (number == 0 or (len(word) > 1 and words[0] != "Nd")):
                opening, closing = _AROUND.get(word, "")[:1], _AROUND.get(word, "")[1:] + closing
                pieces += [opening] * bool(opening) + ["–"] * (word == "Nd")
                macro, dashes = word, dashes + "-" if word == "Fl" else ""
            elif macro == "Xr" and word.isalnum() and word[0].isdigit() and pieces:
                pieces[-1] += f"({word})"
            else:
                pieces.append(dashes + word if word.strip(".,:;()[]") else word)
        text = re.sub(r"([\[{<(“‘]) ", r"\1", " ".join(pieces))
        return re.sub(r" ([\]}>)”’.,:;])(?!\S)", r"\1", text + closing)


def _end_of_definition(name: str, arguments: list[str]) -> re.Pattern[str]:
    """Match the line that ends a macro's definition: two full stops, or the request that the definition names."""
    last = arguments[:1] if name == "ig" else arguments[1:2]
    return re.compile(rf"^[.'][ \t]*+{re.escape(last[0] if last else '.')}[ \t]*$")


def _title(arguments: list[str]) -> str:
    """The name and the section: cp(1)."""
    name, section = [*arguments, "", ""][:2]
    return (name.lower() if name.isupper() else name) + (f"({section})" if section else "")


def _arguments(rest: str) -> list[str]:
    return [
        _plain(match[1].replace('""', '"') if match[1] is not None else match[2]) for match in _ARGUMENT.finditer(rest)
    ]


def _plain(text: str) -> str:
    """A text without escapes."""
    if "\\" not in text:
        return text
    return _ESCAPE.sub(_sign, _STRING.sub(lambda match: _STRINGS[match[1] or match[2] or match[3]], text))


def _sign(match: re.Match[str]) -> str:
    if match["sign"] is not None:
        return _SIGNS.get(match["sign"], match["sign"])
    name = match["pair"] or match["name"] or ""
    if len(name) == 2 and name[0] in _ACCENTS and name[1].isalpha():
        return unicodedata.normalize("NFC", name[1] + _ACCENTS[name[0]])
    if re.fullmatch(r"u[0-9A-F]{4,5}", name):
        letter = chr(int(name[1:], 16))
        return letter if letter.isprintable() else ""
    return _NAMED.get(name, "")
