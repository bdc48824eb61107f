"""Defences: change vectors before they are stored, so that less of their text can be recovered from them.

A stored vector here is the vector that a thief of the index sees: codes are decoded again. Every kind keeps the length
of its input, so unit vectors stay unit vectors. No kind draws random numbers when it is used: the same text always gets
the same stored vector, so embedding it again gives nobody a second sample.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from ...core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ...core.arrays import Floats

    Array = NDArray[Any]

SECRET_BYTES = 32


class Defence(Protocol):
    """A defence of `KINDS`: a frozen dataclass of numbers and arrays."""

    kind: ClassVar[str]

    @property
    def dim(self) -> int:
        """The dimension of the input vectors."""
        ...

    @property
    def stored_dim(self) -> int:
        """The dimension of the stored vectors; only truncation changes it."""
        ...

    @property
    def bytes(self) -> int:
        """The bytes of a stored vector, as a code if the defence has codes."""
        ...

    def documents(self, vectors: Floats, texts: Sequence[str]) -> Floats:
        """Return the vectors to store for these texts, shape (n, stored_dim)."""
        ...

    def queries(self, vectors: Floats) -> Floats:
        """Return the vectors to search the stored ones with, shape (n, stored_dim)."""
        ...


class _FloatDefence:
    """The defaults of most kinds: stored vectors of the same dimension, four bytes a number, unchanged queries."""

    __slots__ = ()

    @property
    def stored_dim(self: Defence) -> int:
        return self.dim

    @property
    def bytes(self: Defence) -> int:
        return 4 * self.stored_dim

    def queries(self, vectors: Floats) -> Floats:
        return vectors


@dataclass(frozen=True, slots=True)
class Plain(_FloatDefence):
    """No defence: the vectors of the encoder."""

    kind: ClassVar[str] = "none"
    dim: int

    def documents(self, vectors: Floats, texts: Sequence[str]) -> Floats:  # noqa: ARG002
        """Return the same array, not a copy; the texts are not read."""
        return vectors


@dataclass(frozen=True, slots=True)
class Noise(_FloatDefence):
    """Gaussian noise on every coordinate of a document, from its text and a secret; queries stay unchanged."""

    kind: ClassVar[str] = "noise"
    dim: int
    strength: float  # standard deviation, for a vector of length 1
    secret: Array  # (32,) bytes

    def __post_init__(self) -> None:
        _expect(self.kind, self.secret, (SECRET_BYTES,), np.uint8)
        if not 0 < self.strength < np.inf:
            raise InputError(f"noise has a standard deviation above 0, not {self.strength!r}")

    def documents(self, vectors: Floats, texts: Sequence[str]) -> Floats:
        """Add noise from secret and text alone, then restore the vector's length; hashes 8 * dim bytes a text."""
        key = self.secret.tobytes()
        noise = np.array([_normal(key, text, self.dim) for text in texts]).reshape(len(texts), self.dim)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return _rescale(vectors + self.strength * lengths * noise, vectors)


def _normal(key: bytes, text: str, count: int) -> NDArray[np.float64]:
    """Return normally distributed numbers that depend on key and text alone, on every machine and with every numpy.

    Box and Muller 1958, over the bits of SHAKE-256.
    """
    digits = hashlib.shake_256(key + text.encode("utf-8", "surrogatepass")).digest(8 * count)
    uniform = (np.frombuffer(digits, "<u4") + 0.5) / 2**32
    normal: NDArray[np.float64] = np.sqrt(-2 * np.log(uniform[:count])) * np.cos(2 * np.pi * uniform[count:])
    return normal


