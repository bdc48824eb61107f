"""The defences that are audited: what each does, where it is from, and how it is fitted to an index.

`NAME` or `NAME=STRENGTH`, such as `noise=0.01`, `truncate=128`, `pq=48`. Codebooks and bounds come from the index's own
vectors, keys from the caller.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...core.errors import InputError
from ...retriever.models.defences import SECRET, Binary, Int8, Noise, Plain, ProductCodes, Rotation, Truncation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ...core.arrays import Floats
    from ...retriever.models.defences import Defence


@dataclass(frozen=True, slots=True)
class Setting:
    """A defence with its strength, which has no meaning where the kind has none."""

    kind: str
    strength: float = 0.0

    @property
    def name(self) -> str:
        return f"{self.kind}={self.strength:g}" if TABLE[self.kind].strength else self.kind


@dataclass(frozen=True, slots=True)
class Row:
    """A kind of defence: how it is made from strength, vectors and key, and what there is to say of it."""

    make: Callable[[float, Floats, bytes], Defence]
    strength: str  # what the number after "=" is; "" where there is none
    documents: str
    queries: str
    source: str


def parse(names: Sequence[str]) -> list[Setting]:
    """Settings by their names, each once, "none" always the first: what the others are compared with."""
    found = [Setting("none")]
    for name in names:
        kind, equals, strength = name.strip().partition("=")
        row = TABLE.get(kind)
        if row is None:
            raise InputError(f"there is no defence {name!r}: expected some of {', '.join(map(_form, TABLE))}")
        if bool(equals) != bool(row.strength):
            raise InputError(f"{name!r} is not a defence: expected {_form(kind)}")
        found.append(Setting(kind, _number(name, strength) if equals else 0.0))
    return list(dict.fromkeys(found))


def _number(name: str, strength: str) -> float:
    try:
        value = float(strength)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise InputError(f"{name!r} is not a defence: expected a number above 0 after the sign")
    return value


def _form(kind: str) -> str:
    return f"{kind}=NUMBER ({TABLE[kind].strength})" if TABLE[kind].strength else kind


def default(dim: int) -> list[Setting]:
    """What is audited unless told otherwise, for vectors of so many dimensions."""
    halves = [length for length in (dim // 2, dim // 4) if length]
    parts = sorted({part for size in (4, 8) if (part := _divisor(dim, dim // size))}, reverse=True)
    return parse(
        [
            *("noise=0.01", "noise=0.03", "noise=0.06"),
            *(f"truncate={length}" for length in halves),
            *("int8", "binary"),
            *(f"pq={part}" for part in parts),
            "rotation",
        ]
    )


def _divisor(number: int, most: int) -> int:
    return max((one for one in range(1, most + 1) if not number % one), default=0)


def make(setting: Setting, vectors: Floats, key: bytes) -> Defence:
    """The defence fitted to an index's vectors, shape (n, dim).

    :param key: 32 bytes; who has them can make the same noise and rotation.
    """
    if len(key) != SECRET:
        raise InputError(f"a key has {SECRET} bytes, not {len(key)}")
    return TABLE[setting.kind].make(setting.strength, vectors, key)


def _noise(strength: float, vectors: Floats, key: bytes) -> Defence:
    return Noise(vectors.shape[1], strength, np.frombuffer(key, np.uint8))


def _truncation(strength: float, vectors: Floats, _key: bytes) -> Defence:
    return Truncation(vectors.shape[1], _whole("truncate", strength))


def _int8(_strength: float, vectors: Floats, _key: bytes) -> Defence:
    _fits("int8", vectors)
    return Int8(vectors.min(0).astype(np.float32), vectors.max(0).astype(np.float32))


def _product_codes(strength: float, vectors: Floats, _key: bytes) -> Defence:
    import faiss

    _fits("pq", vectors)
    dim, parts = vectors.shape[1], _whole("pq", strength)
    if dim % parts:
        raise InputError(f"pq cuts {dim} dimensions into equal parts: expected a divisor of {dim}, not {parts}")
    bits = max(1, min(8, int(math.log2(len(vectors)))))  # no more centroids than vectors
    quantizer = faiss.ProductQuantizer(dim, parts, bits)
    quantizer.cp.min_points_per_centroid = 1  # else it writes to stderr
    quantizer.train(np.ascontiguousarray(vectors, np.float32))
    centroids = faiss.vector_to_array(quantizer.centroids).reshape(parts, 1 << bits, dim // parts)
    return ProductCodes(np.ascontiguousarray(centroids, np.float32))


def _fits(kind: str, vectors: Floats) -> None:
    finite = int(np.isfinite(vectors).all(1).sum())
    if len(vectors) < 2 or finite < len(vectors):
        raise InputError(f"{kind} is fitted to 2 finite vectors and more, but {finite} of {len(vectors)} are finite")


def _rotation(_strength: float, vectors: Floats, key: bytes) -> Defence:
    return Rotation(rotation(vectors.shape[1], key))


def rotation(dim: int, key: bytes) -> NDArray[np.float64]:
    """An orthogonal matrix from a key, every one as likely (Stewart 1980; Mezzadri 2007, arXiv:math-ph/0609050)."""
    random = np.random.Generator(np.random.PCG64(int.from_bytes(key, "little")))
    orthogonal, upper = np.linalg.qr(random.standard_normal((dim, dim)))
    matrix: NDArray[np.float64] = orthogonal * np.sign(np.diag(upper))
    return matrix


def _whole(kind: str, strength: float) -> int:
    if strength != int(strength):
        raise InputError(f"{kind} takes a whole number, not {strength:g}")
    return int(strength)


_AS_IT_IS = "as the encoder gives it"
TABLE: dict[str, Row] = {
    "none": Row(lambda _, vectors, __: Plain(vectors.shape[1]), "", _AS_IT_IS, _AS_IT_IS, ""),
    "noise": Row(
        _noise,
        "standard deviation of a coordinate of a unit vector",
        "Gaussian noise on every coordinate, the same for the same text under one key, then scaled to length 1",
        _AS_IT_IS,
        "Morris et al. 2023, arXiv:2310.06816, section 7; there without scaling",
    ),
    "truncate": Row(
        _truncation,
        "dimensions kept",
        "its first dimensions, scaled to length 1",
        "the same",
        "Kusupati et al. 2022, arXiv:2205.13147; of an encoder not trained for it as well",
    ),
    "int8": Row(
        _int8,
        "",
        "256 levels for each dimension between its least and greatest value in the index",
        _AS_IT_IS,
        "scalar quantisation as in FAISS (QT_8bit) and sentence-transformers",
    ),
    "binary": Row(
        lambda _, vectors, __: Binary(vectors.shape[1]),
        "",
        "the sign of each dimension",
        f"{_AS_IT_IS}: signs are searched with numbers",
        "Yamada et al. 2021, arXiv:2106.00882",
    ),
    "pq": Row(
        _product_codes,
        "parts",
        "the nearest of 256 centroids for each part, trained on the index's vectors",
        _AS_IT_IS,
        "Jégou et al. 2011, doi:10.1109/TPAMI.2010.57, asymmetric distance",
    ),
    "rotation": Row(
        _rotation,
        "",
        "turned by a secret orthogonal matrix",
        "the same",
        "a secret transform: Zhuang et al. 2024, arXiv:2402.12784",
    ),
}
