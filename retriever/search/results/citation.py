"""The citation of a passage: its document and its place there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from ...documents.sections import common

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
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

    @staticmethod
    def joined_fields(run: Sequence[CitedText], text: str) -> dict[str, Any]:
        """These fields of the text from the first of some neighbours to the last, and the heading that all share.

        :param run: on one page of one document, in its order.
        """
        first, last = run[0], run[-1]
        return {
            "path": first.path,
            "line_start": first.line_start,
            "line_end": last.line_end,
            "page": first.page,
            "heading": reduce(common, (passage.heading for passage in run)),
            "text": text,
            "sha256": first.sha256,
            "char_start": first.char_start,
            "char_end": last.char_end,
            "hidden": tuple(span for passage in run for span in passage.hidden),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy(Citation):
    """The citation of a passage with the same text as a hit, or nearly the same."""

    passage: int  # its row id
    source: str  # "file" or "added"
