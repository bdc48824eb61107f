"""Calibrate the probabilities of named tokens: a temperature divides the logits of a decoder of hidden states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..encoders import heldout
from ..heads.calibration import TEMPERATURES, best_temperature, calibration_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from ...core.arrays import Doubles

_TOKENS = 8  # of a text, evenly spread: each is compared with the whole vocabulary at every temperature


def calibrate(
    texts: Iterable[tuple[Tensor, Tensor]], seed: int, *, states: str = ""
) -> tuple[float, list[dict[str, Any]]]:
    """Fit the temperature on held-out texts, and measure the calibration error there, without it and with it.

    :param texts: the logits (tokens, vocabulary) of each text, and its true tokens.
    :param states: ends the names of the measures.
    :returns: the temperature and both errors; 1 and none without texts.
    """
    losses = np.zeros(len(TEMPERATURES))
    likely: list[Doubles] = []  # of the named tokens of each text, (temperatures, tokens)
    right: list[Doubles] = []  # (tokens,)
    for logits, tokens in texts:
        every = -(-len(tokens) // _TOKENS)
        rows = [_judge(logits[::every], tokens[::every], temperature) for temperature in TEMPERATURES]
        losses += [loss for loss, _ in rows]
        likely.append(np.stack([shares for _, shares in rows]))
        right.append((logits[::every].argmax(-1) == tokens[::every]).double().cpu().numpy())
    if not right:
        return 1.0, []
    temperature = best_temperature(losses)
    before, after = ([shares[TEMPERATURES.index(by)] for shares in likely] for by in (1.0, temperature))
    name = f"calibration error{states}"
    return temperature, [_error(f"{name}, raw", before, right, seed), _error(name, after, right, seed)]


def _judge(logits: Tensor, tokens: Tensor, temperature: float) -> tuple[float, Doubles]:
    """Return the sum of the true tokens' cross-entropy, and the probability of each named token."""
    scaled = logits / temperature
    total, true = scaled.logsumexp(-1), scaled.gather(-1, tokens[:, None])[:, 0]
    return float((total - true).sum()), (scaled.amax(-1) - total).exp().double().cpu().numpy()


def _error(name: str, likely: Sequence[Doubles], right: Sequence[Doubles], seed: int) -> dict[str, Any]:
    """Return the calibration error. Its interval draws texts, since the tokens of a text depend on each other."""

    def error(numbers: NDArray[np.int64], _: NDArray[np.int64]) -> float:
        return calibration_error(*(np.concatenate([rows[n] for n in numbers]) for rows in (likely, right)))

    numbers = np.arange(len(right))
    return heldout.resampled(name, error, numbers, numbers, seed).as_dict()
