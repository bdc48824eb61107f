"""The assumptions of each attacker, in one sentence, for the report of an audit and for the documentation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..attacks.candidates import CANDIDATES
from ..config import AVERAGED, CORRECTED, PAIRS, RIDGE, RIDGE_WITHOUT_PAIRS, WITHOUT_PAIRS

if TYPE_CHECKING:
    from ..result import AuditReport

_GUESSING, _NEAREST = "guessing", "nearest"
_PICKING, _RECOGNIZING, _SUSPECTING = "candidates", "indexed texts recognized", "unknown encoder"

_SENTENCES = {  # {learned} texts, {steps} of learning, {stolen} vectors
    _GUESSING: "{learned} texts of the same kind, and no vector: he answers with their most frequent tokens.",
    _NEAREST: "{learned} texts of his own with their stored vectors: he answers with the text of the nearest vector.",
    RIDGE: "{learned} texts of his own with their stored vectors: a closed form, so no time limit weakens it.",
    AVERAGED: (
        "Against noise: {learned} texts of his own with their stored vectors, and all stolen vectors. He reads each "
        "vector beside its nearest ones, so noise cancels."
    ),
    PAIRS: (
        "{learned} texts of his own with their stored vectors, the encoder, and a decoder that he trains in {steps} "
        "steps for each defence."
    ),
    CORRECTED: (
        "The same as with pairs. For a sample of vectors he also changes the recovered text until its vector comes "
        "near, as 'binocle invert' does."
    ),
    WITHOUT_PAIRS: (
        "Against a rotation: {stolen} stolen vectors, the encoder, and {learned} texts that he encodes himself to "
        "train a decoder, but no pair."
    ),
    RIDGE_WITHOUT_PAIRS: (
        "Against a rotation: {stolen} stolen vectors, the encoder, and {learned} texts that he encodes himself for a "
        "closed form, but no pair."
    ),
    _PICKING: (
        "The encoder, {candidates} candidates for a name, number or date, and all, half or none of the text's other "
        "words; against a rotation pairs as well."
    ),
    _RECOGNIZING: "The encoder, and a text that may be in the index; against a rotation pairs as well.",
    _SUSPECTING: "Stolen vectors, some encoders that he suspects, and texts of his own; no pair.",
}


def assumptions(report: AuditReport) -> dict[str, str]:
    """Return a sentence for each attacker of this audit."""
    results = report.results
    names = {_GUESSING, _NEAREST, *(name for result in results for name in result.attacks)}
    names |= {_PICKING} if any(result.facts for result in results) else set()
    names |= {_RECOGNIZING} if any(result.membership for result in results) else set()
    names |= {_SUSPECTING} if any(result.suspects for result in results) else set()
    stolen = max((result.alignment.stolen for result in results if result.alignment), default=0)
    sentences = _filled(f"{report.learned:,}", f"{report.steps_each:,}", f"{stolen:,}")
    return {name: sentence for name, sentence in sentences.items() if name in names}


def table() -> list[tuple[str, str]]:
    """Return every attacker with its sentence, with letters for the numbers of an audit."""
    return list(_filled("N", "S", "M").items())


def _filled(learned: str, steps: str, stolen: str) -> dict[str, str]:
    numbers = {"learned": learned, "steps": steps, "stolen": stolen, "candidates": CANDIDATES}
    return {name: sentence.format(**numbers) for name, sentence in _SENTENCES.items()}
