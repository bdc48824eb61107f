"""BERT by torch on GPUs, for documents in bulk: in half precision, without padding, recorded as CUDA graphs.

The texts of a batch lie end to end, and each attends to its own tokens alone. Every batch has the same number of
tokens, so that a GPU computes all of its products in one shape and one order: the vector of a text does not depend on
the texts beside it. A graph is recorded for each power of two that the longest text of a batch fits into.

The CPU runs the same code, for tests.
"""

from __future__ import annotations

import threading
from functools import partial
from itertools import chain, cycle
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from .weight_names import EMBEDDING_NORM, POSITIONS, TYPES, WORDS, LayerNames
from .weights import distance_bias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from ....core.arrays import Floats, Integers, Positions
    from .inputs import Tokens
    from .weights import BertConfig

_TOKENS = 16_384  # of every batch: the products of fewer do not fill a GPU
_SHORTEST = 32  # the longest text of a graph, at least
_ROWS = 65_536  # vectors on a device before they are copied to the host


class BertGpu:
    """The vectors of texts, pooled on the devices.

    :param devices: torch's names for them; each computes every second, third … batch.
    :param precision: "float16", "bfloat16" or "float32".
    """

    def __init__(
        self, config: BertConfig, weights: Mapping[str, Floats], devices: Sequence[str], precision: str = "float16"
    ) -> None:
        self.lock = threading.Lock()  # held by `vectors`: a graph has one input
        self._limit = config.max_positions
        self._dim = weights[WORDS].shape[1]
        self.parts = [_Device(config, weights, device, precision) for device in devices]

    def vectors(self, encodings: Sequence[Tokens], pooling: Sequence[str]) -> Floats:
        """Return the pooled last hidden states of texts, (texts, dim of all poolings), float32, of any length.

        :param pooling: some of "cls", "mean", "max" and "mean_sqrt_len_tokens".
        """
        vectors = np.empty((len(encodings), self._dim * len(pooling)), np.float32)
        lengths = np.array([len(encoding.ids) for encoding in encodings], np.int64)
        waiting: list[tuple[Positions, Tensor]] = []
        with self.lock:
            devices = cycle(self.parts)
            for positions, longest in batches_of(lengths, self._limit):
                texts = [encodings[position] for position in positions]
                waiting.append((positions, next(devices).pooled(texts, longest, tuple(pooling))))
                if sum(len(rows) for rows, _ in waiting) >= _ROWS:
                    _collect(waiting, vectors)
            _collect(waiting, vectors)
        return vectors


def batches_of(lengths: Integers, limit: int) -> Iterator[tuple[Positions, int]]:
    """Yield the positions of each batch, the longest texts first, and the tokens that its graph has room for in a text.

    A batch has at most `_TOKENS` tokens, and four times the texts that would fill it if all were the longest.
    """
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        longest = min(limit, max(_SHORTEST, 1 << int(lengths[order[start]] - 1).bit_length()))
        rows = order[start : start + _most_texts(longest)]
        count = max(1, int(np.searchsorted(np.cumsum(lengths[rows]), _TOKENS, "right")))
        yield rows[:count], longest
        start += count


def _most_texts(longest: int) -> int:
    return 4 * _TOKENS // longest


def _collect(waiting: list[tuple[Positions, Tensor]], vectors: Floats) -> None:
    for positions, pooled in waiting:
        vectors[positions] = pooled.cpu().numpy()
    waiting.clear()


