"""The settings of a leak audit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...core import checks as limits
from ...core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FEWEST = 20  # texts that an attacker learns from


@dataclass(frozen=True, slots=True)
class AuditConfig:
    """What is attacked, with what, and how long an attacker learns."""

    lengths: Sequence[int] = (8, 16, 32, 64, 128)  # of the texts attacked, in the encoder's tokens
    texts_per_length: int = 100  # attacked, at most
    corpus_texts: int = 20_000  # of all lengths that the attacker learns from, at most
    seconds: float = 90.0  # of learning for each defence; he begins with four times as many, and encodes texts
    settings: Sequence[str] | None = None  # as `defences.parse` reads them; None: some strengths of every kind
    queries: str | Path | None = None  # a folder in BEIR's layout that judges the index's paths; None: made ones
    split: str = "test"  # of the judgements in that folder
    held_out: float = 0.2  # share of the documents, which is attacked
    examples: int = 2  # of each length, shown with what was recovered; 0 keeps all text out of the report
    seed: int = 0

    def check(self) -> None:
        """:raises InputError: for the first setting that cannot be."""
        lengths = self.lengths
        if not lengths or any(length < 1 for length in lengths) or len(set(lengths)) < len(lengths):
            raise InputError(
                f"lengths are different numbers of tokens from 1, not {', '.join(map(str, lengths)) or 'none'}"
            )
        for name, value, least in (
            ("texts", self.texts_per_length, 2),
            ("corpus texts", self.corpus_texts, FEWEST),
            ("examples", self.examples, 0),
        ):
            if value < least:
                raise InputError(f"{name} is a whole number from {least}, not {value}")
        limits.above_0(self, "seconds", "held_out")
        limits.share(self, "held_out")
        limits.seed(self)
