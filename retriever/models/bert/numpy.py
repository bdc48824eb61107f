"""BERT in numpy, for the few short texts that a process needs at once: hidden states, or the scores of a classifier.

A cold search encodes one query. Any inference runtime takes longer to import and to compile its graph than this
takes to answer: the weights are memory-mapped, so a query touches only what it multiplies. Bulk work goes to
`bert_openvino`, which computes the same function; the tests hold each to the other.

Reference: Devlin et al. 2019, arXiv:1810.04805; the layout of weights is that of transformers' `BertModel` and
`BertForSequenceClassification`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ....core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from ....core.arrays import Floats, Integers


@dataclass(frozen=True, slots=True)
class BertConfig:
    layers: int
    heads: int
    eps: float  # of every layer norm
    max_positions: int  # longest sequence, special tokens included

    @classmethod
    def from_json(cls, config: Mapping[str, Any], file: Path | str = "config.json") -> BertConfig | None:
        """The configuration, or None where the model is not a plain BERT and needs torch.

        :param file: where it was read, for messages.
        """
        plain = (
            config.get("model_type") == "bert"
            and config.get("hidden_act") == "gelu"
            and config.get("position_embedding_type", "absolute") == "absolute"
            and not config.get("is_decoder", False)
        )
        if not plain:
            return None
        names = ("num_hidden_layers", "num_attention_heads", "max_position_embeddings")
        for name in names:
            if not isinstance(config.get(name), int) or not 0 < config[name] < 10**6:
                raise InputError(f"{file} has {name} {config.get(name)!r}: expected a positive number")
        layers, heads, positions = (config[name] for name in names)
        return cls(layers, heads, float(config.get("layer_norm_eps", 1e-12)), positions)


def load_weights(file: Path) -> dict[str, Floats]:
    """Memory-map a safetensors file: name to array, in transformers' names without the `bert.` prefix.

    The safetensors library checks every claim of the header; its own loading would copy what a query never touches.
    Format: https://github.com/huggingface/safetensors#format (8 bytes of header length, JSON, then the data).

    :raises InputError: when the file is not what it says it is.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, "numpy"):
            pass
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            header = json.loads(stream.read(length))
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(f"{file} is not a safetensors file ({error}): copy the model folder again") from None
    header.pop("__metadata__", None)
    if not header:
        return {}
    data = (
        np.memmap(file, np.uint8, "r", offset=8 + length) if file.stat().st_size > 8 + length else np.empty(0, np.uint8)
    )
    return {
        name.removeprefix("bert."): _FLOATS[entry["dtype"]](data[slice(*entry["data_offsets"])]).reshape(entry["shape"])
        for name, entry in header.items()
        if entry["dtype"] in _FLOATS  # position_ids is an integer buffer of old checkpoints
    }


def load_integers(file: Path, name: str) -> Integers | None:
    """An array of integers of a safetensors file that `load_weights` has read, or None where there is none."""
    from safetensors import safe_open

    with safe_open(file, "numpy") as arrays:
        return arrays.get_tensor(name).astype(np.int64) if name in arrays.keys() else None  # noqa: SIM118 - no mapping


# How the bytes of each type become float32: a view where they are that already.
_FLOATS: dict[str, Callable[[NDArray[np.uint8]], Floats]] = {
    "F32": lambda data: data.view(np.float32),
    "F16": lambda data: data.view(np.float16).astype(np.float32),
    "F64": lambda data: data.view(np.float64).astype(np.float32),
    "BF16": lambda data: (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32),  # the upper half of a float32
}


def check_weights(file: Path, config: BertConfig, weights: Mapping[str, Floats], *, classifier: bool = False) -> None:
    """Raise InputError naming the first weight that is missing or of another shape than the rest implies.

    :param classifier: whether there must be a head that gives one score, and an embedding for second texts.
    """
    words = weights.get("embeddings.word_embeddings.weight", np.empty((0, 0), np.float32))
    dim = words.shape[1] if words.ndim == 2 else 0
    grown = weights.get("encoder.layer.0.intermediate.dense.bias", np.empty(0, np.float32)).size
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": words.shape,
        "embeddings.position_embeddings.weight": (config.max_positions, dim),
        "embeddings.token_type_embeddings.weight": weights.get("embeddings.token_type_embeddings.weight", words).shape,
        "embeddings.LayerNorm.weight": (dim,),
        "embeddings.LayerNorm.bias": (dim,),
    }
    for number in range(config.layers):
        for name, out, inside in (
            ("attention.self.query", dim, dim),
            ("attention.self.key", dim, dim),
            ("attention.self.value", dim, dim),
            ("attention.output.dense", dim, dim),
            ("intermediate.dense", grown, dim),
            ("output.dense", dim, grown),
        ):
            shapes[f"encoder.layer.{number}.{name}.weight"] = (out, inside)
            shapes[f"encoder.layer.{number}.{name}.bias"] = (out,)
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes[f"encoder.layer.{number}.{name}.weight"] = (dim,)
            shapes[f"encoder.layer.{number}.{name}.bias"] = (dim,)
    if classifier:
        shapes |= {
            "embeddings.token_type_embeddings.weight": (2, dim),
            "pooler.dense.weight": (dim, dim),
            "pooler.dense.bias": (dim,),
            "classifier.weight": (1, dim),
            "classifier.bias": (1,),
        }
    for name, shape in shapes.items():
        found = weights[name].shape if name in weights else None
        if found != shape or 0 in shape:
            what = "is missing" if found is None else f"has shape {found} where {shape} was expected"
            raise InputError(f"{file} is not a whole BERT: the weight {name} {what}")
    if dim % config.heads:
        raise InputError(f"{file} has hidden size {dim}, which {config.heads} attention heads do not divide")