class _Device:
    """The weights on one device, and a graph for each length."""

    def __init__(self, config: BertConfig, weights: Mapping[str, Floats], device: str, precision: str) -> None:
        self._device = torch.device(device)
        self._type = getattr(torch, precision)
        self._config = config
        is_half = self._device.type == "cuda" and self._type != torch.float32
        self._attend = _attention(self._device) if is_half else _padded_attention
        if config.distances:
            bias = self._copy(distance_bias(config, weights, config.max_positions), self._type)
            self._attend = partial(_padded_attention, bias=bias)
        self._expand = _fused_expansion if is_half else _expansion
        self._add_and_norm = _normalizer(self._device) if is_half else _add_and_norm
        self._graphs: dict[tuple[int, tuple[str, ...]], Callable[[Tensor], Tensor]] = {}
        self._pool: Any = None  # of the graphs' memory: they run one after the other
        self._words = self._copy(weights[WORDS], self._type)
        self._positions = self._copy(weights[POSITIONS] + weights[TYPES][0], torch.float32)
        self._embedding_norm = tuple(part.float() for part in self._pair(weights, EMBEDDING_NORM))
        self._layers = [self._layer(weights, LayerNames(number)) for number in range(config.layers)]

    def pooled(self, texts: Sequence[Tokens], longest: int, pooling: tuple[str, ...]) -> Tensor:
        """Return the pooled states, (texts, dim of all poolings), float32, as soon as the work is queued."""
        return self.batch(texts, longest, pooling)()[: len(texts)].clone()

    def batch(self, texts: Sequence[Tokens], longest: int, pooling: tuple[str, ...]) -> Callable[[], Tensor]:
        """Return the work for a batch; its result is valid until the next batch."""
        inputs = torch.from_numpy(_packed(texts, longest))
        if self._device.type == "cuda":
            inputs = inputs.pin_memory().to(self._device, non_blocking=True)
        run = self._graphs.get((longest, pooling)) or self._recorded(longest, pooling, inputs)
        return lambda: run(inputs)

    def _recorded(self, longest: int, pooling: tuple[str, ...], example: Tensor) -> Callable[[Tensor], Tensor]:
        """Return the function of a batch, and keep it."""

        def compute(inputs: Tensor) -> Tensor:
            with torch.inference_mode():
                return self._forward(inputs, longest, pooling)

        run = self._graph(compute, example) if self._device.type == "cuda" else compute
        self._graphs[longest, pooling] = run
        return run

    def _graph(self, compute: Callable[[Tensor], Tensor], example: Tensor) -> Callable[[Tensor], Tensor]:
        """Record a function as a graph: one call of the driver instead of a hundred."""
        with torch.cuda.device(self._device):
            inputs, graph = example.clone(), torch.cuda.CUDAGraph()
            aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            aside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(aside):  # libraries make their workspaces in a first call
                compute(inputs)
            torch.cuda.current_stream().wait_stream(aside)
            with torch.cuda.graph(graph, pool=self._pool):
                output = compute(inputs)
            self._pool = graph.pool()

        def run(batch: Tensor) -> Tensor:
            inputs.copy_(batch)
            graph.replay()
            return output

        return run

    def _forward(self, inputs: Tensor, longest: int, pooling: tuple[str, ...]) -> Tensor:
        """Compute a batch: ids, positions in their text, and the bounds of the texts, as `_packed` puts them."""
        ids, positions, bounds = inputs[:_TOKENS], inputs[_TOKENS : 2 * _TOKENS], inputs[2 * _TOKENS :]
        dim, heads = self._words.shape[1], self._config.heads
        embedded = self._words[ids].float() + self._positions[positions]
        weight, bias = self._embedding_norm
        hidden = functional.layer_norm(embedded, (dim,), weight, bias, self._config.eps).to(self._type)
        for layer in self._layers:
            projected = functional.linear(hidden, *layer["projections"]).view(_TOKENS, 3, heads, dim // heads)
            query, key, value = projected.unbind(1)
            attended = self._attend(query, key, value, bounds, longest).reshape(_TOKENS, dim)
            change = functional.linear(attended, *layer["attention_output"])
            hidden = self._add_and_norm(hidden, change, layer["attention_norm"], self._config.eps)
            change = functional.linear(self._expand(hidden, *layer["intermediate"]), *layer["output"])
            hidden = self._add_and_norm(hidden, change, layer["output_norm"], self._config.eps)
        return torch.cat([self._pooling(mode, hidden, bounds) for mode in pooling], 1)

    def _pooling(self, mode: str, hidden: Tensor, bounds: Tensor) -> Tensor:
        if mode == "cls":
            return hidden[bounds[:-1].clamp(max=_TOKENS - 1)].float()
        lengths = bounds.diff()
        kind = "max" if mode == "max" else "sum"
        pooled = torch.segment_reduce(hidden.float(), kind, lengths=lengths, unsafe=True)
        if mode == "max":
            return pooled
        counts = lengths.unsqueeze(1).float()
        return pooled / (counts if mode == "mean" else counts.sqrt())

    def _layer(self, weights: Mapping[str, Floats], names: LayerNames) -> dict[str, tuple[Tensor, Tensor]]:
        inputs = [self._pair(weights, name) for name in (names.query, names.key, names.value)]
        parts = ("attention_output", "attention_norm", "intermediate", "output", "output_norm")
        return {
            "projections": (torch.cat([weight for weight, _ in inputs]), torch.cat([bias for _, bias in inputs])),
            **{part: self._pair(weights, getattr(names, part)) for part in parts},
        }

    def _pair(self, weights: Mapping[str, Floats], name: str) -> tuple[Tensor, Tensor]:
        """Return the weight and the bias of a dense layer or a norm."""
        weight, bias = (self._copy(weights[f"{name}.{part}"], self._type) for part in ("weight", "bias"))
        return weight, bias

    def _copy(self, array: Floats, kind: Any) -> Tensor:
        return torch.tensor(array, device=self._device, dtype=kind)


def _packed(texts: Sequence[Tokens], longest: int) -> NDArray[np.int32]:
    """Return the ids of all tokens, their positions in their texts, and the bounds of the texts, in one array.

    Ids and positions are 0 behind the last text. Texts that the batch has room for, and lacks, are empty.
    """
    lengths = np.array([len(text.ids) for text in texts])
    count = int(lengths.sum())
    packed = np.zeros(2 * _TOKENS + _most_texts(longest) + 1, np.int32)
    packed[:count] = np.fromiter(chain.from_iterable(text.ids for text in texts), np.int32, count)
    ends = np.cumsum(lengths)
    packed[_TOKENS : _TOKENS + count] = np.arange(count) - np.repeat(ends - lengths, lengths)
    bounds = packed[2 * _TOKENS :]
    bounds[1:] = count
    bounds[1 : len(texts) + 1] = ends
    return packed


def _expansion(hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return functional.gelu(functional.linear(hidden, weight, bias))


def _fused_expansion(hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Compute GELU with the product, by its tanh form: cosines of vectors fall by 2e-6, about as by float16."""
    expanded: Tensor = torch._addmm_activation(bias, hidden, weight.t(), use_gelu=True)  # noqa: SLF001 - has no other name
    return expanded


def _add_and_norm(left: Tensor, right: Tensor, norm: Sequence[Tensor], eps: float) -> Tensor:
    total, (weight, bias) = left + right, norm
    return functional.layer_norm(total, total.shape[1:], weight, bias, eps)


def _normalizer(device: torch.device) -> Callable[[Tensor, Tensor, Sequence[Tensor], float], Tensor]:
    """Return the sum and layer norm in one kernel, if it compiles here."""
    try:
        from .gpu_kernels import add_and_norm

        example = torch.ones(2, 32, device=device, dtype=torch.float16)
        add_and_norm(example, example, (example[0], example[0]), 1e-5)
    except Exception:  # noqa: BLE001 - no Triton, no compiler, or one that fails: each raises its own
        return _add_and_norm
    return add_and_norm


def _attention(device: torch.device) -> Callable[[Tensor, Tensor, Tensor, Tensor, int], Tensor]:
    """Return the attention of each text to itself: FlashAttention (arXiv:2307.08691) on GPUs that have it."""
    if torch.cuda.get_device_capability(device) >= (8, 0):
        from torch.nn.attention.varlen import varlen_attn

        def flash(query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, longest: int) -> Tensor:
            attended = varlen_attn(query, key, value, bounds, bounds, longest, longest)
            assert isinstance(attended, Tensor)
            return attended

        return flash
    return _padded_attention


def _padded_attention(
    query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, longest: int, bias: Tensor | None = None
) -> Tensor:
    """Compute attention as (texts, heads, longest, head size), for devices without another, or with a bias.

    :param bias: added to the scores, (heads, tokens, tokens).
    """
    starts, lengths = bounds[:-1], bounds.diff()
    offsets = torch.arange(longest, device=bounds.device)
    tokens = (starts[:, None] + offsets).clamp(max=_TOKENS - 1)
    inside = (offsets < lengths[:, None])[:, None, None]  # no text is without a token: softmax of nothing is NaN
    if bias is not None:
        inside = bias[:, :longest, :longest].masked_fill(~inside, float("-inf"))
    query, key, value = (x[tokens].transpose(1, 2) for x in (query, key, value))
    attended = functional.scaled_dot_product_attention(query, key, value, inside).transpose(1, 2)
    every = torch.arange(_TOKENS, device=bounds.device, dtype=bounds.dtype)
    texts = (torch.searchsorted(bounds, every, right=True) - 1).clamp(max=len(starts) - 1)
    within = (every - starts[texts]).clamp(max=longest - 1)
    return attended[texts, within]
