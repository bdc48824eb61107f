"""Turn the bytes of a file into a document: one reader for each file format.

`formats` lists the reader of each name ending, `detect` looks at the bytes too. `read` reads one file in this process;
`ReaderPool` reads many, in processes; `pool` has their limits, so that a hostile file costs nothing but itself.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ...core.errors import UnsupportedError
from .detect import choose_format
from .formats import FORMATS
from .pictures import WITH_PICTURES, Pictures
from .plain_text.encoded import drop_encoded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..documents.document import Document
    from .formats import Format
    from .pool.pool import ReaderPool, read_file
    from .pool.reading import Reading

__all__ = ["FORMATS", "ReaderPool", "Reading", "UnsupportedError", "read", "read_file"]


def __getattr__(name: str) -> Any:
    if name in {"ReaderPool", "read_file"}:
        return getattr(import_module(".pool.pool", __name__), name)
    if name == "Reading":
        return import_module(".pool.reading", __name__).Reading
    raise AttributeError(name)


def read(data: bytes, name: str, formats: Mapping[str, Format] = FORMATS, *, ocr: str = "") -> Document:
    """Read the text of a file, and the source of every part of it.

    A file without text gives a Document without parts.

    :param name: any path; only its ending matters.
    :param ocr: the languages to read pictures in, as Tesseract names them; "" to read none.
    :raises UnsupportedError: when no reader takes the file.
    :raises UnreadableError: when its reader cannot read it, with the reason in one line.
    """
    format_name, reader = choose_format(data, name, formats)
    module, _, function = reader.partition(":")
    arguments = [Pictures(ocr)] if reader.startswith(".") and format_name in WITH_PICTURES else []
    document: Document = getattr(import_module(module, __name__), function)(data, format_name, *arguments)
    return drop_encoded(document)
