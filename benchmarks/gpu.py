"""Search on GPUs: exact search against what the devices could do at best, and indexes built there against CPU HNSW.

    python -m benchmarks.gpu [--count 10000000] [--built 1000000] [--devices cuda:0,cuda:1]

The vectors are made, for exact search takes as long whatever they are: of unit length, about 4,096 centres. The best a
device could do is measured in the same run: the bytes a second of a sum over the vectors it holds, and the float32
operations a second of a product of two square matrices. A batch is bound by the slower of reading all vectors and of
multiplying them, and its share is that time over what it took. With `--devices cpu` the same lines run without a GPU.
No results are committed yet: no machine with a GPU was at hand.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from binocle.core.errors import InputError
from binocle.indexes.flat import FlatIndex
from binocle.indexes.gpu import GpuIndex
from binocle.indexes.published import build
from binocle.indexes.registry import IndexSpec
from binocle.indexes.tuning.benchmark import QuerySample, Requirements
from binocle.indexes.tuning.sweep import ParameterSweep

from .machine import save

if TYPE_CHECKING:
    from collections.abc import Callable

DIM, K, SEED, ROUNDS = 384, 10, 0, 5
CENTRES = 4_096
BATCHES = (1, 10, 100, 1_000, 10_000)
SIDE = 8_192  # of the matrices that are multiplied to see what a device can do
SPECS = (  # on the CPU, and the same built on GPUs: a graph by CAGRA, lists
    IndexSpec("hnsw"),
    IndexSpec("hnsw", {"gpu": 1}),
    IndexSpec("ivf"),
    IndexSpec("ivf", {"gpu": 1}),
    IndexSpec("ivf_pq", {"gpu": 1}),
)


def made(count: int, random: np.random.Generator, centres: np.ndarray) -> np.ndarray:
    vectors = np.empty((count, DIM), np.float32)
    for at in range(0, count, 100_000):
        part = vectors[at : at + 100_000]
        part[:] = centres[random.integers(0, len(centres), len(part))]
        part += random.standard_normal(part.shape, np.float32) * np.float32(0.8 / DIM**0.5)
        part /= np.linalg.norm(part, axis=1, keepdims=True)
    return vectors


def seconds(work: Callable[[], Any], devices: list[str]) -> float:
    """Of the middle round, after one to warm up; until every device is done."""
    taken = []
    for _ in range(ROUNDS + 1):
        began = time.perf_counter()
        work()
        for device in devices:
            if device != "cpu":
                torch.cuda.synchronize(device)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken[1:])


def best_of(index: GpuIndex, devices: list[str]) -> tuple[float, float]:
    """Bytes and float32 operations a second that the devices reach together."""
    parts = [part.vectors for part in index.parts]
    side = SIDE if devices != ["cpu"] else SIDE // 4
    squares = [torch.randn(side, side, device=device) for device in devices]
    reading = seconds(lambda: [part.sum() for part in parts], devices)
    multiplying = seconds(lambda: [square @ square for square in squares], devices)
    return sum(part.nbytes for part in parts) / reading, len(devices) * 2 * side**3 / multiplying


def exact(index: FlatIndex, queries: np.ndarray, devices: list[str]) -> dict[str, Any]:
    on_devices = GpuIndex.of(index, devices)
    bandwidth, operations = best_of(on_devices, devices)
    rows = []
    for size in BATCHES:
        batch = queries[:size]
        took = seconds(lambda batch=batch: on_devices.search(batch, K), devices)
        reading = index.vectors.nbytes / bandwidth
        multiplying = 2 * len(index.ids) * DIM * len(batch) / operations
        rows.append(
            {
                "queries": len(batch),
                "milliseconds": round(1e3 * took, 3),
                "queries_per_second": round(len(batch) / took, 1),
                "bound_by": "memory" if reading > multiplying else "arithmetic",
                "share_of_the_limit": round(max(reading, multiplying) / took, 3),
            }
        )
        print(rows[-1], flush=True)
    some = queries[:100]
    ours, theirs = on_devices.search(some, K), index.search(some, K)
    return {
        "vectors": len(index.ids),
        "gigabytes_per_second": round(bandwidth / 1e9, 1),
        "float32_teraflops": round(operations / 1e12, 2),
        "batches": rows,
        "answers_as_on_the_cpu": float((ours[1] == theirs[1]).mean()),
        "scores_differ_by_at_most": float(np.abs(ours[0] - theirs[0]).max()),
    }


def indexes(vectors: np.ndarray, queries: np.ndarray) -> list[dict[str, Any]]:
    """Each kind at the fastest setting of recall 0.95 and of 0.99 at least: how long it took to build and to search."""
    ids, rows = np.arange(len(vectors)), []
    sample = QuerySample.of(queries, FlatIndex(ids, vectors))
    with tempfile.TemporaryDirectory() as folder:
        for spec in SPECS:
            row: dict[str, Any] = {"kind": spec.kind, **spec.build}
            rows.append(row)
            began = time.perf_counter()
            try:
                built = build(Path(folder), spec, [(ids, vectors)], dim=DIM, covers=0)
            except InputError as error:
                row["not_run"] = str(error)
            else:
                row["build_seconds"] = round(time.perf_counter() - began, 2)
                for demand in (Requirements(0.95), Requirements(0.99)):
                    trial = ParameterSweep.of(built, sample)
                    trial.find_best(demand.recall)
                    row[f"recall {demand.recall}"] = trial.best and trial.best.as_dict()
                built.discard()
            print(row, flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000_000, help="vectors that are searched exactly")
    parser.add_argument("--built", type=int, default=1_000_000, help="vectors that indexes are built of")
    parser.add_argument("--devices", help="torch's names for them; all GPUs unless given")
    parser.add_argument("--name", default="gpu", help="of the file in results/")
    arguments = parser.parse_args()
    every = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    devices = arguments.devices.split(",") if arguments.devices else every
    if not devices:
        raise SystemExit("torch sees no GPU here: --devices cpu runs the same lines on the CPU")
    names = [name if name == "cpu" else torch.cuda.get_device_name(name) for name in devices]
    random = np.random.default_rng(SEED)
    centres = random.standard_normal((CENTRES, DIM), np.float32) / np.float32(DIM**0.5)
    vectors, queries = made(arguments.count, random, centres), made(max(BATCHES), random, centres)
    results = {
        "devices": names,
        "exact": exact(FlatIndex(np.arange(len(vectors)), vectors), queries, devices),
        "indexes": indexes(vectors[: arguments.built], queries[:2_000]),
    }
    save(arguments.name, results, seed=SEED)


if __name__ == "__main__":
    main()
