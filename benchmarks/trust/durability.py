"""Measure the time that commits wait for the disk.

    python -m benchmarks.trust.durability --folder DIR [--syncs 20] [--model NAME]

The folder is indexed once, and the seconds that commits wait are added up. Then one new line at a time is synced,
by turns with and without waiting. On a shared machine other programs take most of the elapsed time. So the waits are
also given as a share of processor time plus waits. `--model static` takes the encoder of the store's
measurements: indexing then costs a fraction, and the share is larger than with a real encoder.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from binocle import Retriever
from binocle.retriever.store.locations.new_files import NewFiles

from ..machine import save
from .static_model import build_static_model


class Waits:
    """The seconds that each commit waits for its files to be on the disk."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        settle = NewFiles.settle

        def timed(files: NewFiles, *states: Path) -> None:
            start = time.perf_counter()
            settle(files, *states)
            self.seconds.append(time.perf_counter() - start)

        self.patch = mock.patch.object(NewFiles, "settle", timed)


def one_line(folder: Path, number: int, *, durable: bool) -> tuple[float, float]:
    """Sync a file with a new line; return the seconds, and how many of them commits wait for the disk."""
    (folder / "line.md").write_text(f"Line {number} about {durable}.\n")
    retriever = Retriever.open(folder, durable=durable, trust=True)  # one of the two is a copy
    waits, start = Waits(), time.perf_counter()
    with waits.patch:
        retriever.sync()
    return time.perf_counter() - start, sum(waits.seconds)


def processor_seconds() -> float:
    """Return the processor time of this process and its ended children, in seconds."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def measure(folder: Path, syncs: int, model: str | None) -> dict[str, Any]:
    waits, start, processor = Waits(), time.perf_counter(), processor_seconds()
    with waits.patch:
        report = Retriever.open(folder, model=model).sync()
    indexing, processor, waiting = time.perf_counter() - start, processor_seconds() - processor, sum(waits.seconds)
    copy = shutil.copytree(folder, folder.with_name("copy"))  # else a durable commit would sync the writes of the other
    pairs = [(one_line(folder, n, durable=True), one_line(copy, n, durable=False)) for n in range(syncs + 2)][2:]
    (durable, waited), (fast, settled) = 1e3 * np.array(pairs).transpose(1, 2, 0)
    return {
        "passages": report.chunks_total,
        "indexing_seconds": round(indexing, 2),
        "processor_seconds": round(processor, 2),
        "waiting_seconds": round(waiting, 2),
        "commits": len(waits.seconds),
        "waiting_share_of_indexing": round(waiting / indexing, 4),
        "waiting_share_of_processor_and_waiting": round(waiting / (processor + waiting), 4),
        "one_file_sync_ms": {
            "durable": round(float(np.median(durable)), 1),
            "not_durable": round(float(np.median(fast)), 1),
        },
        "settling_of_one_file_sync_ms": {
            "durable": round(float(np.median(waited)), 1),
            "not_durable": round(float(np.median(settled)), 1),
            "difference_quartiles": np.round(np.quantile(waited - settled, [0.25, 0.5, 0.75]), 1).tolist(),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--syncs", type=int, default=20)
    parser.add_argument("--model", help="an encoder's name or folder, or `static`; the default encoder unless given")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder, model = Path(temporary) / "folder", arguments.model
        shutil.copytree(arguments.folder, folder, ignore=shutil.ignore_patterns(".binocle"))
        if model == "static":
            model = str(build_static_model(Path(temporary) / "model"))
        save("durability", measure(folder, arguments.syncs, model))


if __name__ == "__main__":
    main()
