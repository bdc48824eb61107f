"""What every vector index can do, whatever its kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Ids = NDArray[np.int64]
    Mask = NDArray[np.bool_]


class VectorIndex(Protocol):
    """Vectors under int64 ids, searched by inner product: the cosine for unit vectors. Higher is better."""

    @property
    def ids(self) -> Ids:
        """The ids held, ascending, shape (n,)."""
        ...

    def search(self, vectors: Floats, k: int, *, allowed: Mask | None = None) -> tuple[Floats, Ids]:
        """The k best of each query, best first: scores and ids, both (queries, k).

        Where fewer than k can be had, the rest is filled with score -inf and id -1.

        :param vectors: queries, float32, shape (queries, dim).
        :param allowed: of shape (n,), in the order of `ids`: what may be answered.
        """
        ...

    def reconstruct(self, ids: Ids) -> Floats:
        """The vectors of these ids, shape (len(ids), dim). All must be held."""
        ...


class VectorIndexKind(Protocol):
    """How an index of one kind is written and read: an entry of `kinds.KINDS`."""

    @property
    def files(self) -> frozenset[str]:
        """The names of the files that `write` makes."""
        ...

    def write(self, folder: Path, batches: Iterable[tuple[Ids, Floats]], *, dim: int) -> None:
        """Build the index in an empty folder from batches whose ids ascend, in bounded memory where the kind can."""
        ...

    def load(self, folder: Path, *, dim: int) -> VectorIndex:
        """Open what `write` made.

        :raises DamagedError: when the files are not what they say.
        """
        ...
