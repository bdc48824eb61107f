"""Bytes to documents: one reader for each file format, run in limited processes that no hostile file can end.

`formats` says which reader takes which file, `read` reads one here, `ReaderPool` many in processes of their own.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ...core.errors import UnsupportedError
from .detect import choose
from .formats import FORMATS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..documents.document import Document
    from .formats import Format
    from .pool.pool import ReaderPool, Reading, read_file

__all__ = ["FORMATS", "ReaderPool", "Reading", "UnsupportedError", "read", "read_file"]


def __getattr__(name: str) -> Any:
    if name in {"Reading", "ReaderPool", "read_file"}:
        return getattr(import_module(".pool.pool", __name__), name)
    raise AttributeError(name)


def read(data: bytes, name: str, formats: Mapping[str, Format] = FORMATS) -> Document:
    """The text of a file and where every part of it came from; `name` is any path, only its ending matters.

    A file without text gives a Document without parts. Raises UnsupportedError for what has no reader, and
    UnreadableError, with one line that says why, for what cannot be read.
    """
    form, reader = choose(data, name, formats)
    module, _, function = reader.partition(":")
    document: Document = getattr(import_module(module, __name__), function)(data, form)
    return document
