"""How an encoder is trained: one frozen configuration, and its checks."""

from __future__ import annotations

from dataclasses import dataclass

from ...core import checks as limits
from ...core.errors import InputError

POOLINGS = ("cls", "mean", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")


@dataclass(frozen=True, slots=True)
class EncoderConfig:
    """How to train. What is None is chosen from the data or the base model."""

    objective: str | None = None
    pooling: tuple[str, ...] | None = None  # one or more of POOLINGS, their vectors joined
    epochs: float = 1.0
    steps: int | None = None  # instead of epochs
    batch_size: int = 32  # rows
    accumulate: int = 1  # batches to a step
    learning_rate: float = 2e-5
    warmup: float = 0.1  # share of the steps
    weight_decay: float = 0.01
    dropout: float = 0.0  # its random numbers cost a CPU half of each step
    max_length: int | None = None  # tokens that are learned from, at most; the model reads what its base reads
    scale: float = 20.0
    margin: float | None = None
    temperature: float | None = None  # of a teacher's scores; see `objectives.Options`
    mini_batch: int = 32
    matryoshka: tuple[int, ...] = ()
    lora: int | None = None  # rank
    checkpointing: bool = False  # of activations: less memory, a third more time
    bf16: bool | None = None
    held_out: float = 0.05
    evaluations: int = 8  # of the held-out rows during the run
    patience: int | None = 3  # evaluations without a gain before the run ends
    keep: float = 0.0  # share of the base model's weights in the result (arXiv:2109.01903)
    seed: int = 0


def check(config: EncoderConfig) -> None:
    """Raise InputError for the first setting that cannot be."""
    limits.above_0(config, "epochs", "steps", "batch_size", "accumulate", "learning_rate", "evaluations", "patience")
    limits.above_0(config, "scale", "temperature", "mini_batch", "lora")
    limits.from_0(config, "weight_decay", "margin")
    limits.share(config, "warmup", "dropout", "keep", "held_out")
    limits.seed(config)
    if config.max_length is not None and config.max_length < 3:
        raise InputError(f"max length is in tokens, special ones included: at least 3, not {config.max_length}")
    unknown = [one for one in config.pooling or () if one not in POOLINGS]
    if unknown:
        raise InputError(f"there is no pooling {unknown[0]!r}: expected one or more of {', '.join(POOLINGS)}")
