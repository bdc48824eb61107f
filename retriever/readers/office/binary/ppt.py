"""Read PPT, the binary format of PowerPoint 97 to 2003: each slide under its title, with its notes.

The structures are those of [MS-PPT]: records in records. An edit appends its changes; a directory lists the newest.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .....core.errors import UnreadableError
from ...document_builder import DocumentBuilder, HeadingStack, collapse_spaces
from .compound import CompoundFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ....documents.document import Document

_CONTAINER = 0xF  # the version of records with records in them
_DOCUMENT, _SLIDE, _NOTES_ATOM, _SLIDE_LIST, _SLIDE_PLACE = 1000, 1006, 1009, 4080, 1011
_TEXT_TYPE, _UNICODE, _BYTES = 3999, 4000, 4008
_EDIT, _DIRECTORY, _COMMENT_TEXT = 4085, 6002, 4026
_TEXTBOX = 0xF00D
_TITLES = {0, 6}  # types of text: a title, and one in the middle of its slide
_MASTER_TEXTS = ("*", "Click to edit")
_ENCRYPTED = 0xF3D1C4DF
_MAX_DEPTH = 40
_BREAKS = str.maketrans({"\r": "\n", "\x0b": " "})


@dataclass(frozen=True, slots=True)
class _Record:
    """A record: its type, its instance, the place of its content, and whether that is records."""

    kind: int
    instance: int
    start: int
    end: int
    is_container: bool


@dataclass(slots=True)
class _Slide:
    """The texts of a slide, each with its type, and its notes."""

    texts: list[tuple[int, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_ppt(data: bytes, format_name: str) -> Document:
    """Read a PowerPoint presentation of before 2007."""
    file = CompoundFile(data)
    stream, user = file.read("PowerPoint Document"), file.read("Current User")
    try:
        (token,) = struct.unpack_from("<I", user, 12)
        if token == _ENCRYPTED:
            raise UnreadableError("password-protected")
        slides = _Presentation(stream, struct.unpack_from("<I", user, 16)[0]).slides()
    except (struct.error, LookupError) as error:
        raise UnreadableError(f"damaged: its slides are not where they should be ({error})") from None
    builder = DocumentBuilder()
    for number, slide in enumerate(slides, 1):
        _add_slide(builder, slide, number)
    return builder.document(format_name)


def _add_slide(builder: DocumentBuilder, slide: _Slide, number: int) -> None:
    headings = HeadingStack()
    title = next((text for kind, text in slide.texts if kind in _TITLES and text.strip()), "")
    headings.enter(1, title)
    texts = [text for _, text in sorted(slide.texts, key=lambda typed: typed[0] not in _TITLES)]
    for text in texts:
        builder.add(text, page=number, heading=headings.path)
    for text in slide.notes:
        builder.add(text, page=number, heading=headings.path)


class _Presentation:
    """The records of a presentation, as its last edit left them."""

    def __init__(self, stream: bytes, edit: int) -> None:
        self._stream = stream
        self._offsets = self._read_offsets(edit)
        self._document = self._record(self._offsets[self._main])

    def _read_offsets(self, edit: int) -> dict[int, int]:
        """Return the offset of each object, as the last edit that changed it left it."""
        offsets: dict[int, int] = {}
        edits: set[int] = set()
        self._main = 0
        while edit and edit not in edits:
            edits.add(edit)
            record = self._record(edit)
            if record.kind != _EDIT:
                raise IndexError("no edit")
            edit, directory, main = struct.unpack_from("<III", self._stream, record.start + 8)
            self._main = self._main or main
            for number, offset in self._directory(self._record(directory)):
                offsets.setdefault(number, offset)
        return offsets

    def _directory(self, record: _Record) -> Iterator[tuple[int, int]]:
        position = record.start
        while record.kind == _DIRECTORY and position + 4 <= record.end:
            (head,) = struct.unpack_from("<I", self._stream, position)
            count = min(head >> 20, (record.end - position) // 4 - 1)
            offsets = struct.unpack_from(f"<{count}I", self._stream, position + 4)
            yield from enumerate(offsets, head & 0xFFFFF)
            position += 4 + 4 * count

    def _record(self, offset: int) -> _Record:
        head, kind, length = struct.unpack_from("<HHI", self._stream, offset)
        start = offset + 8
        return _Record(kind, head >> 4, start, min(start + length, len(self._stream)), head & 0xF == _CONTAINER)

    def _children(self, record: _Record) -> Iterator[_Record]:
        position = record.start
        while record.is_container and position + 8 <= record.end:
            child = self._record(position)
            yield child
            position = child.end

    def slides(self) -> Iterator[_Slide]:
        """The slides in order; the notes of each are found by its id."""
        lists = [record for record in self._children(self._document) if record.kind == _SLIDE_LIST]
        notes: dict[int, list[str]] = {}
        for (number, _), _ in self._listed(lists, instance=2):
            page = self._record(self._offsets.get(number, 0))
            for child in self._children(page):
                if child.kind == _NOTES_ATOM:
                    (slide,) = struct.unpack_from("<I", self._stream, child.start)
                    notes[slide] = [text for _, text in self._texts(page) if not text.startswith(_MASTER_TEXTS)]
        for (number, identity), texts in self._listed(lists, instance=0):
            slide = self._record(self._offsets.get(number, 0))
            own = [text for text in self._texts(slide) if text not in texts] if slide.kind == _SLIDE else []
            yield _Slide(texts + own, notes.get(identity, []))

    def _listed(
        self, lists: list[_Record], *, instance: int
    ) -> Iterator[tuple[tuple[int, int], list[tuple[int, str]]]]:
        """Yield the number and the id of each slide in a list, and the texts of its outline."""
        numbers, texts, kind = (0, 0), list[tuple[int, str]](), -1
        for record in (child for outer in lists if outer.instance == instance for child in self._children(outer)):
            if record.kind == _SLIDE_PLACE:
                if numbers != (0, 0):
                    yield numbers, texts
                number, _, _, identity = struct.unpack_from("<IIiI", self._stream, record.start)
                numbers, texts, kind = (number, identity), [], -1
            elif record.kind == _TEXT_TYPE:
                (kind,) = struct.unpack_from("<I", self._stream, record.start)
            elif (text := self._text(record)) is not None:
                texts.append((kind, text))
        if numbers != (0, 0):
            yield numbers, texts

    def _texts(self, record: _Record) -> Iterator[tuple[int, str]]:
        """Yield the texts in the boxes and comments of a slide, each with its type."""
        kind = -1
        waiting = [(record, 0)]
        while waiting:
            current, depth = waiting.pop()
            if current.kind == _TEXT_TYPE:
                (kind,) = struct.unpack_from("<I", self._stream, current.start)
            elif (text := self._text(current)) is not None:
                yield kind, text
            elif depth < _MAX_DEPTH and (current.is_container or current.kind == _TEXTBOX):
                waiting += [(child, depth + 1) for child in reversed(list(self._children(current)))]

    def _text(self, record: _Record) -> str | None:
        content = self._stream[record.start : record.end]
        if record.kind == _UNICODE or (record.kind == _COMMENT_TEXT and record.instance == 1):
            text = content.decode("utf-16-le", "replace")
        elif record.kind == _BYTES:
            text = content.decode("latin-1")
        else:
            return None
        return "\n".join(map(collapse_spaces, text.translate(_BREAKS).split("\n")))
