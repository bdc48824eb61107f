"""The maps of the collections of a server: drawn in the background, once for each state that someone looks at."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...inspection.collection_map import CollectionMap
from .work_queue import give_way

if TYPE_CHECKING:
    from concurrent.futures import Future

    from ...store.filters.filter import Filter
    from ...store.snapshot import Snapshot

    Key = tuple[str, bytes]  # the name of an index, and the digest of a token with a scope

_MAX_MAPS = 16  # maps in memory: about 6 MB each
_REST = 30.0  # seconds until an index that changes all the time is drawn again


@dataclass(frozen=True, slots=True)
class _Drawn:
    version: str
    map: CollectionMap
    until: float  # by the monotonic clock: it is not drawn again before


class Maps:
    """Maps by index and by token: the map of a token with a scope has only the documents of the scope."""

    def __init__(self) -> None:
        self._drawn: OrderedDict[Key, _Drawn] = OrderedDict()
        self._running: dict[Key, Future[None]] = {}
        self._lock = threading.Lock()
        self._executor = ThreadPoolExecutor(1, "binocle-map", give_way)

    def version(self, key: Key) -> str:
        """The state of the map that is there now; "" if there is none."""
        drawn = self._drawn.get(key)
        return "" if drawn is None else drawn.version

    def get(self, key: Key, snapshot: Snapshot) -> CollectionMap | None:
        """The newest map that is there, perhaps of an earlier state; None if there is none of this encoder."""
        drawn = self._drawn.get(key)
        return drawn.map if drawn and drawn.map.is_of(snapshot) else None

    def request(self, key: Key, version: str, snapshot: Snapshot, where: Filter | None) -> None:
        """Draw a map in the background, unless it is there.

        :raises BinocleError: when the last attempt failed.
        """
        with self._lock:
            running, drawn = self._running.get(key), self._drawn.get(key)
            if running is not None and running.done():
                del self._running[key]
                running.result()  # raises if it failed
                return
            is_new = drawn and (drawn.version == version or time.monotonic() < drawn.until)
            if running is None and not (is_new and drawn and drawn.map.is_of(snapshot)):
                self._running[key] = self._executor.submit(self._draw, key, version, snapshot, where)

    def _draw(self, key: Key, version: str, snapshot: Snapshot, where: Filter | None) -> None:
        drawn = _Drawn(version, CollectionMap.of(snapshot, where), time.monotonic() + _REST)
        with self._lock:
            self._drawn[key] = drawn
            self._drawn.move_to_end(key)
            while len(self._drawn) > _MAX_MAPS:
                self._drawn.popitem(last=False)

    def close(self) -> None:
        """Wait for the map that is drawn now; maps that wait are never drawn."""
        self._executor.shutdown(wait=True, cancel_futures=True)
