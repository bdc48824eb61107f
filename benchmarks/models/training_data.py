"""What training makes of its data: `python -m benchmarks.models.training_data --data FOLDER`.

mates    two rows of a batch that meet again in the next epoch, in multiples of chance, and the padding of the batches;
         pairs of SQuAD's train split, batches of 32, beside batches cut from windows of 64 that are sorted by length
quotes   1,000 files of tab-separated values with random quotes, in the columns of STS, MS MARCO and Quora: rows merged

FOLDER holds squad11. Results go to results/training-data.json.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import random
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from binocle.training.data import batches
from binocle.training.data.sources import rows

from ..machine import save

COUNTS = (640, 1_800, 5_000, 20_000)
SIZE = 32
READ = 1_024  # characters of a text, about the 256 tokens that the default encoder reads
COLUMNS = {
    "STS": ("sentence1", "sentence2", "score"),
    "MS MARCO": ("query", "positive", "negative"),
    "Quora": ("id", "qid1", "qid2", "question1", "question2", "is_duplicate"),
}


def _squad(file: Path) -> list[dict[str, str]]:
    with gzip.open(file, "rt", encoding="utf-8") as stream:
        paragraphs = [json.loads(line) for line in stream]
    return [{"query": qa["question"], "positive": row["context"]} for row in paragraphs for qa in row["qas"]]


def _epochs(table: pa.Table, seed: int) -> tuple[float, float]:
    """Mates of one epoch that meet in the next, in multiples of chance, and the share of the batches' cells unused."""
    numbers = np.arange(len(table), dtype=np.uint32)
    sampler = batches.Batches(table, numbers, ("query", "positive"), batch_size=SIZE, different=True, seed=seed)
    first, second = [], []
    for epoch, drawn in enumerate((first, second)):
        sampler.set_epoch(epoch)
        drawn += list(sampler)
    owner = {row: number for number, batch in enumerate(second) for row in batch}
    pairs = [pair for batch in first for pair in itertools.combinations(batch, 2)]
    again = statistics.mean(owner.get(a, -1) == owner.get(b, -2) for a, b in pairs)
    columns = {name: [min(len(text), READ) for text in table[name].to_pylist()] for name in table.column_names}
    lengths = {name: np.array(own) for name, own in columns.items()}
    cells = sum(len(batch) * int(own[batch].max()) for batch in first for own in lengths.values())
    used = sum(int(own[batch].sum()) for batch in first for own in lengths.values())
    return again * (len(table) - 1) / (SIZE - 1), 1 - used / cells


def mates(file: Path, seeds: int) -> dict[str, Any]:
    every, results = _squad(file), {}
    for count in COUNTS:
        values: dict[str, list[tuple[float, float]]] = {"pools": [], "windows": []}
        for seed in range(seeds):
            table = pa.Table.from_pylist(random.Random(seed).sample(every, count))
            usual = batches._POOL  # noqa: SLF001
            for name, pool in (("pools", usual), ("windows", 64)):
                batches._POOL = pool  # noqa: SLF001
                values[name].append(_epochs(table, seed))
            batches._POOL = usual  # noqa: SLF001
        results[f"{count:,} rows"] = {
            name: {
                "times chance": [round(times, 2) for times, _ in runs],
                "padding": round(statistics.mean(padding for _, padding in runs), 4),
            }
            for name, runs in values.items()
        }
    return results


def quotes(files: int, seed: int) -> dict[str, Any]:
    generator, counts = random.Random(seed), {"files": 0, "rows": 0, "rows merged, lost or changed": 0}
    with tempfile.TemporaryDirectory() as work:
        for number in range(files):
            names = list(COLUMNS.values())[number % len(COLUMNS)]
            lines = [
                ["".join(generator.choices('""\'`\\,; abé“”', k=generator.randint(1, 20))) for _ in names]
                for _ in range(generator.randint(1, 20))
            ]
            file = Path(work) / f"{number}.tsv"
            file.write_text("".join("\t".join(line) + "\n" for line in [names, *lines]), "utf-8")
            values = [list(row.values()) for _, row in rows(file)]
            counts["files"] += 1
            counts["rows"] += len(lines)
            counts["rows merged, lost or changed"] += sum(a != b for a, b in itertools.zip_longest(lines, values))
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--files", type=int, default=1_000)
    given = parser.parse_args()
    file = given.data / "squad11" / "squad11_train.jsonl.gz"
    save("training-data", {"mates": mates(file, given.seeds), "quotes": quotes(given.files, 0)}, seed=0)


if __name__ == "__main__":
    main()
