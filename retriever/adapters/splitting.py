"""Texts of another framework, cut into passages as an index cuts them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...core.words import encodable
from ..documents.chunker import chunk
from ..documents.document import Document
from ..readers import read
from ..readers.detect import ending_of
from ..readers.formats import FORMATS, KEEP_LINES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..documents.chunker import Chunk
    from ..models.encoder import Encoder

_NAMES = ("file_path", "file_name", "source")  # keys of metadata with the path of a file
_ENDINGS = {name: ending for ending, (name, reader) in FORMATS.items() if reader.startswith(KEEP_LINES)}


def passages(text: str, metadata: Mapping[str, Any], encoder: Encoder, *, taken: int = 0) -> list[Chunk]:
    """Return the passages of a text. The `format` in the metadata, or else the name of the file, decides how to cut it.

    Markdown is cut at its headings, for example, and source code at its definitions. The text of a PDF has no headings.

    :param taken: tokens that the encoder reads together with each passage; they take at most half of its room.
    """
    room = max(encoder.max_tokens - taken, encoder.max_tokens // 2)
    return chunk(_document(text, metadata), encoder.offsets, room)


def heading_of(passage: Chunk) -> str:
    """Return the headings above a passage on one line, as an index embeds them."""
    return " > ".join(passage.heading)


def _document(text: str, metadata: Mapping[str, Any]) -> Document:
    ending = _ending(metadata)
    text = encodable(text).replace("\r\n", "\n")
    document = read(text.encode(), f"text{ending}") if ending else Document.from_text(text)
    title = metadata.get("title")
    return replace(document, title=title) if title and isinstance(title, str) else document


def _ending(metadata: Mapping[str, Any]) -> str:
    """Return an ending of files that have such a text; "" for plain text, also from a PDF."""
    if "format" in metadata:
        return _ENDINGS.get(str(metadata["format"]).lower(), "")
    name = next((metadata[key] for key in _NAMES if metadata.get(key)), "")
    ending = ending_of(str(name))
    return ending if FORMATS.get(ending, ("", ""))[0] in _ENDINGS else ""
