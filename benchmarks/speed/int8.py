"""Encoding in int8 against bf16: processor time, agreement and nDCG@10 of one collection.

    python -m benchmarks.speed.int8 --collection DIR [--documents 1400] [--rounds 3]

DIR is a test collection in BEIR's layout. The graph of an encoder gets its dense layers in int8: weights by output
channel, activations by a range for each layer. The ranges come from the sentences below, which are of no collection.
Outliers of the activations move into the weights first (Xiao et al. 2023, SmoothQuant, arXiv:2211.10438), and the mean
error of each layer is taken off its bias (Nagel et al. 2019, arXiv:1906.04721). NNCF does the same three things.
Times are of the processor, and the contenders take turns. "rounded" computes the int8 values in float32, so that no sum
saturates: its vectors are those of a processor with VNNI, on any processor.
"""

# ruff: noqa: SLF001 - it puts another graph in the place of the encoder's own

from __future__ import annotations

import argparse
import random
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from binocle.retriever.models.bert import openvino
from binocle.retriever.models.bert.openvino import BertOpenVINO, import_openvino
from binocle.retriever.models.load import load_encoder
from binocle.training.data import beir
from binocle.training.evaluation.measures import ndcg_at_10

from ..machine import save

SHARE = 0.7  # of the spread of channels that moves into the weights: best of .5 to .9 on scifact and Python's manual
ROWS = 4_000  # tokens that the mean error is taken from
TIMED = 32  # documents
SENTENCES = """
The ferry leaves the northern harbour at half past six and reaches the island before noon, unless fog holds it back.
In 1847 the town had 3,200 inhabitants, two mills and a school; by 1911 the railway had brought 41,000 people to it.
Warm the milk to 40 °C, stir in the yeast and a spoon of sugar, and leave the bowl in a quiet corner for ten minutes.
def mean(values): return sum(values) / len(values)  # raises ZeroDivisionError for an empty list
Patients who received the higher dose slept longer, but their blood pressure rose by 4.2 mmHg (p = 0.03, n = 118).
The tenant shall return the keys within three days after the end of the lease; otherwise a fee of $75 becomes due.
Why does my program stop with "permission denied" when I start it from another folder? See section 3.2 of the manual.
Iron rusts because oxygen and water take electrons from its surface; a coat of zinc protects it for many years.
ERROR 2024-05-17T08:31:09Z worker-7 connection to 10.0.3.18:5432 refused, retry 3 of 5 in 16 s
Der Zug nach Leipzig fährt heute von Gleis 9 ab, etwa zwölf Minuten später als im Fahrplan angegeben.
La bibliothèque est fermée le dimanche, mais les livres peuvent être rendus dans la boîte près de l'entrée.
SELECT name, COUNT(*) FROM orders WHERE total > 100 GROUP BY name ORDER BY 2 DESC LIMIT 20;
She opened the letter slowly, as if the paper itself could hurt her, and read the first line twice before she sat down.
The enzyme binds to the receptor, changes its shape, and thereby prevents the virus from entering the cell.
A triangle with sides of 3, 4 and 5 has a right angle, since the squares of the shorter sides add up to the third.
Heavy rain is expected on Thursday in the mountains; hikers should avoid the lower paths along the river.
Photons lose energy as they climb out of a gravitational well, so a clock in a valley runs slower than one on a peak.
Dear Ms Okafor, thank you for your message of 12 March. The spare part you ordered will leave our warehouse on Monday.
Laminar flow past a flat plate becomes turbulent where the Reynolds number exceeds about 500,000.
¿Dónde está la estación de autobuses? Está a dos calles de la plaza, al lado del mercado.
http://example.org/docs/index.html?lang=en#install lists the versions 1.9.4, 2.0.0-rc1 and 2.0.0 with their checksums.
"""


