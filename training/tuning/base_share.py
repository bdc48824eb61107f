"""Average the tuned weights with those of the base (WiSE-FT, Wortsman et al. 2021, arXiv:2109.01903).

Tuning on generated queries can make results of other queries worse; the average limits this loss. Queries that were
not learned from choose the share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..runs import environment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ...core.arrays import Floats
    from ...retriever.models.encoder import Kind
    from .verdict import Judges

    Weights = Mapping[str, torch.Tensor]

SHARES = (0.25, 0.5, 0.75, 1.0)  # of the learned change of the weights
MIN_QUERIES = 20  # minimum of queries that choose a share
_USUAL = 0.5  # share if there are fewer queries


@dataclass(frozen=True, slots=True)
class ModelInTraining:
    """Encodes with the present weights of a `SentenceTransformer`."""

    model: Any

    def encode(self, texts: Sequence[str], kind: Kind = "document") -> Floats:
        """Return vectors, shape (texts, dim), float32."""
        device = self.model.device.type
        with torch.autocast(device, torch.bfloat16, enabled=environment.has_bf16()), torch.no_grad():
            vectors = self.model.encode(
                list(texts),
                prompt=self.model.prompts.get(kind) or None,
                show_progress_bar=False,
                convert_to_numpy=True,
            )
        return np.asarray(vectors, np.float32)


def weights_of(model: Any) -> Weights:
    """Return a copy of the weights."""
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def mix(model: Any, base: Weights, learned: Weights, share: float) -> None:
    """Set the weights between those of the base and the learned ones, which have `share`."""
    mixed = {
        name: torch.lerp(value, learned[name], share) if value.is_floating_point() else value
        for name, value in base.items()
    }
    model.load_state_dict(mixed)


def choose(model: Any, base: Weights, judges: Judges) -> float:
    """Mix the learned weights of a model with the base's, in the share that ranks best, and return it.

    :param base: the weights at the start.
    :param judges: queries that were not learned from.
    """
    learned = weights_of(model)

    def quality(share: float) -> float:
        mix(model, base, learned, share)
        encoder = ModelInTraining(model)
        modes = judges.by_mode(encoder, judges.vectors(encoder))
        return sum(float(values.mean()) for values in modes.values())

    share = best(SHARES, quality, judges)
    mix(model, base, learned, share)
    return share


def best(shares: Sequence[float], quality: Callable[[float], float], judges: Judges) -> float:
    """Return the share of the highest quality, the first among equals; the usual share if few queries judge.

    :param shares: ascending, so that the first is the nearest to the base.
    """
    return max(shares, key=quality) if len(judges.pairs) >= MIN_QUERIES else _USUAL
