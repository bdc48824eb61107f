"""How well a masked language model predicts hidden tokens: the measure of pretraining."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..evaluation import significance
from ..evaluation.significance import SAMPLES

if TYPE_CHECKING:
    from ...core.arrays import Doubles
    from ..evaluation.significance import Difference

_SAMPLES = 1_000  # of the bootstrap


@dataclass(frozen=True, slots=True)
class Perplexity:
    """Perplexity of masked tokens in held-out documents: 1 is perfect, the vocabulary's size is chance."""

    value: float
    interval: tuple[float, float]  # 95 %, by the bootstrap over rows
    rows: int
    pair_accuracy: float | None = None  # of next sentence or sentence order; chance is 0.5
    losses: list[float] = field(repr=False, default_factory=list)  # of the rows; their mean is the logarithm

    @property
    def name(self) -> str:
        """The metric's name."""
        return "perplexity"

    @property
    def margin(self) -> float:
        """Half of the interval."""
        return (self.interval[1] - self.interval[0]) / 2

    @property
    def values(self) -> Doubles:
        """The log-likelihood of a token in each row, higher is better."""
        return -np.array(self.losses, np.float64)

    def difference(self, base: Doubles, *, samples: int | None = None) -> Difference:
        """Subtract the log-likelihood of a token by the values of a base on the same rows, with interval and p."""
        return significance.difference(self.values, base, samples=samples or SAMPLES)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON, without the losses of single rows."""
        return {
            "value": self.value,
            "interval": self.interval,
            "rows": self.rows,
            "pair_accuracy": self.pair_accuracy,
        }

    def measures(self, when: str) -> list[dict[str, Any]]:
        """The rows of a model card.

        :param when: "before" or "after" training.
        """
        return [
            {
                "name": "perplexity",
                "value": self.value,
                "interval": list(self.interval),
                "rows": self.rows,
                "on": "masked tokens of held-out documents",
                "when": when,
            }
        ]

    @classmethod
    def from_losses(
        cls, losses: Doubles, counts: Doubles, seed: int, *, pair_accuracy: float | None = None
    ) -> Perplexity:
        """exp of the mean loss of a token.

        :param losses: sum of the token losses of each row (rows,).
        :param counts: number of masked tokens of each row (rows,).
        """
        rows = len(losses)
        losses, counts = losses[counts > 0], counts[counts > 0]  # a row of unknown words alone has no masked token
        draws = np.random.default_rng(seed).integers(0, len(losses), (_SAMPLES, len(losses)))
        means = losses[draws].sum(1) / counts[draws].sum(1)
        low, high = np.exp(np.percentile(means, [2.5, 97.5]))
        value, each = float(np.exp(losses.sum() / counts.sum())), (losses / counts.mean()).tolist()
        return cls(value, (float(low), float(high)), rows, pair_accuracy, each)

    @classmethod
    def from_dict(cls, fields: dict[str, Any] | None) -> Perplexity | None:
        """Restore a perplexity from its JSON fields; None stays None."""
        return None if fields is None else cls(**{**fields, "interval": tuple(fields["interval"])})
