"""The configuration of an encoder's training, and its checks."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...core import checks as limits
from ...core.errors import InputError
from ...retriever.models.model_files import split_length
from ..runs.training_config import TrainingConfig, check_training

SAMPLERS = {"proportional": "proportional", "round-robin": "round_robin"}  # ours -> sentence-transformers' name
POOLINGS = ("cls", "mean", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderConfig(TrainingConfig):
    """How to train an encoder. `max_length` limits training alone: a finished encoder reads as much as its base."""

    batch_size: int = 32  # rows
    learning_rate: float | None = None  # None: 2e-5, or 2e-4 with `lora`
    pooling: tuple[str, ...] | None = None  # one or more of POOLINGS, their vectors concatenated
    pooling_layers: tuple[int, ...] = ()  # numbers from 1: the mean of their states is pooled; (): the last layer
    scale: float = 20.0
    margin: float | None = None
    temperature: float | None = None  # of a teacher's scores; see `losses.LossOptions`
    mini_batch: int = 32
    query_prompt: str | None = None  # put before every query from now on; None: the base's
    document_prompt: str | None = None
    guide: str | None = None  # encoder that drops false negatives of guided-ranking; None: the untrained base
    sampler: str = "proportional"  # of several data sets: by their batches, or in turn until one ends
    matryoshka: tuple[int, ...] = ()
    lora: int | None = None  # rank
    checkpointing: bool = False  # of activations: less memory, a third more time


def with_rate(config: EncoderConfig) -> EncoderConfig:
    """Return the configuration with its learning rate.

    Low-rank additions learn at about ten times the rate of all weights (thinkingmachines.ai/blog/lora, 2025).
    """
    usual = 2e-4 if config.lora else 2e-5
    return config if config.learning_rate is not None else replace(config, learning_rate=usual)


def check_whole(base: str) -> None:
    """:raises InputError: for NAME@128, since a training changes whole vectors."""
    whole, length = split_length(base)
    if length is not None:
        raise InputError(
            f"{base} is the beginning of the vectors of {whole}, and a training starts from whole ones: expected "
            f"{whole} as the base, with --matryoshka {length} for short vectors that keep their quality"
        )


def check(config: EncoderConfig) -> None:
    """:raises InputError: for the first setting outside its range."""
    check_training(config)
    limits.above_0(config, "scale", "temperature", "mini_batch", "lora")
    limits.from_0(config, "margin")
    if config.sampler not in SAMPLERS:
        raise InputError(f"there is no sampler {config.sampler!r}: expected {' or '.join(SAMPLERS)}")
    unknown = [pooling for pooling in config.pooling or () if pooling not in POOLINGS]
    if unknown:
        raise InputError(f"there is no pooling {unknown[0]!r}: expected one or more of {', '.join(POOLINGS)}")
    layers = config.pooling_layers
    if layers and (min(layers) < 1 or len(set(layers)) < len(layers)):
        raise InputError(f"pooling layers are different numbers from 1, not {', '.join(map(str, layers))}")
