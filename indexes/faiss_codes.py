"""How FAISS keeps one vector in an index: whole, in fewer bits a number, or as the numbers of learnt centroids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..core.errors import InputError
from .base import Parameter

if TYPE_CHECKING:
    from collections.abc import Callable

    Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Code:
    """
    `cost` is the time to compare a code with a query, in multiply-adds of an exact search; `selects` whether a scan
    of such codes takes a FAISS selector.
    """

    factory: Callable[[int, Values], str]  # its part of FAISS's factory string
    size: Callable[[int, Values], float]  # bytes
    cost: Callable[[int, Values], float]
    depth: int = 0  # candidates whose true scores are computed, for each one asked for; 0: the code is the vector
    least: Callable[[Values], int] = lambda _: 1  # vectors to learn from
    parameters: tuple[Parameter, ...] = ()
    before: Callable[[int, Values], str] = lambda _dim, _values: ""  # a transformation, before all else
    selects: bool = True


_CUT = "into how many parts of equal length a vector is cut; dim / {} or fewer unless given"
_PARTS, _PARTS_FAST = (Parameter("parts", _CUT.format(share), 1, 4_096) for share in (4, 2))
_PART_BITS = Parameter("part_bits", "the bits for a part", 4, 10, 8)
_BITS = Parameter("bits", "the bits for a number of a vector", 1, 9, 1)


def _parts(dim: int, values: Values, share: int) -> int:
    """As asked, or as many as there can be up to dim / share."""
    divisors = [n for n in range(1, dim + 1) if dim % n == 0]
    if values.get("parts") is None:
        return max((n for n in divisors if n <= max(1, dim // share)), default=1)
    if values["parts"] not in divisors:
        near = sorted(sorted(divisors, key=lambda n: abs(n - values["parts"]))[:4])
        raise InputError(
            f"a vector of dimension {dim} cannot be cut into {values['parts']} equal parts: parts may be "
            f"{', '.join(map(str, near))}, among others"
        )
    return int(values["parts"])


def _scalar(name: str, size: float, cost: float, depth: int) -> Code:
    return Code(lambda _dim, _values: name, lambda dim, _: size * dim, lambda dim, _: cost * dim, depth)


def _product(*, rotated: bool = False) -> Code:
    """Jégou et al. 2011; rotated first: Ge et al. 2013."""
    return Code(
        lambda dim, values: f"PQ{_parts(dim, values, 4)}x{values['part_bits']}np",
        lambda dim, values: _parts(dim, values, 4) * values["part_bits"] / 8,
        lambda dim, values: 1.5 * _parts(dim, values, 4),
        8,
        lambda values: 2 ** int(values["part_bits"]),
        (_PARTS, _PART_BITS),
        (lambda dim, values: f"OPQ{_parts(dim, values, 4)},") if rotated else (lambda _dim, _values: ""),
        selects=False,
    )


def _product_fast(*, rotated: bool = False) -> Code:
    """André et al. 2017: 4 bits a part, sums looked up in registers."""
    return Code(
        lambda dim, values: f"PQ{_parts(dim, values, 2)}x4fs",
        lambda dim, values: _parts(dim, values, 2) / 2,
        lambda dim, values: 0.1 * _parts(dim, values, 2),
        8,
        lambda _: 16,
        (_PARTS_FAST,),
        (lambda dim, values: f"OPQ{_parts(dim, values, 2)},") if rotated else (lambda _dim, _values: ""),
        selects=False,
    )


def _rabitq(suffix: str, cost: float, *, selects: bool) -> Code:
    """Gao and Long 2024; with several bits Gao et al. 2025."""
    return Code(
        lambda _, values: f"RaBitQ{suffix}{values['bits']}" if values["bits"] > 1 else f"RaBitQ{suffix}",
        lambda dim, values: dim * values["bits"] / 8 + (8 if values["bits"] == 1 else 28),
        lambda dim, values: cost * dim * values["bits"],
        16,
        parameters=(_BITS,),
        selects=selects,
    )


WHOLE = Code(lambda _dim, _values: "Flat", lambda dim, _: 4.0 * dim, lambda dim, _: 1.0 * dim)
FP16 = _scalar("SQfp16", 2, 0.6, 2)
BF16 = _scalar("SQbf16", 2, 0.6, 3)
INT8 = _scalar("SQ8", 1, 0.45, 4)
PQ, OPQ = _product(), _product(rotated=True)
PQ_FAST, OPQ_FAST = _product_fast(), _product_fast(rotated=True)
RABITQ = _rabitq("", 0.15, selects=True)
RABITQ_FAST = _rabitq("fs", 0.05, selects=False)
