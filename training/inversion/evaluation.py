"""Measure the recovery of held-out texts, and set the minimum cosine of a recovered text."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.progress import Progress, counted, ignore
from ..evaluation import significance
from .metrics import overlap
from .overlap import KnownTexts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ...core.arrays import Floats
    from ...core.progress import OnProgress
    from ...retriever.inversion.correction import Correction
    from ...retriever.inversion.inverter import EmbeddingInverter
    from ...retriever.inversion.inverter_info import InverterInfo
    from .rows import TokenSpans


_TEXTS = 64  # held-out texts to recover
_CONTROLS = 16  # vectors of no text, which set the thresholds
_ROUNDS = 2  # of correction for each held-out text: a second or so
_CONTROL_ROUNDS = (0, 2, 6)  # of correction of vectors of no text
_DEVIATIONS = 3.1  # standard deviations above their mean cosine: one of a thousand reaches it
_SHAPED_DEVIATIONS = 1.64  # the same for a vector with the shape of a text's: 95 % of the vectors of no text stay below


def summarize(name: str, values: Sequence[float]) -> dict[str, Any]:
    """A mean with its interval, as the model card has it."""
    value = float(np.mean(values))
    low, high = significance.interval(values) if len(values) > 1 else (value, value)
    return {
        "name": name,
        "value": round(value, 4),
        "interval": [round(low, 4), round(high, 4)],
        "rows": len(values),
    }


def measure_recovery(
    inverter: EmbeddingInverter, learned: TokenSpans, held_out: TokenSpans, progress: OnProgress
) -> tuple[list[dict[str, Any]], list[float]]:
    """Measure the recovery of held-out texts; return the measures, and the cosine of each recovered text."""
    numbers = _unknown_texts(learned, held_out, progress)
    true = [held_out.tokens[int(number)].tokens.tolist() for number in numbers]
    vectors = inverter.check(held_out.vectors[numbers])
    drafts = inverter.drafts(vectors)
    proposed = [inverter.nearest(vector, draft).ids for vector, draft in zip(vectors, drafts, strict=True)]
    corrected = _correct(inverter, vectors, "held-out texts", progress)
    cosines = [correction.cosine for correction in corrected]
    measures = [
        summarize("token F1, bag", _f1(true, [draft.texts[-1] for draft in drafts])),
        summarize("token F1, proposed text", _f1(true, proposed)),
        summarize(f"token F1, corrected {_ROUNDS} rounds", _f1(true, [correction.ids for correction in corrected])),
        summarize(f"cosine, corrected {_ROUNDS} rounds", cosines),
    ]
    return measures, cosines


def _f1(true: Sequence[Sequence[int]], recovered: Sequence[Sequence[int]]) -> list[float]:
    return [overlap(*pair)[2] for pair in zip(true, recovered, strict=True)]


def _unknown_texts(learned: TokenSpans, held_out: TokenSpans, progress: OnProgress) -> NDArray[np.int64]:
    """Choose held-out texts evenly, except texts that mostly repeat the training texts."""
    known = KnownTexts(learned.tokens[number].tokens for number in range(len(learned)))
    candidates = np.unique(np.linspace(0, len(held_out) - 1, min(4 * _TEXTS, len(held_out))).astype(np.int64))
    unknown = [number for number in candidates.tolist() if not known.holds(held_out.tokens[number].tokens)]
    if not unknown:
        progress(Progress("all held-out texts mostly repeat texts learned from"))
        unknown = candidates.tolist()
    return np.array(unknown)[np.unique(np.linspace(0, len(unknown) - 1, min(_TEXTS, len(unknown))).astype(np.int64))]


def with_threshold(
    info: InverterInfo,
    inverter: EmbeddingInverter,
    vectors: Floats,
    cosines: Sequence[float],
    seed: int,
    progress: OnProgress = ignore,
) -> InverterInfo:
    """Set the thresholds: the cosines that vectors of no text stay below, after several numbers of rounds.

    Search is limited by rounds, not by seconds, so that a busy machine sets the same thresholds. More rounds bring a
    text nearer to any vector. The true text of a defended vector has a low cosine, so a higher threshold would reject
    it. For the same reason a vector with the shape of a text's has a lower threshold. Vectors of no text are
    random directions, and held-out vectors with their dimensions in another order, as another encoder might have them.

    :param cosines: of recovered texts.
    """
    reached = _cosines_of_no_texts(inverter, np.asarray(vectors[: _CONTROLS // 2], np.float32), seed, progress)
    low, high = float(np.quantile(cosines, 0.05)), reached.max(0)
    spread = float(np.sqrt(reached.var(0).mean()))  # hardly changes with the rounds
    halfway = np.maximum(high, (high + low) / 2)
    chance = np.clip(reached.mean(0) + _DEVIATIONS * spread, high, halfway)
    chance = np.maximum.accumulate(chance)
    control = {"texts, 5th percentile": round(low, 4), "no texts, highest": round(float(high[-1]), 4)}
    shaped = reached.mean(0) + _SHAPED_DEVIATIONS * spread
    shaped = np.maximum.accumulate(np.minimum(shaped, chance))
    return replace(
        info,
        threshold=round(float(chance[1]), 4),
        no_texts=np.stack([np.array(_CONTROL_ROUNDS, float), chance, shaped], 1).round(4).tolist(),
        control=control,
    )


def _cosines_of_no_texts(
    inverter: EmbeddingInverter, vectors: Floats, seed: int, progress: OnProgress
) -> NDArray[np.float64]:
    """Correct vectors of no text. Return the cosines, shape (vectors, numbers of rounds)."""
    random = np.random.default_rng(seed)
    count, dim = vectors.shape
    shuffled = vectors[:, random.permutation(dim)]
    directions = random.standard_normal((_CONTROLS - count, dim)).astype(np.float32)
    controls = inverter.check(np.concatenate([directions, shuffled]))
    stage = f"correcting vectors of no text for {sum(_CONTROL_ROUNDS)} rounds each"
    return np.array(
        [
            [inverter.correct(vector, math.inf, rounds=rounds).cosine for rounds in _CONTROL_ROUNDS]
            for vector in counted(controls, progress, stage)
        ]
    )


def _correct(inverter: EmbeddingInverter, vectors: Floats, name: str, progress: OnProgress) -> list[Correction]:
    """Find the nearest text of each vector in a few rounds."""
    stage = f"correcting {name} for {_ROUNDS} rounds each"
    return [inverter.correct(vector, math.inf, rounds=_ROUNDS) for vector in counted(vectors, progress, stage)]
