"""`binocle verify --deep` against planted faults: its findings, its cost and its misses.

    python -m benchmarks.trust.integrity --debian debian12_descriptions.jsonl.gz [--rows 5000] [--seed 0]

A hundred rows of an index of package descriptions, one a passage, get a wrong vector: 50 are swapped among one another,
and 50 come from another encoder of the same dimension. Other encoders are the same weights with another pooling
("cls"), or with noise added to every matrix ("noise 0.3", "noise 0.1": the standard deviation, relative to the matrix).
The mean cosine says how like the right vectors theirs are. An encoder that was fine-tuned a little differs too little
for the check by words: only the random sample finds its vectors.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from binocle.retriever.integrity import wrong_vectors as misplaced
from binocle.retriever.models import encoder as encoders
from binocle.retriever.models import model_files
from binocle.retriever.models.load import load_encoder
from binocle.retriever.retriever import Retriever
from binocle.retriever.store.store import Store
from binocle.retriever.store.writer import open_writer

from ..machine import save

if TYPE_CHECKING:
    from collections.abc import Callable

os.environ.setdefault("BINOCLE_TRUST", "all")  # it writes to copies of indexes

_EACH = 50


def texts(file: Path, count: int, seed: int) -> list[str]:
    """Long descriptions that are all different, of 150 characters up."""
    with gzip.open(file, "rt", encoding="utf-8") as stream:
        texts = dict.fromkeys(json.loads(line)["long"] for line in stream)
    descriptions = [text for text in texts if len(text) >= 150]
    random.Random(seed).shuffle(descriptions)
    return descriptions[:count]


def pooled_cls(folder: Path) -> None:
    file = folder / "1_Pooling" / "config.json"
    settings = json.loads(file.read_text("utf-8"))
    settings |= {"pooling_mode_mean_tokens": False, "pooling_mode_cls_token": True}
    file.write_text(json.dumps(settings), "utf-8")


def noisy(strength: float) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        from safetensors.numpy import load_file, save_file

        weights, chance = load_file(folder / "model.safetensors"), np.random.default_rng(0)
        for name, array in weights.items():
            if array.ndim == 2 and array.dtype == np.float32:
                weights[name] = array + np.float32(strength * array.std()) * chance.standard_normal(
                    array.shape, np.float32
                )
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    return change


CHANGES: dict[str, Callable[[Path], None]] = {
    "cls": pooled_cls,
    "noise 0.3": noisy(0.3),
    "noise 0.1": noisy(0.1),
}


def changed_encoder(change: Callable[[Path], None], folder: Path) -> encoders.Encoder:
    shutil.copytree(model_files.find(model_files.DEFAULT_MODEL), folder)
    change(folder)
    return load_encoder(str(folder))


def replaced(index: Path, vectors: dict[int, Any]) -> None:
    """Wrong vectors for these chunks, in the store and in its vector index."""
    with open_writer(Store.open(index)) as writer:
        snapshot = writer.snapshot()
        rows = [misplaced.WrongVector(number, 0, 0, 0, 0.0, vector) for number, vector in vectors.items()]
        writer.replace_vectors(misplaced.replace(snapshot, rows), writer.head.encoder, writer.head.previous)


def trial(whole: Path, index: Path, encoder: encoders.Encoder, foreign: encoders.Encoder, seed: int) -> dict[str, Any]:
    """Plant, search, mend, and search again."""
    shutil.rmtree(index, ignore_errors=True)
    shutil.copytree(whole, index)
    rows = Retriever.open(index).snapshot().read("chunks", ["id", "context", "vector"]).to_pylist()
    random.Random(seed).shuffle(rows)
    swapped, foreign_rows = rows[:_EACH], rows[_EACH : 2 * _EACH]
    planted = {
        row["id"]: np.array(next_row["vector"], np.float32)
        for row, next_row in zip(swapped, [*swapped[1:], swapped[0]], strict=True)
    }
    vectors = foreign.encode([row["context"] for row in foreign_rows], kind="document")
    right = np.array([row["vector"] for row in foreign_rows], np.float32)
    planted |= {row["id"]: vector for row, vector in zip(foreign_rows, vectors, strict=True)}
    replaced(index, planted)
    began, used = time.perf_counter(), time.process_time()
    check = misplaced.search(Retriever.open(index).snapshot(), encoder)
    seconds, used = time.perf_counter() - began, time.process_time() - used
    named = {row.chunk for row in check.wrong}
    return {
        "cosine_of_the_other_encoder": round(float((vectors * right).sum(1).mean()), 3),
        "found_of_the_swapped": sum(row["id"] in named for row in swapped) / _EACH,
        "found_of_the_other_encoder": sum(row["id"] in named for row in foreign_rows) / _EACH,
        "false_alarms": len(named - planted.keys()),
        "embedded": check.embedded,
        "missed_at_most": check.missed,
        "seconds": round(seconds, 1),
        "processor_seconds": round(used, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--debian", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    descriptions = texts(arguments.debian, arguments.rows, arguments.seed)
    encoder = load_encoder()
    with tempfile.TemporaryDirectory(prefix="binocle-") as temporary:
        whole, index = Path(temporary) / "whole", Path(temporary) / "index"
        retriever = Retriever.open(whole)
        retriever.add({"id": str(number), "text": text} for number, text in enumerate(descriptions))
        contexts = retriever.snapshot().read("chunks", ["context"])["context"].to_pylist()
        began, used = time.perf_counter(), time.process_time()
        encoder.encode(contexts)
        results: dict[str, Any] = {
            "rows": len(contexts),
            "embedding_all": {
                "seconds": round(time.perf_counter() - began, 1),
                "processor_seconds": round(time.process_time() - used, 1),
            },
        }
        for name, change in CHANGES.items():
            foreign = changed_encoder(change, Path(temporary) / name.replace(" ", "-"))
            results[name] = trial(whole, index, encoder, foreign, arguments.seed)
            print(name, results[name], flush=True)
        began, used = time.perf_counter(), time.process_time()
        check = misplaced.search(Retriever.open(whole).snapshot(), encoder)
        results["nothing planted"] = {
            "false_alarms": len(check.wrong),
            "embedded": check.embedded,
            "missed_at_most": check.missed,
            "seconds": round(time.perf_counter() - began, 1),
            "processor_seconds": round(time.process_time() - used, 1),
        }
    save("integrity", results, seed=arguments.seed)


if __name__ == "__main__":
    main()
