"""Split a text that keeps its own lines into parts: walk over its lines, and record where each part begins."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...documents.document import Document
from ..document_builder import HeadingStack, PartStart, split_parts

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterator

    from ..document_builder import Heading


class LineScanner:
    """Walk over the lines of a text and record where its parts begin."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.lines = text.split("\n")
        self.line_starts = []
        position = 0
        for line in self.lines:
            self.line_starts.append(position)
            position += len(line) + 1
        self.headings = HeadingStack()
        self.part_starts = [PartStart(0)]
        self.title = ""

    def prose(self, index: int) -> None:
        """Begin a part of prose at a line."""
        self.mark(index, "prose")

    def mark(self, index: int, kind: str, names: Heading = ()) -> None:
        """Begin a part of a kind at a line."""
        if index < len(self.line_starts):
            self.part_starts.append(PartStart(self.line_starts[index], self.headings.path + names, kind))

    def enter_heading(self, index: int, level: int, title: str) -> None:
        """Begin a section at a line."""
        self.headings.enter(level, title)
        self.mark(index, "prose")

    def block(self, index: int, end: int, kind: str, names: Heading = ()) -> int:
        """Make the lines from `index` up to `end` one part of another kind, with prose behind; returns `end`.

        :param names: of the columns of a table, as a further heading.
        """
        self.mark(index, kind, names)
        self.prose(end)
        return end

    def skip_while(self, index: int, holds: Callable[[str], object]) -> int:
        """The first line from `index` on that does not pass."""
        while index < len(self.lines) and holds(self.lines[index]):
            index += 1
        return index

    def line_after(self, index: int, closes: Callable[[str], object]) -> int:
        """The line after the first one that closes the block, or the end of the text."""
        return min(self.skip_while(index, lambda line: not closes(line)) + 1, len(self.lines))

    def document(self, format_name: str) -> Document:
        """The text with its parts and its title, which is the first heading unless `title` is set."""
        title = self.title or self.headings.title(deepest=1)
        return Document(self._text, split_parts(self._text, _last_starts(self.part_starts)), title, format_name)


def _last_starts(starts: list[PartStart]) -> Iterator[PartStart]:
    """Keep only the last of several parts that begin at one position."""
    for start, following in zip(starts, [*starts[1:], None], strict=True):
        if following is None or following.start > start.start:
            yield start


def replace_outside_code(
    document: Document, pattern: re.Pattern[str], letters: Callable[[re.Match[str]], str]
) -> Document:
    """Replace each match of a pattern, except in code.

    :param letters: the text in place of a match.
    """
    pieces: list[str] = []
    parts = []
    position = length = 0
    for part in document.parts:
        text = document.text[part.start : part.end]
        if part.kind != "code":
            text = pattern.sub(letters, text)
        pieces += [document.text[position : part.start], text]
        start = length + part.start - position
        position, length = part.end, start + len(text)
        parts.append(replace(part, start=start, end=length))
    return replace(document, text="".join([*pieces, document.text[position:]]), parts=tuple(parts))
