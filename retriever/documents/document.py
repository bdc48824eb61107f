"""Document and Part: the text of a file and its structure, from the reader to the chunker and the store."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...core.errors import DamagedError
from ...core.printable import invisible_spans, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

HIDDEN = "hidden"  # the key of metadata with spans of text that a person does not see: start, end, start, end, …
UNREAD = "unread"  # the key of metadata with the reason why a part of the file is not in the text, in one line
BESIDE = "beside the text"  # in a reason: little is not read, so the file does not count as read in part
READER = "reader_version"  # the key of metadata with the version of the reader, where it is not the first
INTERNAL = frozenset({HIDDEN, READER})  # of a file: only the index needs them
OCR = "ocr"  # the key of metadata with the languages that OCR read the pictures in: "deu+eng"

SOURCE_CODE = frozenset(
    ("c", "cpp", "csharp", "cuda", "go", "java", "javascript", "php", "python", "ruby", "rust", "shell", "typescript")
)
"""Formats of source code: their headings name definitions."""


@dataclass(frozen=True, slots=True)
class Part:
    """A span of a document's text with its position in the file.

    `line` is the 1-based line of the part's first character. It counts lines of the file if people open the format as
    lines (text, Markdown, code, HTML, XML, CSV, JSON), else lines of the extracted text. Each newline inside the part
    adds one, and the last character is `joins` lines further, for line breaks that became spaces. `page` is the 1-based
    page, slide or sheet; None if the format has no pages. `heading` is the path of titles above the part, outermost
    first. `kind` names the cuts that the chunker may make: "prose" at paragraphs and sentences, "code" at definitions
    and lines, "table" at rows.
    """

    start: int
    end: int
    line: int
    page: int | None = None
    heading: tuple[str, ...] = ()
    kind: str = "prose"
    joins: int = 0


@dataclass(frozen=True, slots=True)
class Document:
    """A text with its parts, title and metadata.

    `parts` are in order, do not overlap, and contain every character of `text` that is not white space. The line of a
    heading belongs to the part that it opens. `title` is the document's name for people, "" if it has none. `metadata`
    has strings, numbers, booleans or lists of them. A document with an embedding of its own is one passage.
    """

    text: str
    parts: tuple[Part, ...]
    title: str = ""
    format: str = "text"
    metadata: dict[str, Any] = field(default_factory=dict)
    embedding: NDArray[np.float64] | None = field(default=None, compare=False, repr=False)  # shape (dim,)

    @classmethod
    def from_text(
        cls,
        text: str,
        *,
        title: str = "",
        metadata: dict[str, Any] | None = None,
        embedding: NDArray[np.float64] | None = None,
    ) -> Document:
        """Return a document with one part of prose; without parts if the text is only white space.

        :param title: its name for people.
        :param metadata: strings, numbers, booleans or lists of them, by key.
        :param embedding: its vector, shape (dim,); the document is then one passage.
        """
        parts = (Part(0, len(text), 1),) if text.strip() else ()
        return cls(text, parts, title, metadata=metadata or {}, embedding=embedding)

    def line_at(self, position: int) -> int:
        """Return the line of `text[position]`; see `Part.line`."""
        part = self._part_at(position)
        if part is None:
            return 1
        joins = part.joins if position >= part.end - 1 else 0
        return part.line + joins + self.text.count("\n", part.start, min(position, part.end))

    def page_at(self, position: int) -> int | None:
        """Return the page of `text[position]`; None before the first part, or if the format has no pages."""
        part = self._part_at(position)
        return part.page if part else None

    def _part_at(self, position: int) -> Part | None:
        index = bisect_right(self.parts, position, key=lambda part: part.start) - 1
        return self.parts[index] if index >= 0 else None


def add_unread(metadata: dict[str, Any], reason: str) -> None:
    """Add to the metadata the reason why a part of the file is not in the text."""
    metadata[UNREAD] = "; ".join(filter(None, [metadata.get(UNREAD), reason]))


def is_in_part(row: Mapping[str, Any]) -> bool:
    """Whether a document row is of a file with a part that was not read, other than a few pictures beside its text."""
    reasons = (row["reason"] or "").split("; ") if row["state"] == "indexed" else []
    return any(reason and BESIDE not in reason for reason in reasons)


def hidden_spans(concealed: Any, start: int, text: str) -> tuple[tuple[int, int], ...]:
    """Return the spans of a passage that a person does not see, in characters of its document.

    The document's styles hide them, or they consist of characters without a shape.

    :param concealed: the value of `HIDDEN` in the document's metadata; one of another type counts as none.
    :param start: the position of the passage in its document.
    :param text: the passage.
    """
    if concealed is None and text.isascii():
        return ()
    if not isinstance(concealed, list) or not all(type(position) is int for position in concealed):
        concealed = []
    end = start + len(text)
    styled = (
        (max(begin, start), min(stop, end))
        for begin, stop in zip(concealed[::2], concealed[1::2], strict=False)
        if begin < end and stop > start
    )
    invisible = ((start + begin, start + stop) for begin, stop in invisible_spans(text))
    spans: list[tuple[int, int]] = []
    for begin, stop in sorted({*styled, *invisible}):
        if spans and begin <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(stop, spans[-1][1])
        else:
            spans.append((begin, stop))
    return tuple(spans)


def metadata_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of a document row, with the index's own keys.

    :raises DamagedError: when it is no JSON object.
    """
    try:
        metadata = json.loads(row["metadata"])
    except (ValueError, RecursionError):
        metadata = None
    if not isinstance(metadata, dict):
        raise DamagedError(
            f"the metadata of {str(row['path'])[:200]!r} is not what was written: 'binocle verify' says more"
        )
    return metadata


def take_internal(metadata: dict[str, Any]) -> Any:
    """Remove the keys that only the index needs from the metadata of a file, and return its hidden text."""
    metadata.pop(READER, None)
    return metadata.pop(HIDDEN, None)


def concealed_of(row: Mapping[str, Any]) -> Any:
    """Return the hidden text of a document row, for `hidden_spans`; an added document has none."""
    return metadata_of(row).get(HIDDEN) if row["source"] == "file" else None


def visible_text(text: str, start: int, hidden: Iterable[tuple[int, int]]) -> str:
    """Return a passage as a person sees it: without hidden text, control characters and characters without a shape.

    :param start: the position of the passage in its document.
    :param hidden: spans of hidden text, in order, in characters of the document: see `hidden_spans`.
    """
    pieces = []
    position = 0
    for begin, end in hidden:
        pieces.append(text[position : begin - start])
        position = end - start
    pieces.append(text[position:])
    shown = visible("".join(pieces))
    return re.sub(r"\s*\n\s*\n\s*", "\n\n", shown).strip() if len(pieces) > 1 else shown


class LineCounter:
    """`Document.line_at` for ascending positions, without counting any line twice."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._part = 0
        self._position = 0
        self._line = 1

    def at(self, position: int) -> int:
        """Return the line of a position, which must not lie before the last one."""
        parts, text = self._document.parts, self._document.text
        while self._part < len(parts) and parts[self._part].start <= position:
            self._position, self._line = parts[self._part].start, parts[self._part].line
            self._part += 1
        self._line += text.count("\n", self._position, position)
        self._position = max(self._position, position)
        part = parts[self._part - 1] if self._part else None
        return self._line + (part.joins if part and position >= part.end - 1 else 0)


def context_of(heading: Sequence[str], text: str) -> str:
    """Return the text for encoder, full-text index and reranker: the heading path on its own line, then the text."""
    return f"{' > '.join(heading)}\n{text}" if heading else text
