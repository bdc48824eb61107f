"""The configuration and the weights of a BERT, or of a model that is computed as one: read, named and checked.

The layout is that of transformers' `BertModel` and `BertForSequenceClassification`, without the `bert.` prefix.
Reference: Devlin et al. 2019, arXiv:1810.04805. `families` has the other model types.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ....core.errors import InputError
from .families import FAMILIES, Family
from .rotary import Rotary, as_bert
from .weight_names import (
    CLASSIFIER,
    DISTANCES,
    EMBEDDING_NORM,
    FINAL_NORM,
    HEAD_NORM,
    POOLER,
    POSITIONS,
    TYPES,
    WORDS,
    LayerNames,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from ....core.arrays import Floats, Integers

_FARTHEST = 128  # tokens: greater distances share a bias


@dataclass(frozen=True, slots=True)
class BertConfig:
    """The sizes of a BERT, or of a model that is computed as one."""

    layers: int
    heads: int
    eps: float  # of every layer norm
    max_positions: int  # longest sequence, special tokens included
    first_position: int = 0  # the row of the position embeddings for the first token
    distances: int = 0  # rows of the bias by distance; 0: none
    rotary: Rotary | None = None  # of ModernBERT
    model_type: str = "bert"

    @classmethod
    def from_json(
        cls, config: Mapping[str, Any], file: Path | str = "config.json", *, task: str | None = None
    ) -> BertConfig | None:
        """Return the configuration, or None if the model is of another family and needs torch.

        :param file: the file of `config`, for messages.
        :param task: of the model's head, as transformers names it; the head must be BERT's too.
        """
        model_type = config.get("model_type")
        family = FAMILIES.get(model_type) if isinstance(model_type, str) else None
        if family is None or (task and not _has_berts_head(config, family, task)):
            return None
        is_computed = (
            config.get(family.sizes.get("hidden_act", "hidden_act")) == "gelu"
            and config.get("position_embedding_type", "absolute") == "absolute"
            and not config.get("is_decoder", False)
            and (model_type != "mpnet" or config.get("pad_token_id", 1) == 1)  # its positions ignore another number
        )
        if not is_computed:
            return None
        layers, heads, positions = (
            _positive(config, family.sizes.get(name, name), file)
            for name in ("num_hidden_layers", "num_attention_heads", "max_position_embeddings")
        )
        first = 0
        if family.padding is not None:
            padding = config.get("pad_token_id", family.padding)
            first = 1 + (padding if type(padding) is int and padding >= 0 else family.padding)
            if positions <= first:
                raise InputError(f"{file} has max_position_embeddings {positions}: expected more than {first}")
        distances = config.get("relative_attention_num_buckets", 32) if family.has_distances else 0
        if family.has_distances and (not isinstance(distances, int) or not 4 <= distances < 10**6):
            raise InputError(f"{file} has relative_attention_num_buckets {distances!r}: expected a number from 4 on")
        rotary = Rotary.from_json(config, layers) if family.is_rotary else None
        if family.is_rotary and rotary is None:
            return None
        eps = float(config.get("norm_eps", 1e-5) if family.is_rotary else config.get("layer_norm_eps", 1e-12))
        return cls(layers, heads, eps, positions - first, first, distances, rotary, str(model_type))

    @property
    def has_int8(self) -> bool:
        """Whether the dense layers can be computed in int8."""
        return self.rotary is None

    @property
    def family(self) -> Family:
        """How the model names its weights."""
        return FAMILIES[self.model_type]


def _has_berts_head(config: Mapping[str, Any], family: Family, task: str) -> bool:
    has_two_types = not family.has_types or config.get("type_vocab_size", 2) == 2  # a pair needs both
    return has_two_types and task not in family.other_heads and config.get("classifier_activation", "gelu") == "gelu"


def _positive(config: Mapping[str, Any], name: str, file: Path | str) -> int:
    """:raises InputError: when a setting is not a positive number."""
    value = config.get(name)
    if not isinstance(value, int) or not 0 < value < 10**6:
        raise InputError(f"{file} has {name} {value!r}: expected a positive number")
    return value


def load_bert(file: Path, config: BertConfig) -> dict[str, Floats]:
    """Memory-map a safetensors file as `load_weights`, and return its arrays by BERT's names.

    :raises InputError: when the file is not a safetensors file.
    """
    if config.rotary:
        return as_bert(load_weights(file), config.layers)
    weights = {config.family.bert_name(name): array for name, array in load_weights(file).items()}
    if config.first_position and POSITIONS in weights:
        weights[POSITIONS] = weights[POSITIONS][config.first_position :]
    if not config.family.has_types and WORDS in weights:
        types = weights.get(TYPES, np.zeros((1, weights[WORDS].shape[-1]), np.float32))
        weights[TYPES] = np.repeat(types[:1], 2, axis=0)  # a second text has the type of the first
    return weights


def distance_bias(config: BertConfig, weights: Mapping[str, Floats], tokens: int) -> Floats:
    """Return the bias of the attention of each token (second axis) to each other, (heads, tokens, tokens).

    Half of the rows are for later tokens. In each half, the first rows are for one distance each, and the others divide
    the logarithms up to 128 tokens (Raffel et al. 2020, arXiv:1910.10683).
    """
    half = config.distances // 2
    exact = half // 2
    distances = np.arange(tokens)
    with np.errstate(divide="ignore"):
        logarithms = np.log(distances.astype(np.float32) / exact) / math.log(_FARTHEST / exact)
    rows = np.minimum(exact + np.maximum(logarithms * (half - exact), 0).astype(np.int64), half - 1)
    rows = np.where(distances < exact, distances, rows)
    by_offset = np.concatenate([rows[:0:-1], rows + half * (distances > 0)])  # of key minus query, from 1 - tokens on
    offsets = distances[None, :] - distances[:, None] + tokens - 1
    bias: Floats = np.ascontiguousarray(weights[DISTANCES].T)[:, by_offset[offsets]]
    return bias


def load_weights(file: Path) -> dict[str, Floats]:
    """Memory-map a safetensors file and return its float arrays by name.

    The safetensors library checks the header. Its loader would copy all weights, and a query reads only a part of them.
    Format: https://github.com/huggingface/safetensors#format (8 bytes of header length, JSON, then the data).

    :raises InputError: when the file is not a safetensors file.
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
    start = 8 + length
    # Mode c is for OpenVINO, which shares only writable arrays; nothing is written.
    data = np.memmap(file, np.uint8, "c", offset=start) if file.stat().st_size > start else np.empty(0, np.uint8)
    return {
        name: _FLOATS[entry["dtype"]](data[slice(*entry["data_offsets"])]).reshape(entry["shape"])
        for name, entry in header.items()
        if entry["dtype"] in _FLOATS  # position_ids is an integer buffer of old checkpoints
    }


