"""What an audit says in words: what its figures mean, and what is to be known before they are relied on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...retriever.models.defended_encoder import DefendedEncoder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...retriever.models.encoder import Encoder
    from .result import Audit, ByLength, Result

PAIRS, ENCODER_ONLY = "pairs", "encoder only"  # what an attacker has
_MANY_UNKNOWN = 0.1  # of the tokens attacked, to be told of
_SAID = (
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


def statements(found: Audit) -> list[str]:
    """What has to be said beside the figures."""
    said = list(_SAID)
    if found.query_source.startswith("made"):
        said.append(
            "The queries were made from the documents, and are easier than people's: a defence costs at least this."
        )
    return said + [_of_rotation(result, found.results[0]) for result in found.results if result.kind == "rotation"]


def _of_rotation(result: Result, plain: Result) -> str:
    length = max(result.attacks[PAIRS].by_length, key=lambda one: plain.attacks[PAIRS].by_length[one]["f1"])
    before = plain.attacks[PAIRS].by_length[length]["f1"]
    with_pairs, without = (result.attacks[name].by_length[length]["f1"] for name in (PAIRS, ENCODER_ONLY))
    kept = "exactly what it was" if result.same_ranking else "what it was but for rounding among equal scores"
    return (
        f"The secret rotation helps against a thief who has the vectors and the public encoder alone: token F1 at "
        f"{length} tokens {without:.3f}, against {before:.3f} without it. It does not help against one who "
        f"also has pairs of text and stored vector, of his own documents in the index or from a log: {with_pairs:.3f}; "
        f"{result.dim} such pairs determine the matrix. Nor does it hide which texts are alike, equal or in one "
        f"cluster: inner products are kept, and nDCG@10 of every query is {kept}."
    )


def remarks(encoder: Encoder, results: Sequence[Result], frequent: ByLength) -> Iterator[str]:
    """What is to be known before the figures are relied on."""
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
    unknown = sum(found.unknown for found in attacked) / len(attacked)
    if unknown > _MANY_UNKNOWN:
        yield (
            f"The encoder does not know {unknown:.0%} of the tokens attacked, which count as not recovered: what "
            "leaks is of the others."
        )
    for one in results:
        below = [at for at, found in one.attacks[PAIRS].by_length.items() if found["f1"] < frequent[at]["f1"]]
        if below:
            yield (
                f"With {one.name} the attacker recovered less of texts of {', '.join(map(str, below))} tokens than the "
                "most frequent tokens are: it has learned too little to gate on, or there is little to learn; more "
                "seconds may tell."
            )