class BertNumpy:
    """What BERT computes of batches of token ids, each (texts, tokens); behind the mask stands padding."""

    def __init__(self, config: BertConfig, weights: Mapping[str, Floats]) -> None:
        self._config = config
        self._weights = weights

    def forward(self, ids: Integers, mask: Integers) -> Floats:
        """The last hidden states, shape (texts, tokens, dim)."""
        return self._hidden(ids, mask, np.zeros((1, 1), np.int64), first=False)

    def classify(self, ids: Integers, mask: Integers, types: Integers) -> Floats:
        """The logits of a classifier over [CLS], shape (texts, labels).

        :param types: 0 for tokens of the first text of a pair, 1 for those of the second.
        """
        first = self._hidden(ids, mask, types, first=True)[:, 0]
        return self._dense(np.tanh(self._dense(first, "pooler.dense")), "classifier")

    def _hidden(self, ids: Integers, mask: Integers, types: Integers, *, first: bool) -> Floats:
        """The last hidden states, or with `first` those of the first token alone, which spares a layer the rest."""
        weights, layers = self._weights, self._config.layers
        hidden = (
            weights["embeddings.word_embeddings.weight"][ids]
            + weights["embeddings.position_embeddings.weight"][: ids.shape[1]]
            + weights["embeddings.token_type_embeddings.weight"][types]
        )
        hidden = self._norm(hidden, "embeddings.LayerNorm")
        bias = np.where(mask[:, None, None, :] == 0, np.float32(-1e9), np.float32(0))
        for number in range(layers):
            layer = f"encoder.layer.{number}."
            wanted = hidden[:, :1] if first and number == layers - 1 else hidden
            attended = self._dense(self._attend(wanted, hidden, bias, layer), layer + "attention.output.dense")
            hidden = self._norm(wanted + attended, layer + "attention.output.LayerNorm")
            grown = _gelu(self._dense(hidden, layer + "intermediate.dense"))
            hidden = self._norm(hidden + self._dense(grown, layer + "output.dense"), layer + "output.LayerNorm")
        return hidden

    def _attend(self, wanted: Floats, hidden: Floats, bias: Floats, layer: str) -> Floats:
        """For each wanted token the mean of the values of all tokens, weighted by how well their keys match it."""
        texts, _, dim = hidden.shape
        heads = self._config.heads
        query, key, value = (
            self._dense(x, f"{layer}attention.self.{name}")
            .reshape(texts, -1, heads, dim // heads)
            .transpose(0, 2, 1, 3)  # (texts, heads, tokens, head size)
            for name, x in (("query", wanted), ("key", hidden), ("value", hidden))
        )
        scores: Floats = query @ key.transpose(0, 1, 3, 2) * np.float32((dim // heads) ** -0.5) + bias
        scores -= scores.max(-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(-1, keepdims=True)
        attended: Floats = (scores @ value).transpose(0, 2, 1, 3).reshape(texts, -1, dim)
        return attended

    def _dense(self, x: Floats, name: str) -> Floats:
        flat = x.reshape(-1, x.shape[-1]) @ self._weights[name + ".weight"].T + self._weights[name + ".bias"]
        return flat.reshape(*x.shape[:-1], -1)

    def _norm(self, x: Floats, name: str) -> Floats:
        centred = x - x.mean(-1, keepdims=True)
        variance = np.square(centred).mean(-1, keepdims=True)
        normal: Floats = centred / np.sqrt(variance + np.float32(self._config.eps))
        return normal * self._weights[name + ".weight"] + self._weights[name + ".bias"]


def _gelu(x: Floats) -> Floats:
    """x Φ(x), with the error function of Abramowitz and Stegun 7.1.26 (error below 2e-7, as float32 has)."""
    z: Floats = np.abs(x) * np.float32(0.5**0.5)
    t: Floats = np.reciprocal(1 + np.float32(0.3275911) * z)
    tail: Floats = np.full_like(x, 1.061405429)
    for coefficient in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        tail *= t
        tail += np.float32(coefficient)
    tail *= t * np.exp(-z * z) / 2  # 1 - Φ(|x|)
    gelu: Floats = np.where(x >= 0, x * (1 - tail), x * tail)
    return gelu
