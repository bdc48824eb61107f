"""Settings of a pretraining run. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...core import checks
from ...core.errors import InputError
from ..runs.trainers import trackers
from .data.segments import OBJECTIVES

SIZES = {  # layers and width of Turc et al. 2019 (arXiv:1908.08962)
    "tiny": (2, 128),
    "mini": (4, 256),
    "small": (4, 512),
    "medium": (8, 512),
    "base": (12, 768),
}


@dataclass(frozen=True, slots=True)
class PretrainingConfig:
    """Settings of a run."""

    objective: str = "mlm"  # one of OBJECTIVES
    share: float = 0.15  # of the tokens to predict
    whole_words: bool = False
    max_length: int | None = None  # tokens of a row with special tokens; 128, or the base's maximum if that is less
    pack: bool = False  # rows continue from one document to the next
    vocabulary: int = 30_522  # maximum number of tokens of a new tokenizer
    epochs: float = 3.0
    steps: int | None = None  # instead of epochs
    batch_size: int = 32  # rows
    accumulate: int = 1  # batches in a step
    learning_rate: float | None = None  # 1e-4; 5e-4 for a new head or from scratch
    warmup: float = 0.06  # share of the steps
    weight_decay: float = 0.01
    dropout: float = 0.0  # Lan et al. 2020 found that it hurts here; its random numbers cost a CPU half of each step
    bf16: bool | None = None  # None: if the hardware supports it
    held_out: float = 0.05  # share of the documents
    evaluations: int | None = None  # of the held-out rows during the run; None: up to 8, in a tenth of its time
    patience: int | None = 3  # evaluations in a row that are worse by more than chance, to stop; 0: never
    seed: int = 0
    report_to: str | None = None  # a tracker of `trackers.TRACKERS`

    def check(self) -> None:
        """:raises InputError: for the first invalid setting."""
        _check_known("objective", self.objective, OBJECTIVES)
        checks.above_0(self, "epochs", "steps", "batch_size", "accumulate", "learning_rate", "evaluations")
        checks.from_0(self, "patience")
        checks.above_0(self, "share")
        checks.from_0(self, "weight_decay")
        checks.share(self, "warmup", "dropout", "held_out", "share")
        checks.seed(self)
        trackers.check(self.report_to)
        if self.vocabulary < 200:
            raise InputError(f"a vocabulary has 200 tokens at least, not {self.vocabulary}")
        checks.max_length(self, 8)
        if self.pack and self.objective != "mlm":
            raise InputError(
                f"packed rows mix documents, which {self.objective} must tell apart: leave one of them out"
            )


def check_start(
    base: str | None,
    from_scratch: str | None,
    teacher: str | None = None,
    layers: int | None = None,
) -> None:
    """:raises InputError: unless there is one known model to start from."""
    if base is not None and from_scratch is not None:
        raise InputError("give a base or a size to begin with from scratch, not both")
    if from_scratch is not None:
        _check_known("size", from_scratch, SIZES)
    if layers is not None:
        _check_layers(layers, base or from_scratch, teacher)
    elif teacher is not None and base is None and from_scratch is None:
        raise InputError("the teacher has no student: give the number of its layers to keep, a base, or a size")


def _check_layers(layers: int, start: str | None, teacher: str | None) -> None:
    if teacher is None:
        raise InputError("layers are those of a teacher to start with: name the teacher")
    if start is not None:
        raise InputError(f"layers of the teacher are one start and {start} is another: give one of them")
    if layers < 1:
        raise InputError(f"layers are a whole number from 1, not {layers}")


def _check_known(setting: str, value: str, known: dict[str, Any]) -> None:
    if value not in known:
        raise InputError(f"there is no {setting} {value!r}: expected one of {', '.join(known)}")
