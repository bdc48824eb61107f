"""The statements of an audit: the meaning of its figures in words, and their limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...retriever.models.defended_encoder import DefendedEncoder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...retriever.models.encoder import Encoder
    from .result import AuditReport, ByLength, DefenceResult

PAIRS, ENCODER_ONLY = "pairs", "encoder only"  # the attacker's knowledge
GENERATED = "made from the documents"  # the source of generated queries
_UNKNOWN_LIMIT = 0.1  # share of unknown tokens that a report mentions
_ALWAYS = (
    (
        "The attacker has pairs of text and stored vector and knows the defence, not its key. Another, with more time, "
        "text or a better model, recovers more: these figures are what is recoverable at least."
    ),
    (
        "Audited are vectors that leave the index: in a hosted store, an export, a backup. The index folder itself "
        "holds the texts as well, and who has it needs no attack."
    ),
    (
        "Bounds of int8 and codebooks of pq are fitted to the index's passages; the shorter texts that were attacked "
        "lie further from them than passages do."
    ),
)


def statements(report: AuditReport) -> list[str]:
    """Return the statements that belong beside the figures: the same for every audit, then this audit's own."""
    sentences = list(_ALWAYS)
    if report.query_source == GENERATED:
        sentences.append(
            "The queries were made from the documents, and are easier than people's: a defence costs at least this."
        )
    return sentences + [_rotation(result, report.results[0]) for result in report.results if result.kind == "rotation"]


def _rotation(result: DefenceResult, plain: DefenceResult) -> str:
    before = {length: recovery["f1"] for length, recovery in plain.attacks[PAIRS].by_length.items()}
    length = max(result.attacks[PAIRS].by_length, key=before.__getitem__)
    with_pairs, without = (result.attacks[name].by_length[length]["f1"] for name in (PAIRS, ENCODER_ONLY))
    ranking = "exactly what it was" if result.same_ranking else "what it was but for rounding among equal scores"
    return (
        f"The secret rotation helps against a thief who has the vectors and the public encoder alone: token F1 at "
        f"{length} tokens {without:.3f}, against {before[length]:.3f} without it. It does not help against one who "
        f"also has pairs of text and stored vector, of his own documents in the index or from a log: {with_pairs:.3f}; "
        f"{result.dim} such pairs determine the matrix. Nor does it hide which texts are alike, equal or in one "
        f"cluster: inner products are kept, and nDCG@10 of every query is {ranking}."
    )


def remarks(encoder: Encoder, results: Sequence[DefenceResult], frequent: ByLength) -> Iterator[str]:
    """Yield warnings about figures that cannot be relied on."""
    if isinstance(encoder, DefendedEncoder):
        yield (
            f"The index is defended already, by {encoder.defence.kind}: 'none' is its vectors as they are stored, each "
            "defence comes on top of that, and what is kept is a share of what they are worth."
        )
    if not results[0].ndcg.value:
        yield (
            "No query finds its document without a defence: what a defence costs could not be measured, and the share "
            "of nDCG@10 that is kept is given as 0. Give other --queries."
        )
    attacked = results[0].attacks[PAIRS].by_length.values()
    unknown = sum(recovery.unknown for recovery in attacked) / len(attacked)
    if unknown > _UNKNOWN_LIMIT:
        yield (
            f"The encoder does not know {unknown:.0%} of the tokens attacked, which count as not recovered: what "
            "leaks is of the others."
        )
    for result in results:
        by_length = result.attacks[PAIRS].by_length
        below = [length for length, recovery in by_length.items() if recovery["f1"] < frequent[length]["f1"]]
        if below:
            yield (
                f"With {result.name} the attacker recovered less of texts of {', '.join(map(str, below))} tokens than "
                "the most frequent tokens are: it has learned too little to gate on, or there is little to learn; more "
                "seconds may tell."
            )
