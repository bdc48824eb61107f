"""Calls for asyncio: each runs in one of a few threads, and can be cancelled before it starts."""

from __future__ import annotations

import os
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from ..core.runtime.threads import Threads
from .search.deadline import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .indexing.report import Report
    from .search.context import Context
    from .search.results.hits import Hits
    from .search.search_options import ContextOptions, SearchOptions
    from .store.filters.where import Where

_T = TypeVar("_T")
_THREADS = (os.cpu_count() or 1) + 2  # a search is computation: more threads would only wait for each other


class CallPool:
    """A few threads, started when first used; a forked process starts its own."""

    def __init__(self, threads: int = _THREADS) -> None:
        self._number = threads
        self._lock = threading.Lock()
        self._executor: Threads | None = None
        self._process = os.getpid()

    async def run(self, call: Callable[..., _T], *arguments: Any, **options: Any) -> _T:
        """Await a call. If the task is cancelled before a thread is free, the call never starts."""
        import asyncio  # a search without it starts faster

        with self._lock:
            if self._process != os.getpid():  # forked: the threads run in the other process
                self._process, self._executor = os.getpid(), None
            executor = self._executor = self._executor or Threads(self._number, thread_name_prefix="binocle")
        return await asyncio.wrap_future(executor.submit(partial(call, *arguments, **options)))

    def close(self) -> None:
        """Wait for running calls, and cancel waiting ones."""
        with self._lock:
            executor, self._executor = self._executor, None
        if executor:
            executor.shutdown(cancel_futures=True)


class AsyncWrites:
    """The writes of an index, of a scope of it, or of a server, for asyncio."""

    _calls: CallPool
    add: Callable[..., Report]
    update: Callable[..., Report]
    delete: Callable[..., Report]

    async def aadd(self, documents: Iterable[Mapping[str, Any]], **options: Any) -> Report:
        """Await `add`."""
        return await self._calls.run(self.add, documents, **options)

    async def aupdate(self, ids: Iterable[str | os.PathLike[str]] | None = None, **options: Any) -> Report:
        """Await `update`."""
        return await self._calls.run(self.update, ids, **options)

    async def adelete(self, *ids: str | os.PathLike[str], **options: Any) -> Report:
        """Await `delete`."""
        return await self._calls.run(self.delete, *ids, **options)


class AsyncCalls(AsyncWrites):
    """The calls of an index, or of a scope of it, for asyncio."""

    search: Callable[..., Hits]
    context: Callable[..., Context]

    async def asearch(
        self, query: str | None = None, k: int = 10, *, where: Where = None, **options: Unpack[SearchOptions]
    ) -> Hits:
        """Await `search` in one of a few threads. A search that waits for a thread can be cancelled.

        :param options: as in `search`; the wait for a free thread counts towards the `deadline`.
        """
        return await self._calls.run(self.search, query, k, where=where, **from_now(options))

    async def acontext(self, query: str, *, where: Where = None, **options: Unpack[ContextOptions]) -> Context:
        """Await `context`; the wait for a free thread counts towards the `deadline`."""
        return await self._calls.run(self.context, query, where=where, **from_now(options))


def from_now(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a call, with a deadline that begins now."""
    return {**options, "deadline": Deadline.after(options.get("deadline"))}
