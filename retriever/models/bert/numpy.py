"""BERT in numpy, for the few queries that a process needs at once.

A cold search encodes one query. Every inference runtime takes longer to import and to compile its graph than this takes
to answer: the weights are memory-mapped, so a query touches only the weights that it multiplies. Bulk work goes to
`openvino`, which computes the same function; the tests compare the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .rotary import turned
from .weight_names import EMBEDDING_NORM, FINAL_NORM, POSITIONS, TYPES, WORDS, LayerNames
from .weights import distance_bias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ....core.arrays import Floats, Integers
    from .rotary import Rotary
    from .weights import BertConfig


class BertNumpy:
    """Compute BERT for batches of token ids, each (texts, tokens); the mask is 0 for padding."""

    def __init__(self, config: BertConfig, weights: Mapping[str, Floats]) -> None:
        self._config = config
        self._weights = weights
        self._layers = [LayerNames(number) for number in range(config.layers)]

    def forward(self, ids: Integers, mask: Integers, types: Integers | None = None) -> Floats:
        """Return the last hidden states, shape (texts, tokens, dim), like `layers`."""
        for hidden, _ in self.layers(ids, mask, types):  # noqa: B007 - the last counts
            pass
        return hidden

    def layers(
        self, ids: Integers, mask: Integers, types: Integers | None = None
    ) -> Iterator[tuple[Floats, Floats | None]]:
        """Yield the hidden states of the embeddings and of each layer, (texts, tokens, dim), with its attention.

        The attention has shape (texts, heads, tokens, tokens); each row sums to 1. The embeddings have none.

        :param types: 1 for tokens of the second text of a pair, shape of `ids`; by default all belong to the first.
        """
        if self._config.rotary:
            yield from self._rotary_layers(ids, mask, self._config.rotary)
            return
        weights = self._weights
        segments = weights[TYPES][0] if types is None else weights[TYPES][types]
        hidden = self._norm(weights[WORDS][ids] + weights[POSITIONS][: ids.shape[1]] + segments, EMBEDDING_NORM)
        yield hidden, None
        bias = np.where(mask[:, None, None, :] == 0, np.float32(-1e9), np.float32(0))
        if self._config.distances:
            bias = bias + distance_bias(self._config, weights, ids.shape[1])
        for layer in self._layers:
            means, attention = self._attend(hidden, bias, layer)
            hidden = self._norm(hidden + self._dense(means, layer.attention_output), layer.attention_norm)
            expanded = _gelu(self._dense(hidden, layer.intermediate))
            hidden = self._norm(hidden + self._dense(expanded, layer.output), layer.output_norm)
            yield hidden, attention

    def _rotary_layers(self, ids: Integers, mask: Integers, rotary: Rotary) -> Iterator[tuple[Floats, Floats | None]]:
        """Yield what `layers` does, for ModernBERT. The last states are normalised once more."""
        tokens, size = ids.shape[1], self._weights[WORDS].shape[1] // self._config.heads
        hidden = self._norm(self._weights[WORDS][ids], EMBEDDING_NORM)
        yield hidden, None
        padding = np.where(mask[:, None, None, :] == 0, np.float32(-1e9), np.float32(0))
        near = padding + rotary.local_bias(tokens)
        angles = [rotary.angles(is_global, tokens, size) for is_global in (False, True)]
        for number, layer in enumerate(self._layers):
            inputs = self._norm(hidden, layer.attention_norm) if number else hidden
            bias = padding if rotary.is_global[number] else near
            means, attention = self._attend(inputs, bias, layer, angles[rotary.is_global[number]])
            hidden = hidden + self._dense(means, layer.attention_output)
            inputs = self._norm(hidden, layer.output_norm)
            expanded = _gelu(self._dense(inputs, layer.intermediate)) * self._dense(inputs, layer.gate)
            hidden = hidden + self._dense(expanded, layer.output)
            is_last = number == self._config.layers - 1
            yield self._norm(hidden, FINAL_NORM) if is_last else hidden, attention

    def _attend(
        self, hidden: Floats, bias: Floats, layer: LayerNames, angles: tuple[Floats, Floats] | None = None
    ) -> tuple[Floats, Floats]:
        """Return for each token the mean of all tokens' values, by how well their keys match, and the weights.

        :param angles: cosines and sines that queries and keys are turned by.
        """
        texts, _, dim = hidden.shape
        heads = self._config.heads
        query, key, value = (
            self._dense(hidden, name)
            .reshape(texts, -1, heads, dim // heads)
            .transpose(0, 2, 1, 3)  # (texts, heads, tokens, head size)
            for name in (layer.query, layer.key, layer.value)
        )
        if angles is not None:
            cosines, sines = angles
            query, key = (x * cosines + turned(x) * sines for x in (query, key))
        scores: Floats = query @ key.transpose(0, 1, 3, 2) * np.float32((dim // heads) ** -0.5) + bias
        scores -= scores.max(-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(-1, keepdims=True)
        return (scores @ value).transpose(0, 2, 1, 3).reshape(texts, -1, dim), scores

    def _dense(self, x: Floats, name: str) -> Floats:
        weight = self._weights[name + ".weight"]
        product = weight @ x.reshape(-1, x.shape[-1]).T  # a fifth faster than its transpose for a few tokens
        total: Floats = np.add(product.T, self._weights[name + ".bias"], order="C")
        return total.reshape(*x.shape[:-1], -1)

    def _norm(self, x: Floats, name: str) -> Floats:
        centred = x - x.mean(-1, keepdims=True)
        variance = np.square(centred).mean(-1, keepdims=True)
        normal: Floats = centred / np.sqrt(variance + np.float32(self._config.eps))
        return normal * self._weights[name + ".weight"] + self._weights[name + ".bias"]


def _gelu(x: Floats) -> Floats:
    """Compute x Φ(x), with the error function of Abramowitz and Stegun 7.1.26 (error below 2e-7, as float32 has)."""
    z: Floats = np.abs(x) * np.float32(0.5**0.5)
    t: Floats = np.reciprocal(1 + np.float32(0.3275911) * z)
    tail: Floats = np.full_like(x, 1.061405429)
    for coefficient in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        tail *= t
        tail += np.float32(coefficient)
    tail *= t * np.exp(-z * z) / 2  # 1 - Φ(|x|)
    gelu: Floats = np.where(x >= 0, x * (1 - tail), x * tail)
    return gelu