def quantize(model: Any, ids: np.ndarray, *, rounded: bool = False) -> None:
    """Put the dense layers of a graph into int8, with ranges from a batch of token ids.

    :param rounded: compute the int8 values in float32, with operations that OpenVINO does not turn into int8.
    """
    from openvino import opset15 as op

    ov = import_openvino()
    layers = [
        node
        for node in model.get_ordered_ops()
        if node.get_type_name() == "MatMul" and node.input_value(1).get_node().get_type_name() == "Constant"
    ]
    by_input: dict[str, list[Any]] = {}
    for node in layers:
        by_input.setdefault(node.input_value(0).get_node().get_friendly_name(), []).append(node)
    values = _activations(model, list(by_input), ids)
    for name, nodes in by_input.items():
        x = values[name]
        weights = [node.input_value(1).get_node().get_data() for node in nodes]
        spread = np.abs(x).max(0) ** SHARE / np.abs(np.concatenate(weights)).max(0).clip(1e-5) ** (1 - SHARE)
        scale = (spread / np.exp(np.log(spread.clip(1e-5)).mean())).clip(1e-5).astype(np.float32)
        x = x / scale
        low, high = (np.float32(bound) for bound in (min(x.min(), 0), max(x.max(), 0)))
        source = nodes[0].input_value(0)
        step = (high - low) / 255
        bounds = [op.constant(bound) for bound in (low, high, low, high)]
        scaled_input = op.multiply(source, op.constant(1 / scale))
        quantized = op.fake_quantize(scaled_input, *bounds, 256)
        if rounded:
            levels = op.clamp(op.round((scaled_input - op.constant(low)) / op.constant(step)), 0.0, 255.0)
            quantized = levels * op.constant(step) + op.constant(low)
        for node, weight in zip(nodes, weights, strict=True):
            scaled = weight * scale
            limit = np.abs(scaled).max(1, keepdims=True)
            bounds = [op.constant(bound) for bound in (-limit, limit, -limit, limit)]
            node.input(0).replace_source_output(quantized.output(0))
            weight_int8 = (np.round(scaled / limit * 127) / 127 * limit).astype(np.float32)
            constant = op.constant(weight_int8) if rounded else op.fake_quantize(op.constant(scaled), *bounds, 255)
            node.input(1).replace_source_output(constant.output(0))
            inputs = np.clip(np.round((x[:ROWS] - low) / step), 0, 255) * step + low
            error = x[:ROWS] @ scaled.T - inputs @ weight_int8.T
            (target,) = node.output(0).get_target_inputs()
            bias = target.get_node().input_value(1).get_node().get_data()
            corrected = ov.op.Constant(np.ascontiguousarray(bias + error.mean(0)))
            target.get_node().input(1).replace_source_output(corrected.output(0))
    model.validate_nodes_and_infer_types()


