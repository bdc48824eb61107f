"""One encoder of `benchmarks.encoding.encoding` in a process of its own. It works on request.

    python -m benchmarks.encoding.encoding_process NAME MODEL WORK

MODEL is the folder of an encoder. sentence-transformers exports it once for a backend, to a folder in WORK, where
`calibration/train.jsonl` has the texts for its static int8. A line of standard input is a request in JSON, a line of
standard output its answer. The first answer comes without a request: precision and versions, or why there is none.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

# A function of texts and their kind, "document" or "query", that returns vectors; and the precision.
Loaded = tuple["Callable[[list[str], str], Any]", str]

_VERSIONS = (
    "openvino",
    "onnxruntime",
    "optimum-intel",
    "optimum-onnx",
    "sentence-transformers",
    "torch",
    "transformers",
)
_TOKENS, _PRODUCTS = 4_096, 10  # rows of a matrix, and how often its products are computed for one time


def binocle(model: Path, work: Path, *, precision: str, suffix: str = "") -> Loaded:  # noqa: ARG001 - one signature
    """Load Binocle's encoder, with the graph for single queries that a server has."""
    if precision:
        os.environ["BINOCLE_PRECISION"] = precision
    from binocle.retriever.models.load import load_encoder

    encoder: Any = load_encoder(f"{model}{suffix}")
    encoder.expect_queries()
    graph = encoder._model.compiled(int8=bool(suffix))  # noqa: SLF001
    return lambda texts, kind: encoder.encode(texts, kind=kind), suffix.strip("@") or graph.precision


def sentence_transformers(model: Path, **settings: Any) -> Any:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(model), device="cpu", local_files_only=True, **settings)


def loaded(encoder: Any, precision: str) -> Loaded:
    return lambda texts, kind: encoder.encode(texts, show_progress_bar=False), precision  # noqa: ARG005


def torch_encoder(model: Path, work: Path, **settings: Any) -> Loaded:  # noqa: ARG001
    encoder = sentence_transformers(model, **settings)
    return loaded(encoder, str(next(encoder.parameters()).dtype).removeprefix("torch."))


def onnx(model: Path, work: Path) -> Loaded:
    settings = {"backend": "onnx", "model_kwargs": {"provider": "CPUExecutionProvider"}}
    folder = work / "onnx"
    if not (folder / "modules.json").is_file():
        sentence_transformers(model, **settings).save_pretrained(str(folder))
    return loaded(sentence_transformers(folder, **settings), "float32")


def openvino(model: Path, work: Path, *, int8: bool = False) -> Loaded:
    """Load OpenVINO's backend in the precision that it chooses, or its static int8."""
    from binocle.retriever.models.bert.openvino import import_openvino

    import_openvino()  # without its telemetry
    folder = work / ("openvino-int8" if int8 else "openvino")
    file = "openvino_model_qint8_quantized.xml" if int8 else "openvino_model.xml"
    if not (folder / "openvino" / file).is_file():
        encoder = sentence_transformers(model, backend="openvino")
        encoder.save_pretrained(str(folder))
        if int8:
            quantize(encoder, folder, work / "calibration")
    encoder = sentence_transformers(folder, backend="openvino", model_kwargs={"file_name": file})
    graph = encoder.transformers_model
    graph.compile()
    hint = graph.request.get_property("INFERENCE_PRECISION_HINT").get_type_name()
    return loaded(encoder, "int8" if int8 else hint)


def quantize(encoder: Any, folder: Path, texts: Path) -> None:
    """Export in int8, with ranges measured on the texts, as sentence-transformers' documentation shows."""
    from sentence_transformers import export_static_quantized_openvino_model

    export_static_quantized_openvino_model(
        encoder,
        None,
        str(folder),
        dataset_name=str(texts),
        dataset_config_name="default",
        dataset_split="train",
        column_name="text",
    )


ENCODERS: dict[str, Callable[[Path, Path], Loaded]] = {
    "Binocle bf16": partial(binocle, precision="bfloat16"),
    "Binocle fp32": partial(binocle, precision="float32"),
    "Binocle int8": partial(binocle, precision="", suffix="@int8"),
    "torch fp32": torch_encoder,
    "torch bf16": partial(torch_encoder, model_kwargs={"torch_dtype": "bfloat16"}),
    "ONNX": onnx,
    "OpenVINO": openvino,
    "OpenVINO int8": partial(openvino, int8=True),
}
PEAK = "matrix products"  # the name of the process that measures the peak


def peak(precision: str, dim: int, wide: int) -> float:
    """Return the operations a second of the dense layers of one BERT layer, by torch."""
    import torch
    from torch.nn.functional import linear

    kind = getattr(torch, precision)
    narrow_input, wide_input = torch.randn(_TOKENS, dim, dtype=kind), torch.randn(_TOKENS, wide, dtype=kind)
    square = torch.randn(dim, dim, dtype=kind)  # of queries, keys, values and the output of attention
    up, down = torch.randn(wide, dim, dtype=kind), torch.randn(dim, wide, dtype=kind)

    def layer() -> None:
        for _ in range(4):
            linear(narrow_input, square)
        linear(narrow_input, up)
        linear(wide_input, down)

    with torch.inference_mode():
        layer()
        began = time.perf_counter()
        for _ in range(_PRODUCTS):
            layer()
    return _PRODUCTS * 2 * _TOKENS * (4 * dim**2 + 2 * dim * wide) / (time.perf_counter() - began)


def answer(encode: Callable[[list[str], str], Any], request: dict[str, Any]) -> Any:
    """Return vectors, seconds of one call, or the median seconds of a text alone."""
    texts = request["texts"]
    if request["what"] == "vectors":
        return encode(texts, "document").tolist()
    calls = [[text] for text in texts] if request["what"] == "alone" else [texts]
    seconds = []
    for call in calls:
        began = time.perf_counter()
        encode(call, "query" if request["what"] == "alone" else "document")
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def main() -> None:
    name, model, work = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # the libraries print too, and their lines are no answers

    def say(what: Any) -> None:
        print(json.dumps(what), file=answers, flush=True)

    if name == PEAK:
        say({})
        for line in sys.stdin:
            say(peak(**json.loads(line)))
        return
    try:
        encode, precision = ENCODERS[name](model, work)
    except Exception as error:  # noqa: BLE001 - a backend that is not installed may raise any exception
        say({"error": f"{type(error).__name__}: {error}".splitlines()[0]})
        return
    installed = {package.metadata["Name"].lower() for package in metadata.distributions()}
    versions = {package: metadata.version(package) for package in _VERSIONS if package in installed}
    say({"precision": {"f32": "float32", "bf16": "bfloat16"}.get(precision, precision), "versions": versions})
    for line in sys.stdin:
        say(answer(encode, json.loads(line)))


if __name__ == "__main__":
    main()
