"""What vectors are turned into before they are stored, so that less of their text can be read back from them.

A stored vector here is what someone who gets the index sees: codes are decoded again. Every kind keeps the length of
the vector it was given, so that unit vectors stay unit vectors, and none draws anything when it is used: the same text
gets the same stored vector each time, and embedding it again gives nobody a second sample.
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

SECRET = 32  # bytes of a secret


class Defence(Protocol):
    """One of `KINDS`: a frozen dataclass of numbers and arrays."""

    kind: ClassVar[str]

    @property
    def dim(self) -> int:
        """Of the vectors that it takes."""
        ...

    @property
    def stored_dim(self) -> int: ...

    @property
    def bytes(self) -> int:
        """What a stored vector takes, as codes where it is coded."""
        ...

    def documents(self, vectors: Floats, texts: Sequence[str]) -> Floats:
        """The stored vectors of these texts, shape (n, stored_dim)."""
        ...

    def queries(self, vectors: Floats) -> Floats:
        """The vectors that the stored ones are searched with, shape (n, stored_dim)."""
        ...


class _Vectors:
    """What most kinds share: as many numbers stored as given, four bytes each, and queries as they are."""

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
class Plain(_Vectors):
    """Vectors as the encoder gives them."""

    kind: ClassVar[str] = "none"
    dim: int

    def documents(self, vectors: Floats, texts: Sequence[str]) -> Floats:  # noqa: ARG002
        return vectors


@dataclass(frozen=True, slots=True)
class Noise(_Vectors):
    """Gaussian noise on every coordinate of a document, drawn from its text and a secret; queries stay as they are."""

    kind: ClassVar[str] = "noise"
    dim: int
    strength: float  # standard deviation, for a vector of length 1
    secret: Array  # (32,) bytes

    def __post_init__(self) -> None:
        _expect(self.kind, self.secret, (SECRET,), np.uint8)
        if not 0 < self.strength < np.inf:
            raise InputError(f"noise has a standard deviation above 0, not {self.strength!r}")

    def documents(self, vectors: Floats, texts: Sequence[str]) -> Floats:
        key = self.secret.tobytes()
        noise = np.array([_normal(key, text, self.dim) for text in texts]).reshape(len(texts), self.dim)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return _as_long(vectors + self.strength * lengths * noise, vectors)


def _normal(key: bytes, text: str, count: int) -> NDArray[np.float64]:
    """Normally distributed numbers that follow from key and text alone, on every machine and with every numpy.

    Box and Muller 1958 over the bits of SHAKE-256.
    """
    digits = hashlib.shake_256(key + text.encode("utf-8", "surrogatepass")).digest(8 * count)
    uniform = (np.frombuffer(digits, "<u4") + 0.5) / 2**32
    normal: NDArray[np.float64] = np.sqrt(-2 * np.log(uniform[:count])) * np.cos(2 * np.pi * uniform[count:])
    return normal


@dataclass(frozen=True, slots=True)
class Truncation(_Vectors):
    """The first dimensions of documents and queries."""

    kind: ClassVar[str] = "truncate"
    dim: int
    length: int

    def __post_init__(self) -> None:
        if not 0 < self.length < self.dim:
            raise InputError(f"vectors of {self.dim} dimensions are cut to fewer, at least one, not {self.length}")

    @property
    def stored_dim(self) -> int:
        return self.length

    def documents(self, vectors: Floats, texts: Sequence[str]) -> Floats:  # noqa: ARG002
        return self.queries(vectors)

    def queries(self, vectors: Floats) -> Floats:
        return _as_long(vectors[:, : self.length], vectors)


@dataclass(frozen=True, slots=True)
class Int8(_Vectors):
    """One of 256 levels for each coordinate of a document, between its dimension's bounds; queries stay as they are."""

    kind: ClassVar[str] = "int8"
    low: Array  # (dim,) float32
    high: Array  # (dim,) float32

    def __post_init__(self) -> None:
        _expect(self.kind, self.low, (self.dim,), np.float32)
        _expect(self.kind, self.high, (self.dim,), np.float32)

    @property
    def dim(self) -> int:
        return self.low.size

    @property
    def bytes(self) -> int:
        return self.dim

    def codes(self, vectors: Floats) -> NDArray[np.uint8]:
        return np.clip(np.rint((vectors - self.low) / self._step), 0, 255).astype(np.uint8)

    def documents(self, vectors: Floats, texts: Sequence[str]) -> Floats:  # noqa: ARG002
        return _as_long(self.low + self._step * self.codes(vectors), vectors)

    @property
    def _step(self) -> Array:
        return np.maximum((self.high - self.low) / 255, np.float32(1e-12))


