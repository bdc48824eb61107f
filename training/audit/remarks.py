"""Warnings about figures of an audit that cannot be relied on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...retriever.models.encoders.defended_encoder import DefendedEncoder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...retriever.models.encoder import Encoder
    from .result import ByLength, DefenceResult

_UNKNOWN_LIMIT = 0.1  # share of unknown tokens that a report mentions


def remarks(encoder: Encoder, results: Sequence[DefenceResult], frequent: ByLength) -> Iterator[str]:
    """Yield warnings about figures that cannot be relied on."""
    if isinstance(encoder, DefendedEncoder):
        yield (
            f"The index is defended already, by {encoder.defence.kind}: 'none' means its stored vectors, each "
            "defence comes on top of that, and quality is given as a share of theirs. Nobody picked names and numbers "
            "out of candidates: they count only as far as they were read."
        )
    if not results[0].ndcg.value:
        yield (
            "No query finds its document without a defence, so its cost could not be measured, and the share "
            "of nDCG@10 that is kept is given as 0. Give other --queries."
        )
    attacked = results[0].learned.by_length.values()
    unknown = sum(recovery.unknown for recovery in attacked) / len(attacked)
    if unknown > _UNKNOWN_LIMIT:
        yield (
            f"The encoder does not know {unknown:.0%} of the tokens attacked, which count as not recovered: what "
            "leaks is of the others."
        )
    for result in results:
        by_length = result.learned.by_length
        below = [length for length, recovery in by_length.items() if recovery["f1"] < frequent[length]["f1"]]
        if below:
            yield (
                f"With {result.name} the attacker recovered less of texts of {', '.join(map(str, below))} tokens than "
                "the most frequent tokens are: it has learned too little to gate on, or there is little to learn; more "
                "--steps may tell."
            )
