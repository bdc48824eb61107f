"""Read DOC, the binary format of Word 97 to 2003: its text by paragraphs and table rows, under its headings.

The structures are those of [MS-DOC]: the piece table gives the text, the table of paragraph properties the styles.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .....core.errors import UnreadableError
from ...document_builder import PARAGRAPH, DocumentBuilder, HeadingStack, collapse_spaces, table_row
from .compound import CompoundFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ....documents.document import Document

_IDENT, _WORD_97 = 0xA5EC, 0xC1
_ENCRYPTED, _TABLE_1 = 0x0100, 0x0200
_PAGE = 512  # bytes of a page of properties
_BODY, _TITLE_STYLE = 12, 62  # a level from 1 to 9 is a heading; the built-in style of a document's title
# Codes of properties: the level of a paragraph, a paragraph in a table, and the end of a row.
_OUTLINE, _IN_TABLE, _ROW_END = 0x2640, 0x2416, 0x2417
_OPERAND_BYTES = (1, 1, 2, 4, 2, 2, 0, 3)  # by the last three bits of a property's number; 0: its first byte says
_LONG_OPERANDS = {0xD608, 0xD606}  # their length has two bytes
_FIELD = re.compile("\x13[^\x13\x14\x15]*(?:\x14([^\x13\x14\x15]*))?\x15")  # its code, and the result that people see
_BREAKS = str.maketrans({"\x0b": "\n", "\x0c": "\n", "\x0e": "\n", "\x1e": "-", "\x1f": "", "\xa0": " "})
_SPECIAL = re.compile("[\x00-\x08\x0f-\x1d]")


@dataclass(slots=True)
class _Properties:
    """Paragraph properties: style and changes to it."""

    style: int = 0
    level: int | None = None
    in_table: bool = False
    ends_row: bool = False


@dataclass(slots=True)
class _Styles:
    """The heading levels of styles, and the styles of titles."""

    levels: dict[int, int] = field(default_factory=dict)
    titles: set[int] = field(default_factory=set)


def read_doc(data: bytes, format_name: str) -> Document:
    """Read a Word document of before 2007."""
    file = CompoundFile(data)
    main = file.read("WordDocument")
    try:
        text, offsets, styles, properties = _parse(file, main)
    except (struct.error, IndexError) as error:
        raise UnreadableError(f"damaged: its text is not where it should be ({error})") from None
    return _Reader(text, offsets, styles, properties).document(format_name)


def _parse(file: CompoundFile, main: bytes) -> tuple[str, list[int], _Styles, _PropertyRuns]:
    ident, version = struct.unpack_from("<HH", main, 0)
    (flags,) = struct.unpack_from("<H", main, 10)
    if ident != _IDENT:
        raise UnreadableError("damaged: no Word document in it")
    if flags & _ENCRYPTED:
        raise UnreadableError("password-protected")
    if version < _WORD_97:
        raise UnreadableError("written by Word 95 or before: save it in a newer format")
    table = file.read("1Table" if flags & _TABLE_1 else "0Table")
    text, offsets = _text(main, _slice(table, main, 0x1A2))
    return text, offsets, _read_styles(_slice(table, main, 0xA2)), _PropertyRuns(main, _slice(table, main, 0x102))


def _slice(table: bytes, main: bytes, at: int) -> bytes:
    """Return a structure of the table stream; the main stream says where it is."""
    start, length = struct.unpack_from("<II", main, at)
    return table[start : start + length]


def _text(main: bytes, clx: bytes) -> tuple[str, list[int]]:
    """Return the text of all pieces, and for each character its offset in the main stream."""
    position = 0
    while clx[position] == 1:  # properties of pieces
        position += 3 + struct.unpack_from("<H", clx, position + 1)[0]
    (length,) = struct.unpack_from("<I", clx, position + 1)
    pieces = clx[position + 5 : position + 5 + length]
    count = (len(pieces) - 4) // 12
    bounds = struct.unpack_from(f"<{count + 1}I", pieces)
    texts: list[str] = []
    offsets: list[int] = []
    for number in range(count):
        (where,) = struct.unpack_from("<I", pieces, 4 * (count + 1) + 8 * number + 2)
        characters = min(max(bounds[number + 1] - bounds[number], 0), len(main))
        width = 1 if where & 0x40000000 else 2
        start = (where & 0x3FFFFFFF) // (2 if width == 1 else 1)
        raw = main[start : start + characters * width]
        texts.append(raw.decode("cp1252" if width == 1 else "utf-16-le", "replace"))
        offsets += range(start, start + width * len(texts[-1]), width)
        if len(offsets) > len(main):  # pieces that overlap
            break
    return "".join(texts), offsets


def _read_styles(sheet: bytes) -> _Styles:
    """Read the levels of headings from the style sheet; a style inherits that of its base."""
    (size,) = struct.unpack_from("<H", sheet)
    (count,) = struct.unpack_from("<H", sheet, 2)
    position, built_in, base = 2 + size, {}, {}
    for number in range(min(count, 4_096)):
        if position + 2 > len(sheet):
            break
        (length,) = struct.unpack_from("<H", sheet, position)
        if length >= 4:
            first, second = struct.unpack_from("<HH", sheet, position + 2)
            built_in[number], base[number] = first & 0xFFF, second >> 4
        position += 2 + length + length % 2
    styles = _Styles()
    for number, own in built_in.items():
        origin = number
        for _ in range(_BODY):
            if 1 <= built_in.get(origin, 0) <= 9:
                styles.levels[number] = built_in[origin]
                break
            origin = base.get(origin, -1)
        if own == _TITLE_STYLE:
            styles.titles.add(number)
    return styles


class _PropertyRuns:
    """The properties of paragraphs by their offset in the main stream."""

    def __init__(self, main: bytes, plc: bytes) -> None:
        count = max((len(plc) - 4) // 8, 0)
        self._main = main
        self._bounds = struct.unpack_from(f"<{count + 1}I", plc) if count else ()
        self._pages = struct.unpack_from(f"<{count}I", plc, 4 * (count + 1)) if count else ()
        self._page: tuple[int, list[int], list[_Properties]] = (-1, [], [])

    def at(self, offset: int) -> _Properties:
        """Return the properties of the paragraph with a character at this offset."""
        number = bisect_right(self._bounds, offset) - 1
        if not 0 <= number < len(self._pages):
            return _Properties()
        page = self._pages[number] & 0x3FFFFF
        if self._page[0] != page:
            self._page = (page, *self._read(self._main[page * _PAGE : (page + 1) * _PAGE]))
        _, bounds, runs = self._page
        run = bisect_right(bounds, offset) - 1
        return runs[run] if 0 <= run < len(runs) else _Properties()

    def _read(self, page: bytes) -> tuple[list[int], list[_Properties]]:
        if len(page) < _PAGE:
            return [], []
        count = min(page[-1], (_PAGE - 5) // 17)
        bounds = list(struct.unpack_from(f"<{count + 1}I", page))
        return bounds, [_read_run(page, page[4 * (count + 1) + 13 * number] * 2) for number in range(count)]


def _read_run(page: bytes, at: int) -> _Properties:
    if not at or at + 4 > len(page):
        return _Properties()
    start, length = (at + 1, page[at] * 2 - 1) if page[at] else (at + 2, page[at + 1] * 2)
    changes = page[start + 2 : start + length]
    properties = _Properties(struct.unpack_from("<H", page, start)[0])
    for number, operand in _changes(changes):
        if number == _OUTLINE and operand:
            properties.level = operand[0]
        elif number == _IN_TABLE:
            properties.in_table = bool(operand and operand[0])
        elif number == _ROW_END:
            properties.ends_row = bool(operand and operand[0])
    return properties


def _changes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the operand of each property in a list."""
    position = 0
    while position + 2 <= len(data):
        (number,) = struct.unpack_from("<H", data, position)
        position += 2
        length = _OPERAND_BYTES[number >> 13]
        if not length:
            long = number in _LONG_OPERANDS
            length = int.from_bytes(data[position : position + 1 + long], "little") - long
            position += 1 + long
        yield number, data[position : position + max(length, 0)]
        position += max(length, 0)


