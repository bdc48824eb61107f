"""The figures of an audit: for each attack, for each defence and for the whole. `report/` puts them in words."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ..inversion.metrics import share_above
from . import defences
from .attacks.candidates import REST_KNOWN
from .config import PAIRS, RIDGE

if TYPE_CHECKING:
    from ..evaluation import significance
    from ..inversion.metrics import Recovery, Value
    from .attacks.candidates import FactResult
    from .attacks.unknown_encoder import Suspect
    from .known_text import KnownText

    ByLength = dict[int, Recovery]  # by the number of tokens of the text

HEADLINES = ("content_f1", "names", "numbers")  # measures beside the leak


@dataclass(frozen=True, slots=True)
class AttackExample:
    """An attacked text beside its recovered text."""

    length: int
    f1: float
    true: str
    recovered: str


@dataclass(frozen=True, slots=True)
class AttackResult:
    """The recovered texts of one attacker, measured."""

    by_length: ByLength
    examples: list[AttackExample]
    rows: list[int] | None = None  # of the attacked texts of a length, if it is a sample


@dataclass(frozen=True, slots=True)
class Alignment:
    """How far an attacker without pairs undid a rotation."""

    stolen: int  # vectors that he had
    own: int  # texts of other documents
    cosine: float  # of the vectors turned back with the true ones, the mean over attacked texts

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return {**asdict(self), "cosine": round(self.cosine, 4)}


@dataclass(frozen=True, slots=True)
class DefenceResult:
    """The leak of a defence, and its cost in search quality."""

    name: str
    kind: str
    bytes: int  # of a stored vector
    dim: int
    ndcg: Value
    keep: float  # nDCG@10 as a share of the undefended one; 0 if that is 0
    difference: significance.Difference  # of nDCG@10 to the undefended one, over queries
    same_ranking: bool  # whether every query's nDCG@10 is exactly the undefended one
    attacks: dict[str, AttackResult]  # by the attacker's knowledge
    nearest: ByLength  # the baseline that answers with the nearest text of the attacker's own
    guessing: ByLength  # the most frequent tokens, without any vector
    alignment: Alignment | None = None  # of a rotation
    suspects: list[Suspect] = field(default_factory=list)  # by a thief who does not know the encoder, likeliest first
    epsilon: float | None = None  # of noise, at delta 1e-5
    cut_off: bool = False  # whether the limit of time stopped an attacker's learning
    facts: dict[str, FactResult] = field(default_factory=dict)  # names, numbers and dates, picked from candidates
    membership: Value | None = None  # see `candidates.membership`
    seed: int = 0  # of the intervals

    @property
    def leak(self) -> float:
        """The highest token F1 at any length, of any attacker, of the nearest text or of guessing."""
        return max(recovery["f1"] for recovery in self._recoveries())

    @property
    def leak_95th(self) -> float:
        """The highest 95th percentile of token F1 over texts, of the same."""
        return max(recovery.f1_95th or 0.0 for recovery in self._recoveries())

    @property
    def learned(self) -> AttackResult:
        """The attack that learned in steps; in a quick audit the ridge."""
        return self.attacks.get(PAIRS) or self.attacks[RIDGE]

    @property
    def unmeasured(self) -> str:
        """Why the leak may be higher than measured: an attacker was not trained or learned too little; else ""."""
        if PAIRS not in self.attacks:
            return "a quick audit trains no attacker: the whole audit may read more"
        if self.cut_off:
            return "the limit of time stopped an attacker's learning; give more --seconds"
        below = [
            str(length)
            for length, recovery in self.attacks[PAIRS].by_length.items()
            if (recovery.measures["f1"].high or 0.0) < self.guessing[length]["f1"]
        ]
        if below:
            return f"the trained attacker read less of texts of {', '.join(below)} tokens than guessing does"
        return ""

    @property
    def leak_high(self) -> float:
        """The highest upper bound of token F1, of the same."""
        return self.upper("f1") or 0.0

    def upper(self, measure: str) -> float | None:
        """The highest upper bound of a measure over all lengths and attackers; None if there was nothing to measure.

        It includes names and numbers that an attacker picks from candidates, with the rest of the text known.
        """
        bounds = [recovery.measures[measure].high for recovery in self._recoveries()]
        if measure in self.facts:
            bounds.append(self.facts[measure].first[REST_KNOWN].high)
        return max((bound for bound in bounds if bound is not None), default=None)

    def highest(self, measure: str) -> Value:
        """The highest value of a measure at any length, of any attacker."""
        values = [recovery.measures[measure] for recovery in self._recoveries()]
        return max(values, key=lambda value: -1.0 if value.value is None else value.value)

    @property
    def share(self) -> Value:
        """The highest F1 of an attacker as a share of the way from guessing (0) to the whole text (1)."""
        shares = []
        for attack in (*self.attacks.values(), AttackResult(self.nearest, [])):
            for length, recovery in attack.by_length.items():
                guess = self.guessing[length].f1
                guess = guess if attack.rows is None else [guess[row] for row in attack.rows]
                shares.append(share_above(recovery.f1, guess, self.seed))
        return max(shares, key=lambda share: share.value or 0.0)

    def _answers(self) -> list[ByLength]:
        return [*(attack.by_length for attack in self.attacks.values()), self.nearest]

    def _recoveries(self) -> list[Recovery]:
        return [recovery for by_length in (*self._answers(), self.guessing) for recovery in by_length.values()]

    def as_dict(self) -> dict[str, Any]:
        """Return the results for JSON, rounded to 4 digits, with the kind's description and source."""
        kind = defences.TABLE[self.kind]
        return {
            **{name: getattr(self, name) for name in ("name", "kind", "bytes", "dim", "same_ranking")},
            "documents": kind.documents,
            "queries": kind.queries,
            "source": kind.source,
            "ndcg": asdict(self.ndcg),
            "keep": round(self.keep, 4),
            "difference": {name: round(value, 4) for name, value in asdict(self.difference).items()},
            "leak": round(self.leak, 4),
            "leak_high": round(self.leak_high, 4),
            "leak_95th": self.leak_95th,
            "share": asdict(self.share),
            **{f"highest_{name}": asdict(self.highest(name)) for name in HEADLINES},
            "attacks": {
                name: {
                    "lengths": lengths_as_dict(attack.by_length),
                    "examples": [asdict(example) for example in attack.examples],
                }
                for name, attack in self.attacks.items()
            },
            "nearest": lengths_as_dict(self.nearest),
            "unmeasured": self.unmeasured,
            "facts": {kind: fact.as_dict() for kind, fact in self.facts.items()},
            "membership": self.membership and asdict(self.membership),
            "epsilon": self.epsilon and round(self.epsilon, 1),
            **({"suspects": [suspect.as_dict() for suspect in self.suspects]} if self.suspects else {}),
            **({"alignment": self.alignment.as_dict()} if self.alignment else {}),
        }


