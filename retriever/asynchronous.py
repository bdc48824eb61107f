"""Calls for asyncio: each runs in one of a few threads, and can be cancelled before it starts."""

from __future__ import annotations

import os
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import ThreadPoolExecutor

_T = TypeVar("_T")
_THREADS = (os.cpu_count() or 1) + 2  # a search is computation: more threads would only wait for each other


class CallPool:
    """A few threads, started when first used."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None

    async def run(self, call: Callable[..., _T], *arguments: Any, **options: Any) -> _T:
        """Await a call. If the task is cancelled before a thread is free, the call never starts."""
        import asyncio  # a search without it starts faster
        from concurrent.futures import ThreadPoolExecutor

        with self._lock:
            self._executor = self._executor or ThreadPoolExecutor(_THREADS, thread_name_prefix="binocle")
            future = self._executor.submit(partial(call, *arguments, **options))
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Wait for calls that run, and cancel those that wait."""
        with self._lock:
            executor, self._executor = self._executor, None
        if executor:
            executor.shutdown(cancel_futures=True)
