"""Model types that are computed as BERT: their names for its weights, and where they differ.

- RoBERTa (Liu et al. 2019, arXiv:1907.11692), XLM-RoBERTa (arXiv:1911.02116) and CamemBERT (arXiv:1911.03894) number
  positions from the padding token's on.
- DistilBERT (Sanh et al. 2019, arXiv:1910.01108) has no token types, and a classifier with ReLU where BERT has tanh.
- ModernBERT has other layers: see `rotary`.
- MPNet (Song et al. 2020, arXiv:2004.09297) has no token types either, and numbers positions as RoBERTa does. It adds
  a bias to attention by the distance of two tokens (Raffel et al. 2020, arXiv:1910.10683, section 2.1).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_LAYER = re.compile(r"(?:encoder|transformer)\.layer\.(\d+)\.(.+)\.(weight|bias)")
_ROBERTA_HEAD = {"classifier.dense": "pooler.dense", "classifier.out_proj": "classifier"}


@dataclass(frozen=True, slots=True)
class Family:
    """How a model type names what BERT has too."""

    prefix: str  # of the encoder's weights in a model with a head
    parts: Mapping[str, str] = field(default_factory=dict)  # the parts of a layer: its names, and BERT's
    head: Mapping[str, str] = field(default_factory=dict)  # the same of a classifier's head
    sizes: Mapping[str, str] = field(default_factory=dict)  # BERT's names in config.json, and its own
    padding: int | None = None  # the padding token, where positions begin behind its number
    has_types: bool = False  # whether a second text has a token type of its own
    has_distances: bool = False  # whether attention has a bias by distance
    has_relu_head: bool = False  # whether the head of a classifier has ReLU, not tanh
    other_heads: tuple[str, ...] = ()  # tasks of transformers with a head unlike BERT's
    is_rotary: bool = False  # ModernBERT: see `rotary`

    def bert_name(self, name: str) -> str:
        """Return BERT's name of a weight."""
        name = name.removeprefix(self.prefix)
        if match := _LAYER.fullmatch(name):
            number, part, kind = match.groups()
            return f"encoder.layer.{number}.{self.parts.get(part, part)}.{kind}"
        part, dot, kind = name.rpartition(".")
        return self.head.get(part, part) + dot + kind


_ROBERTA = Family("roberta.", head=_ROBERTA_HEAD, padding=1)

# By `model_type` of config.json.
FAMILIES = {
    "bert": Family("bert.", has_types=True),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "distilbert": Family(
        "distilbert.",
        parts={
            "attention.q_lin": "attention.self.query",
            "attention.k_lin": "attention.self.key",
            "attention.v_lin": "attention.self.value",
            "attention.out_lin": "attention.output.dense",
            "sa_layer_norm": "attention.output.LayerNorm",
            "ffn.lin1": "intermediate.dense",
            "ffn.lin2": "output.dense",
            "output_layer_norm": "output.LayerNorm",
        },
        head={"pre_classifier": "pooler.dense"},
        sizes={"num_hidden_layers": "n_layers", "num_attention_heads": "n_heads", "hidden_act": "activation"},
        has_relu_head=True,
    ),
    "modernbert": Family(
        "model.",
        sizes={"hidden_act": "hidden_activation"},
        other_heads=("TokenClassification", "QuestionAnswering"),
        is_rotary=True,
    ),
    "mpnet": Family(
        "mpnet.",
        parts={
            "attention.attn.q": "attention.self.query",
            "attention.attn.k": "attention.self.key",
            "attention.attn.v": "attention.self.value",
            "attention.attn.o": "attention.output.dense",
            "attention.LayerNorm": "attention.output.LayerNorm",
        },
        head=_ROBERTA_HEAD,
        padding=1,
        has_distances=True,
    ),
}
