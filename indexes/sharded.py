"""Several vector indexes searched as one, each of the ids above those of the one before."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..core.errors import DamagedError, InputError
from .flat import best_of, exact
from .published import IndexMetadata

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..core.arrays import Floats, Ids, Mask
    from .base import Places, VectorIndex
    from .published import Built, Published

    Names = tuple[str, ...]


class ShardedIndex:
    """A `VectorIndex` of shards: each answers for its own ids, and the best of all answers are the answer.

    The merge loses nothing: what is among the k best of all is among the k best of its shard.
    """

    def __init__(self, shards: Sequence[VectorIndex]) -> None:
        self.shards = shards
        self.ids: Ids = np.concatenate([shard.ids for shard in shards])
        if (np.diff(self.ids) <= 0).any():
            raise DamagedError("the shards of the vector index overlap: 'binocle verify --repair' builds it anew")
        self._starts = np.cumsum([0, *(len(shard.ids) for shard in shards)])  # places in `ids`

    def search(self, vectors: Floats, k: int, *, allowed: Mask | Places | None = None) -> tuple[Floats, Ids]:
        answers = self._asked(vectors, k, list(self._divided(allowed)))
        scores, ids = (np.hstack(arrays) for arrays in zip(*answers, strict=True))
        return best_of(scores, ids, k)

    def _asked(self, vectors: Floats, k: int, parts: list[Mask | Places | None]) -> list[tuple[Floats, Ids]]:
        """What each shard answers, given what of it is allowed."""
        return [shard.search(vectors, k, allowed=part) for shard, part in zip(self.shards, parts, strict=True)]

    def _divided(self, allowed: Mask | Places | None) -> Iterator[Mask | Places | None]:
        """Each shard's own part of what is allowed, as it takes it."""
        for start, end in zip(self._starts[:-1], self._starts[1:], strict=True):
            if allowed is None:
                yield None
            elif allowed.dtype == np.bool_:
                yield allowed[start:end]
            else:
                yield allowed[np.searchsorted(allowed, start) : np.searchsorted(allowed, end)] - start

    def reconstruct(self, ids: Ids) -> Floats:
        places = np.searchsorted(self.ids, ids)
        if len(ids) and (places.max() >= len(self.ids) or (self.ids[places] != ids).any()):
            raise InputError("reconstruct was asked for ids that the index does not hold")
        owners = np.searchsorted(self._starts, places, side="right") - 1
        held = {owner: self.shards[owner].reconstruct(ids[owners == owner]) for owner in np.unique(owners).tolist()}
        if not held:
            return self.shards[0].reconstruct(ids)
        vectors = np.empty((len(ids), next(iter(held.values())).shape[1]), np.float32)
        for owner, values in held.items():
            vectors[owners == owner] = values
        return vectors

    def tuned(self, **search: Any) -> Self:
        return self._of([shard.tuned(**search) for shard in self.shards])

    @property
    def exact(self) -> Self:
        """The same vectors, all compared."""
        return self._of([exact(shard) for shard in self.shards])

    def _of(self, shards: Sequence[VectorIndex]) -> Self:
        made = copy(self)
        made.shards = shards
        return made


@dataclass(frozen=True, slots=True)
class BuiltShards:
    """As `published.Built`: shards that were built elsewhere, which nobody searches yet."""

    names: Names
    manifest: Published  # of all of them together
    memory: int
    opened: Callable[[Names], VectorIndex]
    amended: Callable[[Names, IndexMetadata], Names]  # what they are called then
    dropped: Callable[[Names], None]

    def load(self) -> VectorIndex:
        return self.opened(self.names)

    def put(self, settled: IndexMetadata) -> Names:
        return self.names if settled == IndexMetadata() else self.amended(self.names, settled)

    def share(self, other: Built | BuiltShards) -> None:
        """They have no files in common."""

    def discard(self) -> None:
        self.dropped(self.names)


def joined(manifests: Sequence[Published]) -> Published:
    """What several shards say of themselves together.

    :raises DamagedError: when they are not of one index.
    """
    first = manifests[0]
    if any((one.covers, one.spec) != (first.covers, first.spec) for one in manifests):
        raise DamagedError("the shards of the vector index are not of one kind and state")
    return replace(first, count=sum(one.count for one in manifests), files={})
