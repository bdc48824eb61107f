"""How well a masked model names hidden words: the measure that pretraining is held to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..runs import environment
from .masking import IGNORED
from .rows import sample

if TYPE_CHECKING:
    from ...core.arrays import Doubles
    from .batches import MaskedBatches


_MOST = 1_000  # rows measured; more would tell little more and cost time at each evaluation


@dataclass(frozen=True, slots=True)
class Perplexity:
    """How well masked words of held-out documents are named: 1 is perfect, the vocabulary's size is chance."""

    value: float
    interval: tuple[float, float]  # 95 %, by the bootstrap over rows
    rows: int
    pair_accuracy: float | None = None  # of next sentence or sentence order; chance is 0.5

    def measures(self, when: str) -> list[dict[str, Any]]:
        """As a model card has them."""
        found = {"name": "perplexity", "value": self.value, "interval": list(self.interval)}
        return [{**found, "rows": self.rows, "on": "masked tokens of held-out documents", "when": when}]

    @classmethod
    def of(cls, facts: dict[str, Any] | None) -> Perplexity | None:
        return None if facts is None else cls(**{**facts, "interval": tuple(facts["interval"])})


def measure(learner: Any, batches: MaskedBatches, *, batch: int, bf16: bool, seed: int) -> Perplexity | None:
    """Held-out rows, masked the same way each time; None where there are none.

    :param learner: what `masked_model.learner` gives.
    """
    import torch

    if not len(batches.rows):
        return None
    device = environment.device()
    rows = sample(batches.rows, _MOST)
    found: list[Any] = []
    training = learner.training
    learner.eval()
    with torch.autocast(device, torch.bfloat16, enabled=bf16), torch.no_grad():
        for start in range(0, len(rows), batch):
            made = batches([(0, row) for row in rows[start : start + batch]])
            found.append(_losses(learner, {name: tensor.to(device) for name, tensor in made.items()}))
    learner.train(training)
    losses, counts, right, asked = (np.concatenate(part) for part in zip(*found, strict=True))
    accuracy = float(right.sum() / asked.sum()) if asked.any() else None
    return Perplexity(*_perplexity(losses, counts, seed), len(rows), accuracy)


def _losses(learner: Any, batch: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    """For each row: the sum of its tokens' losses and their number; whether its pair was told right, and asked for."""
    labels, pair_labels = batch["labels"], batch.get("pair_labels")
    made = learner(**batch)
    row = (labels != IGNORED).nonzero()[:, 0]
    sums = made["tokens"].new_zeros(len(labels)).index_add_(0, row, made["tokens"])
    counts = (labels != IGNORED).sum(1)
    if pair_labels is None:
        nothing = np.zeros(len(labels), bool)
        return sums.double().cpu().numpy(), counts.cpu().numpy(), nothing, nothing
    right = made["pairs"].argmax(1) == pair_labels
    return (
        sums.double().cpu().numpy(),
        counts.cpu().numpy(),
        right.cpu().numpy(),
        (pair_labels != IGNORED).cpu().numpy(),
    )


def _perplexity(losses: Doubles, counts: Doubles, seed: int) -> tuple[float, tuple[float, float]]:
    """exp of the mean loss of a token, and its interval of 95 %: losses and counts are sums over rows."""
    losses, counts = losses[counts > 0], counts[counts > 0]  # all words of a row may be unknown ones
    draws = np.random.default_rng(seed).integers(0, len(losses), (1_000, len(losses)))
    means = losses[draws].sum(1) / counts[draws].sum(1)
    low, high = np.exp(np.percentile(means, [2.5, 97.5]))
    return float(np.exp(losses.sum() / counts.sum())), (float(low), float(high))
