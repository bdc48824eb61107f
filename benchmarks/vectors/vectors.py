"""Benchmark recall, speed and memory: `optimize` against hnswlib, usearch, LanceDB and raw FAISS.

    python -m benchmarks.vectors.vectors --vectors real.npy [--queries asked.npy] [--sizes 100000,1000000] [--limit N]

`real.npy` has float32 vectors of encoded real text, one a row. `--encode FILE…` writes it from the texts of JSON
lines, .gz too. For a larger size the rest is synthetic: points between two real vectors, with noise, of unit length.
The result says how many are real. The queries are real vectors left out of the index, or the rows of `--queries`. All
libraries get the same vectors, queries and threads. Recall compares ids with exact search in the same run. `optimize`
chooses and proves with one half of the queries. Every figure, ours too, is measured on the other half. Needs
`binocle[bench]`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import faiss
import numpy as np

from binocle.indexes.published import BuiltFolder, build
from binocle.indexes.tuning.benchmark import recall_lower_bound
from binocle.indexes.tuning.optimize import optimize
from binocle.indexes.tuning.requirements import Requirements
from binocle.retriever.models.load import load_encoder

from ..machine import save

if TYPE_CHECKING:
    from binocle.indexes.registry import IndexSpec

K, SEED, ROUNDS, SINGLE = 10, 0, 3, 300
Search = Callable[[np.ndarray], np.ndarray]  # queries (n, dim) -> positions (n, 10)


@dataclass(frozen=True)
class Contender:
    """A built index: its memory as its library counts it, and its settings from shallow to deep."""

    name: str
    seconds: float  # to build
    memory: int  # bytes
    settings: dict[str, Search]


def encode(files: list[Path], limit: int | None) -> np.ndarray:
    """Encode the texts of JSON lines (`text`, else `context` or `description`), each once, with the default encoder."""
    from binocle.retriever.models import model_files

    texts: dict[str, None] = {}
    for file in files:
        with gzip.open(file, "rt", encoding="utf-8") if file.suffix == ".gz" else file.open(encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                text = next((row[name] for name in ("text", "context", "description") if row.get(name)), "")
                texts[str(text)] = None
                if limit and len(texts) >= limit:
                    break
    return load_encoder(model_files.DEFAULT_MODEL).encode([text for text in texts if text], kind="document")


def enlarge(real: np.ndarray, count: int, random: np.random.Generator) -> np.ndarray:
    """Return `count` vectors: first the real ones, then mixtures of two with noise of a quarter of their length."""
    vectors = np.empty((count, real.shape[1]), np.float32)
    vectors[: len(real)] = real[:count]
    for start in range(len(real), count, 50_000):
        part = min(50_000, count - start)
        major, minor = (real[random.integers(0, len(real), part)] for _ in "12")
        share = random.uniform(0.6, 0.95, (part, 1)).astype(np.float32)
        noise = random.standard_normal((part, real.shape[1]), np.float32) * (0.25 / np.sqrt(real.shape[1]))
        mixed = share * major + (1 - share) * minor + noise
        vectors[start : start + part] = mixed / np.linalg.norm(mixed, axis=1, keepdims=True)
    return vectors


def binocle(vectors: np.ndarray, queries: np.ndarray, requirements: Requirements, folder: Path) -> Iterator[Contender]:
    """Build the index that `optimize` chooses; its build time counts, and the time of the whole choice is printed."""
    ids, seconds = np.arange(len(vectors)), {}

    def timed_build(spec: IndexSpec) -> BuiltFolder:
        start = time.perf_counter()
        batches = ((ids[row : row + 65_536], vectors[row : row + 65_536]) for row in range(0, len(ids), 65_536))
        index = build(folder, spec, batches, dim=vectors.shape[1], covers=0)
        seconds[index.folder] = time.perf_counter() - start
        return index

    result = optimize(timed_build, queries, requirements, source="benchmark", log=lambda line: print(line, flush=True))
    choice = result.choice
    if choice is None or not isinstance(choice.built, BuiltFolder):
        print(f"not met: {result.alternatives}")
        return
    name = f"binocle optimize --recall {requirements.recall}"
    if requirements.memory:
        name += f" --memory {requirements.memory / 1e6:.0f}MB"
    index = choice.built.load()
    settings = {str(point["search"]): point["search"] for point in choice.benchmark.curve}
    parameters = {f"chosen {choice.spec.kind} {choice.spec.build} {choice.spec.search}": choice.spec.search, **settings}
    tuned = {label: index.with_parameters(**search) for label, search in parameters.items()}
    searches: dict[str, Search] = {
        label: (lambda queries, index=index: index.search(queries, K)[1]) for label, index in tuned.items()
    }
    yield Contender(name, seconds[choice.built.folder], choice.benchmark.memory, searches)
    print(f"{name}: the whole choice took {result.seconds:.1f} s")
    choice.built.discard()


def hnswlib(vectors: np.ndarray, threads: int) -> Iterator[Contender]:
    """Build hnswlib's graph with the settings of its README: M 16, ef_construction 200."""
    import hnswlib as library

    index = library.Index("ip", vectors.shape[1])
    start = time.perf_counter()
    index.init_index(len(vectors), ef_construction=200, M=16, random_seed=SEED)
    index.add_items(vectors, num_threads=threads)
    seconds = time.perf_counter() - start

    def with_ef(ef: int) -> Search:
        def search(queries: np.ndarray) -> np.ndarray:
            index.set_ef(ef)
            return index.knn_query(queries, k=K, num_threads=threads)[0].astype(np.int64)

        return search

    settings = {f"ef {ef}": with_ef(ef) for ef in (16, 32, 64, 128, 256, 512)}
    yield Contender("hnswlib M 16, ef_construction 200", seconds, index.index_file_size(), settings)


