"""The BERT family with a head, without torch: the encoder's own pass, and the head in numpy on its hidden states."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ....core.errors import InputError
from ..bert.model import BertModel
from ..bert.weight_names import POOLER
from ..bert.weights import load_bert

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tokenizers import Tokenizer

    from ....core.arrays import Floats
    from ..bert.inputs import Tokens
    from ..bert.weights import BertConfig
    from .head_settings import HeadKind, HeadSettings

    Dense = tuple[Floats, Floats]  # weight and bias of a layer

_MIN_TOKENS = 1_024  # tokens: numpy computes fewer before a graph is compiled


class BertHead:
    """A model of the BERT family with a head. In float32 its logits agree with those of transformers to 1e-4."""

    def __init__(
        self,
        name: str,
        folder: Path,
        fingerprint: str,
        settings: HeadSettings,
        model: BertModel,
        dense: Dense,
        pooler: Dense | None,
        *,
        has_relu: bool = False,
    ) -> None:
        """
        :param dense: weight (labels, dim) and bias of the head.
        :param pooler: weight (dim, dim) and bias of the layer before it, if the head pools.
        :param has_relu: whether ReLU follows this layer, not tanh.
        """
        self.name, self.folder, self.fingerprint, self.settings = name, folder, fingerprint, settings
        self._model, self._dense, self._pooler, self._has_relu = model, dense, pooler, has_relu

    @classmethod
    def load(
        cls, name: str, folder: Path, fingerprint: str, settings: HeadSettings, kind: HeadKind, config: BertConfig
    ) -> BertHead:
        """Load model and head from a folder.

        :raises InputError: when they are damaged, or the head is missing.
        """
        model = BertModel.load(folder, config, fingerprint, types=True, pooling="cls" if kind.pooled else None)
        weights = load_bert(folder / "model.safetensors", config)
        dense = _dense(folder, weights, kind.layer, (len(settings.labels), model.dim))
        pooler = _dense(folder, weights, POOLER, (model.dim, model.dim)) if kind.pooled else None
        return cls(name, folder, fingerprint, settings, model, dense, pooler, has_relu=config.family.has_relu_head)

    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer, which neither pads nor truncates."""
        return self._model.tokenizer(truncated=False)

    def logits(self, texts: Sequence[Tokens]) -> list[Floats]:
        """Compute few texts in numpy, and more by a compiled graph; see `Head`."""
        is_small = sum(len(text.ids) for text in texts) < _MIN_TOKENS
        logits = [np.empty(0, np.float32)] * len(texts)
        for positions, hidden, _ in (self._model.run_uncompiled if is_small else self._model.run)(texts):
            for row, position in enumerate(positions.tolist()):
                logits[position] = self._apply(hidden[row, : len(texts[position].ids)])
        return logits

    def _apply(self, hidden: Floats) -> Floats:
        """Return the logits of a text's tokens, or of its first token after the pooler (arXiv:1810.04805)."""
        if self._pooler is not None:
            weight, bias = self._pooler
            pooled = weight @ hidden[0] + bias
            hidden = np.maximum(pooled, 0) if self._has_relu else np.tanh(pooled)
        weight, bias = self._dense
        logits: Floats = hidden @ weight.T + bias
        return logits


def _dense(folder: Path, weights: dict[str, Floats], name: str, shape: tuple[int, int]) -> Dense:
    """Return weight and bias of a dense layer.

    :raises InputError: when one is missing or has another shape.
    """
    parts = [weights.get(f"{name}.{part}", np.empty(0, np.float32)) for part in ("weight", "bias")]
    for part, array, expected in zip(("weight", "bias"), parts, (shape, shape[:1]), strict=True):
        if array.shape != expected:
            raise InputError(
                f"{folder / 'model.safetensors'} has {name}.{part} of shape {array.shape}: expected {expected}; copy "
                "the model folder again"
            )
    return parts[0], parts[1]
