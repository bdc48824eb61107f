"""Give freed memory back to the system, so that a long run does not grow."""

from __future__ import annotations

import ctypes
import sys

_MMAP_THRESHOLD = -3  # M_MMAP_THRESHOLD of malloc.h
_BYTES = 2**20


def return_freed_memory() -> None:
    """Let the C library return each freed block of a MiB or more at once. It concerns the whole process.

    By default glibc raises this limit up to 32 MiB when it frees a large block. Later arrays then lie among small
    objects, and the memory between them stays with the process. Other C libraries are left as they are.
    Source: mallopt(3).
    """
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
        if mallopt is not None:
            mallopt(_MMAP_THRESHOLD, _BYTES)
