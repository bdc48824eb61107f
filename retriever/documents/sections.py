"""Divide a document into sections, which the chunker cuts one by one.

In prose a section is the text below a heading; a tiny section joins the next. Code is divided at its definitions: a
definition that fits the encoder is one section, with all definitions inside it. A larger definition is divided into
the ones inside it, and small neighbours join (cAST, Zhang et al. 2025, arXiv:2506.15655).
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .document import Document, Part

Offsets = Callable[[Sequence[str]], list[list[tuple[int, int]]]]
Path = tuple[str, ...]

_TINY = 32  # tokens: a shorter section joins the next one on its page
_SMALL = 128  # tokens: neighbours in code join up to this length
_COUNTED = 16_384  # characters: no longer section fits an encoder
_IMPLEMENTED = re.compile(r"^impl\b(?:.*\sfor\s+|<[^>]*>|\s)*|<.*")  # the parts of a Rust impl that are not its type
_MAX_DEPTH = 16  # of definitions
_BATCH = 256  # sections tokenized together


@dataclass(frozen=True, slots=True)
class Section:
    """Neighbouring parts on one page and under one heading; small parts of another heading may have joined."""

    parts: tuple[Part, ...]
    size: int = 0  # tokens, of code alone
    fits: bool = False  # one passage

    @property
    def page(self) -> int | None:
        """The page of all parts."""
        return self.parts[0].page

    @property
    def start(self) -> int:
        """The first character."""
        return self.parts[0].start

    @property
    def end(self) -> int:
        """The end of the last character."""
        return self.parts[-1].end

    @property
    def shared(self) -> Path:
        """The heading path that all parts share."""
        return reduce(common, (part.heading for part in self.parts))

    def path(self, start: int, end: int) -> Path:
        """Return the heading path that all parts of these characters share."""
        return reduce(common, (part.heading for part in overlapping(self.parts, start, end)))

    def symbols(self, start: int, end: int, text: str) -> tuple[str, ...]:
        """Return the qualified names of the definitions that have any of these characters of a source text."""
        parts = [part for part in overlapping(self.parts, start, end) if part.kind == "code" and part.heading]
        shown = [part for part in parts if text[max(start, part.start) : min(end, part.end)].strip()]
        return tuple(dict.fromkeys(qualified_name(part.heading) for part in shown))

    def paths(self) -> set[Path]:
        """Return every possible result of `path`."""
        headings = {part.heading for part in self.parts}
        shortest = len(reduce(common, headings))
        return {heading[:length] for heading in headings for length in range(shortest, len(heading) + 1)}


def overlapping(parts: tuple[Part, ...], start: int, end: int) -> tuple[Part, ...]:
    """Return the parts with any of these characters."""
    first = bisect_right(parts, start, key=lambda part: part.end)
    return parts[first : bisect_left(parts, end, key=lambda part: part.start)]


def qualified_name(path: Sequence[str]) -> str:
    """Write the heading path of a definition as one name: ("impl Read for File", "read") is File.read."""
    return ".".join(_IMPLEMENTED.sub("", name) if name.startswith("impl") else name for name in path)


def common(first: Path, second: Path) -> Path:
    """Return the titles at the start of both heading paths."""
    same = 0
    while same < min(len(first), len(second)) and first[same] == second[same]:
        same += 1
    return first[:same]


def sections(document: Document, offsets: Offsets, room: Callable[[Path], int]) -> Iterator[Section]:
    """Divide a document into sections.

    :param room: the tokens that a heading path leaves for the text of a passage.
    """
    if all(part.kind == "code" and part.page is None for part in document.parts) and any(
        part.heading for part in document.parts
    ):
        yield from _pack(_counted(list(_sections(document)), document.text, offsets), room, 0)
    else:
        yield from _merge_tiny(_sections(document), document.text, offsets)


def _sections(document: Document) -> Iterator[Section]:
    for _, parts in groupby(document.parts, key=lambda part: (part.heading, part.page)):
        yield Section(tuple(parts))


def _merge_tiny(whole: Iterable[Section], text: str, offsets: Offsets) -> Iterator[Section]:
    """Merge each tiny section into the next one on its page."""
    pending: Section | None = None
    for section in whole:
        if pending is None:
            pending = section
        elif pending.page == section.page and _is_tiny(text[pending.start : pending.end], offsets):
            pending = Section(pending.parts + section.parts)
        else:
            yield pending
            pending = section
    if pending is not None:
        yield pending


def _is_tiny(text: str, offsets: Offsets) -> bool:
    return len(text) < _TINY * 12 and len(offsets([text])[0]) < _TINY


def _counted(whole: list[Section], text: str, offsets: Offsets) -> list[Section]:
    """Count the tokens of each section; for a section far too long for a passage, count its characters instead."""
    counted = []
    for start in range(0, len(whole), _BATCH):
        batch = whole[start : start + _BATCH]
        texts = [text[section.start : section.end] for section in batch]
        spans = offsets([text if len(text) <= _COUNTED else "" for text in texts])
        counted += [
            replace(section, size=len(tokens) if len(text) <= _COUNTED else len(text))
            for section, text, tokens in zip(batch, texts, spans, strict=True)
        ]
    return counted


def _pack(whole: Sequence[Section], room: Callable[[Path], int], depth: int) -> Iterator[Section]:
    """Join the sections of each definition that fits, divide the other definitions, and join small neighbours."""
    pending: Section | None = None
    for _, group in groupby(whole, key=lambda section: section.parts[0].heading[: depth + 1]):
        members = list(group)
        unit = _join(members, room)
        if not unit.fits and len(members) > 1 and depth < _MAX_DEPTH:
            if pending:
                yield pending
            pending = None
            yield from _pack(members, room, depth + 1)
            continue
        if pending and _belong_together(pending, unit):
            joined = _join([pending, unit], room)
            if joined.fits:
                pending = joined
                continue
        if pending:
            yield pending
        pending = unit
    if pending:
        yield pending


def _belong_together(first: Section, second: Section) -> bool:
    return first.size + second.size <= _SMALL or min(first.size, second.size) < _TINY


def _join(members: list[Section], room: Callable[[Path], int]) -> Section:
    parts = tuple(part for section in members for part in section.parts)
    size = sum(section.size for section in members)
    section = Section(parts, size)
    return replace(section, fits=size <= room(section.shared))
