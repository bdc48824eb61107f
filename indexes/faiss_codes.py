"""Codes: how FAISS stores one vector: unchanged, with fewer bits a number, or as the numbers of learnt centroids.

Costs are the time to compare a code with a query, in multiply-adds of an exact search.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..core.errors import InputError
from .base import Parameter

Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Code:
    """One way to store a vector; the base class of all, and the unknown code of a user's factory string."""

    candidates: int = 8  # to score with their vectors, for each answer; 0: the code is the vector itself
    selects: bool = False  # whether a scan of these codes takes a FAISS selector

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The build parameters of this code, beside the structure's; by default none."""
        return ()

    def factory(self, dim: int, values: Values) -> str:  # noqa: ARG002
        """Return the code's part of FAISS's factory string."""
        return ""

    def rotation(self, dim: int, values: Values) -> str:  # noqa: ARG002
        """Return the transformation at the start of the factory string, if the code needs one."""
        return ""

    def size(self, dim: int, values: Values) -> float:  # noqa: ARG002
        """Return the bytes of one code."""
        return 0.0

    def cost(self, dim: int, values: Values) -> float:  # noqa: ARG002
        """Return the cost to compare one code with a query."""
        return 0.5 * dim

    def training_vectors(self, values: Values) -> int:  # noqa: ARG002
        """Return the minimum number of vectors to learn the code from."""
        return 256


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarCode(Code):
    """Each number of the vector on its own, with full or lower precision."""

    name: str
    bytes_per_number: float
    cost_per_number: float
    selects: bool = True

    def factory(self, dim: int, values: Values) -> str:  # noqa: ARG002
        """Return FAISS's name for the precision, such as SQ8, for any dimension."""
        return self.name

    def size(self, dim: int, values: Values) -> float:  # noqa: ARG002
        """Return the bytes of all numbers; the ranges of SQ8, shared by all vectors, do not count."""
        return self.bytes_per_number * dim

    def cost(self, dim: int, values: Values) -> float:  # noqa: ARG002
        """Return a cost proportional to the dimension, by a factor for each precision."""
        return self.cost_per_number * dim

    def training_vectors(self, values: Values) -> int:  # noqa: ARG002
        """Return 1: at most the range of each number is learnt, and any sample has one."""
        return 1


_CUT = "into how many parts of equal length a vector is cut; dim / {} or fewer unless given"
_PART_BITS = Parameter("part_bits", "the bits for a part", 4, 10, 8)
_BITS = Parameter("bits", "the bits for a number of a vector", 1, 9, 1)


