"""Refuse Lance and OpenVINO in a forked process: it lacks their threads and would hang or crash."""

from __future__ import annotations

import os

from ..errors import StoreError

_processes: set[int] = set()  # the process that read an index or compiled a model; a fork inherits this value


def check() -> None:
    """Record that this process uses Lance or OpenVINO; call it before each use.

    :raises StoreError: when this process was forked from one that used them.
    """
    _processes.add(os.getpid())
    if len(_processes) > 1:
        raise StoreError(
            "this process was forked from one that had searched already, which Lance and OpenVINO do not survive: "
            "search in the workers alone (gunicorn without --preload), or start them by 'spawn' or 'forkserver'"
        )
