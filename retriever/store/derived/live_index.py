"""The vector index of one committed state: loaded, and made current with the rows that changed since it was built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ....core.arrays import distinct, isin_sorted
from ....core.errors import DamagedError
from ....indexes.flat import FlatIndex, top_k
from ....indexes.manifest import IndexManifest

if TYPE_CHECKING:
    from ....core.arrays import Floats, Ids, Mask, Positions
    from ....indexes.base import VectorIndex
    from ..head import Head
    from ..store import Store
    from .search_backend import SearchBackend

_POSITIONS_SHARE = 16  # if a filter passes fewer than one row in 16, the index gets positions instead of a mask


@dataclass(frozen=True, slots=True)
class LoadedIndex:
    """A published vector index and its manifest; an empty index if there is none or it is damaged."""

    index: VectorIndex
    published: IndexManifest | None = None
    damage: DamagedError | None = None
    searched_by: str = "the CPU"


def load_index(store: Store, head: Head, backend: SearchBackend) -> LoadedIndex:
    """Load the published vector index of a state, in one part or in shards.

    A damaged index is no error, since it is a cache: its rows are searched exactly, and `verify` reports the damage.
    """
    empty = FlatIndex(np.empty(0, np.int64), np.empty((0, head.encoder.dim), np.float32))
    if head.vectors is None:
        return LoadedIndex(empty)
    try:
        if backend.serve:
            index, manifest = backend.serve(store, head)
            return LoadedIndex(index, manifest, searched_by=_on_cpu(backend, "a Ray cluster searches"))
        folders = [store.location.vectors(name) for name in head.parts]
        manifests = [IndexManifest.read(folder, dim=head.encoder.dim) for folder in folders]
        shards = [manifest.load(folder) for manifest, folder in zip(manifests, folders, strict=True)]
        if len(shards) > 1:
            from ....indexes.sharded import ShardedIndex, merge_manifests  # of few indexes

            reason = _on_cpu(backend, "the index is in shards")
            return LoadedIndex(ShardedIndex(shards), merge_manifests(manifests), searched_by=reason)
    except DamagedError as error:
        return LoadedIndex(empty, damage=error)
    if not backend.gpu:
        return LoadedIndex(shards[0], manifests[0], searched_by="the CPU")
    from ....indexes.gpu import on_gpus

    index, searched_by = on_gpus(shards[0])
    return LoadedIndex(index, manifests[0], searched_by=searched_by)


def _on_cpu(backend: SearchBackend, reason: str) -> str:
    return f"the CPU: {reason}" if backend.gpu else "the CPU"


@dataclass(frozen=True, slots=True)
class LiveIndex:
    """A published index made current: newer rows are searched exactly, deleted ones masked."""

    published: VectorIndex
    live_mask: Mask | None  # of the published rows: still in the store; None: all are
    unindexed: FlatIndex | None  # the newer rows

    def search(self, vectors: Floats, k: int, *, allowed: Ids | None = None) -> tuple[Floats, Ids]:
        """Search as `VectorIndex.search` does, but `allowed` are ids, ascending and each once."""
        scores, ids = self.published.search(vectors, k, allowed=self._allowed_rows(allowed))
        if self.unindexed is None:
            return scores, ids
        newer = None if allowed is None else isin_sorted(self.unindexed.ids, allowed)
        newer_scores, newer_ids = self.unindexed.search(vectors, k, allowed=newer)
        return top_k(np.hstack([scores, newer_scores]), np.hstack([ids, newer_ids]), k)

    def search_each(self, vectors: Floats, k: int) -> tuple[Floats, Ids] | None:
        """Return the same as `search` for each query alone; None if only separate searches give that."""
        is_whole = self.live_mask is None and self.unindexed is None
        return self.published.search_each(vectors, k) if is_whole and isinstance(self.published, FlatIndex) else None

    def _allowed_rows(self, allowed: Ids | None) -> Mask | Positions | None:
        """Select the published rows that still exist and are allowed, as a mask or as positions."""
        if allowed is None:
            return self.live_mask
        ids = self.published.ids
        if len(allowed) < len(ids) / _POSITIONS_SHARE:
            rows = distinct(np.searchsorted(ids, allowed))
            rows = rows[rows < len(ids)]
            rows = rows[isin_sorted(ids[rows], allowed)]
            return rows if self.live_mask is None else rows[self.live_mask[rows]]
        mask = isin_sorted(ids, allowed)
        return mask if self.live_mask is None else self.live_mask & mask

    def reconstruct(self, ids: Ids) -> Floats:
        """Return the vectors of these ids, in their order."""
        if self.unindexed is None:
            return self.published.reconstruct(ids)
        newer = ids >= self.unindexed.ids[0]
        vectors = np.empty((len(ids), self.unindexed.vectors.shape[1]), np.float32)
        vectors[newer] = self.unindexed.reconstruct(ids[newer])
        vectors[~newer] = self.published.reconstruct(ids[~newer])
        return vectors
