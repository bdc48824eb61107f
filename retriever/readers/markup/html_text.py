"""Read HTML as a browser shows it: blocks of text, each with its line in the file."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import replace
from typing import TYPE_CHECKING

from ..document_builder import (
    HIDING,
    SHOWING,
    DocumentBuilder,
    HeadingStack,
    collapse_spaces,
    hide,
    table_row,
    without_marks,
)
from ..plain_text.encoding import decode
from ..table_rows import columns_heading
from .html_lists import HtmlLists
from .html_styles import Look, StyleSheet, look_of
from .html_tables import Block, Row, Table, on_one_line
from .html_tokens import (
    ALLOWED_IN_HEAD,
    BLOCKS,
    CLOSED_BY,
    DROPPED,
    HEADINGS,
    PREFORMATTED,
    TIGHT,
    VOID,
    Tag,
    TextRun,
    tokens,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...documents.document import Document

_HIDDEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_SPACE = re.compile(r"[ \t\n\r\f]+")
_PERMALINK = f"¶#§\N{LINK SYMBOL}\ufe0f\uf0c1 \n{HIDING}{SHOWING}"  # the text of a link from a heading to itself
_ITEMS = frozenset({"li", "dt", "dd"})
_LINKS = frozenset({"a", "button"})
_MAX_TABLE_DEPTH = 24
_MAX_CELL = 2000  # characters; a table with a longer cell serves the layout


def read_html(data: bytes, format_name: str) -> Document:
    """Read an HTML page."""
    builder = DocumentBuilder()
    HtmlReader(decode(data), builder).read()
    return builder.document(format_name)


class HtmlReader:
    """Read one page into a builder.

    :param headings: the sections around the page; the page opens its own inside them.
    :param first_line: the line of the file on which the page begins; None if it is no file (a chapter of an EPUB).
    :param picture_text: returns the text in the picture at an address.
    """

    def __init__(
        self,
        source: str,
        builder: DocumentBuilder,
        *,
        headings: HeadingStack | None = None,
        first_line: int | None = 1,
        picture_text: Callable[[str], str] = lambda _: "",
    ) -> None:
        self._source = without_marks(source)
        self._builder = builder
        self._headings = headings or HeadingStack()
        self._first_line = first_line
        self._picture_text = picture_text
        self._newline_positions = [match.start() for match in re.finditer("\n", self._source)]
        self._open: list[str] = []
        self._count: dict[str, int] = {}
        self._hidden: int | None = None  # the number of open elements outside the hidden one
        self._sheet = StyleSheet()
        # The number of open elements outside an element with a look of its own, that look, and whether it hides text.
        self._looks = [(-1, Look(), False)]
        self._rows: list[Row] = []
        self._tables: list[Table] = []
        self._text: list[str] = []
        self._start: int | None = None
        self._end = 0  # of the last text that is no white space
        self._next_line = 0  # in preformatted text: the expected line of its next line in the file
        self._preformatted = 0
        self._level = 0  # the level of the heading being read, else 0
        self._link = 0  # the number of pieces of text before the last link in that heading
        self._link_end = 0  # the number of pieces up to the end of the last link or button of this block
        self._gap = ""  # white space between the last text and the next, due to the blocks between
        self._lists = HtmlLists()
        self.page_title = ""

    def read(self) -> None:
        """Read the whole page."""
        for token in tokens(self._source):
            if isinstance(token, TextRun):
                self._handle_text(token)
            elif token.is_end:
                self._end_tag(token.name)
            else:
                self._start_tag(token)
        self._flush()
        while self._rows:
            self._end_row()
        while self._tables:
            self._end_table()
        self._builder.title = self._builder.title or self.page_title

    def _line(self, position: int) -> int:
        return bisect_right(self._newline_positions, position - 1) + (self._first_line or 1)

    def _handle_text(self, run: TextRun) -> None:
        if self._open and self._open[-1] == "title" and not self._count.get("svg"):
            self.page_title = self.page_title or collapse_spaces(run.text)
            return
        if self._open and self._open[-1] == "head" and run.text.strip():  # its end tag is optional
            self._end_tag("head")
        if self._hidden is None:
            self._add_text(run.text, run.position, run.end)
        elif self._open[-1] == "style":
            self._sheet.add(run.text)

    def _add_text(self, text: str, position: int, end: int) -> None:
        if text.strip():
            self._end = position + len(self._source[position:end].rstrip())
        if self._looks[-1][2]:
            text = hide(text)
        if self._preformatted:
            self._add_preformatted(text, position)
            return
        if self._start is None and text.strip():
            raw = self._source[position : position + len(text)]
            self._start = position + len(raw) - len(raw.lstrip())
        self._text.append(_SPACE.sub(" ", text))

    def _add_preformatted(self, text: str, position: int) -> None:
        """Add preformatted text; if lines of the file were skipped before it, it begins another block."""
        if self._text and not self._text[-1].endswith("\n"):
            end = text.find("\n") + 1 or len(text)
            self._append(text[:end])
            text, position = text[end:], self._source.find("\n", position) + 1
        if not text:
            return
        if self._text and self._next_line != self._line(position):
            ended = "".join(self._text)
            self._flush()
            self._gap = self._gap or "\n" * (_leading_newlines(ended[::-1]) + _leading_newlines(text))
        if self._start is None:
            self._start, self._next_line = position, self._line(position)
        self._append(text)

    def _append(self, text: str) -> None:
        self._text.append(text)
        self._next_line += text.count("\n")

    def _start_tag(self, tag: Tag) -> None:
        name = tag.name
        if self._open and self._open[-1] == "head" and name not in ALLOWED_IN_HEAD:
            self._end_tag("head")
        while self._open and self._open[-1] in CLOSED_BY.get(name, ()):
            self._end_tag(self._open[-1])
        if name in VOID or tag.self_closing:
            self._void_element(tag)
            return
        hides = self._hidden is None and _hides(tag)
        self._enter_look(tag)
        if self._hidden is None and (name in BLOCKS or _begins_line(tag)):
            self._block_boundary(name)
        if hides:
            self._hidden = len(self._open)
        self._open.append(name)
        self._count[name] = self._count.get(name, 0) + 1
        if self._hidden is None:
            self._part_links(name)
            self._open_element(tag)

    def _part_links(self, name: str) -> None:
        """Put a space between links that follow each other, as a style sheet does in a menu or a list of tags."""
        if name in _LINKS and self._text and self._link_end == len(self._text):
            self._text.append(" ")

    def _enter_look(self, tag: Tag) -> None:
        """Note the look of an element that opens."""
        if self._hidden is None:
            outer = self._looks[-1][1]
            look = look_of(tag, outer, self._sheet)
            if look is not outer:
                self._looks.append((len(self._open), look, self._sheet.hides(look)))

    def _open_element(self, tag: Tag) -> None:
        name = tag.name
        self._lists.start(tag, is_navigation=self._count.get("nav", 0) > 0)
        if name in PREFORMATTED:
            self._preformatted += 1
        elif name == "tr" and len(self._rows) < _MAX_TABLE_DEPTH:
            self._begin_row()
        elif name in {"td", "th"} and self._rows:
            self._rows[-1].begin_cell(name, tag.attributes)
        elif name == "table":
            if self._tables and not self._rows:
                self._add_rows(self._tables[-1])
            self._tables.append(Table())
            if self._rows:
                self._rows[-1].layout = True
        elif name in HEADINGS:
            self._level = int(name[1])
        elif name == "image":
            self._add_picture(tag)
        elif name == "a" and "#" in tag.attributes.get("href", ""):
            self._link = len(self._text)

    def _void_element(self, tag: Tag) -> None:
        if tag.name == "link" and "stylesheet" in tag.attributes.get("rel", "").lower():
            self._sheet.is_whole = False
        if self._hidden is not None or _hides(tag):
            return
        if tag.name == "br":
            if not self._preformatted:
                self._block_boundary("br")
            elif self._start is not None:
                self._append("\n")
        elif tag.name in BLOCKS:
            self._block_boundary(tag.name)
        elif tag.name in {"img", "area", "image"}:
            self._add_picture(tag)
        elif tag.name == "input" and tag.attributes.get("type", "text").lower() not in {
            "hidden",
            "password",
            "radio",
            "checkbox",
        }:
            self._add_attribute(tag, tag.attributes.get("value") or tag.attributes.get("placeholder", ""))

    def _add_picture(self, tag: Tag) -> None:
        address = next((tag.attributes[name] for name in ("src", "href", "xlink:href") if name in tag.attributes), "")
        words = [tag.attributes.get("alt", ""), self._picture_text(address)]
        if any(words):
            self._add_attribute(tag, " ".join(words))

    def _add_attribute(self, tag: Tag, text: str) -> None:
        """Add text that an element without an end tag shows."""
        is_hidden = self._sheet.hides(look_of(tag, self._looks[-1][1], self._sheet))
        self._add_text(f" {hide(text) if is_hidden else text} ", tag.position, tag.position + 1)

    def _end_tag(self, name: str) -> None:
        if name == "br":
            self._void_element(Tag("br", 0, {}, is_end=False, self_closing=True))
        if not self._count.get(name):
            return
        while self._open:
            last = self._open.pop()
            self._count[last] -= 1
            self._close_element(last)
            if last in _LINKS and self._hidden is None:
                self._link_end = len(self._text)
            if self._looks[-1][0] >= len(self._open):
                self._looks.pop()
            if last == name:
                break

    def _close_element(self, name: str) -> None:
        if self._hidden is not None:
            if len(self._open) <= self._hidden:
                self._hidden = None
            return
        if name in BLOCKS:
            self._block_boundary(name)
        self._lists.end(name)
        if name in PREFORMATTED:
            self._preformatted = max(0, self._preformatted - 1)
        elif name == "tr" and len(self._rows) == self._count["tr"] + 1:
            self._end_row()
        elif name == "table":
            self._end_table()
        elif name in {"thead", "tbody", "tfoot"} and self._tables:
            self._tables[-1].free.clear()
        elif name in HEADINGS:
            self._level = 0
        elif name == "a" and self._level and not "".join(self._text[self._link :]).strip(_PERMALINK):
            del self._text[self._link :]

    def _block_boundary(self, name: str) -> None:
        """Note that a block begins or ends here."""
        self._flush()
        nested = name in {"ul", "ol", "dl"} and self._inside_list()
        is_blank = name == "br" and self._gap  # a second break in a row
        if is_blank or not (nested or name in TIGHT) or (self._rows and name in _ITEMS):
            self._gap = "\n\n"
        self._gap = self._gap or "\n"

    def _inside_list(self) -> bool:
        return any(self._count.get(name, 0) > 0 for name in ("li", "dd"))

    def _flush(self) -> None:
        text = "".join(self._text)
        text = text if self._preformatted else _SPACE.sub(" ", text).strip(" ")
        start, last_line, self._start = self._start, self._line(self._end), None
        self._text.clear()
        self._link_end = 0
        if start is None or not text.strip():
            return
        if self._level:
            self._headings.enter(self._level, text)
        kind = "code" if self._preformatted else "prose"
        if (label := self._lists.take_label()) and kind == "prose" and not text.startswith(HIDING):
            text = f"{label} {text}"
        self._emit(Block(text, self._line(start), self._headings.path, kind, self._gap or "\n\n", last_line))
        self._gap = ""

    def _emit(self, block: Block) -> None:
        if self._rows and self._rows[-1].cells:
            row = self._rows[-1]
            row.cells[-1].append(block)
            if self._level or block.kind == "code":
                row.layout = True
        else:
            if self._tables:
                self._add_rows(self._tables[-1])
            self._add(block)

    def _add(self, block: Block) -> None:
        line = None if self._first_line is None else block.line
        last_line = None if block.kind == "code" else block.last_line
        self._builder.add(
            block.text, line=line, heading=block.heading, kind=block.kind, gap=block.gap, last_line=last_line
        )

    def _end_table(self) -> None:
        self._add_rows(self._tables.pop())

    def _add_rows(self, table: Table) -> None:
        """Add the rows that wait, under the names of their columns if they are many."""
        names = columns_heading([row.text for row in table.waiting], table.header)
        for row in table.waiting:
            self._add(replace(row, heading=row.heading + names))
        table.waiting.clear()

    def _begin_row(self) -> None:
        table = self._tables[-1] if self._tables else Table()
        table.row += 1
        self._rows.append(Row(self._gap, table))

    def _end_row(self) -> None:
        row = self._rows.pop()
        cells = [cell for cell in row.cells if cell]
        longest = max((sum(len(block.text) for block in cell) for cell in cells if len(cell) > 1), default=0)
        if row.layout or longest > _MAX_CELL:
            for cell in cells:
                for block in cell:
                    self._emit(block)
            if self._rows:
                self._rows[-1].layout = True
        elif cells:
            texts = list(map(on_one_line, row.cells))
            text = table_row(zip(row.columns, texts, strict=True))
            first = cells[0][0]
            block = Block(text, first.line, first.heading, "table", row.gap or "\n\n", cells[-1][-1].last_line)
            if self._rows or not self._tables:
                self._emit(block)
            else:
                table = self._tables[-1]
                table.header = table.header or (texts if row.is_header and not table.waiting else [])
                table.waiting.append(block)
            self._gap = "\n"


def _leading_newlines(text: str) -> int:
    """The number of newlines before the first letter."""
    return text.count("\n", 0, len(text) - len(text.lstrip()))


def _begins_line(tag: Tag) -> bool:
    """Whether a piece of SVG text stands on a line of its own."""
    return tag.name == "tspan" and "x" in tag.attributes and not tag.attributes.keys().isdisjoint({"y", "dy"})


def _hides(tag: Tag) -> bool:
    if tag.name == "body":  # a script shows a page that is hidden as a whole
        return False
    style = tag.attributes.get("style", "")
    return tag.name in DROPPED or "hidden" in tag.attributes or (bool(style) and bool(_HIDDEN.search(style)))