@dataclass(frozen=True, slots=True)
class Binary(_Vectors):
    """The sign of each coordinate of a document; queries stay as they are."""

    kind: ClassVar[str] = "binary"
    dim: int

    @property
    def bytes(self) -> int:
        return -(-self.dim // 8)

    def documents(self, vectors: Floats, texts: Sequence[str]) -> Floats:  # noqa: ARG002
        return _as_long(np.where(vectors < 0, np.float32(-1), np.float32(1)), vectors)


@dataclass(frozen=True, slots=True)
class ProductCodes(_Vectors):
    """For each part of a document's vector the nearest of some centroids; queries stay as they are."""

    kind: ClassVar[str] = "pq"
    centroids: Array  # (parts, centroids, dim / parts) float32

    def __post_init__(self) -> None:
        if self.centroids.ndim != 3 or not self.centroids.size or self.centroids.dtype != np.float32:
            raise InputError(f"centroids have the shape (parts, centroids, dimensions), not {self.centroids.shape}")

    @property
    def dim(self) -> int:
        return int(self.centroids.shape[0] * self.centroids.shape[2])

    @property
    def bytes(self) -> int:
        parts, size, _ = self.centroids.shape
        return -(-int(parts) * (int(size) - 1).bit_length() // 8)

    def codes(self, vectors: Floats) -> NDArray[np.intp]:
        """Shape (n, parts)."""
        parts, size, width = self.centroids.shape
        found = np.empty((len(vectors), parts), np.intp)
        for part, centroids in enumerate(self.centroids):
            given = vectors[:, part * width : (part + 1) * width]
            for start in range(0, len(given), 4_096):  # 4 MB of distances at a time
                some = given[start : start + 4_096]
                found[start : start + len(some), part] = ((centroids**2).sum(1) - 2 * some @ centroids.T).argmin(1)
        assert not len(found) or found.max() < size
        return found

    def documents(self, vectors: Floats, texts: Sequence[str]) -> Floats:  # noqa: ARG002
        parts = [centroids[codes] for centroids, codes in zip(self.centroids, self.codes(vectors).T, strict=True)]
        return _as_long(np.concatenate(parts, axis=1), vectors)


@dataclass(frozen=True, slots=True)
class Rotation(_Vectors):
    """A secret rotation of documents and queries, which keeps every inner product."""

    kind: ClassVar[str] = "rotation"
    matrix: Array  # (dim, dim) float64, orthogonal

    def __post_init__(self) -> None:
        _expect(self.kind, self.matrix, (self.dim, self.dim), np.float64)
        if not np.allclose(self.matrix @ self.matrix.T, np.eye(self.dim), atol=1e-6):
            raise InputError("the matrix of a rotation is orthogonal, but this one is not: its file is damaged")

    @property
    def dim(self) -> int:
        return len(self.matrix)

    def documents(self, vectors: Floats, texts: Sequence[str]) -> Floats:  # noqa: ARG002
        return self.queries(vectors)

    def queries(self, vectors: Floats) -> Floats:
        turned = np.empty(vectors.shape, np.float32)
        for start in range(0, len(vectors), 8_192):  # in float64, so that only the last rounding is lost
            turned[start : start + 8_192] = vectors[start : start + 8_192].astype(np.float64) @ self.matrix
        return turned


KINDS: dict[str, type[Any]] = {
    kind.kind: kind for kind in (Plain, Noise, Truncation, Int8, Binary, ProductCodes, Rotation)
}


def parts(defence: Defence) -> tuple[dict[str, float], dict[str, Array]]:
    """The numbers and the arrays that a defence is made of, by name."""
    values = {field.name: getattr(defence, field.name) for field in fields(defence)}  # type: ignore[arg-type]
    arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    return {name: value for name, value in values.items() if name not in arrays}, arrays


def of_parts(kind: Any, numbers: Mapping[str, Any], arrays: Mapping[str, Array]) -> Defence:
    """The defence that `parts` took apart.

    :raises InputError: when they are not those of such a defence.
    """
    if not isinstance(kind, str) or kind not in KINDS:
        raise InputError(f"there is no defence {kind!r}: expected one of {', '.join(KINDS)}")
    needed = {field.name: str(field.type) for field in fields(KINDS[kind])}
    given = {**numbers, **arrays}
    fits = needed.keys() == given.keys() and all(_fits(given[name], form) for name, form in needed.items())
    if not fits:
        raise InputError(f"the defence {kind} is made of {', '.join(needed)}, which is not what came")
    made: Defence = KINDS[kind](**given)
    return made


def _fits(value: Any, form: str) -> bool:
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


def _as_long(changed: Array, vectors: Floats) -> Floats:
    """The changed vectors scaled to the lengths that they had."""
    lengths = np.linalg.norm(changed, axis=1, keepdims=True)
    scale = np.linalg.norm(vectors, axis=1, keepdims=True) / np.maximum(lengths, 1e-12)
    return np.ascontiguousarray(changed * scale, np.float32)
