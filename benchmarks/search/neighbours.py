"""The cost of ranking with neighbours: processor time and bytes to make them, and milliseconds of a search.

    python -m benchmarks.search.neighbours --index DIR --queries FILE

Neighbours are made for vectors around random centres, five passages a document. Each search of the index runs with them
and without, by turns, in one process; FILE holds queries as JSON lines {_id, text}; the first 50 count.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from binocle.indexes import neighbourhood
from binocle.retriever.retriever import Retriever
from binocle.retriever.search.query import Query
from binocle.training.evaluation.judgements import read_queries

from ..machine import save

if TYPE_CHECKING:
    from binocle.retriever.store.snapshot import Snapshot

_PASSAGES = (5_000, 20_000, 63_000)
_DIM, _QUERIES, _ROUNDS = 384, 50, 2


def making(count: int) -> dict[str, float]:
    """Make the neighbours of `count` passages."""
    random = np.random.default_rng(0)
    centres = random.standard_normal((count // 20, _DIM)).astype(np.float32)
    vectors = centres[random.integers(0, len(centres), count)]
    vectors += 0.8 * random.standard_normal(vectors.shape).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    with tempfile.TemporaryDirectory() as folder:
        began, cpu = time.perf_counter(), time.process_time()
        neighbourhood.write(Path(folder), np.arange(count), vectors, np.arange(count) // 5, np.arange(count))
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        size = sum(file.stat().st_size for file in Path(folder).iterdir())
    return {"seconds": round(seconds, 1), "processor_seconds": round(cpu, 1), "bytes_a_passage": round(size / count, 1)}


def searching(index: Path, queries: list[str]) -> dict[str, Any]:
    """Search an index with its neighbours and without, with each query encoded anew."""
    retriever = Retriever.open(index)
    alone, together = retriever.snapshot(), Retriever.open(index).snapshot()
    alone.neighbourhood = None
    assert together.neighbourhood is not None, f"{index} has no neighbours"
    snapshots = {"with": together, "without": alone}
    times: dict[str, list[float]] = {name: [] for name in snapshots}
    cpu = dict.fromkeys(snapshots, 0.0)
    for number in range(_ROUNDS + 1):
        for query in queries:
            for name, snapshot in snapshots.items():
                began, before = time.perf_counter(), time.process_time()
                search(retriever, snapshot, query)
                if number:  # the first round warms up
                    times[name].append(time.perf_counter() - began)
                    cpu[name] += time.process_time() - before
    searches = _ROUNDS * len(queries)
    return {
        "passages": together.chunks.count_rows(),
        "median_milliseconds": {name: round(1e3 * statistics.median(values), 2) for name, values in times.items()},
        "processor_milliseconds": {name: round(1e3 * seconds / searches, 2) for name, seconds in cpu.items()},
    }


def search(retriever: Retriever, snapshot: Snapshot, query: str) -> None:
    def encode() -> Any:
        return retriever.encoder.encode([query], kind="query")

    Query(snapshot, query, encode).hits(10, mode="hybrid", where=None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", type=Path, required=True)
    parser.add_argument("--queries", type=Path, required=True)
    arguments = parser.parse_args()
    queries = list(read_queries(arguments.queries).values())[:_QUERIES]
    results = {"searching": searching(arguments.index, queries), "making": {n: making(n) for n in _PASSAGES}}
    save("neighbours", results, seed=0)


if __name__ == "__main__":
    main()
