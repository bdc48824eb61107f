"""The rules of mining: the candidates that may become negatives, and how many are taken."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Protocol

from ...core.checks import is_real, is_whole
from ...core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...core.arrays import Floats

STRATEGIES = ("top", "random")


class Judge(Protocol):
    """A cross-encoder."""

    def score_pairs(self, pairs: Sequence[tuple[str, str]]) -> Floats:
        """Score how well the second text of each pair answers the first: float32, higher is better."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MiningConfig:
    """The rules for a negative. Scores are cosines, for encoders with vectors of length 1.

    If a query has several positives, their lowest score counts.
    """

    negatives: int = 5  # for each query
    depth: int = 100  # candidates, positives among them
    skip_top: int = 0  # best candidates that are skipped, positives not counted
    margin: float | None = None  # a negative scores lower than the positive by at least this
    relative_margin: float | None = None  # … by at least this share of the positive's score
    max_score: float | None = None  # a negative scores at most this
    min_score: float | None = None  # … at least this
    judge: Judge | None = None
    judge_margin: float = 0.0  # the judge scores a negative lower than the positive by at least this
    strategy: str = "top"  # the best of the remaining candidates, or "random" ones
    seed: int = 0

    @classmethod
    def of(cls, rules: dict[str, Any]) -> MiningConfig:
        """:raises InputError: for an unknown name or an impossible value."""
        known = [field.name for field in fields(cls)]
        unknown = [name for name in rules if name not in known]
        if unknown:
            raise InputError(f"there is no rule {unknown[0]!r}: expected some of {', '.join(known)}")
        return cls(**rules)

    def __post_init__(self) -> None:
        for name, minimum in (("negatives", 1), ("depth", 1), ("skip_top", 0), ("seed", 0)):
            _check_whole(name, getattr(self, name), minimum)
        for name in ("margin", "relative_margin", "max_score", "min_score"):
            if getattr(self, name) is not None:
                _check_number(name, getattr(self, name), from_0="margin" in name)
        _check_number("judge_margin", self.judge_margin, from_0=True)
        if self.relative_margin is not None and self.relative_margin >= 1:
            raise InputError(f"relative_margin is a share, from 0 to below 1, not {self.relative_margin}")
        if self.min_score is not None and self.max_score is not None and self.min_score > self.max_score:
            raise InputError(f"no score is at least min_score {self.min_score} and at most max_score {self.max_score}")
        if self.negatives + self.skip_top > self.depth:
            raise InputError(
                f"{self.negatives} negatives after {self.skip_top} skipped cannot come from {self.depth} candidates: "
                "raise depth"
            )
        if self.strategy not in STRATEGIES:
            raise InputError(f"there is no strategy {self.strategy!r}: expected one of {', '.join(STRATEGIES)}")
        if self.judge is not None and not callable(getattr(self.judge, "score_pairs", None)):
            raise InputError(f"{self.judge!r} is no judge: expected an object with score_pairs, such as a Reranker")


def _check_whole(name: str, value: Any, minimum: int) -> None:
    if not is_whole(value, minimum):
        raise InputError(f"{name} is a whole number of at least {minimum}, not {value!r}")


def _check_number(name: str, value: Any, *, from_0: bool) -> None:
    if not is_real(value) or (from_0 and value < 0):
        raise InputError(f"{name} is a number{' of at least 0' if from_0 else ''}, not {value!r}")
