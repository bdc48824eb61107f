"""Read a ZIP without its directory, which lies at the end and is lost where a download was interrupted.

Each file has a header of its own in front of its bytes. APPNOTE.TXT of PKWARE, sections 4.3.7 and 4.3.9, describes it.
"""

from __future__ import annotations

import bz2
import contextlib
import struct
import zipfile
import zlib
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from typing import IO, TYPE_CHECKING

from .members import CutBytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_HEADER = struct.Struct(
    "<4s2xHH4xLLLHH"
)  # mark, flags, method, checksum, packed and unpacked bytes, name, extra fields
_MARK, _DIRECTORY, _SIZES_MARK = b"PK\3\4", b"PK\1\2", b"PK\7\b"
_SIZES = (struct.Struct("<4xLQQ"), struct.Struct("<4xLLL"))  # behind a file: checksum, packed and unpacked bytes
_SIZES_FOLLOW, _UTF_8 = 0x8, 0x800  # flags
_ELSEWHERE = 0xFFFFFFFF  # as a size: the real one, of 64 bits, is in an extra field
_UNPACKERS: dict[int, Callable[[bytes, int], bytes]] = {
    zipfile.ZIP_STORED: lambda packed, limit: packed[:limit],
    zipfile.ZIP_DEFLATED: lambda packed, limit: zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, limit),
    zipfile.ZIP_BZIP2: lambda packed, limit: bz2.BZ2Decompressor().decompress(packed, limit),
}


@dataclass(slots=True)
class PackedFile:
    """A file in a ZIP, as its own header describes it."""

    name: str
    is_encrypted: bool
    method: int
    start: int  # of its packed bytes
    checksum: int
    packed: int  # bytes
    size: int | None  # bytes; None if the cut has it

    def unpack(self, data: bytes, limit: int) -> bytes:
        """Return its bytes up to the cut, but no more than a limit.

        :raises zipfile.BadZipFile: when there are none.
        """
        if self.method not in _UNPACKERS:
            raise zipfile.BadZipFile(f"method {self.method} in a cut ZIP")
        content = _UNPACKERS[self.method](data[self.start : self.start + self.packed], limit)
        if len(content) >= limit or (len(content) == self.size and zlib.crc32(content) == self.checksum):
            return content
        if not content:
            raise zipfile.BadZipFile("the ZIP is cut")
        return CutBytes(content, f"damaged: only the first {len(content):,} bytes unpack")


def files_before_cut(data: bytes) -> Iterator[PackedFile]:
    """The files up to the cut. The last one may lack bytes.

    :raises zipfile.BadZipFile: behind them, unless the directory follows: then none is lost.
    """
    at = 0
    while not data.startswith(_DIRECTORY, at):
        file, flags = _read_header(data, at)
        at = _take_sizes(data, file) if flags & _SIZES_FOLLOW else file.start + file.packed
        yield file


class CutZip:
    """The files of a ZIP up to the cut, as `zipfile.ZipFile` opens them; the last one may lack bytes, and is damaged.

    :param count: the number of files at most.
    :param limit: bytes that a file may unpack to.
    """

    def __init__(self, data: bytes, count: int, limit: int) -> None:
        self._data, self._limit = data, limit
        self._files: dict[str, PackedFile] = {}
        with contextlib.suppress(zipfile.BadZipFile):
            for file in islice(files_before_cut(data), count):
                self._files[file.name] = file

    def infolist(self) -> list[zipfile.ZipInfo]:
        """The name and the size of each file."""
        entries = []
        for file in self._files.values():
            entry = zipfile.ZipInfo(file.name)
            entry.file_size = file.size or 0
            entries.append(entry)
        return entries

    def open(self, entry: zipfile.ZipInfo) -> IO[bytes]:
        """Unpack a file.

        :raises zipfile.BadZipFile: when it is not whole.
        :raises RuntimeError: when it needs a password.
        """
        file = self._files[entry.filename]
        if file.is_encrypted:
            raise RuntimeError
        content = file.unpack(self._data, self._limit)
        if isinstance(content, CutBytes):
            raise zipfile.BadZipFile("the ZIP is cut")
        return BytesIO(content)


def _read_header(data: bytes, at: int) -> tuple[PackedFile, int]:
    """The file with its header at this byte, and the flags of the header."""
    end = at + _HEADER.size
    if end <= len(data):
        mark, flags, method, checksum, packed, size, name_length, extra_length = _HEADER.unpack_from(data, at)
        if mark != _MARK:
            raise zipfile.BadZipFile(f"no header at byte {at:,}")
        start = end + name_length + extra_length
        if start <= len(data):
            name = data[end : end + name_length].decode("utf-8" if flags & _UTF_8 else "cp437", "replace")
            if packed == _ELSEWHERE:
                size, packed = _long_sizes(data[end + name_length : start])
            return PackedFile(name, bool(flags & 1), method, start, checksum, packed, size), flags
    raise zipfile.BadZipFile(f"it ends after {len(data):,} bytes")


def _long_sizes(extra: bytes) -> tuple[int, int]:
    while len(extra) >= 4:
        kind, length = struct.unpack_from("<HH", extra)
        if kind == 1 and len(extra) >= 20:
            size, packed = struct.unpack_from("<QQ", extra, 4)
            return size, packed
        extra = extra[4 + length :]
    return _ELSEWHERE, _ELSEWHERE


def _take_sizes(data: bytes, file: PackedFile) -> int:
    """Take the sizes of a file from behind its bytes, and return where they end; the end of the data if it is cut."""
    at = file.start
    while (at := data.find(_SIZES_MARK, at)) >= 0:
        for sizes in _SIZES:
            end = at + sizes.size
            if len(data) >= end and (len(data) - end < len(_MARK) or data.startswith((_MARK, _DIRECTORY), end)):
                checksum, packed, size = sizes.unpack_from(data, at)
                if packed == at - file.start:
                    file.checksum, file.packed, file.size = checksum, packed, size
                    return end
        at += 1
    file.packed, file.size = len(data) - file.start, None
    return len(data)
