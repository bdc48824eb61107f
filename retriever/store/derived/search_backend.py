"""The hardware that compares vectors: this CPU, its GPUs, or the machines of a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ....core.arrays import Ids
    from ....indexes.base import VectorIndex
    from ....indexes.manifest import IndexManifest
    from ....indexes.registry import IndexSpec
    from ....indexes.sharded import BuiltShards
    from ..head import Head
    from ..store import Store

    Serve = Callable[[Store, Head], tuple[VectorIndex, IndexManifest]]
    BuildShards = Callable[[Store, Head, Ids, IndexSpec], BuiltShards | None]


@dataclass(frozen=True, slots=True)
class SearchBackend:
    """The services that a snapshot searches vectors with and a writer builds indexes with; by default this CPU."""

    gpu: bool = False  # compare all vectors on this machine's GPUs, if they have room
    serve: Serve | None = None  # opens the vector index of a state on a cluster
    build_shards: BuildShards | None = None  # builds an index of these chunks on a cluster


CPU = SearchBackend()
