"""Open compound files (OLE2): the container of Office files from before 2007 and of Outlook messages.

The layout is that of [MS-CFB]. Chains of sectors are bounded by the size of the file, so a hostile one ends.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from .....core.errors import UnreadableError

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEADER = 512  # bytes
_ENTRY = 128  # bytes of an entry of the directory
_LAST = 0xFFFFFFFA  # numbers from here on are no sectors
_STORAGE, _STREAM, _ROOT = 1, 2, 5
_MAX_ENTRIES = 100_000


class CompoundFile:
    """The streams of a compound file, by path: names of storages and of the stream, with "/" between.

    :raises UnreadableError: when the file is damaged.
    """

    def __init__(self, data: bytes) -> None:
        try:
            self._open(data)
        except (struct.error, IndexError, ValueError) as error:
            raise UnreadableError(f"damaged: not a whole compound file ({error})") from None

    def _open(self, data: bytes) -> None:
        self._data = data
        sector, self._mini_size = (1 << shift for shift in struct.unpack_from("<HH", data, 30))
        if sector not in {512, 4096} or self._mini_size != 64:
            raise ValueError("sectors of another size")
        self._size = sector
        directory, self._cutoff, mini_start = (struct.unpack_from("<I", data, at)[0] for at in (48, 56, 60))
        self._fat = self._numbers(b"".join(map(self._sector, self._fat_sectors())))
        self._streams: dict[str, tuple[int, int]] = {}
        entries = self._chain(directory)
        self._mini: tuple[bytes, list[int]] = b"", []
        for path, kind, start, size in _entries(entries):
            if kind == _ROOT:
                self._mini = self._chain(start), self._numbers(self._chain(mini_start))
            elif kind == _STREAM:
                self._streams.setdefault(path, (start, size))

    @property
    def names(self) -> list[str]:
        """The paths of all streams."""
        return list(self._streams)

    def __contains__(self, path: str) -> bool:
        return path in self._streams

    def size(self, path: str) -> int:
        """Return the number of bytes of a stream."""
        return min(self._streams.get(path, (0, 0))[1], len(self._data))

    def read(self, path: str) -> bytes:
        """Return the bytes of a stream, b"" if there is none."""
        start, size = self._streams.get(path, (0, 0))
        size = min(size, len(self._data))
        if size >= self._cutoff:
            return self._chain(start)[:size]
        data, fat = self._mini
        return b"".join(_follow(fat, start, data, self._mini_size))[:size]

    def _fat_sectors(self) -> Iterator[int]:
        yield from (number for number in struct.unpack_from("<109I", self._data, 76) if number < _LAST)
        following = struct.unpack_from("<I", self._data, 68)[0]
        for _ in range(len(self._data) // self._size):
            if following >= _LAST:
                return
            *numbers, following = self._numbers(self._sector(following))
            yield from (number for number in numbers if number < _LAST)

    def _sector(self, number: int) -> bytes:
        return self._data[(number + 1) * self._size : (number + 2) * self._size]

    def _chain(self, start: int) -> bytes:
        return b"".join(_follow(self._fat, start, self._data[self._size :], self._size))

    def _numbers(self, data: bytes) -> list[int]:
        return list(struct.unpack(f"<{len(data) // 4}I", data[: len(data) // 4 * 4]))


def _follow(fat: list[int], start: int, data: bytes, size: int) -> Iterator[bytes]:
    """Yield the sectors of a chain; one that runs in a circle ends at the size of the data."""
    for _ in range(len(data) // size + 1):
        if start >= len(fat):
            return
        yield data[start * size : (start + 1) * size]
        start = fat[start]


def _entries(directory: bytes) -> Iterator[tuple[str, int, int, int]]:
    """Yield the path, the kind, the first sector and the size of every entry that the root leads to."""
    waiting = [(0, "")]
    visited: set[int] = set()
    while waiting:
        number, folder = waiting.pop()
        entry = directory[number * _ENTRY : (number + 1) * _ENTRY]
        if number in visited or len(entry) < _ENTRY or len(visited) >= _MAX_ENTRIES:
            continue
        visited.add(number)
        length, kind = struct.unpack_from("<HB", entry, 64)
        left, right, child = struct.unpack_from("<III", entry, 68)
        start, size = struct.unpack_from("<II", entry, 116)
        name = entry[: max(min(length, 64) - 2, 0)].decode("utf-16-le", "replace").replace("/", "_")
        path = "" if kind == _ROOT else folder + name
        yield path, kind, start, size
        waiting += [(left, folder), (right, folder), (child, path + "/" if path else "")]
