"""The tasks of a Ray worker: index a batch of files, build a shard of the vector index, amend a shard.

Arguments are plain values; each worker opens the store for itself.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...indexes.manifest import IndexMetadata
from ...indexes.published import amend, build
from ...indexes.registry import IndexSpec
from ..store.head import Head
from ..store.locations.open_location import open_location
from ..store.snapshot import Snapshot
from ..store.store import Store
from ..store.tables import matrix
from .batch_worker import Worker

if TYPE_CHECKING:
    from .batch_worker import BatchResult, FileBatch


def work(location: str, head: dict[str, Any], root: str, gpu: bool, batch: FileBatch) -> BatchResult | None:
    """Read, chunk and embed a batch of files; see `Worker.do`."""
    _share_processors()
    try:
        return _worker(location, head, gpu).do(batch, Path(root))
    except BaseException:
        _close_worker()  # it has rows of this batch, which it would write with the next
        raise


_workers: dict[tuple[str, str, bool], Worker] = {}  # the worker of the last run in this process, if any


def _worker(location: str, head: dict[str, Any], gpu: bool) -> Worker:
    run = location, json.dumps(head, sort_keys=True), gpu
    if run not in _workers:
        _close_worker()
        _workers[run] = Worker.load(Store.open(open_location(location)), Head.of(head), gpu=gpu)
    return _workers[run]


def _close_worker() -> None:
    while _workers:
        _workers.popitem()[1].close()


def build_shard(location: str, head: dict[str, Any], spec: dict[str, Any], first: int, last: int) -> tuple[str, int]:
    """Build a vector index of the chunks with ids from `first` to `last`; return its name and its memory in bytes."""
    _share_processors()
    store, state = Store.open(open_location(location)), Head.of(head)
    dim = state.encoder.dim
    batches = Snapshot(store, state).batches(["id", "vector"], first=first, last=last)
    rows = ((batch["id"].to_numpy(), matrix(batch["vector"], dim)) for batch in batches)
    parent = store.location.cache / "vectors"
    parent.parent.mkdir(parents=True, exist_ok=True)
    index = build(parent, IndexSpec(**spec), rows, dim=dim, covers=state.rows)
    memory, name = index.memory, index.publish(IndexMetadata())
    store.location.keep(name)
    return name, memory


def amend_shard(location: str, name: str, metadata: dict[str, Any]) -> str:
    """Publish a shard again with other search parameters or measurements; return its new name."""
    shards = open_location(location)
    folder = shards.vectors(name)
    amended = amend(folder.parent, name, IndexMetadata(**metadata))
    shards.keep(amended)
    return amended


def _share_processors() -> None:
    """Stop OpenMP threads from spinning while they wait: several workers share a machine."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("LANCE_LOG", "error")
