"""Take documents out of an index."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ..store import documents
from .report import Report

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..store.writer import Writer


def delete(writer: Writer, names: Sequence[str], *, erase: bool) -> Report:
    """Take documents out by path or id, and folders by "name/".

    :param erase: whether to erase their texts and vectors from the disk now.
    """
    start = time.monotonic()
    snapshot = writer.snapshot()
    rows = documents.named(snapshot, names)
    report, before = Report(removed=len(rows)), snapshot.chunks.count_rows()
    if rows:
        report.note = writer.forget(rows, erase=erase)
    report.count_chunks(before, writer.snapshot().chunks.count_rows())
    report.seconds = time.monotonic() - start
    return report