@dataclass(frozen=True, slots=True)
class Truncation(_FloatDefence):
    """The first dimensions of documents and queries."""

    kind: ClassVar[str] = "truncate"
    dim: int
    length: int

    def __post_init__(self) -> None:
        if not 0 < self.length < self.dim:
            raise InputError(f"vectors of {self.dim} dimensions are cut to fewer, at least one, not {self.length}")

    @property
    def stored_dim(self) -> int:
        """The number of first dimensions that stay."""
        return self.length

    def documents(self, vectors: Floats, texts: Sequence[str]) -> Floats:  # noqa: ARG002
        """Shorten the vectors as `queries` does; the texts are not read."""
        return self.queries(vectors)

    def queries(self, vectors: Floats) -> Floats:
        """Copy the first dimensions, scaled to each vector's length before."""
        return _rescale(vectors[:, : self.length], vectors)


@dataclass(frozen=True, slots=True)
class Int8(_FloatDefence):
    """One of 256 levels for each coordinate of a document, between its dimension's bounds; queries stay unchanged."""

    kind: ClassVar[str] = "int8"
    low: Array  # (dim,) float32
    high: Array  # (dim,) float32

    def __post_init__(self) -> None:
        _expect(self.kind, self.low, (self.dim,), np.float32)
        _expect(self.kind, self.high, (self.dim,), np.float32)

    @property
    def dim(self) -> int:
        """The dimension of the input vectors: one pair of bounds for each."""
        return self.low.size

    @property
    def bytes(self) -> int:
        """The bytes of a code: one for each dimension."""
        return self.dim

    def codes(self, vectors: Floats) -> NDArray[np.uint8]:
        """Return the level of each coordinate, shape (n, dim)."""
        return np.clip(np.rint((vectors - self.low) / self._step), 0, 255).astype(np.uint8)

    def documents(self, vectors: Floats, texts: Sequence[str]) -> Floats:  # noqa: ARG002
        """Round each coordinate to a level within the bounds, then restore the vector's length."""
        return _rescale(self.low + self._step * self.codes(vectors), vectors)

    @property
    def _step(self) -> Array:
        return np.maximum((self.high - self.low) / 255, np.float32(1e-12))


