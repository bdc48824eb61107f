"""A disk in memory that logs its writes and flushes: a file served by FUSE, for a loop device. Linux, as root."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import struct
import subprocess
import threading
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_REQUEST = struct.Struct("<IIQQIIIHH")  # length, operation, number, node, user, group, process, and two of no use here
_ANSWER = struct.Struct("<IiQ")  # length, minus an errno, number
_ATTRIBUTES = struct.Struct("<6Q3I7I")  # node, size, blocks, three times; their nanoseconds; mode, links, owner, …
_MAXIMUM_WRITE = 2**20
_LOOKUP, _FORGET, _GETATTR, _SETATTR, _OPEN, _READ, _WRITE, _STATFS, _RELEASE, _FSYNC = (
    1,
    2,
    3,
    4,
    14,
    15,
    16,
    17,
    18,
    20,
)
_FLUSH, _INIT, _OPENDIR, _READDIR, _RELEASEDIR, _INTERRUPT, _BATCH_FORGET = 25, 26, 27, 28, 29, 36, 42
_NO_ANSWER = {_FORGET, _INTERRUPT, _BATCH_FORGET}
_ROOT, _FILE = 1, 2


class Event(NamedTuple):
    """A write, or a flush where `data` is None, or a mark of the experiment where `mark` is a text."""

    offset: int = 0
    data: bytes | None = None
    mark: str = ""


class LoggedDisk:
    """A disk, mounted as a folder with the one file `disk`."""

    def __init__(self, folder: Path, size: int) -> None:
        self.file = folder / "disk"
        self.events: list[Event] = []
        self._folder = folder
        self._bytes = bytearray(size)
        self._device = os.open("/dev/fuse", os.O_RDWR)
        folder.mkdir(parents=True)
        options = f"fd={self._device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
        if ctypes.CDLL(None, use_errno=True).mount(b"disk", os.fsencode(folder), b"fuse", 0, options):
            raise OSError(ctypes.get_errno(), "mounting FUSE failed")
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def mark(self, text: str) -> None:
        """Note that the experiment came to a point."""
        self.events.append(Event(mark=text))

    def close(self) -> None:
        """Unmount the folder."""
        subprocess.run(["umount", self._folder], check=True)
        self._thread.join()
        os.close(self._device)

    def _serve(self) -> None:
        while True:
            try:
                request = os.read(self._device, _MAXIMUM_WRITE + 4096)
            except OSError as error:
                if error.errno == errno.ENODEV:  # unmounted
                    return
                continue  # the request was withdrawn
            _, operation, number, node, *_ = _REQUEST.unpack_from(request)
            if operation in _NO_ANSWER:
                continue
            body = _OPERATIONS.get(operation, LoggedDisk.answer_unknown)(
                self, node, memoryview(request)[_REQUEST.size :]
            )
            code, body = (-body, b"") if isinstance(body, int) else (0, body)
            with contextlib.suppress(FileNotFoundError):  # the request was withdrawn
                os.write(self._device, _ANSWER.pack(_ANSWER.size + len(body), code, number) + body)

    def answer_unknown(self, _node: int, _body: memoryview) -> int:
        return errno.ENOSYS

    def answer_initialize(self, _node: int, body: memoryview) -> bytes:
        major, minor, ahead, flags = struct.unpack_from("<IIII", body)
        flags &= 1 << 5 | 1 << 22  # large writes, and their maximum in pages
        return struct.pack("<IIIIHHIIHH28x", major, min(minor, 31), ahead, flags, 64, 48, _MAXIMUM_WRITE, 1, 256, 0)

    def _attributes(self, node: int) -> bytes:
        size, mode = (0, 0o040755) if node == _ROOT else (len(self._bytes), 0o100600)
        return _ATTRIBUTES.pack(node, size, size // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)

    def answer_look_up(self, _node: int, body: memoryview) -> bytes | int:
        if bytes(body) != b"disk\0":
            return errno.ENOENT
        return struct.pack("<QQQQII", _FILE, 0, 3600, 3600, 0, 0) + self._attributes(_FILE)

    def answer_status(self, node: int, _body: memoryview) -> bytes:
        return struct.pack("<QII", 3600, 0, 0) + self._attributes(node)

    def answer_open(self, _node: int, _body: memoryview) -> bytes:
        return struct.pack("<QII", 0, 0, 0)

    def answer_read(self, _node: int, body: memoryview) -> bytes:
        _, offset, count = struct.unpack_from("<QQI", body)
        return bytes(self._bytes[offset : offset + count])

    def answer_write(self, _node: int, body: memoryview) -> bytes:
        _, offset, count = struct.unpack_from("<QQI", body)
        data = bytes(body[40 : 40 + count])
        self._bytes[offset : offset + count] = data
        self.events.append(Event(offset, data))
        return struct.pack("<II", count, 0)

    def answer_sync(self, _node: int, _body: memoryview) -> bytes:
        self.events.append(Event())
        return b""

    def answer_nothing(self, _node: int, _body: memoryview) -> bytes:
        return b""

    def answer_space(self, _node: int, _body: memoryview) -> bytes:
        return struct.pack("<5Q4I24x", 0, 0, 0, 0, 0, 4096, 255, 4096, 0)


_OPERATIONS: dict[int, Callable[[LoggedDisk, int, memoryview], bytes | int]] = {
    _INIT: LoggedDisk.answer_initialize,
    _LOOKUP: LoggedDisk.answer_look_up,
    _GETATTR: LoggedDisk.answer_status,
    _SETATTR: LoggedDisk.answer_status,
    _OPEN: LoggedDisk.answer_open,
    _OPENDIR: LoggedDisk.answer_open,
    _READ: LoggedDisk.answer_read,
    _READDIR: LoggedDisk.answer_nothing,
    _WRITE: LoggedDisk.answer_write,
    _FSYNC: LoggedDisk.answer_sync,
    _FLUSH: LoggedDisk.answer_nothing,
    _RELEASE: LoggedDisk.answer_nothing,
    _RELEASEDIR: LoggedDisk.answer_nothing,
    _STATFS: LoggedDisk.answer_space,
}
