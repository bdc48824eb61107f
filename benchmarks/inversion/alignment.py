"""A secret rotation undone without one known pair: the cosine of the vectors turned back with the true ones.

    OPENBLAS_NUM_THREADS=1 python -m benchmarks.inversion.alignment --scifact FILE --debian FILE

The files are scifact's corpus.jsonl and Debian's package descriptions (.jsonl.gz). Each text is the first 32 tokens of
a document. The attacker has the rotated vectors of some documents, and the texts of others. Seconds are CPU time.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from binocle.indexes import metric
from binocle.retriever.models.load import load_encoder
from binocle.training.audit.attacks.alignment import align
from binocle.training.audit.defences import rotation

from ..machine import save

if TYPE_CHECKING:
    from collections.abc import Iterator

    from binocle.retriever.models.encoder import Encoder

TOKENS = 32
SIZES = {"scifact": (1_000, 2_250), "debian": (2_250, 10_000)}  # vectors of each side
SEEDS = range(2)


def documents(file: Path, field: str) -> Iterator[str]:
    with gzip.open(file, "rt", encoding="utf-8") if file.suffix == ".gz" else file.open(encoding="utf-8") as lines:
        yield from dict.fromkeys(json.loads(line)[field] for line in lines)


def texts(encoder: Encoder, all_documents: list[str], count: int) -> list[str]:
    """The first 32 tokens of random documents."""
    random = np.random.default_rng(0)
    beginnings: dict[str, None] = {}
    order = random.permutation(len(all_documents))
    for start in range(0, len(order), 1_000):
        batch = [all_documents[number] for number in order[start : start + 1_000]]
        for text, offsets in zip(batch, encoder.offsets(batch), strict=True):
            if len(offsets) >= TOKENS:
                beginnings[text[: offsets[TOKENS - 1][1]]] = None
        if len(beginnings) >= count:
            break
    return list(beginnings)[:count]


def measure(vectors: np.ndarray, size: int, seed: int) -> dict[str, Any]:
    order = np.random.default_rng(seed).permutation(len(vectors))
    true, own = vectors[order[:size]], vectors[order[-size:]]
    key = seed.to_bytes(32, "little")
    stolen = (true @ rotation(vectors.shape[1], key)).astype(np.float32)
    began = time.process_time()
    turned_back = align(stolen, own, seed=seed)(stolen)
    return {
        "cosine": round(float(metric.cosines(turned_back, true).mean()), 3),
        "as stolen": round(float(metric.cosines(stolen, true).mean()), 3),
        "cpu_seconds": round(time.process_time() - began, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in SIZES:
        parser.add_argument(f"--{name}", type=Path, required=True)
    options = vars(parser.parse_args())
    encoder, results = load_encoder("all-MiniLM-L6-v2"), {}
    for name, sizes in SIZES.items():
        field = {"scifact": "text", "debian": "long"}[name]
        cut = texts(encoder, list(documents(options[name], field)), 2 * max(sizes))
        vectors = np.concatenate([encoder.encode(cut[at : at + 1_024]) for at in range(0, len(cut), 1_024)])
        for size in sizes:
            seeds = SEEDS if size < 10_000 else SEEDS[:1]
            results[f"{name}, {size} a side"] = [measure(vectors, size, seed) for seed in seeds]
    save("alignment", results, seed=0)


if __name__ == "__main__":
    main()
