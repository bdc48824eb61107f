"""Read archives: ZIP, tar, and files that are compressed alone. Their members are documents of their own."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import posixpath
import tarfile
import zipfile
import zlib
from functools import partial
from io import BytesIO
from itertools import islice
from typing import IO, TYPE_CHECKING, Any

from ....core.errors import UnreadableError
from ...documents.document import Document
from .cut_zip import files_before_cut
from .members import CutBytes, Member, refuse_unless_small
from .zip_directory import open_zip

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .cut_zip import PackedFile

_MAX_FILE = 256 << 20  # bytes of one member
_MAX_ENTRIES = 200_000
_SHOWN = 200  # characters of a name in a message
_BLOCK = 1 << 13  # bytes that damage in a compressed file may cost in front of it
_DAMAGED = (
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, OSError, ValueError, OverflowError),
    *(NotImplementedError, KeyError, IndexError),
)


def read_archive(data: bytes, format_name: str) -> Document:  # noqa: ARG001 - the signature of a reader
    """Read the archive itself, which has no text but that of its members."""
    return Document("", (), format=format_name)


def zip_members(data: bytes, name: str) -> Iterator[Member]:  # noqa: ARG001 - one signature for all
    """List the files in a ZIP. One that is cut gives those in front of the cut."""
    try:
        archive = open_zip(data)
        entries = archive.infolist()
    except _DAMAGED:
        yield from _cut_zip_members(data)
        return
    for entry in entries[:_MAX_ENTRIES]:
        if not entry.filename.endswith("/"):
            reason = "password-protected" if entry.flag_bits & 1 else _too_large(entry.file_size)
            yield Member(entry.filename, entry.file_size, _reader(partial(archive.open, entry)), reason)


def _cut_zip_members(data: bytes) -> Iterator[Member]:
    last = ""
    try:
        for file in islice(files_before_cut(data), _MAX_ENTRIES):
            last = file.name
            if not last.endswith("/"):
                size = file.size or 0
                reason = "password-protected" if file.is_encrypted else _too_large(size)
                yield Member(last, size, _reader_before_cut(file, data), reason)
    except _DAMAGED as error:
        if not last:
            raise UnreadableError(f"damaged: not a whole ZIP file ({error})") from None
        yield Member("more files", 0, bytes, f"damaged: any files behind {last[:_SHOWN]!r} are lost ({error})")


def _reader_before_cut(file: PackedFile, data: bytes) -> Callable[[], bytes]:
    def read() -> bytes:
        try:
            content = file.unpack(data, _MAX_FILE + 1)
        except _DAMAGED as error:
            raise UnreadableError(f"damaged: it does not unpack ({error})") from None
        refuse_unless_small(len(content), _MAX_FILE)
        return content

    return read


def tar_members(data: bytes, name: str) -> Iterator[Member]:  # noqa: ARG001 - one signature for all
    """List the files in a tar archive, compressed or not. One that is cut or damaged gives those in front of it."""
    last = ""
    try:
        archive = tarfile.open(fileobj=BytesIO(data))  # noqa: SIM115 - its members are read later
        for number, entry in enumerate(archive):
            if number == _MAX_ENTRIES:
                return
            last = entry.name
            if entry.isreg():
                reader = _tar_reader(archive, entry, data)
                yield Member(entry.name, entry.size, reader, _too_large(entry.size))
            elif not entry.isdir():
                yield Member(entry.name, 0, bytes, "not a regular file")
        _check_end(archive)
    except _DAMAGED as error:
        if not last:
            raise UnreadableError(f"damaged: not a whole archive ({error})") from None
        archive.fileobj = _stream(data)
        yield Member("more files", 0, bytes, f"damaged: any files behind {last[:_SHOWN]!r} are lost ({error})")


def _check_end(archive: tarfile.TarFile) -> None:
    """Check that no damaged header ended the list: tarfile takes it for the end.

    :raises tarfile.ReadError: when something else than zeros is there.
    """
    stream: Any = archive.fileobj
    stream.seek(archive.offset)
    if stream.read(tarfile.BLOCKSIZE).strip(b"\0"):
        raise tarfile.ReadError(f"no header at byte {archive.offset:,}")


def _stream(data: bytes) -> Any:
    """Open the bytes of a tar archive anew, unpacked: a stream of gzip, bzip2 or xz that has failed loses its place."""
    return tarfile.open(fileobj=BytesIO(data)).fileobj


def _tar_reader(archive: tarfile.TarFile, entry: tarfile.TarInfo, data: bytes) -> Callable[[], bytes]:
    if entry.issparse():
        return _reader(partial(archive.extractfile, entry))
    return _reader_up_to_damage(lambda: contextlib.nullcontext(_Section(archive, entry, data)))


class _Section:
    """The bytes of a tar archive that are those of one file."""

    def __init__(self, archive: tarfile.TarFile, entry: tarfile.TarInfo, data: bytes) -> None:
        self._archive, self._data, self._remaining = archive, data, entry.size
        self._stream: Any = archive.fileobj
        self._stream.seek(entry.offset_data)

    def read1(self, size: int) -> bytes:
        try:
            content: bytes = self._stream.read1(min(size, self._remaining))
        except _DAMAGED:
            self._archive.fileobj = _stream(self._data)
            raise
        self._remaining -= len(content)
        if self._remaining and not content:
            raise EOFError("unexpected end of data")
        return content


def unpacked(data: bytes, name: str) -> Iterator[Member]:
    """List the one file that is compressed in this one, named after it."""
    for mark, opened in _COMPRESSED.items():
        if data.startswith(mark):
            stem, ending = posixpath.splitext(posixpath.basename(name))
            yield Member(
                stem if ending.lower() in _ENDINGS else "content", 0, _reader_up_to_damage(partial(opened, data))
            )
            return
    raise UnreadableError("not a compressed file, though it is named so")


_ENDINGS = frozenset({".gz", ".bz2", ".xz"})
_COMPRESSED: dict[bytes, Callable[[bytes], Any]] = {
    b"\x1f\x8b": lambda data: gzip.GzipFile(fileobj=BytesIO(data)),
    b"BZh": lambda data: bz2.BZ2File(BytesIO(data)),
    b"\xfd7zXZ\0": lambda data: lzma.LZMAFile(BytesIO(data)),  # noqa: SIM115 - it is read and closed later
}


def _too_large(size: int) -> str:
    return f"larger than {_MAX_FILE >> 20} MB" if size > _MAX_FILE else ""


def _reader(opened: Callable[[], IO[bytes] | None]) -> Callable[[], bytes]:
    """Return the function that unpacks a member."""

    def read() -> bytes:
        try:
            with opened() or BytesIO() as stream:
                content = stream.read(_MAX_FILE + 1)
        except RuntimeError as error:  # of zipfile: encrypted, or an unknown compression
            raise UnreadableError(f"it does not unpack ({error})") from None
        except _DAMAGED as error:
            raise UnreadableError(f"damaged: it does not unpack ({error})") from None
        refuse_unless_small(len(content), _MAX_FILE)
        return content

    return read


def _reader_up_to_damage(opened: Callable[[], Any]) -> Callable[[], bytes]:
    """Return the function that unpacks a compressed file, as far as it unpacks."""

    def read() -> bytes:
        content = BytesIO()
        try:
            with opened() as stream:
                while content.tell() <= _MAX_FILE and (block := stream.read1(_BLOCK)):
                    content.write(block)
        except _DAMAGED as error:
            if not content.tell():
                raise UnreadableError(f"damaged: it does not unpack ({error})") from None
            return CutBytes(content.getvalue(), f"damaged: only the first {content.tell():,} bytes unpack ({error})")
        refuse_unless_small(content.tell(), _MAX_FILE)
        return content.getvalue()

    return read
