"""Views of token states, as matrices to draw and rows to print."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...core.errors import InputError
from .contributions import contributions, pooled_terms
from .heat_map import Matrix
from .rollout import rollout

if TYPE_CHECKING:
    from ...core.arrays import Floats
    from .token_states import TokenStates
    from .word_contexts import WordContexts

_LARGEST = 2_000_000  # values in a page of all heads: 5 MB


class LayerRow(NamedTuple):
    """The figures of a layer for one text (spread, focus) or for two (mean, cls)."""

    layer: int  # 0 for the embeddings
    values: dict[str, float]


def attention_matrix(text: TokenStates, layer: int | None = None, head: int | None = None) -> Matrix:
    """Return who attends to whom: in one head of a layer, in the mean of its heads, or rolled out over all layers.

    :param layer: from 1; None: all of them.
    :param head: from 1; None: the mean of all heads.
    :raises InputError: when there is no such layer or head.
    """
    layers, heads = text.attention.shape[:2]
    if layer is None and head is not None:
        raise InputError("a head belongs to a layer: say which layer")
    _check("layer", layer, layers)
    _check("head", head, heads)
    if layer is None:
        title, values = f"rollout over {layers} layers", rollout(text.attention)
    elif head is None:
        title, values = f"layer {layer}, mean of {heads} heads", text.attention[layer - 1].mean(0)
    else:
        title, values = f"layer {layer}, head {head}", text.attention[layer - 1, head - 1]
    return Matrix(title, text.pieces, text.pieces, values)


def attention_matrices(text: TokenStates) -> list[Matrix]:
    """Return the rollout, the mean of each layer, and each head; no heads for a text that is too long."""
    layers, heads, tokens, _ = text.attention.shape
    numbers = range(1, layers + 1)
    matrices = [attention_matrix(text), *(attention_matrix(text, layer) for layer in numbers)]
    if layers * heads * tokens**2 <= _LARGEST:
        matrices += [attention_matrix(text, layer, head) for layer in numbers for head in range(1, heads + 1)]
    return matrices


def similarity_matrix(query: TokenStates, passage: TokenStates) -> Matrix:
    """Return the share of each pair of tokens in the cosine of two texts."""
    shares = contributions(query, passage)
    title = f"cosine {shares.sum():.4f} by pairs of tokens"
    return Matrix(title, query.pieces, passage.pieces, shares)


def word_matrix(contexts: WordContexts) -> Matrix:
    """Return the cosines between the occurrences of a word."""
    labels = tuple(contexts.labels)
    return Matrix("cosines between occurrences", labels, labels, contexts.cosines())


def layer_rows(text: TokenStates, passage: TokenStates | None = None) -> list[LayerRow]:
    """Return a row for each layer, the embeddings first.

    For one text: the cosine of [CLS] to the mean of all tokens, and the mean cosine between two of its tokens. For two
    texts: their cosine by the mean and by [CLS], and by the encoder's own pooling if it is another.
    """
    return [LayerRow(number, _layer_values(text, passage, number)) for number in range(len(text.states))]


def _layer_values(text: TokenStates, passage: TokenStates | None, layer: int) -> dict[str, float]:
    states = text.states[layer]
    if passage is None:
        units = states / np.linalg.norm(states, axis=1, keepdims=True)
        between = (units @ units.T).sum() - len(units)
        return {
            "CLS to mean": _cosine(states[0], states.mean(0)),
            "between tokens": float(between / max(1, len(units) * (len(units) - 1))),
        }
    against = passage.states[layer]
    values = {"mean": _cosine(states.mean(0), against.mean(0)), "CLS": _cosine(states[0], against[0])}
    if text.pooling and text.pooling not in (("mean",), ("cls",)):
        name = "+".join(text.pooling)
        values[name] = _cosine(pooled_terms(text, layer).sum(0), pooled_terms(passage, layer).sum(0))
    return values


def _cosine(left: Floats, right: Floats) -> float:
    return float(left @ right / max(float(np.linalg.norm(left) * np.linalg.norm(right)), 1e-12))


def _check(name: str, number: int | None, count: int) -> None:
    if number is not None and not 1 <= number <= count:
        raise InputError(f"there is no {name} {number}: the model has {count}, from 1")
