"""A search in a new process beside `import numpy`, and `search_many` beside one search after another.

    OPENBLAS_NUM_THREADS=1 python -m benchmarks.speed.search --index DIR --collection DIR [--queries 1000] [--rounds 5]

DIR of `--collection` has the queries, in BEIR's layout; each is another one. Times are of the processor, in turns. The
new process finds its bytecode compiled, as after an installation. The command `binocle` sets this variable too: a
second thread mostly waits. Searches in one process find the passages in memory. They are timed before and after
`warm_up`, which compiles the encoder, by the clock too: `search_many` encodes in a thread of its own.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from binocle.retriever.retriever import Retriever
from binocle.training.data import beir

from ..machine import save

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


_ROUNDS = 2  # of searches in one process


def of_child(*command: str) -> float:
    """Seconds of the processor for a new Python."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, "-P", *command], check=True, stdout=subprocess.DEVNULL, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def milliseconds(call: Callable[[], Any], queries: int) -> tuple[float, float]:
    """Milliseconds of a call for each query: of the processor, and of the clock."""
    began, processor = time.perf_counter(), time.process_time()
    call()
    return 1e3 * (time.process_time() - processor) / queries, 1e3 * (time.perf_counter() - began) / queries


def compare(retriever: Retriever, queries: list[str]) -> dict[str, Any]:
    """Milliseconds a query, one by one and together, in turns; the first round is not counted."""
    calls = {
        "one by one": lambda: [retriever.search(query) for query in queries],
        "together": lambda: retriever.search_many(queries),
    }
    turns = [{name: milliseconds(call, len(queries)) for name, call in calls.items()} for _ in range(_ROUNDS + 1)][1:]
    results: dict[str, Any] = {}
    for number, clock in enumerate(("processor", "clock")):
        median = {name: statistics.median(turn[name][number] for turn in turns) for name in calls}
        ratios = sorted(turn["one by one"][number] / turn["together"][number] for turn in turns)
        results[clock] = {name: round(value, 2) for name, value in median.items()}
        results[clock]["times as fast"] = round(statistics.median(ratios), 2)
        results[clock]["range"] = [round(ratios[0], 2), round(ratios[-1], 2)]
    return results


def medians(contenders: dict[str, Callable[[], float]], rounds: Iterable[int]) -> dict[str, Any]:
    """The median, least and most seconds of each; the first round is not counted."""
    turns = [{name: measure() for name, measure in contenders.items()} for _ in rounds][1:]
    values = {name: sorted(turn[name] for turn in turns) for name in contenders}
    return {
        name: {"median": round(statistics.median(row), 4), "range": [round(row[0], 4), round(row[-1], 4)]}
        for name, row in values.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", type=Path, required=True)
    parser.add_argument("--collection", type=Path, required=True)
    parser.add_argument("--queries", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    queries = list(islice(dict.fromkeys(beir.queries(arguments.collection).values()), arguments.queries))
    search = ("-m", "binocle.cli", "search", queries[0], "--min-relevance", "0", "--index", str(arguments.index))
    rounds = range(arguments.rounds + 1)
    cold = medians(
        {"numpy": lambda: of_child("-c", "import numpy"), "search": lambda: of_child(*search)},
        rounds,
    )
    retriever = Retriever.open(arguments.index)
    batch = compare(retriever, queries)
    retriever.warm_up()
    results = {
        "passages": retriever.snapshot().chunks.count_rows(),
        "queries": len(queries),
        "new_process_processor_seconds": cold,
        "search_in_times_of_numpy": round(cold["search"]["median"] / cold["numpy"]["median"], 2),
        "milliseconds_a_query": batch,
        "milliseconds_a_query_after_warm_up": compare(retriever, queries),
    }
    save("search", results)


if __name__ == "__main__":
    main()
