"""Threads and asyncio callers that search one retriever, while another process writes to its index.

    python -m benchmarks.speed.concurrency --index FOLDER --seconds 20

The index is copied first. The writer adds a document, changes it and deletes it, again and again. The queries are
headings of the index. A call is wrong if its best hit is another one than before the calls. Threads and callers ask as
fast as they get answers, so a latency includes the wait for the processors.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from binocle import Retriever

from ..machine import save

if TYPE_CHECKING:
    from collections.abc import Sequence

    from binocle import Hits

THREADS, CALLERS, QUERIES, SEED = 32, 64, 60, 0
WRITER = """
import itertools, sys
from binocle import Retriever
retriever = Retriever.open(sys.argv[1], trust=True)
for number in itertools.count():
    retriever.add([{"id": "written", "text": f"xylophone {number} qwertz"}])
    retriever.update(["written"], metadata={"number": number})
    retriever.delete("written")
    print(number, flush=True)
"""


class Calls:
    """The latencies, errors and wrong answers of one kind of caller."""

    def __init__(self, retriever: Retriever, queries: Sequence[str], seconds: float) -> None:
        self.retriever, self.queries = retriever, queries
        self.best = {query: retriever.search(query)[0].passage for query in queries}
        self.end = time.perf_counter() + seconds
        self.latencies: list[float] = []
        self.errors: list[str] = []
        self.wrong: list[str] = []

    def check(self, query: str, hits: Hits, latency: float) -> None:
        """Record an answer."""
        self.latencies.append(latency)
        if not hits or hits[0].passage != self.best[query]:
            self.wrong.append(query)

    def thread(self, seed: int) -> None:
        """Search until the time is over."""
        draw = random.Random(seed)
        while (start := time.perf_counter()) < self.end:
            query = draw.choice(self.queries)
            try:
                self.check(query, self.retriever.search(query), time.perf_counter() - start)
            except Exception as error:  # noqa: BLE001 - every error is counted
                self.errors.append(repr(error))

    async def caller(self, seed: int) -> None:
        """Search until the time is over, in asyncio."""
        draw = random.Random(seed)
        while (start := time.perf_counter()) < self.end:
            query = draw.choice(self.queries)
            try:
                self.check(query, await self.retriever.asearch(query), time.perf_counter() - start)
            except Exception as error:  # noqa: BLE001 - every error is counted
                self.errors.append(repr(error))

    def run_threads(self) -> None:
        """Search in threads."""
        threads = [threading.Thread(target=self.thread, args=[seed]) for seed in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    async def run_callers(self) -> None:
        """Search in asyncio."""
        await asyncio.gather(*(self.caller(seed) for seed in range(CALLERS)))

    def report(self, seconds: float) -> dict[str, Any]:
        """Return the figures."""
        p50, p99 = (1e3 * float(np.percentile(self.latencies, share)) for share in (50, 99))
        return {
            "calls": len(self.latencies),
            "calls_per_second": round(len(self.latencies) / seconds, 1),
            "errors": len(self.errors),
            "first_error": self.errors[0] if self.errors else "",
            "wrong": len(self.wrong),
            "p50_ms": round(p50, 1),
            "p99_ms": round(p99, 1),
            "p99_to_p50": round(p99 / p50, 2),
        }


def headings(retriever: Retriever) -> list[str]:
    """Return a sample of the headings of an index."""
    rows = retriever.snapshot().read("chunks", ["heading"])["heading"].to_pylist()
    return random.Random(SEED).sample(sorted({row[-1] for row in rows if row}), QUERIES)


def measure(index: Path, seconds: float) -> dict[str, Any]:
    """Measure threads and asyncio callers for some seconds each."""
    retriever = Retriever.open(index, trust=True)
    retriever.warm_up()
    queries = headings(retriever)
    with subprocess.Popen([sys.executable, "-c", WRITER, str(index)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()  # it writes now
        threads = Calls(retriever, queries, seconds)
        threads.run_threads()
        callers = Calls(retriever, queries, seconds)
        asyncio.run(callers.run_callers())
        writer.terminate()
        commits = 3 * len(writer.stdout.read().split())
    kinds = {"threads": threads.report(seconds), "async": callers.report(seconds)}
    rate = kinds["async"]["calls_per_second"] / kinds["threads"]["calls_per_second"]
    return {"writer_commits": commits, **kinds, "async_to_threads": round(rate, 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=20)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        index = Path(folder) / "index"
        shutil.copytree(arguments.index, index)
        save("concurrency", measure(index, arguments.seconds), seed=SEED)


if __name__ == "__main__":
    main()
