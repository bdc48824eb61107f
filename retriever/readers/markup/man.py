"""Read manual pages (man and mdoc of roff) as `man` shows them: without fonts, requests and comments.

Each line of the file is a line of the text, perhaps an empty one, so citations name the lines of the file.
Other files of roff are read as source code. So are logs, such as `syslog.1`.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from ...documents.document import Document
from ..base import HeadingStack, PartStart, name_set, split_parts
from ..plain_text.encoding import decode
from ..plain_text.text import read_code

if TYPE_CHECKING:
    from collections.abc import Iterator

_DEFINITIONS = name_set("de de1 am am1 ig")
_TABLE_FORMAT = re.compile(r"\.[ \t]*$")  # it ends with a full stop
_PAGE = re.compile(r"^[.'][ \t]*+(?:TH|Dt)[ \t]", re.MULTILINE)
_MAX_REQUEST = 5_000  # characters: longer lines are no requests
_REQUEST = re.compile(r"[.'][ \t]*+([A-Za-z\d%]*+)[ \t]*+(.*)")
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
    starts, length = [PartStart(0)], 0
    for line in page.lines(source.split("\n")):
        if page.headings.path != starts[-1].heading:
            starts.append(PartStart(length, page.headings.path))
        lines.append(line)
        length += len(line) + 1
    text = "\n".join(lines)
    return Document(text, split_parts(text, starts), page.title, format_name)


class _Page:
    """The state of a page while its lines are read."""

    def __init__(self) -> None:
        self.headings = HeadingStack()
        self.title = ""
        self._name = ""  # what .Nm stands for
        self._awaited = ""  # the request for a heading that takes the next line as its title
        self._end: re.Pattern[str] | None = None  # of lines that are no text: a macro, or the format of a table

    def lines(self, source: list[str]) -> Iterator[str]:
        """The text of each line."""
        for line in source:
            if self._end:
                self._end = None if self._end.search(line) else self._end
                yield ""
            elif line[:1] in (".", "'") and len(line) <= _MAX_REQUEST and (match := _REQUEST.match(line)):
                yield self._request(match[1], _COMMENT.sub("", match[2]))
            else:
                text = "" if line.strip() in ("T{", "T}") else _plain(_COMMENT.sub("", line))
                if self._awaited and text.strip():
                    self._heading(self._awaited, [text.strip()])
                yield text

    def _request(self, name: str, rest: str) -> str:
        """The text of a request; most have none."""
        if name in _DEFINITIONS or name == "TS":
            self._end = _TABLE_FORMAT if name == "TS" else _end_of_definition(name, _arguments(rest))
        elif name in _MDOC:
            return self._mdoc([name, *_arguments(rest)])
        elif name in _SPACED or name in _JOINED:
            return (" " if name in _SPACED else "").join(_arguments(rest))
        elif name in _TITLES or name in _HEADINGS:
            return self._heading(name, _arguments(rest))
        return "".join(_arguments(rest)[:1]) if name == "IP" else ""

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
        """The text of a line of mdoc, in which macros stand among the words."""
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
