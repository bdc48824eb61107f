"""How a reader puts a Document together: by cutting the file's own text, or by adding block after block."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...core.errors import UnreadableError
from ..documents.document import Document, Part

if TYPE_CHECKING:
    from collections.abc import Iterable

Heading = tuple[str, ...]

MAX_CHARACTERS = 64_000_000
MAX_PARTS = 1_000_000
DEEPEST = 16  # levels of headings kept in a path
LONGEST = 200  # characters of a title kept in a path

_BREAKS = re.compile("[\x0b\x0c\x85\u2028\u2029]|\r\n?")
_NOISE = re.compile("\x1b\\[[0-9;]*m|[\x00-\x08\x0e-\x1f\x7f-\x9f\xad\ufeff\ufffe\uffff\ud800-\udfff]")


_WIDEST_GAP = 100  # empty cells; where there are more, what follows stands apart from the table


def table_row(cells: Iterable[tuple[int, str]], separator: str = " | ") -> str:
    """The cells of a row, each with its column from 0, on one line; empty ones keep their place between others."""
    pieces: list[str] = []
    last = 0
    for column, text in cells:
        if text:
            gap = column - last
            pieces.append(separator * (gap if gap <= _WIDEST_GAP else bool(pieces)))
            pieces.append(text)
            last = column
    return "".join(pieces)


def squeeze(text: str) -> str:
    """The text on one line, as a browser collapses white space."""
    return " ".join(text.split())


class Outline:
    """The titles above the place a reader has come to."""

    def __init__(self) -> None:
        self._titles: list[tuple[int, str]] = []
        self.path: Heading = ()

    def enter(self, level: int, title: str) -> Heading:
        """Open a section; it closes all sections of its level and deeper ones."""
        level = min(level, DEEPEST)
        self.leave(level)
        title = squeeze(title)[:LONGEST]
        if title:
            self._titles.append((level, title))
            self.path = tuple(title for _, title in self._titles)
        return self.path

    def leave(self, level: int) -> None:
        while self._titles and self._titles[-1][0] >= min(level, DEEPEST):
            self._titles.pop()
        self.path = tuple(title for _, title in self._titles)


@dataclass(frozen=True, slots=True)
class Cut:
    """From here on the text stands under another heading or is of another kind."""

    start: int
    heading: Heading = ()
    kind: str = "prose"


def cut(text: str, cuts: Iterable[Cut]) -> tuple[Part, ...]:
    """Parts of a file's own text, so that their lines are the file's; `cuts` in order, the first at 0."""
    check_length(len(text))
    ordered = list(cuts)
    if len(ordered) > MAX_PARTS:
        raise UnreadableError(f"it falls into more than {MAX_PARTS:,} parts")
    ends = [following.start for following in ordered[1:]] + [len(text)]
    parts = []
    line = seen = 0
    for this, end in zip(ordered, ends, strict=True):
        body = text[this.start : end]
        kept = body.rstrip()
        if not kept:
            continue
        blank = len(kept) - len(kept.lstrip())
        start = this.start + kept.rfind("\n", 0, blank) + 1
        line += text.count("\n", seen, start)
        seen = start
        parts.append(Part(start, this.start + len(kept), line + 1, None, this.heading, this.kind))
    return tuple(parts)


def check_length(length: int) -> None:
    if length > MAX_CHARACTERS:
        raise UnreadableError(f"its text is longer than {MAX_CHARACTERS // 1_000_000} million characters")


@dataclass(slots=True)
class Builder:
    """Gathers blocks of extracted text; neighbours from one place become one part."""

    title: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    _pieces: list[str] = field(default_factory=list)
    _parts: list[Part] = field(default_factory=list)
    _length: int = 0
    _lines: int = 0

    def add(
        self,
        text: str,
        *,
        line: int | None = None,
        page: int | None = None,
        heading: Heading = (),
        kind: str = "prose",
        gap: str = "\n\n",
    ) -> None:
        """Append a block; `line` is where it begins in the source, None where the source has no lines."""
        text = _NOISE.sub("", _BREAKS.sub("\n", text)).rstrip()
        blank = len(text) - len(text.lstrip())
        skipped = text.count("\n", 0, blank)
        text = text[blank if kind == "prose" else text.rfind("\n", 0, blank) + 1 :]
        if not text:
            return
        if self._length:
            self._pieces.append(gap)
            self._length += len(gap)
            self._lines += gap.count("\n")
        start, first = self._length, self._lines + 1
        self._pieces.append(text)
        self._length += len(text)
        self._lines += text.count("\n")
        check_length(self._length)
        where = first if line is None else line + skipped
        self._append(Part(start, self._length, where, page, heading, kind), first, gap)

    def _append(self, part: Part, first: int, gap: str) -> None:
        last = self._parts[-1] if self._parts else None
        if last and (last.page, last.heading, last.kind) == (part.page, part.heading, part.kind):
            newlines = first - self._first_line
            if last.line + newlines == part.line and (part.kind != "code" or gap == "\n"):
                self._parts[-1] = Part(last.start, part.end, last.line, part.page, part.heading, part.kind)
                return
        if len(self._parts) >= MAX_PARTS:
            raise UnreadableError(f"it falls into more than {MAX_PARTS:,} parts")
        self._parts.append(part)
        self._first_line = first

    _first_line: int = 1  # line in the extracted text on which the last part begins

    def document(self, form: str) -> Document:
        title = squeeze(_NOISE.sub("", self.title))[:1000]
        return Document("".join(self._pieces), tuple(self._parts), title, form, self.metadata)
