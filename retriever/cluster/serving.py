"""Serve a published vector index on a cluster: an actor for each shard, which answers for its own ids."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ...indexes.flat import exact_index, is_exact
from ...indexes.manifest import IndexManifest
from ...indexes.sharded import ShardedIndex
from ..store.locations.open_location import open_location

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...core.arrays import Floats, Ids, Mask, Positions
    from ...indexes.base import VectorIndex

    Get = Callable[[Any], Any]  # waits for the answer of a reference

Parameters = dict[str, Any] | None  # search parameters that replace published ones; None: compare all vectors
_AS_PUBLISHED: dict[str, Any] = {}


class Shard:
    """One published vector index, in an actor."""

    def __init__(self, location: str, name: str, dim: int) -> None:
        self._location, self._name, self._dim = location, name, dim
        self._opened: tuple[VectorIndex, IndexManifest] | None = None

    def _open(self) -> tuple[VectorIndex, IndexManifest]:
        if self._opened is None:
            folder = open_location(self._location).vectors(self._name)
            manifest = IndexManifest.read(folder, dim=self._dim)
            self._opened = manifest.load(folder), manifest
        return self._opened

    def manifest(self) -> dict[str, Any]:
        """Return the index's manifest as plain values; the first call of any method opens the index."""
        return asdict(self._open()[1])

    def contents(self) -> tuple[Ids, bool]:
        """Return the ids, and whether a search compares all vectors."""
        index = self._open()[0]
        return index.ids, is_exact(index)

    def search(
        self, vectors: Floats, k: int, allowed: Mask | Positions | None, parameters: Parameters
    ) -> tuple[Floats, Ids]:
        """Search with the published parameters, overridden by `parameters`; None compares all vectors."""
        index = self._open()[0]
        index = exact_index(index) if parameters is None else index.with_parameters(**parameters)
        return index.search(vectors, k, allowed=allowed)

    def reconstruct(self, ids: Ids) -> Floats:
        """Return the stored vectors of these ids, shape (len(ids), dim)."""
        return self._open()[0].reconstruct(ids)


class RemoteShard:
    """A `VectorIndex` that sends its searches to a shard in an actor."""

    def __init__(
        self, get: Get, actor: Any, ids: Ids, compares_all: bool, parameters: Parameters = _AS_PUBLISHED
    ) -> None:
        self._get = get
        self._actor = actor
        self._parameters = parameters
        self.ids = ids
        self.index = None if compares_all else actor

    def submit(self, vectors: Floats, k: int, allowed: Mask | Positions | None) -> Any:
        """Start a search; return the reference of its answer."""
        return self._actor.search.remote(vectors, k, allowed, self._parameters)

    def search(self, vectors: Floats, k: int, *, allowed: Mask | Positions | None = None) -> tuple[Floats, Ids]:
        """Send the search to the actor, and block until its answer arrives."""
        answer: tuple[Floats, Ids] = self._get(self.submit(vectors, k, allowed))
        return answer

    def reconstruct(self, ids: Ids) -> Floats:
        """Fetch the vectors from the actor, and block until they arrive."""
        vectors: Floats = self._get(self._actor.reconstruct.remote(ids))
        return vectors

    def with_parameters(self, **search: Any) -> RemoteShard:
        """Merge these into earlier parameters, without a message to the actor; an exact shard returns itself."""
        if self._parameters is None:
            return self
        return RemoteShard(self._get, self._actor, self.ids, self.index is None, {**self._parameters, **search})

    @property
    def exact(self) -> RemoteShard:
        """The same shard, but each search compares all vectors."""
        return RemoteShard(self._get, self._actor, self.ids, compares_all=True, parameters=None)


class RemoteShardedIndex(ShardedIndex):
    """Shards that search at the same time."""

    def __init__(self, get: Get, shards: Sequence[RemoteShard]) -> None:
        super().__init__(shards)
        self._get = get
        for shard, start in zip(shards, self._starts[:-1], strict=True):
            shard.ids = self.ids[start : start + len(shard.ids)]  # a view, to store them once

    def _search_shards(
        self, vectors: Floats, k: int, allowed: list[Mask | Positions | None]
    ) -> list[tuple[Floats, Ids]]:
        served: Sequence[Any] = self.shards
        refs = [shard.submit(vectors, k, part) for shard, part in zip(served, allowed, strict=True)]
        return [self._get(ref) for ref in refs]