def _activations(model: Any, names: list[str], ids: np.ndarray) -> dict[str, np.ndarray]:
    """What goes into the dense layers for a batch without padding, (tokens, width), in float32."""
    ov = import_openvino()
    watched = model.clone()
    watched.add_outputs([(name, 0) for name in names])
    compiled = ov.Core().compile_model(watched, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    outputs = list(compiled([ids.astype(np.int32), np.ones(ids.shape, np.float32)]).values())[1:]
    return {name: output.reshape(-1, output.shape[-1]) for name, output in zip(names, outputs, strict=True)}


def calibration_ids(model: Any, texts: int = 24, tokens: int = 128) -> np.ndarray:
    """Token ids of texts of sentences in random order, cut to one length."""
    draw, lines = random.Random(0), SENTENCES.strip().splitlines()
    joined = [" ".join(draw.sample(lines, len(lines))) for _ in range(texts)]
    return np.array([encoding.ids[:tokens] for encoding in model.tokenizer(truncated=True).encode_batch(joined)])


def graphs(model: Any) -> dict[str, BertOpenVINO]:
    """Return the compiled graph: unchanged, in int8 and rounded. The first encodes the queries."""
    config, weights, build = model._config, model._weights, openvino._graph
    own = BertOpenVINO(config, weights)
    contenders, ids = {own.precision: own}, calibration_ids(model)
    try:
        for name in ("int8", "rounded"):

            def quantized(*args: Any, rounded: bool = name == "rounded", **options: Any) -> Any:
                graph = build(*args, **options)
                quantize(graph, ids, rounded=rounded)
                return graph

            openvino._graph = quantized
            contenders[name] = BertOpenVINO(config, weights)
    finally:
        openvino._graph = build
    return contenders


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collection", type=Path, required=True)
    parser.add_argument("--documents", type=int, default=1_400, help="those judged, and others at random")
    parser.add_argument("--split", default="test")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    qrels, queries = beir.qrels(arguments.collection, arguments.split), beir.queries(arguments.collection)
    judged = {name for relevant in qrels.values() for name in relevant}
    documents = list(beir.documents(arguments.collection))
    random.Random(0).shuffle(documents)
    documents = sorted(documents, key=lambda document: document["id"] not in judged)[: arguments.documents]
    names, texts = [document["id"] for document in documents], [beir.passage(document) for document in documents]
    qrels = {query: relevant for query, relevant in qrels.items() if relevant.keys() & set(names)}
    encoder: Any = load_encoder()
    contenders = graphs(encoder._model)
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(arguments.rounds):
        for name, graph in contenders.items():
            encoder._model._bulk = graph
            began = time.process_time()
            encoder.encode(texts[-TIMED:])
            seconds[name].append(time.process_time() - began)
    vectors = {}
    for name, encoder._model._bulk in contenders.items():
        vectors[name] = encoder.encode(texts)
    own = next(iter(contenders))
    encoder._model._bulk = contenders[own]
    asked = np.concatenate([encoder.encode([queries[query]], kind="query") for query in qrels])
    ndcg = {name: per_query(qrels, names, asked @ vectors[name].T) for name in vectors}
    median = {name: statistics.median(values) for name, values in seconds.items()}
    results: dict[str, Any] = {
        "documents": len(documents),
        "queries": len(qrels),
        "precision": own,
        "ndcg_at_10": {name: round(float(values.mean()), 4) for name, values in ndcg.items()},
        "processor_seconds": {name: [round(value, 3) for value in values] for name, values in seconds.items()},
        "times_as_fast": round(median[own] / median["int8"], 2),
    }
    for name in ("int8", "rounded"):
        change, cosine = ndcg[name] - ndcg[own], (vectors[own] * vectors[name]).sum(1)
        draws = np.random.default_rng(0).choice(change, (2_000, len(change))).mean(1)
        results[name] = {
            "cosine": {"mean": round(float(cosine.mean()), 4), "least": round(float(cosine.min()), 4)},
            "top_ten_kept": round(kept(asked @ vectors[own].T, asked @ vectors[name].T), 3),
            "change": round(float(change.mean()), 4),
            "change_95": [round(float(bound), 4) for bound in np.quantile(draws, [0.025, 0.975])],
        }
    save(f"int8-{arguments.collection.name}", results, seed=0)


def per_query(qrels: dict[str, dict[str, int]], names: list[str], scores: np.ndarray) -> np.ndarray:
    """nDCG@10 of each query."""
    values = []
    for (query, relevant), row in zip(qrels.items(), scores, strict=True):
        best = np.argsort(-row, kind="stable")[:10]
        values.append(ndcg_at_10({query: relevant}, {query: [(names[place], float(row[place])) for place in best]}))
    return np.array(values)


def kept(own: np.ndarray, other: np.ndarray) -> float:
    """The mean share of the best ten that are among the other's best ten."""
    best = (np.argsort(-scores, axis=1)[:, :10] for scores in (own, other))
    return float(np.mean([len(set(left) & set(right)) / 10 for left, right in zip(*best, strict=True)]))


if __name__ == "__main__":
    main()
