"""Two ways to assemble a Document: split the file's own text, or add block after block of extracted text."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ...core.errors import UnreadableError
from ..documents.document import HIDDEN, Document, Part

if TYPE_CHECKING:
    from collections.abc import Iterable

Heading = tuple[str, ...]

MAX_CHARACTERS = 64_000_000
MAX_PARTS = 1_000_000
MAX_LEVEL = 16  # levels of headings kept in a path
MAX_TITLE = 200  # characters of a title kept in a path

_BREAKS = re.compile("[\x0b\x0c\x85\u2028\u2029]|\r\n?")
_NOISE = re.compile("\x1b\\[[0-9;]*m|[\x00-\x08\x0e-\x1f\x7f-\x9f\xad\ufeff\ufffe\uffff\ud800-\udfff]")

# These two characters enclose hidden text until a builder records its place. Unicode leaves them to programs, and
# `hide` removes any others from the text between them.
HIDING, SHOWING = "\ufdd0", "\ufdd1"
_HIDDEN = re.compile(f"{HIDING}([^{HIDING}{SHOWING}]*){SHOWING}")
_MARKS = str.maketrans("", "", HIDING + SHOWING)
_SHAPELESS = re.compile("[\u200b\u2060]+")  # spaces without width, which pages put beside the link of a heading
_WORDS = re.compile(r"\S(?:.*\S)?")  # of a line
_MAX_HIDDEN = 10_000  # spans of a document; of more, neighbours become one

PARAGRAPH = " / "  # between the paragraphs of a table cell, which stands on one line
_MAX_GAP = 100  # empty cells in a row; text after a wider gap does not belong to the table


def name_set(names: str) -> frozenset[str]:
    """The set of names that are written in one text, with white space between them."""
    return frozenset(names.split())


def table_row(cells: Iterable[tuple[int, str]], separator: str = " | ") -> str:
    """Write the cells of a table row, each with its column from 0, on one line; empty cells keep their columns."""
    pieces: list[str] = []
    last = 0
    for column, text in cells:
        if text:
            gap = column - last
            pieces.append(separator * (gap if gap <= _MAX_GAP else bool(pieces)))
            pieces.append(text)
            last = column
    return "".join(pieces)


def collapse_spaces(text: str) -> str:
    """Write a text on one line, with white space collapsed as a browser does."""
    return " ".join(text.split())


def hide(text: str) -> str:
    """Mark a text as hidden, line by line, without the white space around it."""
    return _WORDS.sub(f"{HIDING}\\g<0>{SHOWING}", text.translate(_MARKS))


def without_marks(text: str) -> str:
    """Remove the characters that mark hidden text, from a text that has no such marks."""
    return text.translate(_MARKS) if HIDING in text or SHOWING in text else text


def shown(text: str) -> str:
    """Leave out the marked parts of a title: a hidden heading heads nothing."""
    return without_marks(_HIDDEN.sub("", text))


class HeadingStack:
    """The titles of the sections that are open at the reader's position, as `path`."""

    def __init__(self) -> None:
        self._titles: list[tuple[int, str]] = []
        self._first: tuple[int, str] | None = None
        self._has_sibling = False
        self.path: Heading = ()

    def enter(self, level: int, title: str) -> Heading:
        """Open a section, which closes all sections of its level and of deeper levels."""
        level = min(level, MAX_LEVEL)
        self.leave(level)
        title = collapse_spaces(shown(_SHAPELESS.sub("", title)))[:MAX_TITLE]
        if title:
            self._has_sibling = self._first is not None and (self._has_sibling or level <= self._first[0])
            self._first = self._first or (level, title)
            self._titles.append((level, title))
            self.path = tuple(title for _, title in self._titles)
        return self.path

    def title(self, deepest: int = MAX_LEVEL) -> str:
        """The first heading, if all others are below it, so that it names the document; else "".

        :param deepest: the deepest level that may name a document.
        """
        return self._first[1] if self._first and not self._has_sibling and self._first[0] <= deepest else ""

    def leave(self, level: int) -> None:
        """Close all sections of a level and of deeper levels."""
        while self._titles and self._titles[-1][0] >= min(level, MAX_LEVEL):
            self._titles.pop()
        self.path = tuple(title for _, title in self._titles)


@dataclass(frozen=True, slots=True)
class PartStart:
    """The start of a part: a position in a text, with the heading and the kind of the text behind it."""

    start: int
    heading: Heading = ()
    kind: str = "prose"