def usearch(vectors: np.ndarray, threads: int, kind: str) -> Iterator[Contender]:
    """Build usearch's graph with its defaults: connectivity 16, expansion_add 128."""
    from usearch.index import Index

    index = Index(ndim=vectors.shape[1], metric="ip", dtype=kind)
    start = time.perf_counter()
    index.add(np.arange(len(vectors)), vectors, threads=threads)
    seconds = time.perf_counter() - start

    def with_expansion(expansion: int) -> Search:
        def search(queries: np.ndarray) -> np.ndarray:
            index.expansion_search = expansion
            ids = index.search(queries, K, threads=threads).keys.astype(np.int64)
            return ids.reshape(len(queries), -1)

        return search

    settings = {f"expansion {value}": with_expansion(value) for value in (16, 32, 64, 128, 256, 512)}
    yield Contender(f"usearch {kind}", seconds, int(index.memory_usage), settings)


def raw_faiss(vectors: np.ndarray, _threads: int, recipe: str, setting: str, values: tuple[int, ...]) -> Iterator[Any]:
    """Build FAISS's index of a factory string from its wiki; RFlat scores eight candidates for each answer again."""
    index = faiss.index_factory(vectors.shape[1], recipe, faiss.METRIC_INNER_PRODUCT)
    if recipe.endswith("RFlat"):
        index.k_factor = 8
    start = time.perf_counter()
    index.train(vectors[np.random.default_rng(SEED).choice(len(vectors), min(len(vectors), 200_000), replace=False)])
    index.add(vectors)
    seconds = time.perf_counter() - start
    space = faiss.ParameterSpace()

    def with_value(value: int) -> Search:
        def search(queries: np.ndarray) -> np.ndarray:
            space.set_index_parameter(index, setting, value)
            return index.search(queries, K)[1]

        return search

    settings = {f"{setting} {value}": with_value(value) for value in values}
    yield Contender(f"FAISS {recipe}", seconds, len(faiss.serialize_index(index)), settings)


def lancedb(vectors: np.ndarray, folder: Path) -> Iterator[Contender]:
    """Build LanceDB's IVF_PQ with its defaults, but as many lists as the others, refined with the table's vectors."""
    import lancedb as library
    import pyarrow as pa

    dim = vectors.shape[1]
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), dim)
    table = library.connect(folder).create_table(
        "vectors", pa.table({"id": np.arange(len(vectors)), "vector": column}), mode="overwrite"
    )
    before = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    start = time.perf_counter()
    table.create_index(
        metric="dot", index_type="IVF_PQ", num_partitions=max(1, round(len(vectors) ** 0.5)), num_sub_vectors=dim // 8
    )
    seconds = time.perf_counter() - start
    memory = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) - before

    def with_probes(probes: int, refine: int) -> Search:
        def search(queries: np.ndarray) -> np.ndarray:
            answers = np.full((len(queries), K), -1, np.int64)
            for row, query in enumerate(queries):
                request = table.search(query).distance_type("dot").nprobes(probes).refine_factor(refine).limit(K)  # type: ignore[attr-defined]
                ids = request.select(["id"]).to_arrow()["id"].to_numpy()
                answers[row, : len(ids)] = ids
            return answers

        return search

    settings = {f"nprobes {p}, refine {r}": with_probes(p, r) for p, r in ((10, 5), (20, 10), (50, 10), (100, 20))}
    yield Contender("LanceDB IVF_PQ", seconds, memory, settings)