class _Reader:
    """Adds the paragraphs of a document to a builder."""

    def __init__(self, text: str, offsets: list[int], styles: _Styles, runs: _PropertyRuns) -> None:
        self._text, self._offsets, self._styles, self._runs = text, offsets, styles, runs
        self._builder = DocumentBuilder()
        self._headings = HeadingStack()
        self._cells: list[str] = []
        self._cell: list[str] = []
        self._gap = "\n\n"

    def document(self, format_name: str) -> Document:
        start = 0
        for match in re.finditer("[\r\x07\x0c]", self._text):
            if match.start() < len(self._offsets):
                properties = self._runs.at(self._offsets[match.start()])
                self._add(self._text[start : match.start()], match[0], properties)
            start = match.end()
        self._add(self._text[start:], "\r", _Properties())
        self._end_row()
        self._builder.title = self._builder.title or self._headings.title()
        return self._builder.document(format_name)

    def _add(self, raw: str, mark: str, properties: _Properties) -> None:
        text = _visible(raw)
        if mark == "\x07" and properties.ends_row:
            self._end_row()
        elif mark == "\x07":
            self._cells.append(PARAGRAPH.join(filter(None, map(collapse_spaces, (*self._cell, text)))))
            self._cell = []
        elif properties.in_table:
            self._cell.append(text)
        else:
            self._end_row()
            self._add_paragraph(text, properties)

    def _add_paragraph(self, text: str, properties: _Properties) -> None:
        level = self._styles.levels.get(properties.style) if properties.level is None else properties.level + 1
        if text.strip() and level is not None and 1 <= level <= 9:
            self._headings.enter(level, text)
        elif text.strip() and properties.style in self._styles.titles and not self._builder.title:
            self._builder.title = text
        self._builder.add(text, heading=self._headings.path)
        self._gap = "\n\n"

    def _end_row(self) -> None:
        cells, self._cells = [*self._cells, *self._cell], []
        self._cell = []
        self._builder.add(table_row(enumerate(cells)), heading=self._headings.path, kind="table", gap=self._gap)
        self._gap = "\n"


def _visible(text: str) -> str:
    """Return the text of a paragraph without the codes of its fields."""
    for _ in range(4):  # fields in fields
        text = _FIELD.sub(lambda match: match[1] or "", text)
    return _SPECIAL.sub("", text.translate(_BREAKS))