def split_parts(text: str, starts: Iterable[PartStart]) -> tuple[Part, ...]:
    """Split a file's own text into parts, which keep the line numbers of the file.

    :param starts: in order, the first at 0.
    """
    check_length(len(text))
    ordered = list(starts)
    if len(ordered) > MAX_PARTS:
        raise UnreadableError(f"it falls into more than {MAX_PARTS:,} parts")
    ends = [following.start for following in ordered[1:]] + [len(text)]
    parts = []
    line = counted = 0
    for current, end in zip(ordered, ends, strict=True):
        body = text[current.start : end]
        stripped = body.rstrip()
        if not stripped:
            continue
        blank = len(stripped) - len(stripped.lstrip())
        start = current.start + stripped.rfind("\n", 0, blank) + 1
        line += text.count("\n", counted, start)
        counted = start
        parts.append(Part(start, current.start + len(stripped), line + 1, None, current.heading, current.kind))
    return tuple(parts)


def check_length(length: int) -> None:
    """Refuse a text that is longer than a reader may return."""
    if length > MAX_CHARACTERS:
        raise UnreadableError(f"its text is longer than {MAX_CHARACTERS // 1_000_000} million characters")


@dataclass(slots=True)
class DocumentBuilder:
    """Collect blocks of extracted text; neighbours with the same page, heading and kind become one part."""

    title: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    _pieces: list[str] = field(default_factory=list)
    _parts: list[Part] = field(default_factory=list)
    _length: int = 0
    _lines: int = 0
    _hidden: list[tuple[int, int]] = field(default_factory=list)

    def add(
        self,
        text: str,
        *,
        line: int | None = None,
        page: int | None = None,
        heading: Heading = (),
        kind: str = "prose",
        gap: str = "\n\n",
        last_line: int | None = None,
    ) -> None:
        """Append a block of text.

        :param line: the line on which it begins in the source; None if the source has no lines.
        :param gap: the white space between the block before and this one.
        :param last_line: the line on which it ends, if its text has lost line breaks of the source.
        """
        text = _NOISE.sub("", _BREAKS.sub("\n" if line is None else " ", text))  # the lines of a file end at \n alone
        text, hidden = _take_marks(text) if HIDING in text or SHOWING in text else (text, [])
        text = text.rstrip()
        blank = len(text) - len(text.lstrip())
        skipped = text.count("\n", 0, blank)
        cut = blank if kind == "prose" else text.rfind("\n", 0, blank) + 1
        text = text[cut:]
        if not text:
            return
        if self._length:
            self._pieces.append(gap)
            self._length += len(gap)
            self._lines += gap.count("\n")
        start, first = self._length, self._lines + 1
        self._hidden += [(start + begin - cut, start + end - cut) for begin, end in hidden]
        self._pieces.append(text)
        self._length += len(text)
        self._lines += text.count("\n")
        check_length(self._length)
        part_line = first if line is None else line + skipped
        joins = 0 if line is None or last_line is None else max(0, last_line - part_line - text.count("\n"))
        self._append(Part(start, self._length, part_line, page, heading, kind, joins), first, gap)

    def _append(self, part: Part, first: int, gap: str) -> None:
        last = self._parts[-1] if self._parts else None
        if last and (last.page, last.heading, last.kind, last.joins) == (part.page, part.heading, part.kind, 0):
            newlines = first - self._first_line
            if last.line + newlines == part.line and (part.kind != "code" or gap == "\n"):
                self._parts[-1] = replace(last, end=part.end, joins=part.joins)
                return
        if len(self._parts) >= MAX_PARTS:
            raise UnreadableError(f"it falls into more than {MAX_PARTS:,} parts")
        self._parts.append(part)
        self._first_line = first

    _first_line: int = 1  # line of the extracted text where the last part begins

    @property
    def length(self) -> int:
        """The number of characters so far."""
        return self._length

    def document(self, format_name: str) -> Document:
        """The document of all blocks so far."""
        text = "".join(self._pieces)
        title = collapse_spaces(shown(_NOISE.sub("", self.title)))[:1000]
        if self._hidden:
            self.metadata[HIDDEN] = [position for span in _merge(self._hidden, text) for position in span]
        return Document(text, tuple(self._parts), title, format_name, self.metadata)


def _take_marks(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Return the text without its marks, and the spans that were marked."""
    pieces: list[str] = []
    spans = []
    position = length = 0
    for match in _HIDDEN.finditer(text):
        pieces.append(text[position : match.start()].translate(_MARKS))
        start = length + len(pieces[-1])
        pieces.append(match[1])
        length = start + len(match[1])
        position = match.end()
        spans.append((start, length))
    pieces.append(text[position:].translate(_MARKS))
    return "".join(pieces), spans


def _merge(spans: list[tuple[int, int]], text: str) -> list[tuple[int, int]]:
    """Join spans that only white space separates; if there are too many, also join neighbours."""
    joined: list[tuple[int, int]] = []
    for start, end in spans:
        if joined and (not text[joined[-1][1] : start].strip() or len(joined) >= _MAX_HIDDEN):
            joined[-1] = joined[-1][0], end
        else:
            joined.append((start, end))
    return joined
