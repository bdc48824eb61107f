"""Benchmark GPUs: exact search against the limits of the devices, and indexes built on GPUs against HNSW on the CPU.

    python -m benchmarks.vectors.gpu [--count 10000000] [--built 1000000] [--devices cuda:0,cuda:1]

The vectors are synthetic, around 4,096 centres and of unit length: exact search takes the same time for any vectors.
The same run measures the limits of a device: the bytes a second of a sum over its vectors, and the float32 operations
a second of a product of two square matrices. A batch is limited by reading all vectors or by multiplying them, the
slower of the two. Its share of the limit is that time over the measured time. With `--devices cpu` the same code runs
without a GPU.
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
from binocle.indexes.tuning.benchmark import QuerySample
from binocle.indexes.tuning.requirements import Requirements
from binocle.indexes.tuning.sweep import ParameterSweep

from ..machine import save

if TYPE_CHECKING:
    from collections.abc import Callable

DIM, K, SEED, ROUNDS = 384, 10, 0, 5
CENTRES = 4_096
BATCHES = (1, 10, 100, 1_000, 10_000)
SIDE = 8_192  # of the square matrices that measure a device's arithmetic
SPECS = (  # on the CPU, and the same built on GPUs: a graph by CAGRA, lists
    IndexSpec("hnsw"),
    IndexSpec("hnsw", {"gpu": 1}),
    IndexSpec("ivf"),
    IndexSpec("ivf", {"gpu": 1}),
    IndexSpec("ivf_pq", {"gpu": 1}),
)


def synthetic_vectors(count: int, centres: torch.Tensor) -> np.ndarray:
    vectors = np.empty((count, DIM), np.float32)
    for start in range(0, count, 100_000):
        part = vectors[start : start + 100_000]
        drawn = centres[torch.randint(len(centres), (len(part),), device=centres.device)]
        drawn += torch.randn_like(drawn) * (0.8 / DIM**0.5)
        part[:] = torch.nn.functional.normalize(drawn).cpu().numpy()
    return vectors


def seconds(work: Callable[[], Any], devices: list[str]) -> float:
    """Return the median seconds of several rounds, after one to warm up; a round waits for every device."""
    rounds = []
    for _ in range(ROUNDS + 1):
        start = time.perf_counter()
        work()
        for device in devices:
            if device != "cpu":
                torch.cuda.synchronize(device)
        rounds.append(time.perf_counter() - start)
    return statistics.median(rounds[1:])


def device_limits(index: GpuIndex, devices: list[str]) -> tuple[float, float]:
    """Return the bytes and the float32 operations a second that the devices reach together."""
    parts = [part.vectors for part in index.parts]
    side = SIDE if devices != ["cpu"] else SIDE // 4
    squares = [torch.randn(side, side, device=device) for device in devices]
    reading = seconds(lambda: [part.sum() for part in parts], devices)
    multiplying = seconds(lambda: [square @ square for square in squares], devices)
    return sum(part.nbytes for part in parts) / reading, len(devices) * 2 * side**3 / multiplying


def benchmark_exact(index: FlatIndex, queries: np.ndarray, devices: list[str]) -> dict[str, Any]:
    """Time exact search on the devices, and compare its answers with the CPU's."""
    on_devices = GpuIndex.of(index, devices)
    bandwidth, operations = device_limits(on_devices, devices)
    rows = []
    for size in BATCHES:
        batch = queries[:size]
        duration = seconds(lambda batch=batch: on_devices.search(batch, K), devices)
        reading = index.vectors.nbytes / bandwidth
        multiplying = 2 * len(index.ids) * DIM * len(batch) / operations
        rows.append(
            {
                "queries": len(batch),
                "milliseconds": round(1e3 * duration, 3),
                "queries_per_second": round(len(batch) / duration, 1),
                "bound_by": "memory" if reading > multiplying else "arithmetic",
                "share_of_the_limit": round(max(reading, multiplying) / duration, 3),
            }
        )
        print(rows[-1], flush=True)
    sample = queries[:100]
    gpu_scores, gpu_ids = on_devices.search(sample, K)
    scores, ids = index.search(sample, K)
    return {
        "vectors": len(index.ids),
        "gigabytes_per_second": round(bandwidth / 1e9, 1),
        "float32_teraflops": round(operations / 1e12, 2),
        "batches": rows,
        "answers_as_on_the_cpu": float((gpu_ids == ids).mean()),
        "scores_differ_by_at_most": float(np.abs(gpu_scores - scores).max()),
    }


def benchmark_indexes(vectors: np.ndarray, queries: np.ndarray) -> list[dict[str, Any]]:
    """Time the build of each spec, and its search at the fastest setting with a recall of 0.95 and of 0.99."""
    ids, rows = np.arange(len(vectors)), []
    sample = QuerySample.of(queries, FlatIndex(ids, vectors))
    with tempfile.TemporaryDirectory() as folder:
        for spec in SPECS:
            row: dict[str, Any] = {"kind": spec.kind, **spec.build}
            rows.append(row)
            start = time.perf_counter()
            try:
                built = build(Path(folder), spec, [(ids, vectors)], dim=DIM, covers=0)
            except InputError as error:
                row["not_run"] = str(error)
            else:
                row["build_seconds"] = round(time.perf_counter() - start, 2)
                for required in (Requirements(0.95), Requirements(0.99)):
                    sweep = ParameterSweep.of(built, sample)
                    sweep.find_best(required.recall)
                    row[f"recall {required.recall}"] = sweep.best and sweep.best.as_dict()
                built.discard()
            print(row, flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000_000, help="vectors for exact search")
    parser.add_argument("--built", type=int, default=1_000_000, help="vectors for the built indexes; 0 leaves them out")
    parser.add_argument("--devices", help="torch's names of the devices; default: all GPUs")
    parser.add_argument("--name", default="gpu", help="name of the file in results/")
    arguments = parser.parse_args()
    every = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    devices = arguments.devices.split(",") if arguments.devices else every
    if not devices:
        raise SystemExit("torch sees no GPU here: --devices cpu runs the same code on the CPU")
    names = [name if name == "cpu" else torch.cuda.get_device_name(name) for name in devices]
    torch.manual_seed(SEED)
    centres = torch.randn(CENTRES, DIM, device=devices[0]) / DIM**0.5
    vectors, queries = (synthetic_vectors(count, centres) for count in (arguments.count, max(BATCHES)))
    results = {
        "devices": names,
        "exact": benchmark_exact(FlatIndex(np.arange(len(vectors)), vectors), queries, devices),
        "indexes": benchmark_indexes(vectors[: arguments.built], queries[:2_000]) if arguments.built else [],
    }
    save(arguments.name, results, seed=SEED)


if __name__ == "__main__":
    main()