@dataclass(frozen=True, slots=True)
class Binary(_FloatDefence):
    """The sign of each coordinate of a document; queries stay unchanged."""

    kind: ClassVar[str] = "binary"
    dim: int

    @property
    def bytes(self) -> int:
        """The bytes of a code: one bit for each dimension, rounded up to whole bytes."""
        return -(-self.dim // 8)

    def documents(self, vectors: Floats, texts: Sequence[str]) -> Floats:  # noqa: ARG002
        """Return 1 or -1 for each coordinate, scaled to the vector's length; 0 counts as positive."""
        return _rescale(np.where(vectors < 0, np.float32(-1), np.float32(1)), vectors)


@dataclass(frozen=True, slots=True)
class ProductCodes(_FloatDefence):
    """The nearest centroid for each part of a document's vector; queries stay unchanged."""

    kind: ClassVar[str] = "pq"
    centroids: Array  # (parts, centroids, dim / parts) float32

    def __post_init__(self) -> None:
        if self.centroids.ndim != 3 or not self.centroids.size or self.centroids.dtype != np.float32:
            raise InputError(f"centroids have the shape (parts, centroids, dimensions), not {self.centroids.shape}")

    @property
    def dim(self) -> int:
        """The dimension of the input vectors: parts times dimensions of a part."""
        return int(self.centroids.shape[0] * self.centroids.shape[2])

    @property
    def bytes(self) -> int:
        """The bytes of a code: enough bits for a centroid's number in each part, rounded up to whole bytes."""
        parts, size, _ = self.centroids.shape
        return -(-int(parts) * (int(size) - 1).bit_length() // 8)

    def codes(self, vectors: Floats) -> NDArray[np.intp]:
        """Return the number of each part's nearest centroid, shape (n, parts)."""
        parts, size, width = self.centroids.shape
        codes = np.empty((len(vectors), parts), np.intp)
        for part, centroids in enumerate(self.centroids):
            columns = vectors[:, part * width : (part + 1) * width]
            for start in range(0, len(columns), 4_096):  # 4 MB of distances at a time
                block = columns[start : start + 4_096]
                codes[start : start + len(block), part] = ((centroids**2).sum(1) - 2 * block @ centroids.T).argmin(1)
        assert not len(codes) or codes.max() < size
        return codes

    def documents(self, vectors: Floats, texts: Sequence[str]) -> Floats:  # noqa: ARG002
        """Join the nearest centroids of all parts, then restore each vector's length; compares with every centroid."""
        parts = [centroids[codes] for centroids, codes in zip(self.centroids, self.codes(vectors).T, strict=True)]
        return _rescale(np.concatenate(parts, axis=1), vectors)


@dataclass(frozen=True, slots=True)
class Rotation(_FloatDefence):
    """A secret rotation of documents and queries, which keeps every inner product."""

    kind: ClassVar[str] = "rotation"
    matrix: Array  # (dim, dim) float64, orthogonal

    def __post_init__(self) -> None:
        _expect(self.kind, self.matrix, (self.dim, self.dim), np.float64)
        if not np.allclose(self.matrix @ self.matrix.T, np.eye(self.dim), atol=1e-6):
            raise InputError("the matrix of a rotation is orthogonal, but this one is not")

    @property
    def dim(self) -> int:
        """The dimension of input and stored vectors: the rows of the square matrix."""
        return len(self.matrix)

    def documents(self, vectors: Floats, texts: Sequence[str]) -> Floats:  # noqa: ARG002
        """Rotate the vectors as `queries` does; the texts are not read."""
        return self.queries(vectors)

    def queries(self, vectors: Floats) -> Floats:
        """Multiply by the matrix in float64, and round once to float32; costs dim² a vector."""
        rotated = np.empty(vectors.shape, np.float32)
        for start in range(0, len(vectors), 8_192):  # in float64: only the final rounding loses digits
            rotated[start : start + 8_192] = vectors[start : start + 8_192].astype(np.float64) @ self.matrix
        return rotated


KINDS: dict[str, type[Any]] = {
    kind.kind: kind for kind in (Plain, Noise, Truncation, Int8, Binary, ProductCodes, Rotation)
}


def to_parts(defence: Defence) -> tuple[dict[str, float], dict[str, Array]]:
    """Return the numbers and the arrays of a defence, by name."""
    values = {field.name: getattr(defence, field.name) for field in fields(defence)}  # type: ignore[arg-type]
    arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    return {name: value for name, value in values.items() if name not in arrays}, arrays


def from_parts(kind: Any, numbers: Mapping[str, Any], arrays: Mapping[str, Array]) -> Defence:
    """Build a defence from the numbers and arrays of `to_parts`.

    :raises InputError: when they do not belong to a defence of this kind.
    """
    if not isinstance(kind, str) or kind not in KINDS:
        raise InputError(f"there is no defence {kind!r}: expected one of {', '.join(KINDS)}")
    needed = {field.name: str(field.type) for field in fields(KINDS[kind])}
    values = {**numbers, **arrays}
    is_valid = needed.keys() == values.keys() and all(_fits(values[name], form) for name, form in needed.items())
    if not is_valid:
        raise InputError(f"the defence {kind} is made of {', '.join(needed)}, but other values came")
    defence: Defence = KINDS[kind](**values)
    return defence


def _fits(value: object, form: str) -> bool:
    if form == "Array":
        return isinstance(value, np.ndarray) and value.ndim > 0 and bool(np.isfinite(value).all())
    if form == "int":
        return type(value) is int and 0 < value < 2**16
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _expect(kind: str, array: Array, shape: tuple[int, ...], dtype: Any) -> None:
    if array.shape != shape or array.dtype != dtype:
        raise InputError(
            f"the defence {kind} needs an array of {np.dtype(dtype)} of shape {shape}, "
            f"but {array.dtype} of shape {array.shape} came"
        )


def _rescale(changed: Array, vectors: Floats) -> Floats:
    """Scale the changed vectors to their lengths before the change."""
    lengths = np.linalg.norm(changed, axis=1, keepdims=True)
    scale = np.linalg.norm(vectors, axis=1, keepdims=True) / np.maximum(lengths, 1e-12)
    return np.ascontiguousarray(changed * scale, np.float32)
