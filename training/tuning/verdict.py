"""Judge a tuned encoder against its base, on queries made from held-out documents."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..evaluation import significance
from . import query_generation

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from ...core.arrays import Floats
    from ...retriever.models.encoder import Encoder
    from .query_generation import SyntheticPair

_ALPHA = 0.05
_JUDGES = 12  # documents that judge, or half of all if there are fewer
_EQUAL = 1e-6  # cosines closer than this are equal


@dataclass(frozen=True, slots=True)
class Verdict:
    """The difference between two encoders; all kinds of queries have the same weight."""

    queries: int
    before: float  # nDCG@10
    after: float
    difference: significance.Difference
    kinds: dict[str, float]  # kind of query -> difference

    @property
    def carried_by(self) -> str | None:
        """The kind without which there is no gain, if any."""
        for kind in self.kinds:
            rest = [gain for name, gain in self.kinds.items() if name != kind]
            if rest and float(np.mean(rest)) <= 0:
                return kind
        return None

    @property
    def is_gain(self) -> bool:
        """Whether the gain is significant, and not due to one kind of query."""
        return self.difference.value > 0 and self.difference.p < _ALPHA and self.carried_by is None

    def as_dict(self) -> dict[str, Any]:
        """Return the verdict for JSON, rounded to 4 digits."""
        return {
            "queries": self.queries,
            "before": round(self.before, 4),
            "after": round(self.after, 4),
            "difference": {name: round(value, 4) for name, value in asdict(self.difference).items()},
            "kinds": {name: round(value, 4) for name, value in self.kinds.items()},
        }


def judging_share(documents: int, share: float) -> float:
    """Return the share of the documents that judges: as configured, but more if that would be too few."""
    return max(share, min(0.5, _JUDGES / max(1, documents)))


def even(pairs: Iterable[SyntheticPair], maximum: int, seed: int) -> list[SyntheticPair]:
    """Draw about as many queries of each kind, so that none decides alone."""
    kinds: dict[str, list[SyntheticPair]] = {}
    for pair in pairs:
        kinds.setdefault(pair.kind, []).append(pair)
    each = -(-maximum // max(1, len(kinds)))
    return [pair for kind in kinds.values() for pair in query_generation.sample(kind, each, seed)]


def query_ndcg(encoder: Encoder, pairs: Sequence[SyntheticPair], texts: Sequence[str], rivals: Floats) -> Floats:
    """Return nDCG@10 of each query; only its own passage is relevant.

    Rivals are the passages given, and the positives of queries from other documents. A rival with the same score ranks
    first, so that an encoder gains nothing by giving all passages one vector. A rival with the same text is none.

    :param texts: of the rivals.
    :param rivals: their vectors.
    """
    vectors = encoder.encode([pair.query for pair in pairs], kind="query")
    positives = encoder.encode([pair.positive for pair in pairs])
    own = (vectors * positives).sum(1, keepdims=True) - _EQUAL
    documents = np.unique([pair.document for pair in pairs], return_inverse=True)[1]
    contents = [*(pair.positive.strip() for pair in pairs), *(text.strip() for text in texts)]
    numbers = np.unique(contents, return_inverse=True)[1]
    positive_numbers, rival_numbers = numbers[: len(pairs)], numbers[len(pairs) :]
    is_other = (documents[:, None] != documents) & (positive_numbers[:, None] != positive_numbers)
    above = ((vectors @ rivals.T >= own) & (positive_numbers[:, None] != rival_numbers)).sum(1)
    ranks = 1 + above + ((vectors @ positives.T >= own) & is_other).sum(1)
    return np.where(ranks <= 10, 1 / np.log2(ranks + 1), 0).astype(np.float32)


def judge(pairs: Sequence[SyntheticPair], before: Floats, after: Floats, seed: int) -> Verdict:
    """Compare nDCG@10 of the queries before and after.

    Queries of one document gain and lose together, so the significance test takes one value per document.
    """
    kinds = np.array([pair.kind for pair in pairs])
    weights = np.empty(len(pairs))  # mean 1, with the same sum for each kind
    for kind in set(kinds.tolist()):
        weights[kinds == kind] = len(pairs) / len(set(kinds.tolist())) / (kinds == kind).sum()
    documents = np.unique([pair.document for pair in pairs], return_inverse=True)[1]

    def document_values(values: Floats) -> NDArray[np.float64]:
        """Return a value for each document; their mean is that of all queries."""
        totals = np.bincount(documents, weights * values)
        return totals * len(totals) / len(pairs)

    gains = after - before
    return Verdict(
        len(pairs),
        float((weights * before).mean()),
        float((weights * after).mean()),
        significance.difference(document_values(after), document_values(before), seed=seed),
        {kind: float(gains[kinds == kind].mean()) for kind in sorted(set(kinds.tolist()))},
    )