def load_integers(file: Path, name: str) -> Integers | None:
    """Return an integer array of a valid safetensors file, or None if it has none of this name."""
    from safetensors import safe_open

    with safe_open(file, "numpy") as arrays:
        return arrays.get_tensor(name).astype(np.int64) if name in arrays.keys() else None  # noqa: SIM118 - no mapping


# How the bytes of each type become float32; float32 itself stays a view of the file.
_FLOATS: dict[str, Callable[[NDArray[np.uint8]], Floats]] = {
    "F32": lambda data: data.view(np.float32),
    "F16": lambda data: data.view(np.float16).astype(np.float32),
    "F64": lambda data: data.view(np.float64).astype(np.float32),
    "BF16": lambda data: (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32),  # the upper half of a float32
}


def check_weights(
    file: Path, config: BertConfig, weights: Mapping[str, Floats], *, classifier: bool = False, types: bool = False
) -> None:
    """Check that every weight is there, with the shape that the others imply.

    :param classifier: whether there must be a head with one score.
    :param types: whether there must be an embedding for second texts.
    :raises InputError: with the name of the first weight that is missing or has another shape.
    """
    shapes = _shapes(config, weights, classifier=classifier, types=types)
    for name, shape in shapes.items():
        actual = weights[name].shape if name in weights else None
        if actual != shape or 0 in shape:
            problem = "is missing" if actual is None else f"has shape {actual} where {shape} was expected"
            kind, weight = "BERT", f"the weight {name}"
            if config.model_type != "bert":
                kind, weight = config.model_type, f"its weight for BERT's {name}"
            raise InputError(f"{file} is not a whole {kind}: {weight} {problem}")
    dim = weights[WORDS].shape[1]
    if dim % config.heads:
        raise InputError(f"{file} has hidden size {dim}, which {config.heads} attention heads do not divide")


def _shapes(
    config: BertConfig, weights: Mapping[str, Floats], *, classifier: bool, types: bool
) -> dict[str, tuple[int, ...]]:
    """Return the shape that each weight must have, by name."""
    words = weights.get(WORDS, np.empty((0, 0), np.float32))
    dim = words.shape[1] if words.ndim == 2 else 0
    width = weights.get(f"{LayerNames(0).intermediate}.bias", np.empty(0, np.float32)).size
    shapes: dict[str, tuple[int, ...]] = {WORDS: words.shape}
    if not config.rotary:
        shapes[POSITIONS] = (config.max_positions, dim)
        shapes[TYPES] = (2, dim) if types else weights.get(TYPES, words).shape
    if config.distances:
        shapes[DISTANCES] = (config.distances, config.heads)
    dense: dict[str, tuple[int, ...]] = {}
    norms = [EMBEDDING_NORM, *([FINAL_NORM] if config.rotary else [])]
    for number in range(config.layers):
        layer = LayerNames(number)
        dense |= dict.fromkeys((layer.query, layer.key, layer.value, layer.attention_output), (dim, dim))
        dense |= {layer.intermediate: (width, dim), layer.output: (dim, width)}
        if config.rotary:
            dense[layer.gate] = (width, dim)
        if number or not config.rotary:
            norms.append(layer.attention_norm)
        norms.append(layer.output_norm)
    if classifier:
        dense |= {POOLER: (dim, dim), CLASSIFIER: (1, dim)}
        norms += [HEAD_NORM] if config.rotary else []
    for name, shape in dense.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    for name in norms:
        shapes |= {f"{name}.weight": (dim,), f"{name}.bias": (dim,)}
    return shapes
