"""The configuration of a reranker's training, and its checks."""

from __future__ import annotations

from dataclasses import dataclass

from ...core import checks as limits
from ...core.errors import InputError
from ..runs.training_config import TrainingConfig, check_training


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankerConfig(TrainingConfig):
    """How to train a reranker."""

    batch_size: int = 8  # queries with their passages, or pairs
    learning_rate: float = 3e-5
    max_length: int = 256  # tokens of query and passage together
    negatives: int = 7  # passages drawn for each positive of pairs
    depth: int = 50  # passages of the first stage to draw them from
    queries: int | None = None  # maximum of each data set to learn from
    layers: int | None = None  # of the base, the first ones; None: all


def check(config: RerankerConfig) -> None:
    """:raises InputError: for the first setting outside its range."""
    check_training(config)
    if config.negatives < 1 or config.depth <= config.negatives:
        raise InputError(f"depth is more than the number of negatives, not {config.depth} with {config.negatives}")
    limits.above_0(config, "queries", "layers")
