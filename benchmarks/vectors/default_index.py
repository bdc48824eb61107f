"""The vector index of a store for which nobody chose one, beside exact search.

    python -m benchmarks.vectors.default_index --vectors real.npy [--sizes 100000,1000000]

`real.npy` has float32 vectors of encoded real text, one a row. 400 of them are left out of the index, and are the
queries. For a larger size the rest is synthetic, as in `benchmarks.vectors.vectors`. Each query runs alone on one
thread, for the 200 neighbours that a search asks for. Times are of the processor. Recall compares scores with exact
search. Memory is that of the process after all queries; mapped vectors count as far as they were read.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import faiss
import numpy as np

from binocle.indexes.base import SEARCH_DEPTH
from binocle.indexes.manifest import IndexManifest, IndexMetadata
from binocle.indexes.published import build
from binocle.indexes.registry import IndexSpec
from binocle.indexes.tuning.automatic import build_default

from ..machine import save
from .vectors import enlarge

if TYPE_CHECKING:
    from binocle.indexes.base import VectorIndex

SEED, QUERIES = 0, 400


def publish(vectors: np.ndarray, folder: Path) -> dict[str, Any]:
    """Publish the exact index of these vectors and the default one."""
    ids = np.arange(len(vectors), dtype=np.int64)

    def build_one(spec: IndexSpec) -> Any:
        return build(folder, spec, [(ids, vectors)], dim=vectors.shape[1], covers=1)

    exact = build_one(IndexSpec()).publish(IndexMetadata())
    start = time.process_time()
    built, metadata = build_default(build_one, len(vectors))
    seconds = time.process_time() - start
    memory, spec = built.memory, built.manifest.spec
    return {
        "kind": spec.kind,
        "build": spec.build,
        "search": metadata.search,
        "build_processor_seconds": round(seconds, 1),
        "bytes_per_vector": round(memory / len(vectors), 1),
        "folders": [exact, built.publish(metadata)],
    }


def load(folder: Path) -> VectorIndex:
    return IndexManifest.read(folder).load(folder, check=False)


def in_one_process(folder: Path, queries: Path) -> dict[str, Any]:
    """Search for each query alone; return milliseconds, and the memory of this process in megabytes."""
    faiss.omp_set_num_threads(1)
    index, rows = load(folder), np.load(queries, allow_pickle=False)
    index.search(rows[:5], SEARCH_DEPTH)
    seconds, scores = [], []
    for row in rows:
        start = time.process_time()
        scores.append(index.search(row[None], SEARCH_DEPTH)[0][0])
        seconds.append(time.process_time() - start)
    np.save(queries.with_name(f"{folder.name}.npy"), np.stack(scores))
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    return {
        "p50_ms": round(1e3 * float(np.quantile(seconds, 0.5)), 2),
        "p99_ms": round(1e3 * float(np.quantile(seconds, 0.99)), 2),
        "anonymous_mb": int(status["RssAnon"].split()[0]) // 1000,
        "mapped_mb": int(status["RssFile"].split()[0]) // 1000,
    }


def run(real: np.ndarray, size: int, folder: Path) -> dict[str, Any]:
    """Measure one size."""
    queries, rest = real[:QUERIES], real[QUERIES:]
    file = folder / "queries.npy"
    np.save(file, queries)
    row = publish(enlarge(rest, size, np.random.default_rng(SEED)), folder)
    names = dict(zip(("exact", "default"), row.pop("folders"), strict=True))
    for label, name in names.items():
        command = [sys.executable, "-m", "benchmarks.vectors.default_index", "--search", str(folder / name), str(file)]
        row[label] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    exact, default = (np.load(folder / f"{name}.npy", allow_pickle=False) for name in names.values())
    for k in (10, SEARCH_DEPTH):
        shares = (default[:, :k] >= exact[:, k - 1 : k] - 1e-6).mean(axis=1)
        row[f"recall_at_{k}"] = {"mean": round(float(shares.mean()), 4), "least": round(float(shares.min()), 3)}
    return {"vectors": size, "real": min(size, len(rest)), **row}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=Path)
    parser.add_argument("--sizes", default="100000,1000000")
    parser.add_argument("--work", type=Path, help="a folder for the indexes; 4 KB a vector")
    parser.add_argument("--search", nargs=2, type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.search:
        print(json.dumps(in_one_process(*arguments.search)))
        return
    faiss.omp_set_num_threads(1)
    real = np.ascontiguousarray(np.load(arguments.vectors, allow_pickle=False), np.float32)
    real = real[np.random.default_rng(SEED).permutation(len(real))]
    rows = []
    for size in map(int, arguments.sizes.split(",")):
        with tempfile.TemporaryDirectory(dir=arguments.work) as folder:
            rows.append(run(real, size, Path(folder)))
        print(json.dumps(rows[-1]), flush=True)
    save("vectors-default", {"queries": QUERIES, "depth": SEARCH_DEPTH, "sizes": rows}, seed=SEED)


if __name__ == "__main__":
    main()
