"""How well a masked language model predicts hidden tokens: the measure of pretraining."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ...core.arrays import Doubles

_SAMPLES = 1_000  # of the bootstrap


@dataclass(frozen=True, slots=True)
class Perplexity:
    """Perplexity of masked tokens in held-out documents: 1 is perfect, the vocabulary's size is chance."""

    value: float
    interval: tuple[float, float]  # 95 %, by the bootstrap over rows
    rows: int
    pair_accuracy: float | None = None  # of next sentence or sentence order; chance is 0.5

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
        return cls(float(np.exp(losses.sum() / counts.sum())), (float(low), float(high)), rows, pair_accuracy)

    @classmethod
    def from_dict(cls, fields: dict[str, Any] | None) -> Perplexity | None:
        """Restore a perplexity from its JSON fields; None stays None."""
        return None if fields is None else cls(**{**fields, "interval": tuple(fields["interval"])})
