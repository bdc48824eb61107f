"""Lance and OpenVINO have threads, which a forked process lacks: it would wait for them for ever, or crash."""

from __future__ import annotations

import os

from .errors import StoreError

_processes: set[int] = set()  # in which an index was read or a model compiled; a forked one has its parent's


def check() -> None:
    """To be called before either is used.

    :raises StoreError: when this process was forked from one that had used them.
    """
    _processes.add(os.getpid())
    if len(_processes) > 1:
        raise StoreError(
            "this process was forked from one that had searched already, which Lance and OpenVINO do not outlive: "
            "search in the workers alone (gunicorn without --preload), or start them by 'spawn' or 'forkserver'"
        )
