"""Take documents out of an index."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from ...core.checks import is_flag
from ...core.errors import InputError
from .report import Report

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..store.snapshot import Snapshot
    from ..store.writer import Writer

    Choice = Callable[[Snapshot], list[dict[str, Any]]]

Erase = bool | timedelta | Literal["later"]
LATER = timedelta(hours=1)


def erasure_delay(erase: Erase) -> float | None:
    """Return in how many seconds to erase, 0 for now; None for with later writes.

    :raises InputError: when it is no time.
    """
    if isinstance(erase, timedelta) and erase > timedelta(0):
        return erase.total_seconds()
    if erase == "later":
        return LATER.total_seconds()
    if is_flag(erase):
        return 0.0 if erase else None
    raise InputError(f"erase is True, False, 'later', or a timedelta above 0, not {erase!r}")


def delete(writer: Writer, choose: Choice, *, erase: Erase) -> Report:
    """Take documents out.

    :param choose: returns their rows, with `id`, `path` and `source`, each once or more often.
    :param erase: whether, and by when, to erase their texts and vectors from the disk.
    """
    delay = erasure_delay(erase)
    start = time.monotonic()
    snapshot = writer.snapshot()
    rows = list({row["id"]: row for row in choose(snapshot)}.values())
    report, before = Report(removed=len(rows)), snapshot.chunks.count_rows()
    if rows and delay:
        writer.promise_erasure(time.time() + delay)
    if rows:
        report.note = writer.forget(rows, erase=delay == 0)
    report.count_chunks(before, writer.snapshot().chunks.count_rows())
    report.seconds = time.monotonic() - start
    return report
