"""The settings that encoders and rerankers are trained with alike."""

from __future__ import annotations

from dataclasses import dataclass

from ...core import checks as limits
from .trainers import trackers


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingConfig:
    """Settings of a run. None stands for a value that is chosen from the data or the base model."""

    objective: str | None = None
    epochs: float = 1.0
    steps: int | None = None  # instead of epochs
    batch_size: int  # rows
    accumulate: int = 1  # batches per step
    learning_rate: float | None = None  # None: the model's usual one
    warmup: float = 0.1  # share of the steps
    weight_decay: float = 0.01
    dropout: float = 0.0  # drawing its random numbers takes half of each step on a CPU
    max_length: int | None = None  # tokens of a text that are read in training
    bf16: bool | None = None  # None: where the hardware supports it
    held_out: float = 0.05  # share of the documents
    evaluations: int | None = None  # on the held-out rows during the run; None: up to 8, in a tenth of its time
    patience: int | None = 3  # evaluations in a row that are worse by more than chance, to stop; 0: never
    keep: float = 0.0  # share of the base model's weights in the result (arXiv:2109.01903)
    seed: int = 0
    report_to: str | None = None  # a tracker of `trackers.TRACKERS`


def check_training(config: TrainingConfig) -> None:
    """:raises InputError: for the first setting outside its range."""
    limits.above_0(config, "epochs", "steps", "batch_size", "accumulate", "learning_rate", "evaluations")
    limits.from_0(config, "weight_decay", "patience")
    limits.share(config, "warmup", "dropout", "keep", "held_out")
    limits.seed(config)
    trackers.check(config.report_to)
    limits.max_length(config, 3)
