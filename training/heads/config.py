"""Settings of the training of a head. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass

from ...core import checks
from ...core.errors import InputError
from ..runs.trainers import trackers

_HIGHEST_RATE = 1e-3  # that is chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadConfig:
    """How to train a head with its encoder."""

    epochs: float = 2.0
    steps: int | None = None  # instead of epochs
    minutes: float | None = None  # instead of epochs: as many steps as fit
    batch_size: int = 16  # rows
    learning_rate: float | None = None  # None: `default_learning_rate` of the base
    dropout: float = 0.0  # drawing its random numbers takes half of each step on a CPU
    max_length: int = 384  # tokens of a text or pair, special ones included
    layers: int | None = None  # of the base, the first ones; None: all
    bf16: bool | None = None  # None: where the hardware supports it
    held_out: float = 0.05  # share of the documents
    evaluations: int = 4  # on held-out rows during the run
    seed: int = 0
    report_to: str | None = None  # a tracker of `trackers.TRACKERS`

    def check(self) -> None:
        """:raises InputError: for the first invalid setting."""
        checks.above_0(self, "epochs", "steps", "minutes", "batch_size", "learning_rate", "layers", "evaluations")
        checks.share(self, "dropout", "held_out")
        checks.seed(self)
        checks.max_length(self, 16)
        trackers.check(self.report_to)
        if self.steps is not None and self.minutes is not None:
            raise InputError("steps and minutes both say how long: give one of them")


def default_learning_rate(width: int) -> float:
    """Return the learning rate for a base: 5e-5 for 768 dimensions (arXiv:1810.04805), 2e-4 for 384.

    In 100 steps, heads of all-MiniLM-L6-v2 learn far more with 2e-4 than with 5e-5.

    :param width: dimensions of a token in the base.
    """
    return min(_HIGHEST_RATE, 5e-5 * (768 / width) ** 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderConfig(HeadConfig):
    """How to train a reader."""

    unanswerable: float = 0.15  # share of the rows that show a question with another passage of its document

    def check(self) -> None:
        """:raises InputError: for the first invalid setting."""
        HeadConfig.check(self)
        checks.share(self, "unanswerable")

    @property
    def stride(self) -> int:
        """Tokens that neighbouring windows of a long passage share: 128 of 384."""
        return self.max_length // 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifierConfig(HeadConfig):
    """How to train a classifier: by default, only a probe on the encoder's vectors is fitted."""

    fine_tune: bool = False  # train the whole encoder with its head
    contrastive: bool = False  # tune the encoder on few rows, and fit the probe on its vectors
    max_length: int = 256
    held_out: float = 0.1

    def check(self) -> None:
        """:raises InputError: for the first invalid setting."""
        HeadConfig.check(self)
        if self.fine_tune and self.contrastive:
            raise InputError("fine-tuning and contrastive training are two ways: choose one")