@dataclass(frozen=True, slots=True)
class ProductCode(Code):
    """Product quantization (Jégou et al. 2011), optionally after a learnt rotation (Ge et al. 2013)."""

    rotates: bool = False
    shortest_part = 4  # numbers of a part, unless the user sets the number of parts

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The number of parts, by default of at least 4 numbers each, and the bits for a part."""
        return (Parameter("parts", _CUT.format(4), 1, 4_096), _PART_BITS)

    def factory(self, dim: int, values: Values) -> str:
        """Return `PQ96x8np`, for example: `np` turns off FAISS's polysemous training, which no search here uses."""
        return f"PQ{self.parts(dim, values)}x{values['part_bits']}np"

    def rotation(self, dim: int, values: Values) -> str:
        """Return OPQ with as many parts as the code has; "" without a learnt rotation."""
        return f"OPQ{self.parts(dim, values)}," * self.rotates

    def size(self, dim: int, values: Values) -> float:
        """Return the bits of all parts in bytes; the centroids, shared by all vectors, do not count."""
        return float(self.parts(dim, values) * values["part_bits"] / 8)

    def cost(self, dim: int, values: Values) -> float:
        """Return 1.5 a part, for a look-up in the table of distances, regardless of the bits."""
        return 1.5 * self.parts(dim, values)

    def training_vectors(self, values: Values) -> int:
        """Return the number of centroids of a part: 2 to the power of its bits."""
        return 1 << int(values["part_bits"])

    def parts(self, dim: int, values: Values) -> int:
        """Return the number of parts: the user's, or the greatest divisor of dim up to dim / `shortest_part`."""
        divisors = [n for n in range(1, dim + 1) if dim % n == 0]
        parts = values.get("parts")
        if parts is None:
            return max((n for n in divisors if n <= max(1, dim // self.shortest_part)), default=1)
        if parts not in divisors:
            near = sorted(sorted(divisors, key=lambda n: abs(n - parts))[:4])
            raise InputError(
                f"a vector of dimension {dim} cannot be cut into {parts} equal parts: parts may be "
                f"{', '.join(map(str, near))}, among others"
            )
        return int(parts)


@dataclass(frozen=True, slots=True)
class FastProductCode(ProductCode):
    """Product quantization with 4 bits a part and sums looked up in registers (André et al. 2017)."""

    shortest_part = 2

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The number of parts, by default of at least 2 numbers each; the bits for a part are always 4."""
        return (Parameter("parts", _CUT.format(2), 1, 4_096),)

    def factory(self, dim: int, values: Values) -> str:
        """Return `PQ192x4fs`, for example: FastScan takes 4 bits a part."""
        return f"PQ{self.parts(dim, values)}x4fs"

    def size(self, dim: int, values: Values) -> float:
        """Return half a byte a part; the centroids do not count."""
        return self.parts(dim, values) / 2

    def cost(self, dim: int, values: Values) -> float:
        """Return a fifteenth of the cost of `ProductCode`: the tables stay in registers."""
        return 0.1 * self.parts(dim, values)

    def training_vectors(self, values: Values) -> int:  # noqa: ARG002
        """Return the number of centroids of a part: 4 bits number 16."""
        return 16


@dataclass(frozen=True, slots=True, kw_only=True)
class RabitqCode(Code):
    """RaBitQ (Gao and Long 2024); with several bits a number, Gao et al. 2025."""

    candidates: int = 16
    name: str
    cost_per_bit: float

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The bits for each number of a vector; size and cost grow with them."""
        return (_BITS,)

    def factory(self, dim: int, values: Values) -> str:  # noqa: ARG002
        """Return FAISS's name for the code, with the bits after it if there are several."""
        return f"{self.name}{values['bits']}" if values["bits"] > 1 else self.name

    def size(self, dim: int, values: Values) -> float:
        """Return the bytes of the bits, plus 8 for correction factors, or 28 with several bits a number."""
        return float(dim * values["bits"] / 8 + (8 if values["bits"] == 1 else 28))

    def cost(self, dim: int, values: Values) -> float:
        """Return a cost proportional to the bits of the whole code; FastScan divides it by 3."""
        return float(self.cost_per_bit * dim * values["bits"])

    def training_vectors(self, values: Values) -> int:  # noqa: ARG002
        """Return 1: only the mean of the vectors is learnt."""
        return 1


UNKNOWN = Code()
WHOLE = ScalarCode(name="Flat", bytes_per_number=4, cost_per_number=1, candidates=0)
FP16 = ScalarCode(name="SQfp16", bytes_per_number=2, cost_per_number=0.6, candidates=2)
BF16 = ScalarCode(name="SQbf16", bytes_per_number=2, cost_per_number=0.6, candidates=3)
INT8 = ScalarCode(name="SQ8", bytes_per_number=1, cost_per_number=0.45, candidates=4)
PQ, OPQ = ProductCode(), ProductCode(rotates=True)
PQ_FAST, OPQ_FAST = FastProductCode(), FastProductCode(rotates=True)
RABITQ = RabitqCode(name="RaBitQ", cost_per_bit=0.15, selects=True)
RABITQ_FAST = RabitqCode(name="RaBitQfs", cost_per_bit=0.05)
