"""The published vector index as a cluster serves it: an actor for each shard, which answers for its own ids."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ...indexes.flat import exact_index, is_exact
from ...indexes.manifest import IndexManifest
from ...indexes.sharded import ShardedIndex
from ..store.open_location import open_location

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...core.arrays import Floats, Ids, Mask, Positions
    from ...indexes.base import VectorIndex

    _Got = Callable[[Any], Any]  # the answer of a reference, once it is there

_How = dict[str, Any] | None  # search parameters that are other than the published ones; None: compare all
_AS_PUBLISHED: dict[str, Any] = {}


class Shard:
    """One published vector index, in an actor."""

    def __init__(self, place: str, name: str, dim: int) -> None:
        self._place, self._name, self._dim = place, name, dim
        self._opened: tuple[VectorIndex, IndexManifest] | None = None

    def _open(self) -> tuple[VectorIndex, IndexManifest]:
        if self._opened is None:
            folder = open_location(self._place).vectors(self._name)
            manifest = IndexManifest.read(folder, dim=self._dim)
            self._opened = manifest.load(folder), manifest
        return self._opened

    def manifest(self) -> dict[str, Any]:
        return asdict(self._open()[1])

    def held(self) -> tuple[Ids, bool]:
        """The ids, and whether they are found by comparing all."""
        index = self._open()[0]
        return index.ids, is_exact(index)

    def search(self, vectors: Floats, k: int, allowed: Mask | Positions | None, how: _How) -> tuple[Floats, Ids]:
        index = self._open()[0]
        index = exact_index(index) if how is None else index.with_parameters(**how)
        return index.search(vectors, k, allowed=allowed)

    def reconstruct(self, ids: Ids) -> Floats:
        return self._open()[0].reconstruct(ids)


class RemoteShard:
    """A shard as this process sees it: a `VectorIndex` whose searches are answered elsewhere."""

    def __init__(self, got: _Got, actor: Any, ids: Ids, compares_all: bool, how: _How = _AS_PUBLISHED) -> None:
        self._got = got
        self._actor = actor
        self._how = how
        self.ids = ids
        self.index = None if compares_all else actor

    def asked(self, vectors: Floats, k: int, allowed: Mask | Positions | None) -> Any:
        """The reference of an answer to come."""
        return self._actor.search.remote(vectors, k, allowed, self._how)

    def search(self, vectors: Floats, k: int, *, allowed: Mask | Positions | None = None) -> tuple[Floats, Ids]:
        answer: tuple[Floats, Ids] = self._got(self.asked(vectors, k, allowed))
        return answer

    def reconstruct(self, ids: Ids) -> Floats:
        vectors: Floats = self._got(self._actor.reconstruct.remote(ids))
        return vectors

    def with_parameters(self, **search: Any) -> RemoteShard:
        if self._how is None:
            return self
        return RemoteShard(self._got, self._actor, self.ids, self.index is None, {**self._how, **search})

    @property
    def exact(self) -> RemoteShard:
        return RemoteShard(self._got, self._actor, self.ids, compares_all=True, how=None)


class RemoteShardedIndex(ShardedIndex):
    """Shards that are asked all at once."""

    def __init__(self, got: _Got, shards: Sequence[RemoteShard]) -> None:
        super().__init__(shards)
        self._got = got
        for shard, start in zip(shards, self._starts[:-1], strict=True):
            shard.ids = self.ids[start : start + len(shard.ids)]  # not to hold them twice

    def _search_shards(
        self, vectors: Floats, k: int, allowed: list[Mask | Positions | None]
    ) -> list[tuple[Floats, Ids]]:
        served: Sequence[Any] = self.shards
        refs = [shard.asked(vectors, k, part) for shard, part in zip(served, allowed, strict=True)]
        return [self._got(ref) for ref in refs]
