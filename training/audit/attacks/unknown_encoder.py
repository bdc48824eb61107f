"""Tell which of several encoders made stolen vectors, and read them through it, with no pair of text and vector.

The thief has texts of the same kind, and encodes them with each encoder that he suspects. Vectors of one encoder have
one shape: the length of their mean, and the variances along their principal axes. No rotation changes it, and most
defences change it less than another encoder does.

To read, he takes the vectors as they are, or aligned without pairs (`alignment`) if that brings them nearer to his own.
A ridge fitted to his own texts reads them, even if none of his encoders is the right one: embeddings of different
models have similar neighbourhoods (Jha et al. 2025, arXiv:2505.12540).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ....indexes.metric import normalized
from ...inversion.metrics import overlap
from .alignment import align
from .ridge import RidgeBag

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ....core.arrays import Floats
    from ....retriever.models.encoder import Encoder

_JUDGES = 4  # one text in four judges an alignment that was fitted to the others
_NEARER = 1.1  # an alignment is used if it makes the mean nearest cosine greater by this factor
_CELLS = 2_000_000  # of a block of cosines


@dataclass(frozen=True, slots=True)
class Suspect:
    """An encoder that a thief suspects to have made the stolen vectors."""

    encoder: str
    difference: float | None  # of the shapes: 0 for equal ones, 2 at most; None if its vectors are too short
    f1: float | None = None  # token F1 of the text that he reads through it; None if its vectors are too short

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return {name: value if name == "encoder" else value and round(value, 4) for name, value in asdict(self).items()}


class Suspects:
    """Encoders that a thief suspects, each with the vectors of his own texts.

    :param texts: his own, of one length; `tokens` has their tokens.
    """

    def __init__(
        self, encoders: Iterable[Encoder], texts: Sequence[str], tokens: Sequence[Sequence[int]], length: int, seed: int
    ) -> None:
        by_fingerprint = {encoder.fingerprint: encoder for encoder in encoders}
        self._own = {encoder.name: encoder.encode(list(texts)) for encoder in by_fingerprint.values()}
        self._tokens, self._length, self._seed = tokens, length, seed

    def likeliest(self, stolen: Floats, true: Sequence[Sequence[int]]) -> list[Suspect]:
        """Return the encoders, the likeliest first, with the text that he reads through each.

        :param stolen: (n, dim); its last rows belong to the texts with the tokens `true`.
        """
        suspects = []
        for name, own in self._own.items():
            if own.shape[1] < stolen.shape[1]:
                suspects.append(Suspect(name, None))
                continue
            own_vectors = normalized(own[:, : stolen.shape[1]])
            guesses = self._read(stolen, own_vectors)[-len(true) :]
            f1 = float(np.mean([overlap(*pair)[2] for pair in zip(true, guesses, strict=True)]))
            suspects.append(Suspect(name, shape_difference(stolen, own_vectors), f1))
        return sorted(suspects, key=lambda suspect: math.inf if suspect.difference is None else suspect.difference)

    def _read(self, stolen: Floats, own: Floats) -> list[list[int]]:
        order = np.random.default_rng(self._seed).permutation(len(own))
        judges, known = np.split(own[order], [len(own) // _JUDGES])  # an alignment fits the pairs that it has seen
        stolen = normalized(stolen)
        aligned = align(stolen, known, seed=self._seed)(stolen)
        view = aligned if _nearness(aligned, judges) > _NEARER * _nearness(stolen, judges) else stolen
        return RidgeBag.fit(own, self._tokens, self._length).tokens(view)


def shape_difference(first: Floats, second: Floats) -> float:
    """Compare two sets of vectors of one dimension: the lengths of their means, and the variances of their axes."""
    (mean, variances), (other_mean, other_variances) = _shape(first), _shape(second)
    return abs(mean - other_mean) + float(np.abs(variances - other_variances).sum())


def _shape(vectors: Floats) -> tuple[float, Floats]:
    """The length of the mean of unit vectors, and the variances of their principal axes, the greatest first."""
    unit = normalized(vectors)
    mean = unit.mean(0)
    centred = unit - mean
    return float(np.linalg.norm(mean)), np.linalg.eigvalsh(centred.T @ centred / len(centred))[::-1]


def _nearness(vectors: Floats, targets: Floats) -> float:
    """The mean cosine of a vector with the nearest target, both seen from their centres."""
    vectors, targets = normalized(vectors - vectors.mean(0)), normalized(targets - targets.mean(0))
    rows = max(1, _CELLS // len(targets))
    nearest = [(vectors[start : start + rows] @ targets.T).max(1) for start in range(0, len(vectors), rows)]
    return float(np.concatenate(nearest).mean())
