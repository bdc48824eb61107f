"""BERT by OpenVINO, for documents, many queries, and pairs to score, on a CPU.

Its graph is built from the safetensors weights, so neither torch nor an exported file is needed. OpenVINO runs it in
bf16 if the processor has that (AVX-512 BF16, AMX), else in float32. Dense layers are also computed in int8, on request.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from ....core.errors import InputError
from .openvino_graph import build_graph

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ....core.arrays import Floats, Integers
    from .inputs import Pooling
    from .int8 import Int8Dense
    from .weights import BertConfig


_THREADS = 4  # for one batch: a query has too few tokens for more


class BertOpenVINO:
    """Compute hidden states as `BertNumpy` does, or a classifier's logits, for many batches, several at a time.

    :param classifier: whether batches give logits; else they give hidden states.
    :param types: whether batches have token types. A classifier's always have them, ModernBERT's never.
    :param pooling: "cls": only the hidden state of each text's first token is computed; "mean": the mean of its tokens'
        states. Either is of shape (texts, 1, dim).
    :param precision: OpenVINO's name of a precision; None: OpenVINO chooses.
    :param int8: dense layers in int8 by name, as `quantize` returns them; the others are in the precision.
    :param one_by_one: up to `_THREADS` cores share a batch, so a single one is fast. By default each core computes
        batches of its own, which takes less work for many.
    :param folded: a dictionary that the graphs of one model share, so that each weight is computed once.
    """

    def __init__(
        self,
        config: BertConfig,
        weights: Mapping[str, Floats],
        *,
        classifier: bool = False,
        types: bool = False,
        pooling: Pooling | None = None,
        precision: str | None = None,
        int8: Mapping[str, Int8Dense] | None = None,
        one_by_one: bool = False,
        folded: dict[str, Floats] | None = None,
    ) -> None:
        ov = import_openvino()
        core = ov.Core()
        can_bf16 = "BF16" in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        if precision == "bf16" and not can_bf16:
            raise InputError("this processor does not compute in bf16: leave the precision out, or ask for float32")
        graph = build_graph(
            ov,
            config,
            weights,
            classifier=classifier,
            has_types=types,
            pooling=pooling,
            has_bf16=can_bf16 and precision != "f32",
            int8=int8 or {},
            folded={} if folded is None else folded,
        )
        compiled = core.compile_model(graph, "CPU", _settings(precision, one_by_one=one_by_one))
        self._weights, self._int8 = weights, int8  # the graph shares their memory
        self.lock = threading.Lock()  # hold it during `map`: callers share the requests, and one uses every core
        self.streams = int(compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS"))
        waiting = 0 if one_by_one else self.streams  # so that no core waits while the caller takes a result
        self._requests = [compiled.create_infer_request() for _ in range(self.streams + waiting)]
        self.precision: str = compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name()

    def map(self, batches: Iterable[tuple[Integers, ...]]) -> Iterator[Floats]:
        """Yield the output of each batch, in order; an array is valid until the next one.

        :param batches: ids and mask, and types if the graph has them, each (texts, tokens).
        """
        running: deque[Any] = deque()
        idle = list(self._requests)
        for ids, mask, *types in batches:
            if not idle:
                yield _result(running[0])
                idle.append(running.popleft())
            request = idle.pop()
            request.start_async([ids.astype(np.int32), mask.astype(np.float32), *(t.astype(np.int32) for t in types)])
            running.append(request)
        while running:
            yield _result(running[0])
            idle.append(running.popleft())


def _settings(precision: str | None, *, one_by_one: bool) -> dict[str, Any]:
    """Return OpenVINO's settings for compiling a graph."""
    hint = "LATENCY" if one_by_one else "THROUGHPUT"
    settings: dict[str, Any] = {"PERFORMANCE_HINT": hint, "ENABLE_CPU_PINNING": False}
    threads = int(os.environ.get("OMP_NUM_THREADS", "") or 0)  # a share of the machine, if several processes work
    if one_by_one:
        threads = min(threads or _THREADS, _THREADS, os.cpu_count() or 1)
    if threads:
        settings["INFERENCE_NUM_THREADS"] = threads
    if precision:
        settings["INFERENCE_PRECISION_HINT"] = precision
    return settings


def import_openvino() -> Any:
    """Import OpenVINO without its telemetry, which would fork and report to a third party over the network."""
    import sys

    absent: Any = None  # makes the import fail, and OpenVINO then uses a stub of its own
    blocked = sys.modules.setdefault("openvino_telemetry", absent) is None
    try:
        import openvino
    finally:
        if blocked:
            sys.modules.pop("openvino_telemetry", None)
    return openvino


def _result(request: Any) -> Floats:
    request.wait()
    data: Floats = request.get_output_tensor().data
    return data
