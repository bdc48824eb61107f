"""What ModernBERT has in place of BERT's parts: rotated queries and keys, local attention, gates and norms ahead.

Positions turn queries and keys by angles (RoPE, Su et al. 2021, arXiv:2104.09864). In most layers a token attends only
to tokens at most 64 away. Each layer normalises its inputs and not its outputs. The inner layer has gates (GeGLU,
Shazeer 2020, arXiv:2002.05202). Reference: Warner et al. 2024, arXiv:2412.13663.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .weight_names import CLASSIFIER, EMBEDDING_NORM, FINAL_NORM, HEAD_NORM, POOLER, WORDS, LayerNames

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ....core.arrays import Floats
    from .inputs import Pooling

_GLOBAL, _LOCAL = "full_attention", "sliding_attention"


@dataclass(frozen=True, slots=True)
class Rotary:
    """The settings of ModernBERT that BERT has not."""

    global_base: float  # of the angles in layers where each token attends to all
    local_base: float
    distance: int  # of tokens that attend to each other in the other layers, at most
    is_global: tuple[bool, ...]  # by layer
    pooling: Pooling = "cls"  # of a classifier

    @classmethod
    def from_json(cls, config: Mapping[str, Any], layers: int) -> Rotary | None:
        """Read a configuration of transformers, as version 4 or 5 writes it; None if it is of another kind."""
        every = config.get("global_attn_every_n_layers", 3)
        window = config.get("local_attention", 128)
        if not _is_count(every) or not _is_count(window):
            return None
        types = config.get("layer_types") or [_LOCAL if number % every else _GLOBAL for number in range(layers)]
        parameters = config.get("rope_parameters") or {}
        if config.get("rope_scaling") or len(types) != layers or not {*types} <= {_GLOBAL, _LOCAL}:
            return None
        global_base = _base(parameters.get(_GLOBAL) or {}, config.get("global_rope_theta", 160_000.0))
        local_base = _base(parameters.get(_LOCAL) or {}, config.get("local_rope_theta", 10_000.0))
        if global_base is None or local_base is None:
            return None
        pooling: Pooling = "mean" if config.get("classifier_pooling") == "mean" else "cls"
        return cls(global_base, local_base, window // 2, tuple(kind == _GLOBAL for kind in types), pooling)

    def angles(self, is_global: bool, tokens: int, size: int) -> tuple[Floats, Floats]:
        """Return the cosines and sines of the angles in a kind of layer, each (tokens, size of a head).

        The second half of a head's numbers has the angles of the first half.
        """
        base = self.global_base if is_global else self.local_base
        frequencies = 1 / base ** (np.arange(0, size, 2, dtype=np.float32) / np.float32(size))
        angles = np.arange(tokens, dtype=np.float32)[:, None] * frequencies.astype(np.float32)
        both = np.concatenate([angles, angles], axis=1)
        return np.cos(both), np.sin(both)

    def local_bias(self, tokens: int) -> Floats:
        """Return the bias of the attention in local layers, (tokens, tokens)."""
        positions = np.arange(tokens)
        is_far = np.abs(positions[:, None] - positions) > self.distance
        return np.where(is_far, np.float32(-1e9), np.float32(0))


def _base(parameters: Mapping[str, Any], default: Any) -> float | None:
    """Return the base of a kind of layer; None if its angles are scaled."""
    base = parameters.get("rope_theta", default)
    is_plain = parameters.get("rope_type", "default") == "default" and isinstance(base, (int, float)) and base > 0
    return float(base) if is_plain else None


def _is_count(value: object) -> bool:
    return type(value) is int and value > 0


def turned(x: Floats) -> Floats:
    """Return (-b, a) for each head's numbers (a, b), in halves."""
    half = x.shape[-1] // 2
    return np.concatenate([-x[..., half:], x[..., :half]], axis=-1)


def as_bert(weights: Mapping[str, Floats], layers: int) -> dict[str, Floats]:
    """Return the weights of a ModernBERT by BERT's names, with biases of 0 where it has none."""
    own = {name.removeprefix("model."): array for name, array in weights.items()}
    named: dict[str, Floats] = {}

    def add(name: str, source: str, part: int = 0, parts: int = 1) -> None:
        """Add a part of the rows of a dense layer or norm."""
        weight = own.get(f"{source}.weight")
        if weight is None or weight.ndim == 0 or len(weight) % parts:
            return
        rows = slice(part * len(weight) // parts, (part + 1) * len(weight) // parts)
        bias = own.get(f"{source}.bias")
        named[f"{name}.weight"] = weight[rows]
        named[f"{name}.bias"] = np.zeros(len(weight[rows]), np.float32) if bias is None else bias[rows]

    if "embeddings.tok_embeddings.weight" in own:
        named[WORDS] = own["embeddings.tok_embeddings.weight"]
    add(EMBEDDING_NORM, "embeddings.norm")
    add(FINAL_NORM, "final_norm")
    add(POOLER, "head.dense")
    add(HEAD_NORM, "head.norm")
    add(CLASSIFIER, "classifier")
    for number in range(layers):
        names, source = LayerNames(number), f"layers.{number}"
        for part, name in enumerate((names.query, names.key, names.value)):
            add(name, f"{source}.attn.Wqkv", part, 3)
        add(names.attention_output, f"{source}.attn.Wo")
        add(names.attention_norm, f"{source}.attn_norm")
        add(names.intermediate, f"{source}.mlp.Wi", 0, 2)
        add(names.gate, f"{source}.mlp.Wi", 1, 2)
        add(names.output, f"{source}.mlp.Wo")
        add(names.output_norm, f"{source}.mlp_norm")
    return named
