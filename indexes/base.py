"""Protocols of a vector index and of a kind of index, and the parameters that a kind has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ..core.errors import InputError

SEARCH_DEPTH = 200  # neighbours that a search takes from a vector index; latency is measured with as many

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path
    from typing import Any, Self

    from ..core.arrays import Floats, Ids, Mask, Positions

    Parameters = Mapping[str, Any]


class VectorIndex(Protocol):
    """Vectors under int64 ids, searched by one metric of `metric.METRICS`. Higher scores are better."""

    @property
    def ids(self) -> Ids:
        """The ids of all vectors, ascending, shape (n,)."""
        ...

    def search(self, vectors: Floats, k: int, *, allowed: Mask | Positions | None = None) -> tuple[Floats, Ids]:
        """Return the k best vectors of each query, best first: scores and ids, both (queries, k).

        A query with fewer than k answers gets score -inf and id -1 for the rest.

        :param vectors: queries, float32, shape (queries, dim).
        :param allowed: the vectors that may be answers: a mask of shape (n,) in the order of `ids`, or ascending
            positions in `ids`. For a small share of a large index, positions cost less to read than a mask.
        """
        ...

    def reconstruct(self, ids: Ids) -> Floats:
        """Return the vectors of these ids, shape (len(ids), dim). The index must hold every id."""
        ...

    def with_parameters(self, **search: Any) -> Self:
        """Return the same index with other search parameters of its kind."""
        ...


class VectorIndexKind(Protocol):
    """How one kind of index is written and read: an entry of `registry.KINDS`."""

    @property
    def files(self) -> frozenset[str]:
        """The names of the files that `write` creates."""
        ...

    @property
    def build_parameters(self) -> Sequence[Parameter]:
        """The parameters that are fixed when the index is built."""
        ...

    @property
    def search_parameters(self) -> Sequence[Parameter]:
        """The parameters of a search; they are published with the index and can change without a new build."""
        ...

    def check(self, dim: int, build: Parameters, search: Parameters) -> None:
        """Check parameters before they are used.

        :raises InputError: when vectors of this dimension cannot be indexed or searched with these parameters.
        """
        ...

    def bytes_per_vector(self, dim: int, build: Parameters, count: int = 1_000_000) -> float:
        """Estimate the memory that a search reads at random, for each of `count` vectors.

        Memory-mapped float32 vectors do not count.
        """
        ...

    def write(
        self, folder: Path, batches: Iterable[tuple[Ids, Floats]], *, dim: int, metric: str, build: Parameters
    ) -> None:
        """Build the index in an empty folder from batches with ascending ids, in bounded memory if the kind can."""
        ...

    def load(self, folder: Path, *, dim: int, metric: str, build: Parameters, search: Parameters) -> VectorIndex:
        """Open an index that `write` created.

        :raises DamagedError: when the files contradict each other or cannot be read.
        """
        ...


@dataclass(frozen=True, slots=True)
class Parameter:
    """A whole number that a kind of index takes, with its range."""

    name: str
    doc: str
    low: int
    high: int
    default: int | None = None  # None: computed from the number of vectors or their dimension

    def check(self, value: Any) -> None:
        """Raise InputError unless the value is an int, not a bool, within the range."""
        if type(value) is not int or not self.low <= value <= self.high:
            raise InputError(f"{self.name} is {self.doc}, a whole number from {self.low} to {self.high}, not {value!r}")

    def grid(self, high: int | None = None) -> list[int]:
        """Return values worth trying, ascending: two to every doubling, up to `high`."""
        top, values, value = min(self.high, high or self.high), [], float(max(1, self.low))
        while value <= top:
            values.append(round(value))
            value *= 2**0.5
        return sorted(set(values))


@dataclass(frozen=True, slots=True)
class TextParameter(Parameter):
    """A text that a kind of index takes; `low` and `high` bound its length. It has no grid."""

    low: int = 1
    high: int = 200

    def check(self, value: Any) -> None:
        """Raise InputError unless the value is a text of `low` to `high` characters."""
        if not isinstance(value, str) or not self.low <= len(value) <= self.high:
            raise InputError(f"{self.name} is {self.doc}, not {value!r}")

    def grid(self, high: int | None = None) -> list[int]:  # noqa: ARG002
        """Return no values: texts have no order to try them in."""
        return []


def check_parameters(action: str, parameters: Sequence[Parameter], values: Parameters) -> None:
    """Check names and values against the parameters of a kind.

    :param action: the subject of the message, such as "exact search".
    :raises InputError: for an unknown name or a value out of range.
    """
    by_name = {parameter.name: parameter for parameter in parameters}
    for name, value in values.items():
        if name not in by_name:
            raise InputError(f"{action} has no parameter {name!r}: expected {', '.join(by_name) or 'none'}")
        if value is not None or by_name[name].default is not None:
            by_name[name].check(value)


def with_defaults(parameters: Iterable[Parameter], values: Parameters) -> dict[str, Any]:
    """Return a value for each parameter: its own or the default."""
    return {parameter.name: values.get(parameter.name, parameter.default) for parameter in parameters}
