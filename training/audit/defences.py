"""The table of audited defences: how each is fitted to an index, a description and its source.

A defence is written `NAME` or `NAME=STRENGTH`, such as `noise=0.01`, `truncate=128` or `pq=48`. Codebooks and bounds
come from the index's own vectors, keys from the caller.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...core.errors import InputError
from ...retriever.models.defences import SECRET_BYTES, Binary, Int8, Noise, Plain, ProductCodes, Rotation, Truncation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ...core.arrays import Floats
    from ...retriever.models.defences import Defence


@dataclass(frozen=True, slots=True)
class DefenceSetting:
    """A kind of defence and its strength; the strength is unused if the kind takes none."""

    kind: str
    strength: float = 0.0

    @property
    def name(self) -> str:
        """The setting as `NAME=STRENGTH`, or `NAME` if the kind takes no strength."""
        return f"{self.kind}={self.strength:g}" if TABLE[self.kind].strength else self.kind


@dataclass(frozen=True, slots=True)
class DefenceKind:
    """A kind of defence: its builder and its description."""

    build: Callable[[float, Floats, bytes], Defence]  # from strength, vectors and key
    strength: str  # the meaning of the number after "="; "" if the kind takes none
    documents: str  # the change to document vectors
    queries: str  # the change to query vectors
    source: str


def parse(names: Sequence[str]) -> list[DefenceSetting]:
    """Parse settings, each once. "none" always comes first: the others are compared with it."""
    settings = [DefenceSetting("none")]
    for name in names:
        kind, equals, strength = name.strip().partition("=")
        defence = TABLE.get(kind)
        if defence is None:
            raise InputError(f"there is no defence {name!r}: expected some of {', '.join(map(_form, TABLE))}")
        if bool(equals) != bool(defence.strength):
            raise InputError(f"{name!r} is not a defence: expected {_form(kind)}")
        settings.append(DefenceSetting(kind, _number(name, strength) if equals else 0.0))
    return list(dict.fromkeys(settings))


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


def default(dim: int, *, quick: bool = False) -> list[DefenceSetting]:
    """Return the settings of an audit that names none, for vectors of `dim` dimensions.

    :param quick: one strength of each kind.
    """
    halves = [length for length in (dim // 2, dim // 4) if length]
    parts = sorted({part for size in (4, 8) if (part := _divisor(dim, dim // size))}, reverse=True)
    noise = ["noise=0.01", "noise=0.03", "noise=0.06"]
    if quick:
        noise, halves, parts = ["noise=0.03"], halves[:1], parts[-1:]
    truncations, codes = (f"truncate={length}" for length in halves), (f"pq={part}" for part in parts)
    return parse([*noise, *truncations, "int8", "binary", *codes, "rotation"])


def _divisor(number: int, maximum: int) -> int:
    return max((divisor for divisor in range(1, maximum + 1) if not number % divisor), default=0)


def fit(setting: DefenceSetting, vectors: Floats, key: bytes) -> Defence:
    """Fit a defence to an index's vectors, shape (n, dim).

    :param key: 32 secret bytes; noise and rotation follow from them.
    """
    if len(key) != SECRET_BYTES:
        raise InputError(f"a key has {SECRET_BYTES} bytes, not {len(key)}")
    return TABLE[setting.kind].build(setting.strength, vectors, key)


def check(settings: Sequence[DefenceSetting], dim: int) -> None:
    """Fit each defence to two vectors of `dim` dimensions, before hours of work.

    :raises InputError: naming a defence that does not fit vectors of this dimension.
    """
    for setting in settings:
        fit(setting, np.eye(2, dim, dtype=np.float32), bytes(SECRET_BYTES))


def _noise(strength: float, vectors: Floats, key: bytes) -> Defence:
    return Noise(vectors.shape[1], strength, np.frombuffer(key, np.uint8))


def _truncation(strength: float, vectors: Floats, _key: bytes) -> Defence:
    return Truncation(vectors.shape[1], _whole("truncate", strength))


def _int8(_strength: float, vectors: Floats, _key: bytes) -> Defence:
    _check_finite("int8", vectors)
    return Int8(vectors.min(0).astype(np.float32), vectors.max(0).astype(np.float32))


def _product_codes(strength: float, vectors: Floats, _key: bytes) -> Defence:
    import faiss

    _check_finite("pq", vectors)
    dim, parts = vectors.shape[1], _whole("pq", strength)
    if dim % parts:
        raise InputError(f"pq cuts {dim} dimensions into equal parts: expected a divisor of {dim}, not {parts}")
    bits = max(1, min(8, int(math.log2(len(vectors)))))  # no more centroids than vectors
    quantizer = faiss.ProductQuantizer(dim, parts, bits)
    quantizer.cp.min_points_per_centroid = 1  # else it writes to stderr
    quantizer.train(np.ascontiguousarray(vectors, np.float32))
    centroids = faiss.vector_to_array(quantizer.centroids).reshape(parts, 1 << bits, dim // parts)
    return ProductCodes(np.ascontiguousarray(centroids, np.float32))


def _check_finite(kind: str, vectors: Floats) -> None:
    finite = int(np.isfinite(vectors).all(1).sum())
    if len(vectors) < 2 or finite < len(vectors):
        raise InputError(f"{kind} is fitted to 2 finite vectors and more, but {finite} of {len(vectors)} are finite")


def _rotation(_strength: float, vectors: Floats, key: bytes) -> Defence:
    return Rotation(rotation(vectors.shape[1], key))


def rotation(dim: int, key: bytes) -> NDArray[np.float64]:
    """Draw an orthogonal matrix from a key, uniformly over all of them.

    Stewart 1980; Mezzadri 2007, arXiv:math-ph/0609050.
    """
    random = np.random.Generator(np.random.PCG64(int.from_bytes(key, "little")))
    orthogonal, upper = np.linalg.qr(random.standard_normal((dim, dim)))
    matrix: NDArray[np.float64] = orthogonal * np.sign(np.diag(upper))
    return matrix


_DELTA = 1e-5
_SENSITIVITY = 2.0  # the greatest distance of two unit vectors


def epsilon(strength: float) -> float:
    """The epsilon of noise on one text's unit vector, at delta 1e-5.

    The Gaussian mechanism is rho-zCDP with rho = sensitivity² / (2 sigma²), and so (rho + 2 sqrt(rho ln(1/delta)),
    delta)-differentially private: Bun and Steinke 2016, arXiv:1605.02065, propositions 1.3 and 1.6.
    """
    rho = _SENSITIVITY**2 / (2 * strength**2)
    return rho + 2 * math.sqrt(rho * math.log(1 / _DELTA))


def _whole(kind: str, strength: float) -> int:
    if strength != int(strength):
        raise InputError(f"{kind} takes a whole number, not {strength:g}")
    return int(strength)


_UNCHANGED = "as the encoder gives it"
TABLE: dict[str, DefenceKind] = {
    "none": DefenceKind(lambda _, vectors, __: Plain(vectors.shape[1]), "", _UNCHANGED, _UNCHANGED, ""),
    "noise": DefenceKind(
        _noise,
        "standard deviation of a coordinate of a unit vector",
        "Gaussian noise on every coordinate, the same for the same text under one key, then scaled to length 1",
        _UNCHANGED,
        "Morris et al. 2023, arXiv:2310.06816, section 7; there without scaling",
    ),
    "truncate": DefenceKind(
        _truncation,
        "dimensions kept",
        "its first dimensions, scaled to length 1",
        "the same",
        "Kusupati et al. 2022, arXiv:2205.13147; of an encoder not trained for it as well",
    ),
    "int8": DefenceKind(
        _int8,
        "",
        "256 levels for each dimension between its least and greatest value in the index",
        _UNCHANGED,
        "scalar quantisation as in FAISS (QT_8bit) and sentence-transformers",
    ),
    "binary": DefenceKind(
        lambda _, vectors, __: Binary(vectors.shape[1]),
        "",
        "the sign of each dimension",
        f"{_UNCHANGED}: signs are searched with numbers",
        "Yamada et al. 2021, arXiv:2106.00882",
    ),
    "pq": DefenceKind(
        _product_codes,
        "parts",
        "the nearest of 256 centroids for each part, trained on the index's vectors",
        _UNCHANGED,
        "Jégou et al. 2011, doi:10.1109/TPAMI.2010.57, asymmetric distance",
    ),
    "rotation": DefenceKind(
        _rotation,
        "",
        "turned by a secret orthogonal matrix",
        "the same",
        "a secret transform: Zhuang et al. 2024, arXiv:2402.12784",
    ),
}
