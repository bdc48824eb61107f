"""CPU of single writes at several sizes of an index, and of a batch beside one `add`.

    python -m benchmarks.speed.writes --debian debian12_descriptions.jsonl.gz --folder FOLDER

Each write is its own commit, of one package's description. The median of CPU milliseconds of the whole process counts.
An index that the folder has from an earlier run is copied and not filled again. Beyond the packages of Debian, their
descriptions come again with a number.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from binocle import Retriever

from ..machine import save

if TYPE_CHECKING:
    from collections.abc import Callable

WRITES = 15


def documents(file: Path, start: int, count: int) -> list[dict[str, Any]]:
    """Return packages as documents."""
    with gzip.open(file, "rt", encoding="utf-8") as stream:
        rows = [json.loads(line) for line in stream]
    copies = ((number // len(rows), rows[number % len(rows)]) for number in range(start, start + count))
    return [
        {"id": f"{row['package']}-{number}", "text": (row["long"] or row["short"]) + f" {turn}" * (turn > 0)}
        for number, (turn, row) in enumerate(copies)
    ]


def median_ms(write: Callable[[int], object]) -> float:
    """Return the median CPU milliseconds of a write."""
    seconds = []
    for number in range(WRITES):
        start = time.process_time()
        write(number)
        seconds.append(time.process_time() - start)
    return round(1e3 * float(np.median(seconds)), 1)


def single_writes(retriever: Retriever, new: list[dict[str, Any]]) -> dict[str, float]:
    """Return the cost of each kind of write."""
    retriever.search("a game", k=1)
    return {
        "add": median_ms(lambda number: retriever.add([new[number]])),
        "update": median_ms(lambda number: retriever.update([new[number]["id"]], metadata={"n": number})),
        "delete": median_ms(lambda number: retriever.delete(new[number]["id"])),
    }


def cpu_seconds(write: Callable[[], object]) -> float:
    start = time.process_time()
    write()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--debian", type=Path, required=True)
    parser.add_argument("--sizes", default="2000,20000,200000")
    parser.add_argument("--batch", type=int, default=10_000)
    parser.add_argument("--model", help="an encoder; the default one takes minutes to fill the indexes")
    parser.add_argument("--folder", type=Path, required=True, help="a new folder for the indexes")
    arguments = parser.parse_args()
    results: dict[str, Any] = {"writes": WRITES, "cpu_ms": {}}
    for size in map(int, arguments.sizes.split(",")):
        filled, index = arguments.folder / str(size), arguments.folder / f"{size}-copy"
        if not filled.exists():
            Retriever.open(filled, model=arguments.model).add(documents(arguments.debian, 0, size))
        shutil.rmtree(index, ignore_errors=True)
        shutil.copytree(filled, index)
        retriever = Retriever.open(index, model=arguments.model, trust=True)
        results["cpu_ms"][str(size)] = single_writes(retriever, documents(arguments.debian, size, WRITES))
        print(results["cpu_ms"], flush=True)
    many_documents = documents(arguments.debian, 0, arguments.batch)
    single_index, batch_index = (
        Retriever.open(arguments.folder / name, model=arguments.model) for name in ("one", "batch")
    )
    added = cpu_seconds(lambda: single_index.add(many_documents))

    def write_batch() -> None:
        with batch_index.batch() as batch:
            batch.add(many_documents)

    batched = cpu_seconds(write_batch)
    results["batch"] = {"documents": len(many_documents), "add_s": round(added, 2), "batch_s": round(batched, 2)}
    save("writes", {**results, "batch_to_add": round(batched / added, 3)})


if __name__ == "__main__":
    main()
