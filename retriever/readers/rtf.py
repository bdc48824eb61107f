"""RTF, by striprtf."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...indexes.errors import UnreadableError
from .builder import Builder

if TYPE_CHECKING:
    from ..document import Document

_IMAGE = re.compile(r"[0-9a-fA-F\r\n]{512,}")  # pictures in hexadecimal, the bulk of many files
_TITLE = re.compile(r"\{\\title ([^{}\\]{1,300})\}")


def read_rtf(data: bytes, form: str) -> Document:
    from striprtf.striprtf import rtf_to_text

    source = _IMAGE.sub("", data.decode("latin-1"))
    try:
        text = str(rtf_to_text(source, errors="replace"))  # type: ignore[no-untyped-call]
    except (ValueError, LookupError, AttributeError, TypeError) as error:
        raise UnreadableError(f"damaged RTF: {error}") from None
    text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")  # RTF writes such pairs as two
    title = _TITLE.search(source[:20_000])
    builder = Builder(title=title[1] if title else "")
    builder.add(re.sub(r"\n{3,}", "\n\n", text))
    return builder.document(form)
