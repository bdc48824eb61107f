"""What every vector index can do, whatever its kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path
    from typing import Any, Self

    import numpy as np
    from numpy.typing import NDArray

    from .parameter import Parameter

    Floats = NDArray[np.float32]
    Ids = NDArray[np.int64]
    Mask = NDArray[np.bool_]
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
