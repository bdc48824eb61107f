"""The batches and rows of training: `python -m benchmarks.models.training_data --data FOLDER`.

mates    two rows of a batch that meet again in the next epoch, or in any of the four after it, in multiples of chance.
         The padding of the batches is measured too. The data are SQuAD's train split, scifact's train claims and
         Debian's descriptions in batches of 32. The control has rows sorted by length, in windows of 64 batches.
quotes   1,000 files of tab-separated values with random quotes, in the columns of STS, MS MARCO and Quora: rows merged

FOLDER holds squad11, scifact and debian_descriptions. Results go to results/training-data.json.
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


def _squad(data: Path) -> list[dict[str, str]]:
    with gzip.open(data / "squad11" / "squad11_train.jsonl.gz", "rt", encoding="utf-8") as stream:
        paragraphs = [json.loads(line) for line in stream]
    return [{"query": qa["question"], "positive": row["context"]} for row in paragraphs for qa in row["qas"]]


def _debian(data: Path) -> list[dict[str, str]]:
    file = data / "debian_descriptions" / "debian12_descriptions.jsonl.gz"
    with gzip.open(file, "rt", encoding="utf-8") as stream:
        packages = [json.loads(line) for line in stream]
    return [{"query": row["short"], "positive": row["long"]} for row in packages if row["long"]]


def _scifact(data: Path) -> list[dict[str, str]]:
    return [{name: row[name] for name in ("query", "positive")} for _, row in rows(data / "scifact", "train")]


def _sampled(table: pa.Table, seed: int) -> list[list[list[int]]]:
    """Return the batches of five epochs."""
    numbers = np.arange(len(table), dtype=np.uint32)
    sampler = batches.Batches(
        table, numbers, ("query", "positive"), batch_size=SIZE, different=True, seed=seed, longest=READ
    )
    epochs = []
    for epoch in range(5):
        sampler.set_epoch(epoch)
        epochs.append(list(sampler))
    return epochs


def _sorted(table: pa.Table, seed: int) -> list[list[list[int]]]:
    """Return the batches of two epochs, each window of 64 sorted by length."""
    lengths = sum(_lengths(table).values())
    epochs = []
    for epoch in range(2):
        order = np.random.default_rng((seed, epoch)).permutation(len(table))
        windows = [order[start : start + 64 * SIZE] for start in range(0, len(order), 64 * SIZE)]
        order = np.concatenate([window[np.argsort(-lengths[window], kind="stable")] for window in windows])
        epochs.append(order[: len(order) // SIZE * SIZE].reshape(-1, SIZE).tolist())
    return epochs


def _lengths(table: pa.Table) -> dict[str, Any]:
    return {name: np.array([min(len(text), READ) for text in table[name].to_pylist()]) for name in table.column_names}


def _meeting(first: list[list[int]], second: list[list[int]], count: int) -> float:
    """Pairs of a batch that meet again in another epoch, in multiples of chance."""
    owner = {row: number for number, batch in enumerate(second) for row in batch}
    pairs = (pair for batch in first for pair in itertools.combinations(batch, 2))
    return statistics.mean(owner.get(a, -1) == owner.get(b, -2) for a, b in pairs) * (count - 1) / (SIZE - 1)


def _padding(table: pa.Table, epoch: list[list[int]]) -> float:
    """The share of the batches' cells unused."""
    columns = _lengths(table).values()
    cells = sum(len(batch) * int(own[batch].max()) for batch in epoch for own in columns)
    return 1 - sum(int(own[batch].sum()) for batch in epoch for own in columns) / cells


def mates(data: Path, seeds: int) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for name, every in (("SQuAD", _squad(data)), ("Debian", _debian(data)), ("scifact", _scifact(data))):
        for count in COUNTS if len(every) > max(COUNTS) else (len(every),):
            runs = []
            for seed in range(seeds):
                table = pa.Table.from_pylist(random.Random(seed).sample(every, count))
                first, *later = _sampled(table, seed)
                ordered, next_ordered = _sorted(table, seed)
                runs.append(
                    {
                        "next epoch": _meeting(first, later[0], count),
                        "four epochs": statistics.mean(_meeting(first, epoch, count) for epoch in later),
                        "padding": _padding(table, first),
                        "sorted: next epoch": _meeting(ordered, next_ordered, count),
                        "sorted: padding": _padding(table, ordered),
                    }
                )
            results[f"{name}, {count:,} rows"] = {of: [round(run[of], 4) for run in runs] for of in runs[0]}
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
    options = parser.parse_args()
    save("training-data", {"mates": mates(options.data, options.seeds), "quotes": quotes(options.files, 0)}, seed=0)


if __name__ == "__main__":
    main()
