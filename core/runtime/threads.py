"""Threads for calls that may also be made while the interpreter ends."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Threads(ThreadPoolExecutor):
    """A `ThreadPoolExecutor` that runs a call in the caller's thread if no other thread can.

    After the end of the main thread, Python's own executor accepts no call, though another thread or a handler of
    `atexit` may still search and write. The system may also refuse a new thread.
    """

    def submit(self, call: Callable[_P, _T], /, *arguments: _P.args, **options: _P.kwargs) -> Future[_T]:
        """Make this call in a thread, or here."""
        try:
            return super().submit(call, *arguments, **options)
        except RuntimeError:
            future: Future[_T] = Future()
            try:
                future.set_result(call(*arguments, **options))
            except Exception as error:  # noqa: BLE001 - the caller gets it from the future
                future.set_exception(error)
            return future
