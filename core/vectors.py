"""Vectors that a caller gives: checked, and brought to length 1 where lengths do not count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from .errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .arrays import Floats

_Number = TypeVar("_Number", bound=np.floating[Any])
_UNIT = 1e-6  # the distance from length 1 within which a vector is not scaled


def unit_vector(value: Any, label: str) -> Floats:
    """Return a vector of length 1, float32, shape (dim,).

    :param label: names the vector in messages.
    :raises InputError: as `with_direction` does.
    """
    return unit(with_direction(value, label))


def with_direction(value: Any, label: str) -> NDArray[np.float64]:
    """Return a vector that is not zero, shape (dim,).

    :param label: names the vector in messages.
    :raises InputError: as `finite` does, or when all numbers are 0.
    """
    numbers = finite(value, label)
    if not numbers.any():
        raise InputError(f"{label} is zero: expected a vector with a direction")
    return numbers


def finite(value: Any, label: str) -> NDArray[np.float64]:
    """Return a vector, shape (dim,).

    :param label: names the vector in messages.
    :raises InputError: when it is no list of numbers, or one of them is not finite.
    """
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError):  # lists of different lengths; a tensor on a GPU
        array = np.array(None)
    if array.ndim != 1 or array.dtype.kind not in "fiu" or not len(array):
        raise InputError(f"{label} is {_kind(value, array)}: expected a list of numbers, or an array of shape (dim,)")
    numbers = array.astype(np.float64)
    if not np.isfinite(numbers).all():
        raise InputError(f"{label} has a number that is not finite: expected finite numbers")
    return numbers


def unit(numbers: NDArray[np.float64]) -> Floats:
    """Bring a vector that is not zero to length 1, float32."""
    greatest = float(np.abs(numbers).max())
    scaled = numbers / greatest
    length = float(np.linalg.norm(scaled))
    is_unit = abs(length * greatest - 1) <= _UNIT
    return np.ascontiguousarray(numbers if is_unit else scaled / length, np.float32)


def _kind(value: Any, array: np.ndarray[Any, Any]) -> str:
    """Describe a value that came in place of a vector."""
    if array.ndim > 1:
        return f"an array of shape {array.shape}"
    if array.ndim == 1:
        return f"a {type(value).__name__} of {type(array.tolist()[0]).__name__}" if len(array) else "empty"
    return f"of type {type(value).__name__}"


def check_dimension(vector: NDArray[_Number], dim: int, label: str) -> NDArray[_Number]:
    """Return a vector that an index can hold.

    :raises InputError: when it has another dimension.
    """
    if len(vector) != dim:
        raise InputError(
            f"{label} has dimension {len(vector)}, but the vectors of the index have {dim}: use their encoder"
        )
    return vector
