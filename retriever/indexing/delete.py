"""Take documents out of an index."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from .report import Report

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..store.snapshot import Snapshot
    from ..store.writer import Writer

    Choice = Callable[[Snapshot], list[dict[str, Any]]]


def delete(writer: Writer, choose: Choice, *, erase: bool) -> Report:
    """Take documents out.

    :param choose: returns their rows, with `id`, `path` and `source`, each once or more often.
    :param erase: whether to erase their texts and vectors from the disk now.
    """
    start = time.monotonic()
    snapshot = writer.snapshot()
    rows = list({row["id"]: row for row in choose(snapshot)}.values())
    report, before = Report(removed=len(rows)), snapshot.chunks.count_rows()
    if rows:
        report.note = writer.forget(rows, erase=erase)
    report.count_chunks(before, writer.snapshot().chunks.count_rows())
    report.seconds = time.monotonic() - start
    return report
