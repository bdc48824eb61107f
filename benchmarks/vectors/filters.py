"""Benchmark filtered search, and search while rows come and go: recall and latency of the chosen index.

    python -m benchmarks.vectors.filters --vectors real.npy [--count 100000] [--recalls 0.95,0.99]

`real.npy` has vectors of encoded real text, from `benchmarks.vectors.vectors --encode FILE`. Some are left out of the
index and used as queries. The queries that `optimize` chooses and proves with have no part in a figure.

A filter passes random rows; or the rows nearest to a random row, such as one folder's, far from most queries; or the
rows farthest from it. The ten best are compared with exact search over the passing rows. So is the time of a single
query, in turn with two exact searches: binocle's own, and numpy's product with the passing rows, which is faster for
few rows. `to_binocle_exact` is the ratio to the former.

Turnover deletes 30 % of the rows of an index in a store and adds as many, in random order, committed in steps. After
each step and each rebuild of the index, queries are searched, and the index is checked for missing and for deleted
rows.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import faiss
import numpy as np
import pyarrow as pa

from binocle.indexes.published import build
from binocle.indexes.tuning.benchmark import QuerySample, recall_lower_bound
from binocle.indexes.tuning.optimize import optimize
from binocle.indexes.tuning.requirements import Requirements
from binocle.retriever.models.identity import EncoderId
from binocle.retriever.store.derived.benchmark_queries import BenchmarkQueries
from binocle.retriever.store.snapshot import Snapshot
from binocle.retriever.store.store import Store
from binocle.retriever.store.tables import chunk_schema, document_schema
from binocle.retriever.store.writer import open_writer

from ..machine import RESULTS, save

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from binocle.core.arrays import Floats, Ids, Positions
    from binocle.indexes.base import VectorIndex
    from binocle.indexes.flat import FlatIndex
    from binocle.indexes.published import BuiltFolder
    from binocle.indexes.registry import IndexSpec
    from binocle.retriever.store.writer import Writer

K, SEED = 10, 0
SHARES = (0.5, 0.05, 0.005, 0.0001)
POSITIONS_SHARE = 16  # `Snapshot` gives a filter that passes fewer than one row in 16 as positions
QUERIES, TIMED, ROUNDS = 500, 100, 3
STEPS, CHANGED = 40, 0.3


def choose(
    vectors: Floats, queries: Floats, requirements: Requirements, folder: Path
) -> tuple[VectorIndex, dict[str, Any]]:
    """Return the index that `optimize` chooses, and its figures."""
    ids, seconds = np.arange(len(vectors)), {}

    def timed_build(spec: IndexSpec) -> BuiltFolder:
        start = time.perf_counter()
        index = build(folder, spec, [(ids, vectors)], dim=vectors.shape[1], covers=0)
        seconds[index.folder] = time.perf_counter() - start
        return index

    result = optimize(
        timed_build,
        queries,
        requirements,
        source="benchmark",
        log=lambda line: print(line, flush=True),
    )
    if result.choice is None:
        raise SystemExit(f"not met: {result.alternatives}")
    memory = f", {requirements.memory / len(vectors):.0f} bytes a vector" if requirements.memory else ""
    built, spec, figures = result.choice.built, result.choice.spec, result.choice.benchmark
    demand = f"recall {requirements.recall}{memory}"
    report = {"demand": demand, "kind": spec.kind, "build": spec.build, "search": spec.search}
    report |= {
        "build_seconds": round(seconds[built.folder], 2),  # type: ignore[attr-defined]
        "choice_seconds": round(result.seconds, 1),
        "bytes_per_vector": round(figures.bytes_per_vector, 1),
        "recall_at_10": round(figures.recall, 4),
        "queries_per_second": round(figures.rate, 1),
        "p50_ms": round(1e3 * figures.p50, 3),
        "p99_ms": round(1e3 * figures.p99, 3),
    }
    return built.load().with_parameters(**spec.search), report


def filters(vectors: Floats, random: np.random.Generator) -> Iterator[tuple[str, float, Positions]]:
    """Yield filters: how their rows are chosen, the share that passes, and its positions."""
    for share in SHARES:
        count = round(share * len(vectors))
        near = np.argsort(-(vectors @ vectors[random.integers(len(vectors))]), kind="stable")
        yield "at random", share, np.sort(random.permutation(len(vectors))[:count])
        yield "nearest to one row", share, np.sort(near[:count])
        yield "farthest from one row", share, np.sort(near[-count:])


def benchmark_filters(index: VectorIndex, exact: FlatIndex, queries: Floats) -> Iterator[dict[str, Any]]:
    """Yield the figures of each filter."""
    for how, share, positions in filters(exact.vectors, np.random.default_rng(SEED)):
        allowed = positions if len(positions) * POSITIONS_SHARE < len(exact.ids) else np.isin(exact.ids, positions)
        k = min(K, len(positions))
        sample = QuerySample(queries, exact.search(queries, k, allowed=allowed)[0][:, -1:], k)
        scores, ids = index.search(queries, k, allowed=allowed)
        recalls = sample.recalls_of_scores(scores)
        tuned, flat, numpy = median_seconds(
            queries[:TIMED],
            lambda query, allowed=allowed: index.search(query, K, allowed=allowed),
            lambda query, allowed=allowed: exact.search(query, K, allowed=allowed),
            lambda query, positions=positions: top_k(exact.vectors, query, positions),
        )
        row = {
            "passing": f"{share:.2%}",
            "rows": how,
            "recall_at_10": round(float(recalls.mean()), 4),
            "recall_lower_95": round(recall_lower_bound(recalls), 4),
            "worst_query": round(float(recalls.min()), 2),
            "not_allowed": int((~np.isin(ids, positions)).sum()),
            "p50_ms": round(1e3 * tuned, 3),
            "exact_over_what_passes_p50_ms": {"binocle": round(1e3 * flat, 3), "numpy": round(1e3 * numpy, 3)},
            "to_binocle_exact": round(tuned / flat, 3),
        }
        print(row, flush=True)
        yield row


def top_k(vectors: Floats, query: Floats, positions: Positions) -> Positions:
    """Return the ten best of these rows, by numpy."""
    scores = vectors[positions] @ query[0]
    top = np.argpartition(-scores, min(K, len(scores)) - 1)[:K]
    return positions[top[np.argsort(-scores[top])]]


def median_seconds(queries: Floats, *searches: Callable[[Floats], Any]) -> list[float]:
    """Return the median seconds of a single query for each search; the searches take turns, for several rounds."""
    seconds = np.empty((len(searches), len(queries), ROUNDS))
    for turn in range(ROUNDS):
        for row, query in enumerate(queries):
            for number, search in enumerate(searches):
                start = time.perf_counter()
                search(query[None])
                seconds[number, row, turn] = time.perf_counter() - start
    return [float(np.median(np.median(rounds, axis=1))) for rounds in seconds]


# Rows that come and go


def rows(ids: Ids, vectors: Floats) -> tuple[pa.Table, pa.Table]:
    """Return chunks and documents: one document of one chunk for each vector, both under its id."""
    texts = [f"row {number}" for number in ids.tolist()]
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    known = {"id": ids, "document": ids, "key": ids, "text": texts, "context": texts, "vector": column}
    described = {"id": ids, "path": texts, "source": ["added"] * len(ids), "state": ["indexed"] * len(ids)}
    described |= {"metadata": ["{}"] * len(ids), "chunks": np.ones(len(ids), np.int32), "text": texts}
    return fill_table(known, chunk_schema(vectors.shape[1]), len(ids)), fill_table(
        described, document_schema(), len(ids)
    )


def fill_table(known: dict[str, Any], schema: pa.Schema, count: int) -> pa.Table:
    """Return a table with empty values in the columns that `known` lacks."""
    empty = {pa.string(): "", pa.large_string(): "", pa.bool_(): True, pa.list_(pa.string()): []}
    arrays = []
    for field in schema:
        value = known.get(field.name)
        if value is None:
            value = [None if field.name == "page" else empty.get(field.type, 0)] * count
        arrays.append(value if isinstance(value, pa.Array) else pa.array(value, field.type))
    return pa.table(arrays, schema)


def turnover(vectors: Floats, more: Floats, tuning: Floats, queries: Floats, recall: float) -> dict[str, Any]:
    """Replace rows of an index step by step, and check every state.

    :param tuning: the queries that `optimize` chooses and proves with.
    """
    every, count = np.vstack([vectors, more]), len(vectors)
    random, seconds = np.random.default_rng(SEED), time.perf_counter()
    going, coming = random.permutation(count)[: len(more)], np.arange(count, len(every))
    operations = random.permutation(np.concatenate([going, coming]))
    operations[operations >= count] = coming  # a store's ids ascend
    live, states, notes, kinds = np.arange(count), [], [], set()
    with tempfile.TemporaryDirectory() as folder:
        store = Store.create(Path(folder) / "index", EncoderId("benchmark", "benchmark", every.shape[1]))
        with open_writer(store) as writer:
            for part in np.array_split(live, 10):
                change(writer, every, part, np.empty(0, np.int64))
            writer.finish()
            result = writer.index.optimize(Requirements(recall), BenchmarkQueries(tuning, "benchmark", real=True))
            if not result.met:
                raise SystemExit(f"not met: {result.alternatives}")
            for step in np.array_split(operations, STEPS):
                new, gone = np.sort(step[step >= count]), step[step < count]
                change(writer, every, new, gone)
                live = np.concatenate([np.setdiff1d(live, gone), new])
                states.append(check_state(Snapshot.latest(store), every, live, queries, random))
                before, note = writer.head.vectors, writer.finish()
                notes += [note] if note else []
                if writer.head.vectors != before:  # built anew
                    states.append(check_state(Snapshot.latest(store), every, live, queries, random))
                kinds.add(str(writer.head.index))
                print(len(states), states[-1], note, flush=True)
    recalls = [state.pop("recall") for state in states]
    return {
        "demand": recall,
        "rows": count,
        "deleted": len(more),
        "added": len(more),
        "steps": STEPS,
        "states_searched": len(states),
        "vector_indexes": len({state["vector_index"] for state in states}),
        "settings": sorted(kinds),
        "notes": notes,
        "recall_at_10_least_mean_of_a_state": round(min(recalls), 4),
        "recall_at_10_mean": round(float(np.mean(recalls)), 4),
        **{name: sum(state[name] for state in states) for name in ("ghosts", "missing", "doubled", "not_found")},
        "seconds": round(time.perf_counter() - seconds),
    }


def change(writer: Writer, every: Floats, new: Ids, gone: Ids) -> None:
    """Add rows and delete others in one commit."""
    chunks, documents = rows(new, every[new])
    if len(new):
        writer.stage(chunks)
    writer.commit(drop=gone.tolist(), documents=documents)


def check_state(
    snapshot: Snapshot, every: Floats, live: Ids, queries: Floats, random: np.random.Generator
) -> dict[str, Any]:
    """Measure one state: its recall, answers that were deleted, missing ids, and rows that do not find themselves."""
    index = snapshot.index
    published = index.published.ids if index.live_mask is None else index.published.ids[index.live_mask]
    ids = published if index.unindexed is None else np.concatenate([published, index.unindexed.ids])
    scores, answers = index.search(queries, K)
    exact = faiss.knn(queries, every[live], K, metric=faiss.METRIC_INNER_PRODUCT)[0]
    sample = np.sort(random.choice(live, 200, replace=False))
    own = index.search(every[sample], 1, allowed=sample)[0][:, 0]
    return {
        "vector_index": snapshot.head.vectors,
        "recall": float(QuerySample(queries, exact[:, -1:]).recalls_of_scores(scores).mean()),
        "ghosts": int((~np.isin(answers, live)).sum()),
        "missing": len(np.setdiff1d(live, ids)),
        "doubled": len(ids) - len(np.unique(ids)) + sum(len(set(row)) < K for row in answers.tolist()),
        "not_found": int((own < np.einsum("nd,nd->n", every[sample], every[sample]) - 1e-5).sum()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=Path, required=True)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--recalls", default="0.95,0.99")
    parser.add_argument(
        "--memory", type=int, default=250, help="Bytes a vector, the limit of another run with recall 0.95."
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--only", choices=("filters", "turnover"), help="Run one part and keep the results of the other."
    )
    parser.add_argument("--name", default="filters", help="name of the file in results/")
    arguments = parser.parse_args()
    faiss.omp_set_num_threads(arguments.threads)
    real = np.load(arguments.vectors, mmap_mode="r", allow_pickle=False)
    recalls = [float(recall) for recall in arguments.recalls.split(",")]
    requirements = [*map(Requirements, recalls), Requirements(0.95, memory=arguments.memory * arguments.count)]
    half = max(required.query_count for required in requirements)
    parts = (arguments.count, round(CHANGED * arguments.count), 2 * half, QUERIES)
    if sum(parts) > len(real):
        raise SystemExit(f"{arguments.vectors} holds {len(real)} vectors: {sum(parts)} are needed")
    sampled = np.random.default_rng(SEED).permutation(len(real))[: sum(parts)]
    every = np.ascontiguousarray(real[sampled], np.float32)
    vectors, replacements, tuning, queries = np.split(every, np.cumsum(parts)[:-1])
    before = RESULTS / f"{arguments.name}.json"
    results = json.loads(before.read_text("utf-8"))["results"] if arguments.only and before.is_file() else {}
    results |= {"vectors": arguments.count, "dim": every.shape[1], "threads": arguments.threads}
    results |= {"queries": QUERIES, "queries_timed": TIMED}
    results |= {part: [] for part in ("filters", "turnover") if arguments.only in (None, part)}
    for required in requirements:
        sample = tuning[: 2 * required.query_count]
        if arguments.only != "turnover":
            with tempfile.TemporaryDirectory() as folder:
                index, report = choose(vectors, sample, required, Path(folder))
                exact: FlatIndex = index if report["kind"] == "flat" else index.exact  # type: ignore[assignment, attr-defined]
                results["filters"].append({**report, "shares": list(benchmark_filters(index, exact, queries))})
        if arguments.only != "filters" and required.memory is None:
            results["turnover"].append(turnover(vectors, replacements, sample, queries, required.recall))
        save(arguments.name, results, seed=SEED)


if __name__ == "__main__":
    main()
