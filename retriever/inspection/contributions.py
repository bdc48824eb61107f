"""Which tokens made two texts similar: the share of each pair of tokens in the cosine.

A pooled vector is a sum with one term for each token. With mean pooling, the term is the token's state divided by the
number of tokens. With max pooling, it is those dimensions of the state that are the highest of all tokens. So the
cosine of two texts is a sum with one term for each pair of tokens, exactly. With [CLS] pooling the sum has one term,
for the two [CLS], and says nothing about other tokens.

Each state has seen the whole text: a share belongs to a token in its context, not to the word alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...core.arrays import Doubles
    from .token_states import TokenStates


class WordPair(NamedTuple):
    """A word of the query, a word of the passage, in lower case, and the share of all their occurrences."""

    query: str
    passage: str
    share: float


def contributions(query: TokenStates, passage: TokenStates) -> Doubles:
    """Return the share of each pair of tokens, shape (query tokens, passage tokens); the sum is the cosine.

    :raises InputError: when the encoder's vector is more than its pooled states.
    """
    left, right = pooled_terms(query), pooled_terms(passage)
    length = float(np.linalg.norm(left.sum(0)) * np.linalg.norm(right.sum(0)))
    shares: Doubles = left @ right.T / max(length, 1e-12)
    return shares


def pooled_terms(text: TokenStates, layer: int = -1) -> Doubles:
    """Return the term of each token in the pooled vector, shape (tokens, dim); their sum is the vector.

    :param layer: 0 for the embeddings, -1 for the last layer, which the encoder pools.
    """
    if not text.pooling or not set(text.pooling) <= _TERMS.keys():
        raise InputError(
            "the vectors of this encoder are not sums over tokens: expected mean, max or [CLS] pooling and no module "
            "after it but Normalize"
        )
    terms: Doubles = np.concatenate(
        [_TERMS[mode](text.states[layer].astype(np.float64)) for mode in text.pooling], axis=1
    )
    return terms


def word_pairs(query: TokenStates, passage: TokenStates, shares: Doubles) -> list[WordPair]:
    """Add the shares of all pieces and all occurrences of two words.

    The strongest occurrence decides the order, because words that occur often would come first by their sums. The
    rest of the cosine is the share of [CLS], [SEP] and other special tokens.
    """
    occurrences: dict[tuple[str, str], list[float]] = {}
    for left, rows in query.words():
        for right, columns in passage.words():
            share = float(shares[np.ix_(rows, columns)].sum())
            occurrences.setdefault((left.casefold(), right.casefold()), []).append(share)
    ranked = sorted(occurrences.items(), key=lambda pair: -max(pair[1]))
    return [WordPair(*words, sum(parts)) for words, parts in ranked]


def _mean(states: Doubles) -> Doubles:
    terms: Doubles = states / len(states)
    return terms


def _max(states: Doubles) -> Doubles:
    terms: Doubles = states * (np.argmax(states, axis=0)[None, :] == np.arange(len(states))[:, None])
    return terms


def _cls(states: Doubles) -> Doubles:
    terms: Doubles = states * (np.arange(len(states)) == 0)[:, None]
    return terms


# The terms of a pooled vector, by the name of the pooling in sentence-transformers. A cosine has no scale, but several
# poolings in one vector have.
_TERMS: dict[str, Callable[[Doubles], Doubles]] = {
    "mean": _mean,
    "mean_sqrt_len_tokens": lambda states: states / np.sqrt(len(states)),
    "max": _max,
    "cls": _cls,
}
