"""The answer of an audit in four sentences: who reads what, what he knows anyway, the best setting, and its cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...inversion.overlap import LONG_RUN
from ..attacks.candidates import CANDIDATES, REST_KNOWN

if TYPE_CHECKING:
    from ..known_text import KnownText
    from ..result import AuditReport, DefenceResult

_TARGET = 0.95  # share of nDCG@10 that the best setting keeps at least


def verdict(report: AuditReport) -> list[str]:
    """Return four sentences; shares are given of ten, and a share that could not be measured is left out."""
    plain = report.results[0]
    best = min((result for result in report.results if result.keep >= _TARGET), key=_leak, default=plain)
    sentences = [
        f"Someone with these vectors reads {_reads(plain)} of a text{_picks(plain)}.",
        _known(report.known, plain),
    ]
    if best is plain or _share(best) >= _share(plain):
        return [
            *sentences,
            f"No setting that keeps {_TARGET:.0%} of nDCG@10 leaks less than the vectors as they are stored.",
            "The vectors are as confidential as the texts: keep them where you keep the texts.",
        ]
    cost = (
        f"It costs {max(0.0, 1 - best.keep):.1%} of nDCG@10 and leaves {_left(best, plain):.0%} of what vectors add to "
        "guessing."
    )
    return [
        *sentences,
        f"The best setting that keeps {_TARGET:.0%} of nDCG@10 is {best.name}: he reads {_reads(best)}{_picks(best)}.",
        cost,
    ]


def _leak(result: DefenceResult) -> tuple[bool, float, float]:
    """Order settings by their leak, then by quality. Settings with too weak an attack come last.

    The first setting is on the Pareto front.
    """
    return bool(result.unmeasured), result.leak, -result.keep


def _left(result: DefenceResult, plain: DefenceResult) -> float:
    return min(1.0, _share(result) / _share(plain)) if _share(plain) else 1.0


def _share(result: DefenceResult) -> float:
    return result.share.value or 0.0


def _reads(result: DefenceResult) -> str:
    shares = {
        "names": result.highest("names").value,
        "numbers": result.highest("numbers").value,
        "uncommon words": result.highest("content_f1").value,
    }
    parts = [f"{10 * share:.0f} of 10 {name}" for name, share in shares.items() if share is not None]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts) or "nothing"


def _picks(result: DefenceResult) -> str:
    """Say how often the right fact is picked when the rest of the text is known."""
    parts = [
        f"{10 * (fact.first[REST_KNOWN].value or 0):.0f} of 10 {kind}"
        for kind, fact in result.facts.items()
        if kind != "dates"
    ]
    if not parts:
        return ""
    return f", and picks {' and '.join(parts)} out of {CANDIDATES} candidates if he knows the rest"


def _known(known: KnownText, plain: DefenceResult) -> str:
    """Say how much text the attacker has anyway.

    :param plain: the result for the vectors as they are stored.
    """
    recognized = "."
    if plain.membership and plain.membership.value is not None:
        recognized = f"; by its vector he recognizes {10 * plain.membership.value:.0f} of 10 indexed texts."
    if not known.sharing.value:
        return (
            f"None of {known.passages:,} passages mostly repeats text of the attacker's documents, "
            f"or shares {LONG_RUN} tokens in a row with them{recognized}"
        )
    return (
        f"Of {known.passages:,} passages {known.copies.value:.1%} mostly repeat text of the attacker's documents, "
        f"and {known.sharing.value:.1%} do so or share {LONG_RUN} tokens in a row: he knows that text{recognized}"
    )
