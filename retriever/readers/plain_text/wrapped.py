r"""Read formats that wrap their lines anywhere, also within a word: iCalendar, vCard and the PO files of translators.

A value becomes one line again, and an escape such as \, or \n its character; each line keeps the number that it begins
on in the file. An event is below its summary, a contact below its name.
"""

from __future__ import annotations

import quopri
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....core.errors import UnsupportedError
from ...documents.document import Document
from ..document_builder import MAX_LEVEL, MAX_TITLE, DocumentBuilder, PartStart, collapse_spaces, split_parts
from .encoding import decode

if TYPE_CHECKING:
    from collections.abc import Iterator

    Pieces = list[tuple[int, str]]  # of a value: the lines of the file, from 1, and their texts

_CUT_LETTER = re.compile(rb"([\xc2-\xf4][\x80-\xbf]*)(\r?\n[ \t])([\x80-\xbf]+)")  # its bytes before and after a fold
_PROPERTY = re.compile(r"(?:[\w-]+\.)?(?P<name>[\w-]+)(?P<parameters>(?:;(?:\"[^\"\n]*\"|[^\":\n])*)?):")
_QUOTED_PRINTABLE = re.compile(r";(?:ENCODING=)?QUOTED-PRINTABLE(?![\w-])", re.IGNORECASE)
_BASE64 = re.compile(r";(?:ENCODING=)?(?:B|BASE64)(?![\w-])", re.IGNORECASE)
_CHARSET = re.compile(r";CHARSET=\"?([\w-]+)", re.IGNORECASE)
_TITLES = frozenset({"SUMMARY", "FN", "X-WR-CALNAME"})  # of an event or a task, a contact, a calendar
_ESCAPE = re.compile(r"\\([\\;,:nN\"])")

_ENTRY = re.compile(r"(msg(?:ctxt|id|id_plural|str(?:\[\d+\])?)[ \t]+\")(.*)\"[ \t]*$")
_CONTINUED = re.compile(r"[ \t]*\"(.*)\"[ \t]*$")
_PO_ESCAPE = re.compile(r"\\([\\\"nt])")
_CHARACTERS = {"n": "\n", "N": "\n", "t": "\t"}


@dataclass(slots=True)
class _Property:
    """A property of a calendar or a contact."""

    name: str
    pieces: Pieces
    last_line: int

    @property
    def value(self) -> str:
        line = "".join(text for _, text in self.pieces)
        match = _PROPERTY.match(line)
        return line[match.end() :] if match else ""


def read_records(data: bytes, format_name: str) -> Document:
    """Read iCalendar or vCard."""
    properties = list(_properties(decode(_CUT_LETTER.sub(rb"\1\3\2", data)).split("\n")))
    titles: dict[int, str] = {}  # of the components that begin at a property
    parents: list[int] = []  # of each property: the component around it, -1 for none
    outer: dict[int, int] = {}
    component = -1
    for number, item in enumerate(properties):
        if item.name == "BEGIN":
            outer[number], component = component, number
        parents.append(component)
        if item.name == "END":
            component = outer.get(component, -1)
        elif item.name in _TITLES:
            titles.setdefault(component, item.value)
    builder = DocumentBuilder()
    headings: dict[int, tuple[str, ...]] = {-1: ()}
    for item, parent in zip(properties, parents, strict=True):
        if parent not in headings:
            title = collapse_spaces(titles.get(parent, ""))[:MAX_TITLE]
            headings[parent] = (*headings[outer[parent]], *([title] if title else []))[:MAX_LEVEL]
        _add(builder, item.pieces, item.last_line, headings[parent])
    return builder.document(format_name)


