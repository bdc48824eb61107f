"""Several vector indexes searched as one; the ids ascend from shard to shard."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..core.arrays import distinct
from ..core.errors import DamagedError
from .flat import exact_index, positions_of_ids, top_k
from .manifest import IndexMetadata

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..core.arrays import Floats, Ids, Mask, Positions
    from .base import VectorIndex
    from .manifest import BuiltIndex, IndexManifest

    Names = tuple[str, ...]


class ShardedIndex:
    """A `VectorIndex` of shards: search each and keep the best answers of all.

    The merge loses nothing: a vector among the k best of all is among the k best of its shard.
    """

    def __init__(self, shards: Sequence[VectorIndex]) -> None:
        self.shards = shards
        self.ids: Ids = np.concatenate([shard.ids for shard in shards])
        if (np.diff(self.ids) <= 0).any():
            raise DamagedError("the shards of the vector index overlap: 'binocle verify --repair' builds it anew")
        self._starts = np.cumsum([0, *(len(shard.ids) for shard in shards)])  # positions in `ids`

    def search(self, vectors: Floats, k: int, *, allowed: Mask | Positions | None = None) -> tuple[Floats, Ids]:
        """Search each shard for k answers under its part of the filter, and merge them by score."""
        answers = self._search_shards(vectors, k, list(self._split(allowed)))
        scores, ids = (np.hstack(arrays) for arrays in zip(*answers, strict=True))
        return top_k(scores, ids, k)

    def _search_shards(
        self, vectors: Floats, k: int, allowed: list[Mask | Positions | None]
    ) -> list[tuple[Floats, Ids]]:
        """Return the answers of each shard under its own part of the filter."""
        return [shard.search(vectors, k, allowed=part) for shard, part in zip(self.shards, allowed, strict=True)]

    def _split(self, allowed: Mask | Positions | None) -> Iterator[Mask | Positions | None]:
        """Yield each shard's part of the filter."""
        for start, end in zip(self._starts[:-1], self._starts[1:], strict=True):
            if allowed is None:
                yield None
            elif allowed.dtype == np.bool_:
                yield allowed[start:end]
            else:
                yield allowed[np.searchsorted(allowed, start) : np.searchsorted(allowed, end)] - start

    def reconstruct(self, ids: Ids) -> Floats:
        """Call each shard once for its own ids, and return the vectors in the order of `ids`."""
        owners = np.searchsorted(self._starts, positions_of_ids(self.ids, ids), side="right") - 1
        parts = {owner: self.shards[owner].reconstruct(ids[owners == owner]) for owner in distinct(owners).tolist()}
        if not parts:
            return self.shards[0].reconstruct(ids)
        vectors = np.empty((len(ids), next(iter(parts.values())).shape[1]), np.float32)
        for owner, values in parts.items():
            vectors[owners == owner] = values
        return vectors

    def with_parameters(self, **search: Any) -> Self:
        """Set the parameters on every shard, so all must be of one kind."""
        return self._with_shards([shard.with_parameters(**search) for shard in self.shards])

    @property
    def exact(self) -> Self:
        """The exact index over the same vectors."""
        return self._with_shards([exact_index(shard) for shard in self.shards])

    def _with_shards(self, shards: Sequence[VectorIndex]) -> Self:
        index = copy(self)
        index.shards = shards
        return index


@dataclass(frozen=True, slots=True)
class BuiltShards:
    """A `BuiltIndex` of shards that were built on other machines."""

    names: Names
    manifest: IndexManifest  # of all of them together
    memory: int
    open_shards: Callable[[Names], VectorIndex]
    amend_shards: Callable[[Names, IndexMetadata], Names]  # returns their new names
    delete_shards: Callable[[Names], None]

    def load(self) -> VectorIndex:
        """Open the shards by `open_shards`, on the machines that have them."""
        return self.open_shards(self.names)

    def publish(self, metadata: IndexMetadata) -> Names:
        """Return the names of the shards, amended if the metadata says anything."""
        return self.names if metadata == IndexMetadata() else self.amend_shards(self.names, metadata)

    def share_files(self, built: BuiltIndex) -> None:
        """Do nothing: shards have no files in common."""

    def discard(self) -> None:
        """Delete the shards by `delete_shards`, on the machines that have them."""
        self.delete_shards(self.names)


def merge_manifests(manifests: Sequence[IndexManifest]) -> IndexManifest:
    """Return one manifest for several shards.

    :raises DamagedError: when they do not belong to one index.
    """
    first = manifests[0]
    if any((manifest.covers, manifest.spec) != (first.covers, first.spec) for manifest in manifests):
        raise DamagedError("the shards of the vector index are not of one kind and state")
    return replace(first, count=sum(manifest.count for manifest in manifests), files={})
