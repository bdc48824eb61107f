"""What travels between the reader, the chunker and the store."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a document's text that comes from one place.

    `line` is the 1-based line on which the part's first character stands: in the file itself where the format is
    made of lines a person can open (text, Markdown, code, HTML, XML, CSV, JSON), otherwise in the extracted text.
    Each newline inside the part moves on by one line. `page` is the 1-based page, slide or sheet, None where the
    format has none. `heading` is the path of titles above the part, outermost first. `kind` tells the chunker what
    it may cut at: "prose" at paragraphs and sentences, "code" at definitions and lines, "table" at rows.
    """

    start: int
    end: int
    line: int
    page: int | None = None
    heading: tuple[str, ...] = ()
    kind: str = "prose"


@dataclass(frozen=True, slots=True)
class Document:
    """A text and where every part of it came from.

    `parts` are in order, do not overlap, and hold every character of `text` that is not white space; a heading's
    own line belongs to the part it opens. `title` is what a person would call the document, "" when it has no name
    of its own. `metadata` holds strings, numbers, booleans or lists of them.
    """

    text: str
    parts: tuple[Part, ...]
    title: str = ""
    format: str = "text"
    metadata: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_text(cls, text: str, *, title: str = "", metadata: dict[str, Any] | None = None) -> Document:
        """A document that is one part of prose."""
        parts = (Part(0, len(text), 1),) if text.strip() else ()
        return cls(text, parts, title, metadata=metadata or {})

    def line_at(self, position: int) -> int:
        """The line (see `Part.line`) on which `text[position]` stands."""
        part = self._part_at(position)
        return part.line + self.text.count("\n", part.start, min(position, part.end)) if part else 1

    def page_at(self, position: int) -> int | None:
        """The page on which `text[position]` stands."""
        part = self._part_at(position)
        return part.page if part else None

    def _part_at(self, position: int) -> Part | None:
        index = bisect_right(self.parts, position, key=lambda part: part.start) - 1
        return self.parts[index] if index >= 0 else None


class LineCounter:
    """`Document.line_at` for positions that never go back, without counting anything twice."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._part = 0
        self._position = 0
        self._line = 1

    def at(self, position: int) -> int:
        parts, text = self._document.parts, self._document.text
        while self._part < len(parts) and parts[self._part].start <= position:
            self._position, self._line = parts[self._part].start, parts[self._part].line
            self._part += 1
        self._line += text.count("\n", self._position, position)
        self._position = max(self._position, position)
        return self._line
