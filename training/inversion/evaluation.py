"""What an inverter is measured by: what it recovers of held-out texts, and where recovery begins."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from ...retriever.inversion.inverter import InverterInfo, bag_of
from ..evaluation import significance
from ..runs.progress import counted
from .metrics import overlap
from .overlap import Known

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ...core.arrays import Floats
    from ...retriever.inversion.correction import Corrected
    from ...retriever.inversion.inverter import EmbeddingInverter
    from ..runs.progress import Tell
    from .rows import TokenSpans


_JUDGED = 64  # held-out texts that recovery is measured on
_CONTROLS = 24  # vectors of no text that the threshold is taken from
_CONTROL_SECONDS = 1.0


def measured(name: str, values: Sequence[float]) -> dict[str, Any]:
    """A mean with its interval, as a card has it."""
    low, high = significance.interval(values)
    return {
        "name": name,
        "value": round(float(np.mean(values)), 4),
        "interval": [round(low, 4), round(high, 4)],
        "rows": len(values),
    }


def recovery(
    inverter: EmbeddingInverter, learned: TokenSpans, held_out: TokenSpans, tell: Tell
) -> tuple[list[dict[str, Any]], list[float]]:
    """Recovery of held-out texts, and the cosines of what was recovered."""
    chosen = _apart(learned, held_out, tell)
    true = [held_out.tokens[int(number)].tokens.tolist() for number in chosen]
    vectors = inverter.check(held_out.vectors[chosen])
    shares, counts = inverter.proposing.bag(vectors)
    bags = [[token for token, _ in bag_of(*one, 0.2)] for one in zip(shares, counts.tolist(), strict=True)]
    proposals = inverter.proposals(vectors)
    proposed = [inverter.nearest(*one) for one in zip(vectors, proposals, strict=True)]
    corrected = _corrected(inverter, vectors, "held-out texts", tell)
    rows = [
        measured("token F1, bag", [overlap(*both)[2] for both in zip(true, bags, strict=True)]),
        measured("token F1, proposed text", [overlap(t, p.ids)[2] for t, p in zip(true, proposed, strict=True)]),
        measured("token F1, corrected 1 s", [overlap(t, c.ids)[2] for t, c in zip(true, corrected, strict=True)]),
        measured("cosine, corrected 1 s", [one.cosine for one in corrected]),
    ]
    return rows, [one.cosine for one in corrected]


def _apart(learned: TokenSpans, held_out: TokenSpans, tell: Tell) -> NDArray[np.int64]:
    """Numbers of held-out stretches, from all over them, of which most does not stand in what was learned from."""
    known = Known(learned.tokens[number].tokens for number in range(len(learned)))
    tried = np.unique(np.linspace(0, len(held_out) - 1, min(4 * _JUDGED, len(held_out))).astype(np.int64))
    apart = [number for number in tried.tolist() if not known.holds(held_out.tokens[number].tokens)]
    if not apart:
        tell("all held-out texts stand for the most part in those that were learned from")
        apart = tried.tolist()
    return np.array(apart)[np.unique(np.linspace(0, len(apart) - 1, min(_JUDGED, len(apart))).astype(np.int64))]


def with_threshold(
    about: InverterInfo,
    inverter: EmbeddingInverter,
    vectors: Floats,
    own: Sequence[float],
    seed: int,
    tell: Tell = lambda _: None,
) -> InverterInfo:
    """The cosine from which a text counts as recovered: between what texts reach and what vectors of no text do.

    These are random directions, and the held-out vectors with their dimensions in another order, as another encoder's
    are.
    """
    random = np.random.default_rng(seed)
    some = np.asarray(vectors[: _CONTROLS // 2], np.float32)[:, random.permutation(about.dim)]
    none = np.concatenate([random.standard_normal((_CONTROLS - len(some), about.dim)).astype(np.float32), some])
    reached = [one.cosine for one in _corrected(inverter, inverter.check(none), "vectors of no text", tell)]
    low, high = float(np.quantile(own, 0.05)), float(max(reached))
    threshold = (low + high) / 2 if low > high else high
    control = {"texts, 5th percentile": round(low, 4), "no texts, highest": round(high, 4)}
    return InverterInfo(**{**asdict(about), "threshold": round(threshold, 4), "control": control})


def _corrected(inverter: EmbeddingInverter, vectors: Floats, what: str, tell: Tell) -> list[Corrected]:
    """The nearest texts that are found in a second each."""
    told = f"correcting {len(vectors)} {what} for {_CONTROL_SECONDS:g} s each"
    tell(told)
    return [inverter.corrected(vector, _CONTROL_SECONDS) for vector in counted(vectors, tell, told)]
