"""The configuration of `tune`, and its checks."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from ...core import checks as limits
from ...core.errors import InputError
from .queries.query_kinds import DEFAULT_KINDS

ADAPTER_QUERIES = 4_000  # maximum of generated queries, if none is set, and of logged ones
_FULL_QUERIES = 10_000  # the same for all weights of the encoder, without a maximum of logged ones
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
    """How to tune an index."""

    kinds: tuple[str, ...] = DEFAULT_KINDS  # of queries, names in `query_kinds.KINDS`
    pairs: int | None = None  # maximum of generated queries to learn from; None: 4,000, or 10,000 without an adapter
    teachers: tuple[str, ...] = (HYBRID,)  # or names of models; of several, the mean of their scores
    log: str | None = None  # file of real queries without labels
    learning: DistillationConfig = field(default_factory=DistillationConfig)  # of the weights
    held_out: float = 0.1  # share of the documents to judge with; a larger share of few documents
    queries: int = 1_000  # maximum from held-out documents
    adapter: bool = True  # fit a linear map of the query vectors, not the weights of the encoder
    seed: int = 0

    @property
    def generated(self) -> int:
        """The maximum of generated queries to learn from."""
        return self.pairs or (ADAPTER_QUERIES if self.adapter else _FULL_QUERIES)


def check(config: TuningConfig) -> None:
    """:raises InputError: for the first setting outside its range."""
    for name in ("pairs", "queries"):
        value = getattr(config, name)
        if value is not None and value < 1:
            raise InputError(f"{name} is a whole number from 1, not {value}")
    if isinstance(config.teachers, str) or not config.teachers:
        raise InputError(f"teachers are a list with one name at least, not {config.teachers!r}")
    limits.above_0(config.learning, *asdict(config.learning))
    limits.seed(config)
    if not 0 < config.held_out < 1:
        raise InputError(f"held out is a share of the documents between 0 and 1, not {config.held_out}")
