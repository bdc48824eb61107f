"""What every vector index can do, whatever its kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ..core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path
    from typing import Any, Self

    import numpy as np
    from numpy.typing import NDArray

    from ..core.arrays import Floats, Ids, Mask

    Places = NDArray[np.int64]  # positions in `VectorIndex.ids`, ascending
    Parameters = Mapping[str, Any]


class VectorIndex(Protocol):
    """Vectors under int64 ids, searched by one of the metrics of `metric.METRICS`. Higher is better."""

    @property
    def ids(self) -> Ids:
        """The ids held, ascending, shape (n,)."""
        ...

    def search(self, vectors: Floats, k: int, *, allowed: Mask | Places | None = None) -> tuple[Floats, Ids]:
        """The k best of each query, best first: scores and ids, both (queries, k).

        Where fewer than k can be had, the rest is filled with score -inf and id -1.

        :param vectors: queries, float32, shape (queries, dim).
        :param allowed: what may be answered: a mask of shape (n,) in the order of `ids`, or ascending positions in
            `ids`, which for a few of a million cost less than to read a mask.
        """
        ...

    def reconstruct(self, ids: Ids) -> Floats:
        """The vectors of these ids, shape (len(ids), dim). All must be held."""
        ...

    def tuned(self, **search: Any) -> Self:
        """The same index, searched with other parameters of its kind."""
        ...


class VectorIndexKind(Protocol):
    """How an index of one kind is written and read: an entry of `kinds.KINDS`."""

    @property
    def files(self) -> frozenset[str]:
        """The names of the files that `write` makes."""
        ...

    @property
    def build_parameters(self) -> Sequence[Parameter]:
        """What can be chosen before the index is built."""
        ...

    @property
    def search_parameters(self) -> Sequence[Parameter]:
        """What can be chosen of a built index, and is published with it."""
        ...

    def check(self, dim: int, build: Parameters, search: Parameters) -> None:
        """Look at parameters before they are used.

        :raises InputError: when vectors of this dimension cannot be indexed or searched with these parameters.
        """
        ...

    def bytes_per_vector(self, dim: int, build: Parameters, count: int = 1_000_000) -> float:
        """For each of so many, about how much memory a search goes through at random.

        Float32 vectors that are mapped do not count.
        """
        ...

    def write(
        self, folder: Path, batches: Iterable[tuple[Ids, Floats]], *, dim: int, metric: str, build: Parameters
    ) -> None:
        """Build the index in an empty folder from batches whose ids ascend, in bounded memory where the kind can."""
        ...

    def load(self, folder: Path, *, dim: int, metric: str, build: Parameters, search: Parameters) -> VectorIndex:
        """Open what `write` made.

        :raises DamagedError: when the files are not what they say.
        """
        ...


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    doc: str
    low: int
    high: int
    default: int | None = None  # None: it follows from the number of vectors or their dimension

    def check(self, value: Any) -> None:
        if type(value) is not int or not self.low <= value <= self.high:
            raise InputError(f"{self.name} is {self.doc}, a whole number from {self.low} to {self.high}, not {value!r}")

    def grid(self, high: int | None = None) -> list[int]:
        """Values worth trying, ascending: two to every doubling, up to `high`."""
        top, values, value = min(self.high, high or self.high), [], float(max(1, self.low))
        while value <= top:
            values.append(round(value))
            value *= 2**0.5
        return sorted(set(values))


@dataclass(frozen=True, slots=True)
class TextParameter(Parameter):
    """One that is a text, of which there is no grid."""

    low: int = 1
    high: int = 200

    def check(self, value: Any) -> None:
        if not isinstance(value, str) or not self.low <= len(value) <= self.high:
            raise InputError(f"{self.name} is {self.doc}, not {value!r}")

    def grid(self, high: int | None = None) -> list[int]:  # noqa: ARG002
        return []


def check_parameters(what: str, known: Sequence[Parameter], given: Parameters) -> None:
    by_name = {parameter.name: parameter for parameter in known}
    for name, value in given.items():
        if name not in by_name:
            raise InputError(f"{what} has no parameter {name!r}: expected {_listed(by_name)}")
        if value is not None or by_name[name].default is not None:
            by_name[name].check(value)


def with_defaults(known: Iterable[Parameter], given: Parameters) -> dict[str, Any]:
    return {parameter.name: given.get(parameter.name, parameter.default) for parameter in known}


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