FAISS_RECIPES = (
    ("HNSW32", "efSearch", (16, 32, 64, 128, 256)),
    ("IVF{lists},Flat", "nprobe", (4, 8, 16, 32, 64, 128)),
    ("IVF{lists},PQ{half}x4fs,RFlat", "nprobe", (4, 8, 16, 32, 64, 128)),
)


def contenders(vectors: np.ndarray, queries: np.ndarray, folder: Path, threads: int) -> list[Any]:
    lists, half = round(len(vectors) ** 0.5), vectors.shape[1] // 2
    requirements = [Requirements(0.95), Requirements(0.99), Requirements(0.95, memory=250 * len(vectors))]
    recipes = [(recipe.format(lists=lists, half=half), name, values) for recipe, name, values in FAISS_RECIPES]
    return [
        *(lambda limits=limits: binocle(vectors, queries, limits, folder / "binocle") for limits in requirements),
        lambda: hnswlib(vectors, threads),
        *(lambda kind=kind: usearch(vectors, threads, kind) for kind in ("f32", "f16")),
        *(lambda recipe=recipe: raw_faiss(vectors, threads, *recipe) for recipe in recipes),
        lambda: lancedb(vectors, folder / "lance"),
    ]


def measure(contender: Contender, queries: np.ndarray, truth: np.ndarray) -> list[dict[str, Any]]:
    """Measure recall, queries a second in one batch (the best of three rounds), and the latency of single queries."""
    rows = []
    for name, search in contender.settings.items():
        search(queries[:50])
        seconds = []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            answers = search(queries)
            seconds.append(time.perf_counter() - start)
        recalls = np.array([len(set(a) & set(b)) / K for a, b in zip(answers.tolist(), truth.tolist(), strict=True)])
        single = []
        for query in queries[:SINGLE]:
            start = time.perf_counter()
            search(query[None])
            single.append(time.perf_counter() - start)
        rows.append(
            {
                "setting": name,
                "recall_at_10": round(float(recalls.mean()), 4),
                "recall_lower_95": round(recall_lower_bound(recalls), 4),
                "queries_per_second": round(len(queries) / min(seconds), 1),
                "p50_ms": round(1e3 * statistics.median(single), 3),
                "p99_ms": round(1e3 * float(np.quantile(single, 0.99)), 3),
            }
        )
    return rows


def run(real: np.ndarray, queries: np.ndarray, count: int, threads: int) -> dict[str, Any]:
    vectors = enlarge(real, count, np.random.default_rng(SEED))
    half = len(queries) // 2
    selection, holdout = queries[:half], queries[half:]
    exact = faiss.IndexFlatIP(vectors.shape[1])
    exact.add(vectors)
    truth = exact.search(holdout, K)[1]
    del exact
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for make in contenders(vectors, selection, Path(folder), threads):
            for contender in make():
                row = {
                    "name": contender.name,
                    "build_seconds": round(contender.seconds, 2),
                    "bytes_per_vector": round(contender.memory / count, 1),
                    "settings": measure(contender, holdout, truth),
                }
                print(json.dumps(row), flush=True)
                rows.append(row)
    return {"vectors": count, "real": min(count, len(real)), "dim": real.shape[1], "contenders": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=Path, required=True, help="file to read, or to write with --encode")
    parser.add_argument("--encode", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--queries", type=Path)
    parser.add_argument("--query-count", type=int, default=4_000)
    parser.add_argument("--sizes", default="100000,1000000")
    parser.add_argument("--limit", type=int, help="one small size with as few texts, for a trial run")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--name", default="vectors", help="name of the file in results/")
    arguments = parser.parse_args()
    if arguments.encode:
        np.save(arguments.vectors, encode(arguments.encode, arguments.limit))
    faiss.omp_set_num_threads(arguments.threads)
    real = np.ascontiguousarray(np.load(arguments.vectors, allow_pickle=False), np.float32)
    real = real[np.random.default_rng(SEED).permutation(len(real))]
    if arguments.queries:
        queries = np.ascontiguousarray(np.load(arguments.queries, allow_pickle=False), np.float32)
    else:
        holdout = min(arguments.query_count, len(real) // 5)
        queries, real = real[:holdout], real[holdout:]
    sizes = [arguments.limit] if arguments.limit else [int(size) for size in arguments.sizes.split(",")]
    results = {
        "threads": arguments.threads,
        "queries": len(queries) // 2,
        "made": "mixtures of two real vectors (.6 to .95 of one), with noise of a quarter of their length",
        "memory": "float32 vectors that binocle maps to compare a few of them again are on disk and not counted",
        "sizes": [run(real, queries, size, arguments.threads) for size in sizes],
    }
    save(arguments.name, results, seed=SEED)


if __name__ == "__main__":
    main()
