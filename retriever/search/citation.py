"""The citation of a passage: its document and its place there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """The place of a passage. Lines count in the file if it is made of lines, else in the extracted text."""

    path: str
    line_start: int
    line_end: int
    page: int | None
    heading: tuple[str, ...]

    @staticmethod
    def fields_of(chunk: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
        """These fields, from the rows of a passage and of its document."""
        return {
            "path": document["path"],
            "line_start": chunk["line_start"],
            "line_end": chunk["line_end"],
            "page": chunk["page"],
            "heading": tuple(chunk["heading"]),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CitedText(Citation):
    """A text with its citation: `text` is the document's text[char_start:char_end]."""

    text: str
    sha256: str  # of the document
    char_start: int
    char_end: int
    hidden: tuple[tuple[int, int], ...] = ()  # spans of the document that a person does not see there, in order


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy(Citation):
    """The citation of a passage with the same text as a hit, or nearly the same."""

    passage: int  # its row id
    source: str  # "file" or "added"
