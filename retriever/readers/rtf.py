"""Read RTF with striprtf."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...core.errors import UnreadableError
from ...core.words import encodable
from .document_builder import DocumentBuilder

if TYPE_CHECKING:
    from ..documents.document import Document

_IMAGE = re.compile(r"[0-9a-fA-F\r\n]{512,}")  # pictures in hexadecimal, most of many files
_TITLE = re.compile(r"\{\\title ([^{}]{1,1000})\}")
_CODE_PAGE = re.compile(r"\\ansicpg\d+")
_NOTE = re.compile(r"\\footnote(?![a-z])")
_HIDDEN = re.compile(r"(\{(?:\\[a-z]+-?\d* ?){0,20}?)\\v(?![a-z\d])(?![^{}]*\\v0)(?=[^{}]*\})")


def read_rtf(data: bytes, format_name: str) -> Document:
    """Read an RTF file, with its footnotes and without hidden text."""
    source = _IMAGE.sub("", data.decode("latin-1"))
    visible = _HIDDEN.sub(r"\1\\*", _NOTE.sub(r"\\tab", source))  # striprtf drops footnotes and shows hidden text
    title = _TITLE.search(source[:20_000])
    code_page = _CODE_PAGE.search(source[:1000])
    builder = DocumentBuilder()
    if title:
        builder.title = _text(f"{{\\rtf1{code_page[0] if code_page else ''} {title[1]}}}")
    builder.add(re.sub(r"\n{3,}", "\n\n", _text(visible)))
    return builder.document(format_name)


def _text(source: str) -> str:
    from striprtf.striprtf import rtf_to_text

    try:
        text = str(rtf_to_text(source, errors="replace"))  # type: ignore[no-untyped-call]
    except (ArithmeticError, ValueError, LookupError, AttributeError, TypeError) as error:
        raise UnreadableError(f"damaged RTF: {error}") from None
    return encodable(text)  # RTF writes a surrogate pair as two characters
