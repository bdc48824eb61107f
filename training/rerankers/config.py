"""How a reranker is trained: one frozen configuration."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RerankerConfig:
    """How to train a reranker."""

    objective: str | None = None
    epochs: float = 1.0
    steps: int | None = None
    batch_size: int = 8  # queries with their passages, or pairs
    accumulate: int = 1
    learning_rate: float = 3e-5
    warmup: float = 0.1
    weight_decay: float = 0.01
    dropout: float = 0.0
    max_length: int = 256  # tokens of query and passage together, at most
    negatives: int = 7  # passages drawn for each positive of pairs
    depth: int = 50  # of the first stage that they are drawn from
    queries: int | None = None  # at most so many are learned from, whatever the rows are
    bf16: bool | None = None
    held_out: float = 0.05
    evaluations: int = 8
    patience: int | None = 3
    keep: float = 0.0
    seed: int = 0
