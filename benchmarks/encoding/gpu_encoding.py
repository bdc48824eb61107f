"""Benchmark encoding on a GPU: against sentence-transformers in float16, and against the arithmetic of the device.

    python -m benchmarks.encoding.gpu_encoding --texts FILE [--model DIR] [--copies 8]

FILE has a text a line, or is a `corpus.jsonl`. Both encode the same texts, tokenizing included, in the same run and in
turns: ours as `use_gpus` does, theirs in float16 at the fastest of several batch sizes. Tokenizing alone is timed too.

The device's share is the operations a second of a recorded graph, over the rate of a product of two square float16
matrices. The graph's operations are its dense layers and the attention of its tokens. Also of a BERT-base with random
weights.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from binocle.retriever.models import model_files
from binocle.retriever.models.bert.bert_encoder import BertEncoder
from binocle.retriever.models.bert.model import BertModel
from binocle.retriever.models.bert.torch_gpu import BertGpu, batches_of
from binocle.retriever.models.bert.weights import EMBEDDING_NORM, POSITIONS, TYPES, WORDS, BertConfig, LayerNames
from binocle.retriever.models.load import load_encoder
from binocle.retriever.models.settings import read_config

from ..machine import save

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SIDE, SEED, ROUNDS, REPLAYS = 8_192, 0, 3, 30
BATCH_SIZES = (32, 256, 1_024, 4_096)
COMPARED = 200  # texts


def read_texts(file: Path) -> list[str]:
    lines = file.read_text("utf-8").splitlines()
    if file.suffix != ".jsonl":
        return lines
    return ["{title} {text}".format_map({"title": "", **json.loads(line)}).strip() for line in lines]


def peak(kind: torch.dtype) -> float:
    """Return the operations a second of a product of two square matrices of random numbers."""
    square = torch.randn(SIDE, SIDE, device="cuda", dtype=kind)
    milliseconds = event_times(lambda: square @ square)
    return 2 * SIDE**3 / (1e-3 * statistics.median(milliseconds))


def event_times(work: Callable[[], Any]) -> list[float]:
    """Return the milliseconds of each of several calls on the device, after three to warm up."""
    for _ in range(3):
        work()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(REPLAYS + 1)]
    events[0].record()
    for event in events[1:]:
        work()
        event.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) for start, end in pairwise(events)]


def device_rate(gpu: BertGpu, config: BertConfig, dim: int, encodings: Sequence[Any]) -> dict[str, Any]:
    """Time the graph of one full batch, the one with the median length of texts."""
    lengths = np.array([len(encoding.ids) for encoding in encodings])
    batches = list(batches_of(lengths, config.max_positions))
    positions, longest = batches[len(batches) // 2]
    texts, own = [encodings[position] for position in positions], lengths[positions]
    device = gpu.parts[0]
    milliseconds = statistics.median(event_times(device.batch(texts, longest, ("mean",))))
    products = config.layers * 2 * 12 * dim**2 * own.sum()
    attention = config.layers * 4 * dim * (own**2).sum()
    return {
        "texts": len(texts),
        "tokens": int(own.sum()),
        "longest": longest,
        "milliseconds": round(milliseconds, 4),
        "tokens_per_second": round(float(own.sum()) / milliseconds * 1e3),
        "teraflops": round(float(products + attention) / milliseconds / 1e9, 1),
    }


def random_base() -> tuple[BertConfig, dict[str, np.ndarray]]:
    """Return the sizes of BERT-base with random weights, for which the time is the same."""
    random, dim, wide = np.random.default_rng(SEED), 768, 3_072
    config = BertConfig(12, 12, 1e-12, 512)

    def matrix(*shape: int) -> np.ndarray:
        return (0.02 * random.standard_normal(shape)).astype(np.float32)

    weights = {WORDS: matrix(30_522, dim), POSITIONS: matrix(512, dim), TYPES: matrix(2, dim)}

    def put(name: str, rows: int, columns: int | None = None) -> None:
        weights[f"{name}.weight"] = matrix(rows, columns) if columns else np.ones(rows, np.float32)
        weights[f"{name}.bias"] = np.zeros(rows, np.float32)

    put(EMBEDDING_NORM, dim)
    for number in range(config.layers):
        names = LayerNames(number)
        for name in (names.query, names.key, names.value, names.attention_output):
            put(name, dim, dim)
        put(names.intermediate, wide, dim)
        put(names.output, dim, wide)
        put(names.attention_norm, dim)
        put(names.output_norm, dim)
    return config, weights


def rate(count: int, work: Callable[[], Any]) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return count / (time.perf_counter() - start)


def agreement(encoder: BertEncoder, texts: list[str]) -> dict[str, Any]:
    """Compare vectors on the GPU with those in float32 on the CPU, and alone with in a batch."""
    together = encoder.encode(texts)
    alone = np.concatenate([encoder.encode([text]) for text in texts[:20]])
    on_cpu = load_encoder(encoder.name)
    assert isinstance(on_cpu, BertEncoder)
    exact = np.concatenate([on_cpu.encode([text], kind="query") for text in texts])  # by numpy: no prompts here
    cosines = (together * exact).sum(1)
    return {
        "lowest_cosine_with_float32": float(cosines.min()),
        "mean_cosine_with_float32": float(cosines.mean()),
        "alone_differs_by_at_most": float(np.abs(alone - together[:20]).max()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--model", default=model_files.DEFAULT_MODEL)
    parser.add_argument("--copies", type=int, default=8, help="of the texts, in random order")
    parser.add_argument("--name", default="gpu_encoding", help="name of the file in results/")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("torch sees no GPU here")
    texts = read_texts(arguments.texts) * arguments.copies
    np.random.default_rng(SEED).shuffle(texts)
    encoder = load_encoder(arguments.model)
    assert isinstance(encoder, BertEncoder)
    by = encoder.use_gpus()
    folder = model_files.find(arguments.model)
    own = BertConfig.from_json(read_config(folder))
    assert own is not None
    model = BertModel.load(folder, own, encoder.fingerprint, max_tokens=encoder.max_tokens + 2)
    encodings = model.tokenize(texts[:20_000])
    results: dict[str, Any] = {
        "device": torch.cuda.get_device_name(0),
        "encoded_by": by,
        "texts": len(texts),
        "mean_tokens": round(float(np.mean([len(encoding.ids) for encoding in encodings])), 1),
        "peak_teraflops": {
            str(kind).removeprefix("torch."): round(peak(kind) / 1e12, 1) for kind in (torch.float16, torch.bfloat16)
        },
        "agreement": agreement(encoder, texts[:COMPARED]),
    }
    print(results, flush=True)
    config, weights = random_base()
    highest = results["peak_teraflops"]["float16"]
    for name, (gpu, sizes, dim) in {
        "own": (model.on_gpus(["cuda:0"]), own, model.dim),
        "bert_base": (BertGpu(config, weights, ["cuda:0"]), config, 768),
    }.items():
        row = device_rate(gpu, sizes, dim, encodings)
        results[name] = row | {"share_of_the_peak": round(row["teraflops"] / highest, 3)}
        print(name, results[name], flush=True)
    results["tokenizing_texts_per_second"] = round(rate(len(texts), lambda: model.tokenize(texts)))
    results["rates"] = benchmark_rates(encoder, str(folder), texts)
    print(results["rates"], flush=True)
    save(arguments.name, results, seed=SEED)


def benchmark_rates(encoder: BertEncoder, folder: str, texts: list[str]) -> dict[str, Any]:
    """Return the texts a second of both, in turns, each from texts to vectors on the host."""
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(folder, device="cuda").half()

    def encode(size: int, inputs: list[str]) -> Any:
        return theirs.encode(inputs, batch_size=size, show_progress_bar=False)

    encoder.encode(texts)  # records the graphs
    sample = texts[: len(texts) // 4]
    sizes = {}
    for size in BATCH_SIZES:
        encode(size, sample[:size])
        sizes[size] = round(rate(len(sample), lambda size=size: encode(size, sample)))
    best = max(sizes, key=sizes.__getitem__)
    ours, reference = [], []
    for _ in range(ROUNDS):
        ours.append(round(rate(len(texts), lambda: encoder.encode(texts))))
        reference.append(round(rate(len(sample), lambda: encode(best, sample))))
    return {
        "binocle_texts_per_second": ours,
        "sentence_transformers_float16_texts_per_second": reference,
        "sentence_transformers_by_batch_size": sizes,
        "batch_size": best,
        "ratio_of_medians": round(statistics.median(ours) / statistics.median(reference), 2),
    }


if __name__ == "__main__":
    main()
