"""Tell the vectors of texts from vectors of no text by their shape, without a decoder.

The vectors of texts vary more in some directions than in others. Random vectors do not, nor do another encoder's
vectors in these directions. Noise and rounding add an error that is alike in all directions, so part of the shape is
left; a secret rotation leaves none. A likelihood ratio compares two models of a vector: text with error, and error
alone.

The cosine of a recovered text is not enough. Under a defence even the true text is far from the vector. Each second of
search finds a text nearer to a vector of no text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import save_file

from ...core.errors import InputError
from ...indexes.metric import normalized
from ..models.encoder_parts import read_arrays

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from ...core.arrays import Doubles, Floats

SHAPE = "shape.safetensors"
_MINIMUM = 1e-3  # variance along an axis, relative to the mean
_SHARES = np.linspace(0, 0.99, 34)  # cosines to try, of a defended vector with the text's own
_ROUNDING = 1e-3  # in the length of a saved axis, and in the mean of the variances
_LIMIT = 4.77  # nats: one of a thousand vectors of no text reaches it


@dataclass(frozen=True, slots=True)
class TextShape:
    """The principal axes of the vectors of texts."""

    axes: Floats  # (dim, dim), a column each
    variances: Floats  # (dim,), along each axis, around 0; their mean is 1

    @classmethod
    def of(cls, vectors: Floats) -> TextShape:
        """Measure the shape of texts' vectors (texts, dim)."""
        unit = normalized(vectors).astype(np.float64)
        variances, axes = np.linalg.eigh(unit.T @ unit / len(unit))
        variances = np.maximum(variances * len(variances), _MINIMUM)
        return cls(axes.astype(np.float32), (variances / variances.mean()).astype(np.float32))

    @classmethod
    def read(cls, folder: Path, dim: int) -> TextShape | None:
        """Read the shape from an inverter's folder; None if an earlier version wrote the folder.

        :raises InputError: when the file is damaged, or of another encoder.
        """
        file = folder / SHAPE
        if not file.is_file():
            return None
        arrays = read_arrays(file)
        if arrays.keys() != {"axes", "variances"}:
            raise InputError(f"{file} is damaged: expected arrays axes and variances; copy the inverter's folder again")
        shape = cls(arrays["axes"], arrays["variances"])
        if shape.axes.shape != (dim, dim) or shape.variances.shape != (dim,):
            raise InputError(f"{file} is not of vectors of {dim} numbers: copy the inverter's folder again")
        if not _are_valid(shape.axes, shape.variances):
            raise InputError(
                f"{file} is damaged: expected finite float32 numbers, axes of length 1, and variances above 0 with a "
                "mean of 1; copy the inverter's folder again"
            )
        return shape

    def write(self, folder: Path) -> None:
        """Write the shape into an existing folder."""
        save_file({"axes": np.ascontiguousarray(self.axes), "variances": self.variances}, folder / SHAPE)

    def are_of_texts(self, vectors: Floats) -> NDArray[np.bool_]:
        """Whether each vector (rows, dim) has the shape of a text's vector, defended or not.

        One of a thousand vectors of no text passes: twice the log-likelihood ratio is chi-squared for half of them, and
        0 for the others, since no share is below 0 (Self and Liang 1987, doi:10.2307/2289471).
        """
        return self.evidence(vectors) > _LIMIT

    def evidence(self, vectors: Floats) -> Doubles:
        """The log-likelihood ratio of each vector (rows, dim) in nats, from 0: the highest over the shares.

        It is 0 of a zero vector, which has no direction.
        """
        energies = len(self.variances) * (normalized(vectors) @ self.axes).astype(np.float64) ** 2
        highest = np.zeros(len(energies))
        for share in _SHARES**2:
            variances = share * self.variances.astype(np.float64) + 1 - share
            ratios: Doubles = (energies - np.log(variances) - energies / variances).sum(1) / 2
            highest = np.maximum(highest, ratios)
        return np.where(energies.any(1), highest, 0)


def _are_valid(axes: NDArray[Any], variances: NDArray[Any]) -> bool:
    """Whether arrays from a file can be axes (dim, dim) and variances (dim,)."""
    for array in (axes, variances):
        if array.dtype != np.float32 or not np.isfinite(array).all():
            return False
    lengths = np.linalg.norm(axes.astype(np.float64), axis=0)
    mean = variances.mean(dtype=np.float64)
    return bool((variances > 0).all() and np.allclose([*lengths, mean], 1, atol=_ROUNDING))
