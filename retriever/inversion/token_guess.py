"""Tokens with the probability that they are right."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ...core.arrays import Floats

_MIN_PROBABILITY = 0.01  # probability of an occurrence that is ranked
_RANKED = 512  # different tokens


@dataclass(frozen=True, slots=True)
class TokenGuess:
    """A token and the probability that it is right."""

    token: str
    probability: float


def expected_tokens(shares: Floats, count: float) -> list[tuple[int, float]]:
    """The tokens of a bag with the highest expected F1, with their probabilities, likeliest first.

    Every prefix of the ranked occurrences has an expected F1; the best one ends where a token's probability falls below
    about half of that (Lipton et al. 2014, arXiv:1402.1892). So no probability is a threshold for all bags.

    :param shares: (vocabulary,), with sum 1.
    :param count: the expected number of tokens.
    """
    likely = _occurrences(shares, count)
    chances = np.array([chance for _, chance in likely])
    f1s = 2 * np.cumsum(chances) / (count + np.arange(1, len(likely) + 1))
    return likely[: int(f1s.argmax()) + 1] if likely else []


def _occurrences(shares: Floats, count: float) -> list[tuple[int, float]]:
    """Tokens with the probability that a text has them, likeliest first.

    A token that is expected twice comes twice. Its count is Poisson distributed, with mean `count` times its share.
    """
    tokens: list[tuple[int, float]] = []
    likely = np.argpartition(-shares, min(_RANKED, len(shares) - 1))[:_RANKED]
    for token in likely[np.argsort(-shares[likely], kind="stable")].tolist():
        mean = float(shares[token]) * count
        term = math.exp(-mean)
        tail, times = 1 - term, 0
        while tail > _MIN_PROBABILITY and times < count:
            tokens.append((token, tail))
            times += 1
            term *= mean / times
            tail -= term
    return sorted(tokens, key=lambda item: -item[1])
