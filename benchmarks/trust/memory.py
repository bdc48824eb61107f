"""Memory: the curve of `binocle index` over a folder ten times as large as a real one.

    python -m benchmarks.trust.memory --folder DIR [--times 10] [--model NAME] [--seconds 1] [--most 1500]
    python -m benchmarks.trust.memory --folder DIR --passages 869000

Each copy of a file is varied: one word in ten is drawn from all words of the folder. Every second the resident memory
of the command and of the processes that it started is read, mapped files included. `model` is the tests' random encoder
unless given: it takes almost no memory, and cuts a file into many short passages. `--model static` cuts passages as the
default encoder does, with vectors of its dimension; its table takes 47 MB. After `--most` seconds the command is
interrupted.

With `--passages N`, it writes N passages of 12 words of the folder, with random vectors of dimension 32, into the
store, 12 a document. Then a process of its own builds all indexes: the last step of the command, without the others.
"""

from __future__ import annotations

import argparse
import itertools
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from binocle import Retriever
from binocle.commands.background.client import INTERRUPTED
from binocle.core.runtime.freed_memory import return_freed_memory
from binocle.retriever.models.identity import EncoderId
from binocle.retriever.store.store import Store
from binocle.retriever.store.tables import SYMBOLS, chunk_schema, document_schema
from binocle.retriever.store.writer import open_writer
from tests.conftest import build_model

from ..document_row import ROW
from ..machine import save
from .static_model import build_static_model

_POINTS = 40  # of the curve
_DIM = 32
_COMMIT = 24_000  # passages


def write_copies(source: Path, target: Path, times: int) -> int:
    """Write varied copies of all files; return the number of files."""
    files = [file for file in sorted(source.rglob("*")) if file.is_file() and ".binocle" not in file.parts]
    texts = [file.read_text("utf-8", errors="replace") for file in files]
    words = sorted({word for text in texts for word in text.split()})
    chance = random.Random(0)
    for copy, (file, text) in itertools.product(range(times), zip(files, texts, strict=True)):
        copied = target / str(copy) / file.relative_to(source)
        copied.parent.mkdir(parents=True, exist_ok=True)
        lines = (line.split(" ") for line in text.split("\n"))
        varied = ([chance.choice(words) if chance.random() < 0.1 else word for word in line] for line in lines)
        copied.write_text("\n".join(map(" ".join, varied)), "utf-8")
    return times * len(files)


def write_passages(source: Path, target: Path, count: int) -> None:
    """Write a store of `count` passages, without indexes."""
    texts = (file.read_text("utf-8", errors="replace") for file in source.rglob("*.md"))
    words, chance = sorted({word for text in texts for word in text.split()}), random.Random(0)
    numbers, schema = np.random.default_rng(0), chunk_schema(_DIM)
    with open_writer(Store.create(target, EncoderId("random", "0" * 32, _DIM))) as writer:
        for first in range(0, count, _COMMIT):
            ids = np.arange(first, min(first + _COMMIT, count))
            texts = [" ".join(chance.choices(words, k=12)) for _ in ids]
            vectors = numbers.standard_normal((len(ids), _DIM)).astype(np.float32)
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
            columns = {
                "id": ids,
                "document": ids // 12,
                "key": ids,
                "text": texts,
                "context": texts,
                "heading": [[]] * len(ids),
                "vector": list(vectors),
            }
            rest = {"page": None, SYMBOLS: None}
            arrays = [pa.array(columns.get(f.name, [rest.get(f.name, 1)] * len(ids)), f.type) for f in schema]
            writer.stage(pa.Table.from_arrays(arrays, schema=schema))
            documents = [{"id": number, "path": f"{number}", "chunks": 12, **ROW} for number in sorted({*ids // 12})]
            writer.commit(drop=[], documents=pa.Table.from_pylist(documents, document_schema()))


def build_indexes(folder: Path) -> None:
    """Build all indexes of a store."""
    return_freed_memory()
    with open_writer(Store.open(folder, trusted=True)) as writer:
        writer.finish()


def resident(process: int) -> list[float]:
    """The resident MB of a process and of all below it."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except FileNotFoundError:
        return []
    own = [int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS")]
    return [*own, *(size for child in children for size in resident(int(child)))]


def watch(command: list[str], seconds: float, maximum: float) -> list[tuple[float, float]]:
    """Run a command; return its memory and that of all its processes together, in MB, at each moment.

    :param maximum: seconds until it is interrupted.
    """
    process, curve, end = subprocess.Popen(command, stdout=subprocess.DEVNULL), [], time.monotonic() + maximum
    while process.poll() is None:
        if time.monotonic() > end:
            process.send_signal(signal.SIGINT)
        if sizes := resident(process.pid):
            curve.append((sizes[0], sum(sizes)))
        time.sleep(seconds)
    if process.returncode not in (0, 1, INTERRUPTED):
        raise SystemExit(f"{command} ended with {process.returncode}")
    return curve


def summary(curve: list[tuple[float, float]]) -> dict[str, Any]:
    """The peaks, and the largest values of each of some equal parts of the run."""
    step = max(1, len(curve) // _POINTS)
    parts = [curve[start : start + step] for start in range(0, len(curve), step)]
    command, everything = (round(max(sizes)) for sizes in zip(*curve, strict=True))
    return {
        "peak_mb": {"command": command, "with_its_processes": everything},
        "peak_mb_of_each_part": [round(max(whole for _, whole in part)) for part in parts],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--model", help="an encoder's name or folder, or `static`")
    parser.add_argument("--seconds", type=float, default=1.0, help="between two readings of the memory")
    parser.add_argument("--most", type=float, default=float("inf"), help="seconds until the command is interrupted")
    parser.add_argument("--passages", type=int, help="write this number into the store, and build their indexes")
    parser.add_argument("--build", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.build:
        build_indexes(arguments.build)
        return
    measure = of_passages if arguments.passages else of_folder
    with tempfile.TemporaryDirectory() as temporary:
        start = time.perf_counter()
        results = measure(Path(temporary), arguments)
        name = "memory-passages" if arguments.passages else "memory"
        save(name, {**results, "seconds": round(time.perf_counter() - start)}, seed=0)


def of_folder(work: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Index varied copies of the folder."""
    model = _model(work / "model", arguments.model)
    files = write_copies(arguments.folder, work / "documents", arguments.times)
    command = [sys.executable, "-m", "binocle.cli", "index", str(work / "documents"), "--model", model]
    result = summary(watch(command, arguments.seconds, arguments.most))
    status = Retriever.open(work / "documents").status()
    return {"files": files, "indexed": status.documents["indexed"], "passages": status.chunks, **result}


def _model(folder: Path, name: str | None) -> str:
    if name == "static":
        return str(build_static_model(folder))
    return name or str(build_model(folder))


def of_passages(work: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Build the indexes of passages with words of the folder."""
    write_passages(arguments.folder, work / "index", arguments.passages)
    command = [sys.executable, "-m", "benchmarks.trust.memory", "--folder", "-", "--build", str(work / "index")]
    return {"passages": arguments.passages, **summary(watch(command, arguments.seconds, arguments.most))}


if __name__ == "__main__":
    main()