def _properties(lines: list[str]) -> Iterator[_Property]:
    index = 0
    while index < len(lines):
        first = index
        pieces = [(index + 1, lines[index])]
        index += 1
        match = _PROPERTY.match(pieces[0][1])
        if match and _QUOTED_PRINTABLE.search(match["parameters"]):
            while pieces[-1][1].endswith("=") and index < len(lines):
                pieces.append((index + 1, lines[index]))
                index += 1
            pieces = _printed(pieces, match)
        else:
            while index < len(lines) and lines[index][:1] in {" ", "\t"}:
                pieces.append((index + 1, lines[index][1:]))
                index += 1
            if match and _BASE64.search(match["parameters"]):
                pieces = [(first + 1, "".join("".join(text for _, text in pieces).split()))]
            pieces = _unescaped(pieces, _ESCAPE)
        yield _Property(match["name"].upper() if match else "", pieces, index)


def _printed(pieces: Pieces, match: re.Match[str]) -> Pieces:
    """Decode a value in quoted-printable, which ends a line that goes on with an equals sign."""
    charset = _CHARSET.search(match["parameters"])
    (first, line), *following = pieces
    decoded = [(first, match[0])]
    run: list[bytes] = []  # up to the end of a line of the value: a letter may be cut where a line of the file ends
    for number, text in [(first, line[match.end() :]), *following]:
        first = first if run else number
        run.append(quopri.decodestring(text.encode()))
        if run[-1].endswith((b"\r", b"\n")) or number == pieces[-1][0]:
            value = _decoded(b"".join(run), charset[1] if charset else "")
            body = value.rstrip("\n")
            decoded += [(first, body), (number, value[len(body) :])]
            run = []
    return decoded


def _decoded(data: bytes, charset: str) -> str:
    try:
        return decode(data, charset)
    except UnsupportedError:
        return data.decode("utf-8", "replace")


def _unescaped(pieces: Pieces, escape: re.Pattern[str]) -> Pieces:
    """Put a character for each escape; one that a fold has cut is that of its second line."""
    cut = ""
    unescaped = []
    for line, text in pieces:
        joined = cut + text
        cut = "\\" if (len(joined) - len(joined.rstrip("\\"))) % 2 else ""
        body = joined.removesuffix("\\") if cut else joined
        unescaped.append((line, escape.sub(lambda match: _CHARACTERS.get(match[1], match[1]), body)))
    last, text = unescaped.pop()
    return [*unescaped, (last, text + cut)]


def _add(builder: DocumentBuilder, pieces: Pieces, last_line: int, heading: tuple[str, ...]) -> None:
    """Add a value, with the line of the file on which each of its own lines begins."""
    text, first = "", 0
    for line, piece in pieces:
        *ended, rest = piece.split("\n")
        first = first if text else line
        for end in ended:
            builder.add(text + end, line=first, last_line=line, heading=heading, gap="\n")
            text, first = "", line
        text += rest
    builder.add(text, line=first, last_line=last_line, heading=heading, gap="\n")


def read_po(data: bytes, format_name: str) -> Document:
    """Read the messages of a program and their translations; empty lines keep the place of lines that were joined."""
    lines = decode(data).split("\n")
    index = 0
    while index < len(lines):
        first, match = index, _ENTRY.match(lines[index])
        index += 1
        if not match:
            continue
        strings = [(first, match[2])]
        while index < len(lines) and (following := _CONTINUED.match(lines[index])):
            strings.append((index, following[1]))
            index += 1
        *value, last = [text for _, text in _unescaped(strings, _PO_ESCAPE)]
        value.append(last.removesuffix("\n"))
        if any("\n" in text.removesuffix("\n") for text in value):  # the text would have more lines than the file
            value = [text for _, text in strings]
        lines[first:index] = _joined(match[1], value)
    text = "\n".join(lines)
    return Document(text, split_parts(text, [PartStart(0, (), "code")]), format=format_name)


def _joined(keyword: str, strings: list[str]) -> list[str]:
    """The lines of an entry, as many as its strings: each begins where its own first string stands."""
    lines = [keyword]
    start = 0
    for number, text in enumerate(strings):
        lines[start] += text.removesuffix("\n")
        lines.append("")
        if text.endswith("\n"):
            start = number + 1
    lines[start] += '"'
    return lines[:-1]
