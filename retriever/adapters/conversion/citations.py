"""Where a passage stands, as the metadata of another framework's document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...documents.document import visible_text
from .values import from_metadata

if TYPE_CHECKING:
    from ...search.results.hit import Hit


def citation(hit: Hit) -> dict[str, Any]:
    """Return the place of a passage: the document, the characters and lines, the page and the headings above it.

    Its `text` has most of that in one line, for a prompt or for people.
    """
    return {
        "text": hit.citation,
        "path": hit.path,
        "title": hit.title,
        "format": hit.format,
        "page": hit.page,
        "heading": list(hit.heading),
        "line_start": hit.line_start,
        "line_end": hit.line_end,
        "char_start": hit.char_start,
        "char_end": hit.char_end,
        "sha256": hit.sha256,
    }


def passage_metadata(hit: Hit) -> dict[str, Any]:
    """Return the metadata of a hit's document with the citation. The path is the `source`, unless metadata has one."""
    return {"source": hit.path, **from_metadata(hit.metadata), "citation": citation(hit), "relevance": hit.relevance}


def passage_id(hit: Hit) -> str:
    """Return a name for a passage: its path and its characters."""
    return f"{hit.path}#{hit.char_start}-{hit.char_end}"


def passage_text(hit: Hit) -> str:
    """Return the text of a passage as a person sees it: hidden text is not for a language model either."""
    return visible_text(hit.text, hit.char_start, hit.hidden) if hit.hidden else hit.text
