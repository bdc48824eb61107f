"""A bounded number of requests at work, and a bounded queue behind them.

A server without bounds collapses: each further request makes all others slower, until every client has given up.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from .refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from concurrent.futures import Future

_T = TypeVar("_T")
_NICENESS = 5  # of the threads: a process that writes the index waits for a processor half as long beside them
_SMOOTHING = 0.05  # of the mean time of a request: the share of the newest one


class WorkQueue:
    """Threads that answer requests, in order of arrival.

    :param threads: requests at work at once; by default one for each processor, and one more.
    :param waiting: requests that may wait; a further one is refused at once.
    :param deadline: seconds from the arrival of a request to its answer.
    """

    def __init__(self, threads: int | None = None, waiting: int = 128, deadline: float = 30.0) -> None:
        self.threads = threads or (os.cpu_count() or 1) + 1
        self.waiting = waiting
        self.deadline = deadline
        self.mean_seconds = 0.05
        self.refused = 0
        self.late = 0
        self._pending = 0
        self._lock = threading.Lock()
        self._executor = ThreadPoolExecutor(self.threads, "binocle-serve", give_way)

    @property
    def pending(self) -> int:
        """Requests at work and waiting."""
        return self._pending

    async def run(self, call: Callable[[], _T], gone: Callable[[], Awaitable[object]] | None = None) -> _T:
        """Await a call in a thread.

        :param gone: awaited to learn that the client went away; a call that waits then never starts.
        :raises Refusal: 429 when too many wait, 503 when the deadline has passed.
        """
        with self._lock:
            if self._pending >= self.threads + self.waiting:
                self.refused += 1
                raise Refusal(429, f"{self.waiting} requests wait already: try again later", self._retry())
            is_waiting = self._pending >= self.threads
            self._pending += 1
        future = self._executor.submit(self._timed, call)
        future.add_done_callback(self._done)
        waiter = asyncio.ensure_future(gone()) if gone and is_waiting else None
        try:
            return await self._answer(future, waiter)
        finally:
            if waiter:
                waiter.cancel()

    async def _answer(self, future: Future[_T], waiter: asyncio.Future[object] | None) -> _T:
        answer = asyncio.wrap_future(future)
        # The place of a client that went away is free for another one.
        awaited: set[asyncio.Future[Any]] = {answer, waiter} if waiter else {answer}
        done, _ = await asyncio.wait(awaited, timeout=self.deadline, return_when=asyncio.FIRST_COMPLETED)
        if answer in done:
            return answer.result()
        future.cancel()  # a call that waits never starts
        answer.cancel()
        if waiter in done:
            raise Refusal(499, "the client closed the connection")
        self.late += 1
        raise Refusal(503, f"the answer takes longer than {self.deadline:g} s: ask for less", self._retry())

    def _timed(self, call: Callable[[], _T]) -> _T:
        start = time.perf_counter()
        try:
            return call()
        finally:
            self.mean_seconds += _SMOOTHING * (time.perf_counter() - start - self.mean_seconds)

    def _done(self, _: Future[_T]) -> None:
        with self._lock:
            self._pending -= 1

    def _retry(self) -> dict[str, str]:
        """The time until the queue is empty, in whole seconds."""
        return {"Retry-After": str(max(1, math.ceil(self._pending * self.mean_seconds / self.threads)))}

    def close(self) -> None:
        """Finish the running calls; waiting calls never start."""
        with contextlib.suppress(RuntimeError):
            self._executor.shutdown(wait=True, cancel_futures=True)


def give_way(thread: int | None = None) -> None:
    """Lower the priority of a thread; Linux has one for each thread, other systems for the process alone.

    :param thread: its number in the system; None: this one.
    """
    if sys.platform == "linux":
        thread = thread or threading.get_native_id()
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + _NICENESS)


def others_give_way() -> None:
    """Lower the priority of all threads but this one, also of the threads of Lance and OpenVINO."""
    if sys.platform == "linux":
        for thread in {int(task.name) for task in Path("/proc/self/task").iterdir()} - {threading.get_native_id()}:
            give_way(thread)
