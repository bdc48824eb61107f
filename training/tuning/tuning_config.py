"""The configuration of `tune`, and its checks."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from ...core import checks as limits
from ...core.errors import InputError
from .queries.query_kinds import DEFAULT_KINDS

ADAPTER_QUERIES = 2_000  # maximum of generated queries, and of logged ones, that an adapter learns from
HYBRID = "hybrid"  # the teacher that is the index's own hybrid search


@dataclass(frozen=True, slots=True)
class DistillationConfig:
    """How the encoder learns the teacher's rankings."""

    steps: int = 60
    queries: int = 160  # of a step
    passages: int = 24  # encoded again in each step
    learning_rate: float = 5e-5
    warmup: float = 0.1  # share of the steps
    averaged: float = 0.5  # share of the steps, at the end, to average the weights of (arXiv:1803.05407)
    max_length: int | None = None  # tokens of a text that are read in training; stored vectors cover all


@dataclass(frozen=True, slots=True)
class TuningConfig:
    """How to tune the encoder of an index."""

    kinds: tuple[str, ...] = DEFAULT_KINDS  # of queries, names in `query_kinds.KINDS`
    pairs: int = 10_000  # maximum of queries to learn from
    teachers: tuple[str, ...] = (HYBRID,)  # or names of models; of several, the mean of their scores
    log: str | None = None  # file of real queries without labels
    learning: DistillationConfig = field(default_factory=DistillationConfig)
    held_out: float = 0.1  # share of the documents to judge with; a larger share of few documents
    queries: int = 1_000  # maximum from held-out documents
    adapter: bool = False  # fit a linear map of the query vectors instead
    seed: int = 0


def check(config: TuningConfig) -> None:
    """:raises InputError: for the first setting outside its range."""
    for name in ("pairs", "queries"):
        if getattr(config, name) < 1:
            raise InputError(f"{name} is a whole number from 1, not {getattr(config, name)}")
    if isinstance(config.teachers, str) or not config.teachers:
        raise InputError(f"teachers are a list with one name at least, not {config.teachers!r}")
    limits.above_0(config.learning, *asdict(config.learning))
    limits.seed(config)
    if not 0 < config.held_out < 1:
        raise InputError(f"held out is a share of the documents between 0 and 1, not {config.held_out}")
