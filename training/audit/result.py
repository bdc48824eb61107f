"""The results of an audit: of each attack, each defence and the whole."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ..audit import defences
from .statements import statements

if TYPE_CHECKING:
    from ..evaluation import significance
    from ..inversion.metrics import Recovery, Value

    ByLength = dict[int, Recovery]  # by the number of tokens of the text


@dataclass(frozen=True, slots=True)
class Example:
    length: int
    f1: float
    true: str
    recovered: str


@dataclass(frozen=True, slots=True)
class Attack:
    by_length: ByLength
    examples: list[Example]


@dataclass(frozen=True, slots=True)
class Result:
    """What a defence lets through, and what it costs."""

    name: str
    kind: str
    bytes: int  # that a stored vector takes
    dim: int
    ndcg: Value
    keep: float  # nDCG@10 as a share of that without a defence; 0 where that is 0
    difference: significance.Difference  # of nDCG@10 to that without a defence, over queries
    same_ranking: bool  # whether every query's nDCG@10 is exactly what it was
    attacks: dict[str, Attack]  # by what the attacker has
    nearest: ByLength  # the baseline that looks for the nearest text of the attacker's own

    @property
    def leak(self) -> float:
        """The highest token F1 at any length, of any attacker or of the nearest text that one has learned from."""
        found = [*(attack.by_length for attack in self.attacks.values()), self.nearest]
        return max(recovery["f1"] for by_length in found for recovery in by_length.values())

    def as_dict(self) -> dict[str, Any]:
        row = defences.TABLE[self.kind]
        return {
            **{name: getattr(self, name) for name in ("name", "kind", "bytes", "dim", "same_ranking")},
            "documents": row.documents,
            "queries": row.queries,
            "source": row.source,
            "ndcg": asdict(self.ndcg),
            "keep": round(self.keep, 4),
            "difference": {name: round(value, 4) for name, value in asdict(self.difference).items()},
            "leak": round(self.leak, 4),
            "attacks": {
                name: {"lengths": _lengths(attack.by_length), "examples": [asdict(one) for one in attack.examples]}
                for name, attack in self.attacks.items()
            },
            "nearest": _lengths(self.nearest),
        }


@dataclass(slots=True)
class Audit:
    """What an audit found."""

    index: str
    model: str
    fingerprint: str
    documents: int
    passages: int
    learned: int  # texts that the attacker learned from
    queries: int
    query_source: str
    seconds_each: float  # that an attacker had to learn
    seed: int
    bleu: str  # sacrebleu's signature
    frequent: ByLength  # the baseline of most frequent tokens, whatever the defence
    results: list[Result]
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def front(self) -> list[str]:
        """The Pareto front: settings that no other beats in one of leak and quality without losing in the other."""
        return [one.name for one in self.results if not any(_beats(other, one) for other in self.results)]

    def satisfying(self, max_f1: float | None, min_keep: float | None) -> list[Result]:
        """The settings within both limits: best nDCG@10 first or, where any leak will do, least leak first."""
        within = [one for one in self.results if not _excess(one, max_f1, min_keep)]
        within.sort(key=lambda one: (-(one.ndcg.value or 0.0), one.leak))
        return within if max_f1 is not None else sorted(within, key=lambda one: one.leak)

    def nearest(self, max_f1: float | None, min_keep: float | None) -> list[Result]:
        """The settings by how far they are outside of the limits, nearest first."""
        return sorted(self.results, key=lambda one: _excess(one, max_f1, min_keep))

    def as_dict(self) -> dict[str, Any]:
        plain = (
            *("index", "model", "fingerprint", "documents", "passages", "learned", "queries", "query_source"),
            *("seconds_each", "seed", "bleu"),
        )
        return {
            **{name: getattr(self, name) for name in plain},
            "seconds": round(self.seconds, 1),
            "front": self.front(),
            "frequent": _lengths(self.frequent),
            "settings": [result.as_dict() for result in self.results],
            "statements": [*statements(self), *self.notes],
        }


def _beats(one: Result, other: Result) -> bool:
    no_worse = one.leak <= other.leak and one.keep >= other.keep
    return no_worse and (one.leak < other.leak or one.keep > other.keep)


def _excess(one: Result, max_f1: float | None, min_keep: float | None) -> float:
    over = 0.0 if max_f1 is None else max(0.0, one.leak - max_f1)
    under = 0.0 if min_keep is None else max(0.0, min_keep - one.keep)
    return over + under


def _lengths(found: ByLength) -> dict[str, Any]:
    return {str(length): recovery.as_dict() for length, recovery in found.items()}
