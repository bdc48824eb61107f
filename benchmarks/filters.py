"""Filtered search, and search while rows are deleted and added: recall and latency of what `optimize` chooses.

    python -m benchmarks.filters --vectors real.npy [--count 100000] [--recalls 0.95,0.99]

`real.npy` holds vectors of encoded real text, as `benchmarks.vectors --encode FILE` makes them. Queries are some of
them that are left out of what is searched; those that `optimize` chooses and proves by have no part in a figure.

Filters let pass rows drawn at random; the rows nearest to one row drawn at random, such as those of one folder, which
lie far from most queries; and the rows farthest from it. The ten best are held against exact search over what
passes, and so is the time that a query takes alone, in turn with two ways to do that: binocle's own exact search, to
which `to_binocle_exact` is the ratio, and numpy's product with the rows that pass, faster where those are few.

Turnover deletes 30 % of the rows of an index in a store and adds as many, in random order, committed in steps; after
each step, and whenever the index was built anew, queries are searched, and all that should be there is looked for, and
all that should not.
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
from binocle.indexes.tuning.benchmark import QuerySample, Requirements, recall_lower_bound
from binocle.indexes.tuning.optimize import optimize
from binocle.retriever.models.identity import EncoderId
from binocle.retriever.store.benchmark_queries import BenchmarkQueries
from binocle.retriever.store.snapshot import Snapshot
from binocle.retriever.store.store import Store
from binocle.retriever.store.tables import chunk_schema, document_schema
from binocle.retriever.store.writer import open_writer

from .machine import RESULTS, save

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
FEW = 16  # a filter that lets pass fewer than one in so many comes as places, as it does from `Snapshot`
ASKED, TIMED, ROUNDS = 500, 100, 3
STEPS, CHANGED = 40, 0.3


def chosen(vectors: Floats, asked: Floats, demand: Requirements, folder: Path) -> tuple[VectorIndex, dict[str, Any]]:
    ids, seconds = np.arange(len(vectors)), {}

    def built(spec: IndexSpec) -> BuiltFolder:
        began = time.perf_counter()
        made = build(folder, spec, [(ids, vectors)], dim=vectors.shape[1], covers=0)
        seconds[made.folder] = time.perf_counter() - began
        return made

    outcome = optimize(
        built,
        asked,
        demand,
        source="benchmark",
        log=lambda line: print(line, flush=True),
    )
    if outcome.choice is None:
        raise SystemExit(f"not met: {outcome.alternatives}")
    memory = f", {demand.memory / len(vectors):.0f} bytes a vector" if demand.memory else ""
    index, spec, measured = outcome.choice.built, outcome.choice.spec, outcome.choice.benchmark
    told = {"demand": f"recall {demand.recall}{memory}", "kind": spec.kind, "build": spec.build, "search": spec.search}
    told |= {
        "build_seconds": round(seconds[index.folder], 2),
        "choice_seconds": round(outcome.seconds, 1),
        "bytes_per_vector": round(measured.bytes_per_vector, 1),
        "recall_at_10": round(measured.recall, 4),
        "queries_per_second": round(measured.rate, 1),
        "p50_ms": round(1e3 * measured.p50, 3),
        "p99_ms": round(1e3 * measured.p99, 3),
    }
    return index.load().with_parameters(**spec.search), told


def filters(vectors: Floats, random: np.random.Generator) -> Iterator[tuple[str, float, Positions]]:
    """How they are chosen, the share that passes, and the places that do."""
    for share in SHARES:
        count = round(share * len(vectors))
        near = np.argsort(-(vectors @ vectors[random.integers(len(vectors))]), kind="stable")
        yield "at random", share, np.sort(random.permutation(len(vectors))[:count])
        yield "nearest to one row", share, np.sort(near[:count])
        yield "farthest from one row", share, np.sort(near[-count:])


def filtered(index: VectorIndex, exact: FlatIndex, queries: Floats) -> Iterator[dict[str, Any]]:
    for how, share, places in filters(exact.vectors, np.random.default_rng(SEED)):
        allowed = places if len(places) * FEW < len(exact.ids) else np.isin(exact.ids, places)
        k = min(K, len(places))
        sample = QuerySample(queries, exact.search(queries, k, allowed=allowed)[0][:, -1:], k)
        scores, found = index.search(queries, k, allowed=allowed)
        recalls = sample.recalls_of_scores(scores)
        ours, flat, plain = timed(
            queries[:TIMED],
            lambda query, allowed=allowed: index.search(query, K, allowed=allowed),
            lambda query, allowed=allowed: exact.search(query, K, allowed=allowed),
            lambda query, places=places: best(exact.vectors, query, places),
        )
        row = {
            "passing": f"{share:.2%}",
            "rows": how,
            "recall_at_10": round(float(recalls.mean()), 4),
            "recall_lower_95": round(recall_lower_bound(recalls), 4),
            "worst_query": round(float(recalls.min()), 2),
            "not_allowed": int((~np.isin(found, places)).sum()),
            "p50_ms": round(1e3 * ours, 3),
            "exact_over_what_passes_p50_ms": {"binocle": round(1e3 * flat, 3), "numpy": round(1e3 * plain, 3)},
            "to_binocle_exact": round(ours / flat, 3),
        }
        print(row, flush=True)
        yield row


def best(vectors: Floats, query: Floats, places: Positions) -> Positions:
    """The ten best of some rows, by numpy."""
    scores = vectors[places] @ query[0]
    top = np.argpartition(-scores, min(K, len(scores)) - 1)[:K]
    return places[top[np.argsort(-scores[top])]]


def timed(queries: Floats, *ways: Callable[[Floats], Any]) -> list[float]:
    """Median seconds of a query alone, in each way, in turn; of each query the middle one of some rounds."""
    seconds = np.empty((len(ways), len(queries), ROUNDS))
    for turn in range(ROUNDS):
        for row, query in enumerate(queries):
            for way, search in enumerate(ways):
                began = time.perf_counter()
                search(query[None])
                seconds[way, row, turn] = time.perf_counter() - began
    return [float(np.median(np.median(one, axis=1))) for one in seconds]


# Rows that come and go


def rows(ids: Ids, vectors: Floats) -> tuple[pa.Table, pa.Table]:
    """A document of one chunk for each vector, both under its id."""
    texts = [f"row {number}" for number in ids.tolist()]
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    known = {"id": ids, "document": ids, "key": ids, "text": texts, "context": texts, "vector": column}
    described = {"id": ids, "path": texts, "source": ["added"] * len(ids), "state": ["indexed"] * len(ids)}
    described |= {"metadata": ["{}"] * len(ids), "chunks": np.ones(len(ids), np.int32), "text": texts}
    return filled(known, chunk_schema(vectors.shape[1]), len(ids)), filled(described, document_schema(), len(ids))


def filled(known: dict[str, Any], schema: pa.Schema, count: int) -> pa.Table:
    """With empty values in the columns that are not known."""
    empty = {pa.string(): "", pa.large_string(): "", pa.bool_(): True, pa.list_(pa.string()): []}
    arrays = []
    for field in schema:
        value = known.get(field.name)
        if value is None:
            value = [None if field.name == "page" else empty.get(field.type, 0)] * count
        arrays.append(value if isinstance(value, pa.Array) else pa.array(value, field.type))
    return pa.table(arrays, schema)


def turnover(vectors: Floats, more: Floats, asked: Floats, queries: Floats, recall: float) -> dict[str, Any]:
    every, held = np.vstack([vectors, more]), len(vectors)
    random, seconds = np.random.default_rng(SEED), time.perf_counter()
    going, coming = random.permutation(held)[: len(more)], np.arange(held, len(every))
    operations = random.permutation(np.concatenate([going, coming]))
    operations[operations >= held] = coming  # a store's ids ascend
    live, states, notes, kinds = np.arange(held), [], [], set()
    with tempfile.TemporaryDirectory() as folder:
        store = Store.create(Path(folder) / "index", EncoderId("benchmark", "benchmark", every.shape[1]))
        with open_writer(store) as writer:
            for part in np.array_split(live, 10):
                change(writer, every, part, np.empty(0, np.int64))
            writer.finish()
            outcome = writer.index.optimize(Requirements(recall), BenchmarkQueries(asked, "benchmark", real=True))
            if not outcome.met:
                raise SystemExit(f"not met: {outcome.alternatives}")
            for step in np.array_split(operations, STEPS):
                new, gone = np.sort(step[step >= held]), step[step < held]
                change(writer, every, new, gone)
                live = np.concatenate([np.setdiff1d(live, gone), new])
                states.append(looked_at(Snapshot.latest(store), every, live, queries, random))
                before, note = writer.head.vectors, writer.finish()
                notes += [note] if note else []
                if writer.head.vectors != before:  # built anew
                    states.append(looked_at(Snapshot.latest(store), every, live, queries, random))
                kinds.add(str(writer.head.index))
                print(len(states), states[-1], note, flush=True)
    recalls = [state.pop("recall") for state in states]
    return {
        "demand": recall,
        "rows": held,
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
    chunks, documents = rows(new, every[new])
    if len(new):
        writer.stage(chunks)
    writer.commit(drop=gone.tolist(), documents=documents)


def looked_at(
    snapshot: Snapshot, every: Floats, live: Ids, queries: Floats, random: np.random.Generator
) -> dict[str, Any]:
    """One state: its recall; ids that are answered but gone, or not held; and rows that do not find themselves."""
    index = snapshot.index
    published = index.published.ids if index.live_mask is None else index.published.ids[index.live_mask]
    ids = published if index.unindexed is None else np.concatenate([published, index.unindexed.ids])
    scores, found = index.search(queries, K)
    exact = faiss.knn(queries, every[live], K, metric=faiss.METRIC_INNER_PRODUCT)[0]
    some = np.sort(random.choice(live, 200, replace=False))
    own = index.search(every[some], 1, allowed=some)[0][:, 0]
    return {
        "vector_index": snapshot.head.vectors,
        "recall": float(QuerySample(queries, exact[:, -1:]).recalls_of_scores(scores).mean()),
        "ghosts": int((~np.isin(found, live)).sum()),
        "missing": len(np.setdiff1d(live, ids)),
        "doubled": len(ids) - len(np.unique(ids)) + sum(len(set(row)) < K for row in found.tolist()),
        "not_found": int((own < np.einsum("nd,nd->n", every[some], every[some]) - 1e-5).sum()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=Path, required=True)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--recalls", default="0.95,0.99")
    parser.add_argument("--memory", type=int, default=250, help="Bytes a vector, of one more demand of recall 0.95.")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", choices=("filters", "turnover"), help="The other is left as it was.")
    parser.add_argument("--name", default="filters", help="of the file in results/")
    arguments = parser.parse_args()
    faiss.omp_set_num_threads(arguments.threads)
    real = np.load(arguments.vectors, mmap_mode="r", allow_pickle=False)
    recalls = [float(recall) for recall in arguments.recalls.split(",")]
    demands = [*map(Requirements, recalls), Requirements(0.95, memory=arguments.memory * arguments.count)]
    half = max(demand.query_count for demand in demands)
    parts = (arguments.count, round(CHANGED * arguments.count), 2 * half, ASKED)
    if sum(parts) > len(real):
        raise SystemExit(f"{arguments.vectors} holds {len(real)} vectors: {sum(parts)} are needed")
    taken = np.random.default_rng(SEED).permutation(len(real))[: sum(parts)]
    every = np.ascontiguousarray(real[taken], np.float32)
    vectors, more, asked, queries = np.split(every, np.cumsum(parts)[:-1])
    before = RESULTS / f"{arguments.name}.json"
    results = json.loads(before.read_text("utf-8"))["results"] if arguments.only and before.is_file() else {}
    results |= {"vectors": arguments.count, "dim": every.shape[1], "threads": arguments.threads}
    results |= {"queries": ASKED, "queries_timed": TIMED}
    results |= {part: [] for part in ("filters", "turnover") if arguments.only in (None, part)}
    for demand in demands:
        some = asked[: 2 * demand.query_count]
        if arguments.only != "turnover":
            with tempfile.TemporaryDirectory() as folder:
                index, told = chosen(vectors, some, demand, Path(folder))
                exact: FlatIndex = index if told["kind"] == "flat" else index.exact  # type: ignore[assignment, attr-defined]
                results["filters"].append({**told, "shares": list(filtered(index, exact, queries))})
        if arguments.only != "filters" and demand.memory is None:
            results["turnover"].append(turnover(vectors, more, some, queries, demand.recall))
        save(arguments.name, results, seed=SEED)


if __name__ == "__main__":
    main()
