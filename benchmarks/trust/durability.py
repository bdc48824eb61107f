"""Measure the time that commits wait for the disk.

    python -m benchmarks.trust.durability --folder DIR [--syncs 20]

The folder is indexed once, and the seconds in which commits wait are added up. Then one new line at a time is synced,
by turns with and without waiting.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

from binocle import Retriever
from binocle.retriever.store.locations.new_files import NewFiles

from ..machine import save


class Waits:
    """The seconds of each commit in which it settles its files."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        settle = NewFiles.settle

        def timed(files: NewFiles, *states: Path) -> None:
            start = time.perf_counter()
            settle(files, *states)
            self.seconds.append(time.perf_counter() - start)

        self.patch = mock.patch.object(NewFiles, "settle", timed)


def one_line(folder: Path, number: int, *, durable: bool) -> float:
    """Sync a file with a new line; return the seconds."""
    (folder / "line.md").write_text(f"Line {number} about {durable}.\n")
    retriever = Retriever.open(folder, durable=durable, trust=True)  # one of the two is a copy
    start = time.perf_counter()
    retriever.sync()
    return time.perf_counter() - start


def measure(folder: Path, syncs: int) -> dict[str, Any]:
    waits, start = Waits(), time.perf_counter()
    with waits.patch:
        report = Retriever.open(folder).sync()
    indexing = time.perf_counter() - start
    copy = shutil.copytree(folder, folder.with_name("copy"))  # else a durable commit would sync what the other left
    pairs = [(one_line(folder, n, durable=True), one_line(copy, n, durable=False)) for n in range(syncs + 2)][2:]
    durable, fast = (statistics.median(seconds) for seconds in zip(*pairs, strict=True))
    return {
        "passages": report.chunks_total,
        "indexing_seconds": round(indexing, 2),
        "commits": len(waits.seconds),
        "waiting_share_of_indexing": round(sum(waits.seconds) / indexing, 4),
        "one_file_sync_ms": {"durable": round(1e3 * durable, 1), "not_durable": round(1e3 * fast, 1)},
        "median_difference_ms": round(1e3 * statistics.median(one - other for one, other in pairs), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--syncs", type=int, default=20)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "folder"
        shutil.copytree(arguments.folder, folder, ignore=shutil.ignore_patterns(".binocle"))
        save("durability", measure(folder, arguments.syncs))


if __name__ == "__main__":
    main()
