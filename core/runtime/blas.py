"""Compute small products of matrices in one thread."""

from __future__ import annotations

import ctypes
import threading
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType

_AFFIXES = (("scipy_", "64_"), ("", "64_"), ("", ""))  # of names in the builds of OpenBLAS that numpy comes with


class OneThread:
    """Limits numpy's OpenBLAS to one thread inside a `with` block. The limit holds for all threads of the process.

    After a product, the other threads of OpenBLAS spin for some 25 ms. The products of a search are small: there they
    doubled the processor time and kept a core from the next step. Other libraries keep their threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._before = 1

    def __enter__(self) -> None:
        get, set_ = _functions()
        with self._lock:
            if not self._inside:
                self._before = get()
                if self._before > 1:
                    set_(1)
            self._inside += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        _, set_ = _functions()
        with self._lock:
            self._inside -= 1
            if not self._inside and self._before > 1:
                set_(self._before)


@cache
def _functions() -> tuple[Any, Any]:
    """The functions that get and set the number of threads of numpy's OpenBLAS."""
    module = import_module("numpy._core._multiarray_umath")
    try:
        library = ctypes.CDLL(module.__file__)  # numpy has loaded it; it finds the functions of OpenBLAS too
        for before, after in _AFFIXES:
            get = getattr(library, f"{before}openblas_get_num_threads{after}", None)
            set_ = getattr(library, f"{before}openblas_set_num_threads{after}", None)
            if get and set_:
                return get, set_
    except OSError:
        pass
    return (lambda: 1), (lambda _: None)


one_thread = OneThread()
