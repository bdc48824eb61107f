"""Cut large text files into parts, and read a part as a document with the lines of its file.

Text, source code, tables and lines of JSON can be cut at any line. A larger file of another format is skipped.
"""

from __future__ import annotations

import os
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

from ...core.errors import UnreadableError, UnsupportedError
from ...core.files import open_regular
from ..documents.file_parts import file_of, part_path, split
from .detect import choose_format
from .document_builder import MAX_CHARACTERS
from .formats import FORMATS, KEEP_LINES
from .plain_text.encoded import drop_encoded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from ..documents.document import Document
    from ..documents.scan import Entry
    from .formats import Format

HEAD_BYTES = 2**16  # of the file, read with each part: they decide on format, title and columns
MAX_BYTES = 256 * 2**20  # of a file that cannot be cut
MAX_WHOLE = MAX_CHARACTERS  # bytes of a text file that is one document
_MAX_LINE = 2**31 - 1
_WIDE = (b"\xff\xfe", b"\xfe\xff")  # UTF-16 and UTF-32 have no newline byte to cut at


def cut(root: Path, entries: Iterable[Entry]) -> Iterator[Entry]:
    """Replace each large text file by its parts; give other files that are too large a reason."""
    for entry in entries:
        if entry.reason or entry.size <= min(MAX_WHOLE, MAX_BYTES):
            yield entry
        else:
            parts = _parts(root, entry)
            too_large = not parts and entry.size > MAX_BYTES
            yield from parts or [replace(entry, reason=reason(MAX_BYTES)) if too_large else entry]


def reason(max_bytes: int) -> str:
    """The reason of a file that is skipped for its size."""
    return f"larger than {max_bytes / 2**20:.4g} MB"


def _parts(root: Path, entry: Entry) -> list[Entry]:
    try:
        with open_regular(root / entry.path) as stream:
            if not _has_lines(stream.read(HEAD_BYTES), entry.path, FORMATS):
                return []
            ranges = split(stream, os.fstat(stream.fileno()).st_size)
    except OSError:
        return []  # its reader gives the reason
    return [replace(entry, path=part_path(entry.path, start, end), size=end - start) for start, end in ranges]


def _has_lines(head: bytes, name: str, formats: Mapping[str, Format]) -> bool:
    """Whether a file is of a format that can be cut between lines."""
    if b"\0" in head or head.startswith(_WIDE):
        return False
    try:
        _, reader = choose_format(head, name, formats)
    except (UnreadableError, UnsupportedError):
        return False
    return reader.startswith(KEEP_LINES)


def read_part(data: bytes, head: bytes, lines: int, path: str, formats: Mapping[str, Format] = FORMATS) -> Document:
    """Read a part of a large text file.

    :param head: the first bytes of the file.
    :param lines: the newlines of the file before the part.
    :param path: of the part; only the ending of its file matters.
    """
    name = file_of(path)
    if not _has_lines(head, name, formats):
        raise UnsupportedError("part of a file that cannot be cut between lines")
    if lines + data.count(b"\n") >= _MAX_LINE:
        raise UnreadableError(f"it has more than {_MAX_LINE:,} lines")
    format_name, reader = choose_format(head, name, formats)
    module, _, function = reader.partition(":")
    read = getattr(import_module(module, __package__), function)
    document, first = read(data, format_name), read(head, format_name)
    columns = first.parts[0].heading if format_name in {"csv", "tsv"} and first.parts else None
    parts = tuple(
        replace(part, line=part.line + lines, heading=part.heading if columns is None else columns)
        for part in document.parts
    )
    return drop_encoded(replace(document, parts=parts, title=first.title))
