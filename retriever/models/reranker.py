"""Reranker: how well each passage answers a query, by a model that reads the two together.

Reference: Nogueira and Cho 2019, arXiv:1901.04085.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from ...core.errors import InputError
from ..models.encoder import check_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...core.arrays import Floats

    Pairs = list[tuple[str, str]]


# Pairs tokenized and sorted by length at a time.
_PIECE = 8_192

# Passages scored before it is known how many fit into the time left, and the fewest worth a look at the clock.
_SLICE = 4


class Reranker(ABC):
    """A cross-encoder with one score; `load_reranker` makes one."""

    name: str
    max_tokens: int  # of query and passage together, special tokens left out
    fingerprint: str  # equal fingerprints give equal scores
    first_stage_weight: float = 0.0  # share of the first stage in the final order, from the folder's binocle.json

    def score(self, query: str, passages: Sequence[str]) -> Floats:
        """The model's logit for each passage, shape (passages,): higher is better.

        Logits are what `CrossEncoder.predict` gives before its activation.
        """
        return self._score(_paired(query, passages))

    def score_pairs(self, pairs: Sequence[tuple[str, str]]) -> Floats:
        """The logits of many pairs of a query and a passage, shape (pairs,)."""
        return self._score(_checked(pairs))

    def _score(self, pairs: Pairs) -> Floats:
        pieces = [pairs[start : start + _PIECE] for start in range(0, len(pairs), _PIECE)]
        scores = [self._scorer(piece)(0, len(piece)) for piece in pieces]
        return self._sound(np.concatenate(scores)) if scores else np.empty(0, np.float32)

    def _sound(self, scores: Floats) -> Floats:
        if not np.isfinite(scores).all():
            raise InputError(f"the reranker {self.name} gives scores that are no numbers: its weights are damaged")
        return scores

    def score_within(self, seconds: float, query: str, passages: Sequence[str]) -> Floats:
        """The logits of as many of the passages, from the first on, as can be scored in that time.

        Four at first, then as many as fit into half of the time left at the rate of those before. What is done once
        a process, such as compiling the model's graph, does not count.
        """
        pairs = _paired(query, passages)
        scorer = self._scorer(pairs)
        began, scores = time.perf_counter(), np.empty(0, np.float32)
        count = _SLICE if seconds > 0 else 0
        while count and len(scores) < len(pairs):
            scores = np.concatenate([scores, scorer(len(scores), min(len(pairs), len(scores) + count))])
            spent = time.perf_counter() - began
            fitting = int(min(len(pairs), (seconds - spent) * len(scores) / spent))
            count = max(0, fitting if fitting <= _SLICE else max(_SLICE, fitting // 2))
        return self._sound(scores)

    @abstractmethod
    def _scorer(self, pairs: Pairs) -> Callable[[int, int], Floats]:
        """What gives the logits of pairs[start:stop], with all that can be done beforehand done."""


def _paired(query: str, passages: Sequence[str]) -> Pairs:
    if not isinstance(query, str):
        raise InputError(f"a query is a text, but this one is of type {type(query).__name__}")
    (query,) = check_texts([query])
    return [(query, passage) for passage in check_texts(passages)]


def _checked(pairs: Sequence[tuple[str, str]]) -> Pairs:
    """Pairs of texts that can be tokenized, or an error that says what came instead."""
    for number, pair in enumerate(pairs, 1):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise InputError(f"pair {number} is {pair!r}: expected a query and a passage")
    queries, passages = check_texts([pair[0] for pair in pairs]), check_texts([pair[1] for pair in pairs])
    return list(zip(queries, passages, strict=True))
