"""The settings of a leak audit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...core import checks
from ...core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MINIMUM_TEXTS = 20  # that an attacker learns from


@dataclass(frozen=True, slots=True)
class AuditConfig:
    """Which texts are attacked, which defences are tried, and how long an attacker learns."""

    lengths: Sequence[int] = (8, 16, 32, 64, 128)  # of the attacked texts, in the encoder's tokens
    stored: bool = True  # whether the index's passages are attacked as well: whole, by their stored vectors
    texts_per_length: int = 100  # attacked, at most
    corpus_texts: int = 20_000  # of all lengths that the attacker learns from, at most
    steps: int = 250  # of learning for each defence; the first decoder takes four times as many
    seconds: float = 600.0  # limit of learning for each defence, four times as long for the first decoder
    settings: Sequence[str] | None = None  # as `defences.parse` reads them; None: several strengths of every kind
    queries: str | Path | None = None  # a folder in BEIR's layout that judges the index's paths; None: generated ones
    split: str = "test"  # of the judgements in that folder
    held_out: float = 0.2  # share of the documents that is attacked
    corrected_texts: int = 10  # of each setting, that the decoder's texts are corrected for
    quick: bool = False  # attacks in closed form, of one strength of each defence unless `settings` are given
    suspects: Sequence[str] = ()  # encoders that a thief without knowledge tries, beside the index's own
    examples: int = 2  # shown of each length with the recovered text; 0 keeps all text out of the report
    seed: int = 0

    def check(self) -> None:
        """:raises InputError: for the first setting with an impossible value."""
        lengths = self.lengths
        if not (lengths or self.stored) or any(length < 1 for length in lengths) or len(set(lengths)) < len(lengths):
            raise InputError(
                f"lengths are different numbers of tokens from 1, not {', '.join(map(str, lengths)) or 'none'}"
            )
        for name, value, minimum in (
            ("texts", self.texts_per_length, 2),
            ("corpus texts", self.corpus_texts, MINIMUM_TEXTS),
            ("corrected texts", self.corrected_texts, 1),
            ("examples", self.examples, 0),
        ):
            if value < minimum:
                raise InputError(f"{name} is a whole number from {minimum}, not {value}")
        checks.above_0(self, "steps", "seconds", "held_out")
        checks.share(self, "held_out")
        checks.seed(self)


PAIRS, WITHOUT_PAIRS = "pairs", "without pairs"  # a trained decoder's attack, by the attacker's knowledge
CORRECTED = "corrected"  # the decoder's texts, encoded again and changed, for a sample of the vectors
RIDGE, RIDGE_WITHOUT_PAIRS = "ridge", "ridge, without pairs"  # an attack in closed form
AVERAGED = "averaged"  # the same, of each vector beside its nearest neighbours: against noise


GENERATED = "made from the documents"  # the source of generated queries
