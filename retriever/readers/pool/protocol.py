"""The messages between the pool and its workers: JSON and text, never pickles.

A frame is two big-endian lengths, a JSON object of the first length and UTF-8 text of the second. The pool checks every
message: a parser that a hostile file has taken over can lie about that file, and no more.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

from ....core.words import encodable
from ...documents.document import Document, Part

LENGTHS = struct.Struct(">II")
MAX_JSON = 256 << 20
MAX_TEXT = 256 << 20
_KINDS = ("prose", "code", "table")

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Lengths:
    """The lengths in bytes at the head of a frame."""

    json: int
    text: int

    @classmethod
    def read(cls, head: bytes | bytearray) -> Lengths:
        """Unpack the head of a frame, and check it against the limits."""
        lengths = cls(*LENGTHS.unpack(head))
        if lengths.json > MAX_JSON or lengths.text > MAX_TEXT:
            raise ValueError("a frame beyond the limit")
        return lengths


def frame(message: Json, text: str = "") -> bytes:
    """A message as the bytes of a frame."""
    head, body = json.dumps(message).encode(), text.encode()
    return LENGTHS.pack(len(head), len(body)) + head + body


def document_json(document: Document) -> Json:
    """All fields of a document except its text."""
    headings: dict[tuple[str, ...], int] = {}
    parts = [
        [
            part.start,
            part.end,
            part.line,
            part.page,
            headings.setdefault(part.heading, len(headings)),
            part.kind,
            part.joins,
        ]
        for part in document.parts
    ]
    return {
        "title": document.title,
        "format": document.format,
        "metadata": document.metadata,
        "headings": list(headings),
        "parts": parts,
    }


def load(data: bytes | bytearray) -> Json:
    """Parse the JSON object of a frame."""
    message = json.loads(data)
    if not isinstance(message, dict):
        raise TypeError("not an object")
    return message


def load_document(message: Json, text: str) -> Document:
    """Build the document that a worker describes.

    :raises ValueError: when its parts do not fit its text.
    :raises TypeError: when a field has another type.
    """
    headings = [tuple(map(_string, heading)) for heading in message["headings"]]
    parts = tuple(_part(fields, headings) for fields in message["parts"])
    position = 0
    for part in parts:
        if not position <= part.start < part.end or (text[position : part.start].strip()):
            raise ValueError("parts that overlap or leave text out")
        position = part.end
    if position > len(text) or text[position:].strip():
        raise ValueError("parts that do not fit the text")
    metadata = message["metadata"]
    if not isinstance(metadata, dict) or not all(map(_is_value, metadata.values())):
        raise TypeError("metadata of another type")
    return Document(text, parts, _string(message["title"]), _string(message["format"]), metadata)


def _part(fields: list[Any], headings: list[tuple[str, ...]]) -> Part:
    start, end, line, page, heading, kind, joins = fields
    for number in (start, end, line, heading, joins, 1 if page is None else page):
        if type(number) is not int or number < 0:
            raise TypeError("a place that is no number")
    return Part(start, end, line, page, headings[heading], _KINDS[_KINDS.index(kind)], joins)


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not a string")
    return encodable(value)  # JSON can hold half a surrogate pair


def _is_value(value: Any) -> bool:
    if isinstance(value, list):
        return all(isinstance(item, str | int | float | bool) for item in value)
    return isinstance(value, str | int | float | bool)
