"""The limits of an audit and what its figures mean, in sentences that stand beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..config import GENERATED, RIDGE_WITHOUT_PAIRS, WITHOUT_PAIRS

if TYPE_CHECKING:
    from ..attacks.unknown_encoder import Suspect
    from ..result import AuditReport, DefenceResult

_ALWAYS = (
    (
        "The attacker has pairs of text and stored vector and knows the defence, not its key. Another, with more time, "
        "text or a better model, recovers more: these figures are a minimum."
    ),
    (
        "Audited are vectors that leave the index: in a hosted store, an export, a backup. The index folder itself "
        "holds the texts as well: with the index nobody needs an attack."
    ),
    (
        "Bounds of int8 and codebooks of pq are fitted to the index's passages; the shorter texts that were attacked "
        "lie further from them than passages do."
    ),
)
_UNDONE = 0.5  # least mean cosine of an undone rotation
_PROTECTING = 10.0  # up to this epsilon, differential privacy is a real guarantee


def statements(report: AuditReport) -> list[str]:
    """Return the statements that belong beside the figures: the same for every audit, then this audit's own."""
    sentences = list(_ALWAYS)
    if report.stored_length is not None:
        sentences.append(
            f"Texts of {report.stored_length} tokens stand for the index's passages, whole and with their headings, "
            "attacked by their stored vectors; that is their median length."
        )
    if report.query_source == GENERATED:
        sentences.append(
            "The queries were made from the documents, and are easier than people's: a defence costs at least this."
        )
    sentences += [_noise(result) for result in report.results if result.epsilon is not None]
    sentences += [_unknown_encoder(result, report.model) for result in report.results if len(result.suspects) > 1]
    return sentences + [_rotation(result, report.results[0]) for result in report.results if result.kind == "rotation"]


def _unknown_encoder(result: DefenceResult, model: str) -> str:
    first, *_ = result.suspects
    right = "rightly" if first.encoder == model else "wrongly"
    shapes = ", ".join(f"{suspect.difference:.2f} of {suspect.encoder}" for suspect in _compared(result))
    read = ", ".join(f"{suspect.f1:.3f} through {suspect.encoder}" for suspect in _compared(result))
    return (
        f"With {result.name}, a thief without pairs who suspects {len(result.suspects)} encoders {right} names "
        f"{first.encoder}. The shape of the stolen vectors differs from those of his own by {shapes}; 0 is equal. "
        f"He reads token F1 {read}."
    )


def _compared(result: DefenceResult) -> list[Suspect]:
    return [suspect for suspect in result.suspects if suspect.difference is not None]


def _noise(result: DefenceResult) -> str:
    assert result.epsilon is not None
    protection = "no formal protection" if result.epsilon > _PROTECTING else "a formal protection of each single text"
    return (
        f"{result.name} has an epsilon of {result.epsilon:,.0f} at delta 1e-5 (Gaussian noise on a unit vector, "
        f"sensitivity 2, by zCDP): {protection}. Noise averages out over passages that are nearly equal."
    )


def _rotation(result: DefenceResult, plain: DefenceResult) -> str:
    before = {length: recovery["f1"] for length, recovery in plain.learned.by_length.items()}
    length = max(result.learned.by_length, key=before.__getitem__)
    turned_back = result.attacks.get(WITHOUT_PAIRS) or result.attacks[RIDGE_WITHOUT_PAIRS]
    with_pairs, without = (attack.by_length[length]["f1"] for attack in (result.learned, turned_back))
    alignment = result.alignment
    assert alignment
    ranking = "exactly what it was" if result.same_ranking else "what it was but for rounding among equal scores"
    undone = alignment.cosine >= _UNDONE
    success = "was undone" if undone else "was not undone this time"
    advice = "" if undone else " That is no protection: more vectors or a better method may undo it."
    return (
        f"The secret rotation {success} by a thief without one known pair: with {alignment.stolen:,} stolen vectors "
        f"and {alignment.own:,} texts of other documents, the vectors that he turned back have a mean cosine of "
        f"{alignment.cosine:.2f} with the true ones, and token F1 at {length} tokens is {without:.3f}, against "
        f"{before[length]:.3f} without the rotation.{advice} A thief who also has pairs of text and stored vector "
        f"recovers {with_pairs:.3f}; {result.dim} such pairs determine the matrix. Inner products are kept, so the "
        f"rotation does not hide which texts are alike, and nDCG@10 of every query is {ranking}."
    )
