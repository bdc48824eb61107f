"""The rows of a table that were read last, kept in memory: passages and documents that hits cite again and again."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    Row = dict[str, Any]

_ROWS = 8_192
_CHARACTERS = 16_000_000  # of all kept rows
_READ_AHEAD = 8  # factor of both limits while several searches read ahead


class RecentRows:
    """Some columns of rows by id. New rows replace the oldest."""

    def __init__(self, read: Callable[[Sequence[int]], Mapping[int, Row]]) -> None:
        """:param read: reads rows by id; unknown ids are left out."""
        self._read = read
        self._rows: dict[int, Row] = {}
        self._sizes: OrderedDict[int, int] = OrderedDict()  # a plain dict takes ever longer to give its oldest key
        self._characters = 0
        self._users = 0  # blocks that keep all rows
        self._lock = Lock()

    def of(self, ids: Iterable[int]) -> dict[int, Row]:
        """Return rows by id, in the order of `ids`; unknown ids are left out.

        A caller must not change columns, but may add keys of its own to a row.
        """
        requested = list(dict.fromkeys(ids))
        with contextlib.suppress(KeyError):  # usually all are cached
            return dict(zip(requested, map(self._rows.__getitem__, requested), strict=True))
        rows = {number: row for number in requested if (row := self._rows.get(number)) is not None}
        missing = self._read([number for number in requested if number not in rows])
        self._keep(missing)
        rows.update(missing)
        return {number: rows[number] for number in requested if number in rows}

    @contextlib.contextmanager
    def reading_ahead(self) -> Iterator[None]:
        """Keep eight times as many rows inside the `with` block, so that rows read ahead stay until they are used."""
        with self._lock:
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                self._make_room()

    def _keep(self, rows: Mapping[int, Row]) -> None:
        with self._lock:
            for number, row in rows.items():
                size = sum(len(value) for value in row.values() if type(value) is str)
                self._rows[number] = row
                self._characters += size - self._sizes.pop(number, 0)
                self._sizes[number] = size
            self._make_room()

    def _make_room(self) -> None:
        times = _READ_AHEAD if self._users else 1
        while len(self._sizes) > times * _ROWS or self._characters > times * _CHARACTERS:
            oldest, size = self._sizes.popitem(last=False)
            del self._rows[oldest]
            self._characters -= size
