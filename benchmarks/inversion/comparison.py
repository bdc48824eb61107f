"""Inversion on fixed texts, measured as vec2text's authors measure it, so that others can compare.

    python -m benchmarks.inversion.comparison --inverter DIR --corpus corpus.jsonl ... [--texts 200] [--seconds 10]

Each corpus is in BEIR's layout. Its documents are taken in the order of their ids' hashes. The first 200 with 32 tokens
and more give a text each: the first 32 tokens, without the title. A digest tells whether two runs had the same texts.
Correction runs with three seeds. F1 compares sets of tokens, as vec2text does (Morris et al. 2023, arXiv:2310.06816),
and multisets. Seconds are wall time.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from binocle.retriever.inversion.inverter import EmbeddingInverter
from binocle.training.inversion import metrics

from ..machine import save

if TYPE_CHECKING:
    from collections.abc import Sequence

    from binocle.retriever.models.encoder import Encoder

TOKENS = 32
SEEDS = range(3)
BATCH = 500  # documents


def fixed_texts(corpus: Path, encoder: Encoder, count: int, tokens: int = TOKENS) -> list[str]:
    """The first tokens of documents, in an order that depends on their ids alone."""
    rows = [json.loads(line) for line in corpus.read_text("utf-8").splitlines()]
    rows.sort(key=lambda row: hashlib.sha256(str(row["_id"]).encode()).digest())
    texts: dict[str, None] = {}
    for start in range(0, len(rows), BATCH):
        batch = [row["text"] for row in rows[start : start + BATCH]]
        for text, offsets in zip(batch, encoder.offsets(batch), strict=True):
            if len(offsets) >= tokens:
                texts[text[: offsets[tokens - 1][1]]] = None
        if len(texts) >= count:
            break
    return list(texts)[:count]


def digest(texts: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def set_f1(true: Sequence[Sequence[int]], recovered: Sequence[Sequence[int]]) -> float:
    return float(
        np.mean([metrics.overlap(set(first), set(second))[2] for first, second in zip(true, recovered, strict=True)])
    )


def measure(inverter: EmbeddingInverter, texts: list[str], seconds: float, seed: int) -> dict[str, Any]:
    vectors = inverter.check(inverter.encoder.encode(texts))
    began = time.perf_counter()
    corrected = [inverter.correct(vector, seconds, seed=seed) for vector in vectors]
    spent = (time.perf_counter() - began) / len(texts)
    recovered = [text.ids for text in corrected]
    spelled = [inverter.tokens.text(ids) for ids in recovered]
    cosines = [text.cosine for text in corrected]
    result = metrics.compare(texts, spelled, inverter.tokens, cosines=cosines, tokens=recovered, seed=0).as_dict()
    names = ("f1", "bleu", "sentence_bleu", "exact", "cosine")
    return {
        "token F1, sets": round(set_f1(inverter.tokens(texts), recovered), 4),
        **{name: result[name] for name in names},
        "seconds a text": round(spent, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inverter", type=Path, required=True)
    parser.add_argument("--corpus", type=Path, required=True, nargs="+", help="corpus.jsonl in BEIR's layout")
    parser.add_argument("--texts", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    inverter = EmbeddingInverter.load(options.inverter)
    card = json.loads((options.inverter / "binocle.json").read_text("utf-8"))
    tokens = min(TOKENS, inverter.info.decoder["longest"])
    results: dict[str, Any] = {
        "tokens": tokens,
        "training": {"seconds": card["seconds"], "machine": card.get("hardware")},
    }
    for corpus in options.corpus:
        texts = fixed_texts(corpus, inverter.encoder, options.texts, tokens)
        runs = [measure(inverter, texts, options.seconds, seed) for seed in SEEDS]
        results[corpus.parent.name] = {"texts": len(texts), "digest": digest(texts), "seeds": runs}
    save("inversion-comparison", results, seed=0)


if __name__ == "__main__":
    main()