@dataclass(slots=True)
class AuditReport:
    """The results of all defences, with the figures of the run."""

    index: str
    model: str
    fingerprint: str
    documents: int
    passages: int
    learned: int  # texts that the attacker learned from
    queries: int
    query_source: str
    steps_each: int  # of learning for each setting
    seed: int
    bleu: str  # sacrebleu's signature
    frequent: ByLength  # the baseline of most frequent tokens, the same for every defence
    known: KnownText
    results: list[DefenceResult]
    stored_length: int | None = None  # the length under which whole, stored passages are listed
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def front(self) -> list[str]:
        """Return the Pareto front: settings that no other one beats beyond its interval."""
        return [result.name for result in self.results if not any(_beats(rival, result) for rival in self.results)]


def _beats(rival: DefenceResult, result: DefenceResult) -> bool:
    """Whether a rival is no worse in leak and quality, and better in one of them beyond its 95 % interval.

    A rival with too weak an attack beats no setting with a strong one.
    """
    if rival.leak > result.leak or rival.keep < result.keep or (rival.unmeasured and not result.unmeasured):
        return False
    return rival.leak_high < result.leak or (rival.ndcg.low or 0.0) > (result.ndcg.value or 0.0)


def lengths_as_dict(by_length: ByLength) -> dict[str, Any]:
    """Return the measures of each length for JSON."""
    return {str(length): recovery.as_dict() for length, recovery in by_length.items()}
