"""The reranker protocol: a cross-encoder scores how well a passage answers a query, reading the two together.

Nogueira and Cho 2019, arXiv:1901.04085.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from ...core.errors import InputError
from .encoder import check_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...core.arrays import Floats

    Pairs = list[tuple[str, str]]


_PIECE = 8_192  # pairs tokenized and sorted by length at a time
_SLICE = 4  # passages scored before the first look at the clock, and the minimum between two looks


class Reranker(ABC):
    """A cross-encoder with one score; `load_reranker` returns one."""

    name: str
    max_tokens: int  # of query and passage together, without special tokens
    fingerprint: str  # equal fingerprints give equal scores, up to the precision of the processor
    first_stage_weight: float = 0.0  # share of the first stage in the final order, from the folder's binocle.json

    def score(self, query: str, passages: Sequence[str]) -> Floats:
        """Return the model's logit for each passage, shape (passages,): higher is better.

        `CrossEncoder.predict` returns logits too, but after an activation.

        :raises InputError: when the query or a passage is no text, or a score is not finite.
        """
        return self._score(_pairs(query, passages))

    def score_pairs(self, pairs: Sequence[tuple[str, str]]) -> Floats:
        """Return the logits of pairs of a query and a passage, shape (pairs,)."""
        return self._score(_check_pairs(pairs))

    @np.errstate(over="ignore", invalid="ignore")  # of damaged weights; the error says so in one line
    def _score(self, pairs: Pairs) -> Floats:
        pieces = [pairs[start : start + _PIECE] for start in range(0, len(pairs), _PIECE)]
        scores = [self._batch_scorer(piece)(0, len(piece)) for piece in pieces]
        return self._check_finite(np.concatenate(scores)) if scores else np.empty(0, np.float32)

    def _check_finite(self, scores: Floats) -> Floats:
        if not np.isfinite(scores).all():
            raise InputError(f"the reranker {self.name} gives scores that are no numbers: its weights are damaged")
        return scores

    @np.errstate(over="ignore", invalid="ignore")
    def score_within(self, seconds: float, query: str, passages: Sequence[str]) -> Floats:
        """Return the logits of the first passages, as many as can be scored in that time.

        It scores four passages, then as many as fit into half of the remaining time at the rate so far. Work done
        once a process, such as compiling the model's graph, does not count.

        :returns: shape (n,), for the first n passages; n is 0 if there is no time.
        """
        pairs = _pairs(query, passages)
        scorer = self._batch_scorer(pairs)
        start, scores = time.perf_counter(), np.empty(0, np.float32)
        count = _SLICE if seconds > 0 else 0
        while count and len(scores) < len(pairs):
            scores = np.concatenate([scores, scorer(len(scores), min(len(pairs), len(scores) + count))])
            spent = time.perf_counter() - start
            affordable = int(min(len(pairs), (seconds - spent) * len(scores) / spent))
            count = max(0, affordable if affordable <= _SLICE else max(_SLICE, affordable // 2))
        return self._check_finite(scores)

    @abstractmethod
    def _batch_scorer(self, pairs: Pairs) -> Callable[[int, int], Floats]:
        """Return a function for the logits of pairs[start:stop], with all preparation done."""


def best(reranker: Reranker, query: str, passages: Sequence[str], count: int | None = None) -> list[tuple[int, float]]:
    """Return the positions of the best passages, best first, each with its relevance from 0 to 1.

    The relevance is the logistic function of the reranker's logit.

    :param count: the number at most; None for all of them.
    """
    return best_of(reranker.score(query, passages), count)


def best_of(scores: Floats, count: int | None = None) -> list[tuple[int, float]]:
    """Return the positions of the best scores, shape (passages,), best first, each with its relevance from 0 to 1."""
    logits = scores.astype(np.float64)
    relevances = 1 / (1 + np.exp(-np.clip(logits, -500, 500)))
    order = np.argsort(-logits, kind="stable")[:count].tolist()
    return [(position, float(relevances[position])) for position in order]


def _pairs(query: str, passages: Sequence[str]) -> Pairs:
    if not isinstance(query, str):
        raise InputError(f"a query is a text, but this one is of type {type(query).__name__}")
    (query,) = check_texts([query])
    return [(query, passage) for passage in check_texts(passages)]


def _check_pairs(pairs: Sequence[tuple[str, str]]) -> Pairs:
    """Return the pairs as a tokenizer takes them.

    :raises InputError: for the first that is no pair of texts.
    """
    for number, pair in enumerate(pairs, 1):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise InputError(f"pair {number} is {pair!r}: expected a query and a passage")
    queries, passages = check_texts([pair[0] for pair in pairs]), check_texts([pair[1] for pair in pairs])
    return list(zip(queries, passages, strict=True))
