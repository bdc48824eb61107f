"""Parts of large text files: `big.log/bytes-000008388608-000016777300` is a range of the bytes of `big.log`.

A part is a document of its own, with the line numbers of its file. No other file can have such a path: it lies below a
file. The path alone names the bytes, so a reader of the part needs nothing else.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, BinaryIO

from ...core.files import mtime_ns, open_regular

if TYPE_CHECKING:
    from io import BufferedReader
    from pathlib import Path

PART_BYTES = 8 * 2**20
_LINE_BYTES = (2**16, 2**20)  # bytes to search for the start of a line; a longer line is cut
_NAME = re.compile(r"(.+)/bytes-(\d{12,20})-(\d{12,20})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class FileBytes:
    """An open file at the first byte to read; `end` is None if all of it is to be read."""

    stream: BufferedReader
    start: int = 0
    end: int | None = None


def part_path(path: str, start: int, end: int) -> str:
    """Return the path of the part of a file with these bytes."""
    return f"{path}/bytes-{start:012}-{end:012}"


def file_of(path: str) -> str:
    """Return the path of the file that a part belongs to; for any other document, its own path."""
    match = _NAME.fullmatch(path) if "/bytes-" in path else None
    return match[1] if match else path


def split(stream: BinaryIO, size: int) -> list[tuple[int, int]]:
    """Return the (start, end) of the parts of a file, each some `PART_BYTES` long and cut between lines."""
    starts = {_line_start(stream, position, size) for position in range(0, size, PART_BYTES)}
    return list(pairwise(sorted(starts | {size})))


def _line_start(stream: BinaryIO, position: int, size: int) -> int:
    """Return the next start of a line, or if there is none, the next start of a UTF-8 character."""
    if position == 0:
        return 0
    for length in _LINE_BYTES:
        stream.seek(position - 1)
        window = stream.read(length)
        newline = window.find(b"\n")
        if newline >= 0:
            return min(position + newline, size)
    continuation = next((offset for offset, byte in enumerate(window[1:5]) if byte & 0xC0 != 0x80), 0)
    return min(position + continuation, size)


def open_document(path: str | os.PathLike[str]) -> FileBytes:
    """Open a file of the user's, or the part of one. Never waits for a FIFO or a device.

    :raises OSError: also when it is not a regular file, or has become too short for the part.
    """
    try:
        return FileBytes(open_regular(path))
    except NotADirectoryError:
        match = _NAME.fullmatch(os.fspath(path))
        if match is None:
            raise
    start, end = int(match[2]), int(match[3])
    stream = open_regular(match[1])
    if not start < end <= os.fstat(stream.fileno()).st_size:
        stream.close()
        raise FileNotFoundError(errno.ENOENT, "the file has become shorter")
    stream.seek(start)
    return FileBytes(stream, start, end)


def file_around(path: str | os.PathLike[str]) -> str:
    """Return the path of the file that contains a member: the nearest existing path above it.

    :raises OSError: when no such path exists, or it is no regular file.
    """
    outer = os.fspath(path)
    while (outer := os.path.dirname(outer)) not in {"", "/"}:  # noqa: PTH120 - of text, thousands of times
        try:
            status = os.lstat(outer)
        except NotADirectoryError:
            continue
        if stat.S_ISREG(status.st_mode):
            return outer
        break
    raise FileNotFoundError(errno.ENOENT, "the file is no longer there")


def is_member(path: str | os.PathLike[str]) -> bool:
    """Whether a path lies below a file and names no part of it, but an attachment or a member of an archive."""
    try:
        os.lstat(path)
    except NotADirectoryError:
        return _NAME.fullmatch(os.fspath(path)) is None
    except OSError:
        return False
    return False


def document_sha256(path: Path) -> str:
    """Return the hexadecimal sha256 of a file of the user's, or of the part of one."""
    file = open_document(path)
    with file.stream:
        if file.end is None:
            return hashlib.file_digest(file.stream, "sha256").hexdigest()
        return hashlib.sha256(file.stream.read(file.end - file.start)).hexdigest()


def size_and_time(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Return the size in bytes and the time in nanoseconds of a file, or of the part of one; links are not followed.

    For a file in a file, the size of the outer one is returned.

    :raises OSError: when there is no such file, or it has become too short for the part.
    """
    try:
        status = os.lstat(path)
        return status.st_size, mtime_ns(status)
    except NotADirectoryError:
        match = _NAME.fullmatch(os.fspath(path))
        if match is None:
            status = os.lstat(file_around(path))
            return status.st_size, mtime_ns(status)
    status = os.lstat(match[1])
    start, end = int(match[2]), int(match[3])
    if end > status.st_size:
        raise FileNotFoundError(errno.ENOENT, "the file has become shorter")
    return end - start, mtime_ns(status)
