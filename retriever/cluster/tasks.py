"""What a Ray worker is asked to do: to index a portion of files, to build a shard of the vector index, to amend one.

Arguments are plain values, from which each worker opens the store for itself.
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
from ..store.open_location import open_location
from ..store.snapshot import Snapshot
from ..store.store import Store
from ..store.tables import matrix
from .worker import Worker

if TYPE_CHECKING:
    from .worker import BatchResult, FileBatch


def work(place: str, head: dict[str, Any], root: str, gpu: bool, portion: FileBatch) -> BatchResult | None:
    _at_ease()
    try:
        return _worker(place, head, gpu).do(portion, Path(root))
    except BaseException:
        _let_go()  # it holds rows of this portion, which would be written with those of the next
        raise


_held: dict[tuple[str, str, bool], Worker] = {}  # the worker of the last run, if there was one in this process


def _worker(place: str, head: dict[str, Any], gpu: bool) -> Worker:
    run = place, json.dumps(head, sort_keys=True), gpu
    if run not in _held:
        _let_go()
        _held[run] = Worker(Store.open(open_location(place)), Head.of(head), gpu=gpu)
    return _held[run]


def _let_go() -> None:
    while _held:
        _held.popitem()[1].close()


def build_shard(place: str, head: dict[str, Any], spec: dict[str, Any], first: int, last: int) -> tuple[str, int]:
    """Build a vector index of the chunks whose ids are from `first` to `last`; gives its name, and its memory."""
    _at_ease()
    store, state = Store.open(open_location(place)), Head.of(head)
    dim = state.encoder.dim
    batches = Snapshot(store, state).batches(["id", "vector"], where=f"id >= {first} AND id <= {last}")
    rows = ((batch["id"].to_numpy(), matrix(batch["vector"], dim)) for batch in batches)
    parent = store.place.cache / "vectors"
    parent.parent.mkdir(parents=True, exist_ok=True)
    made = build(parent, IndexSpec(**spec), rows, dim=dim, covers=state.rows)
    memory, name = made.memory, made.publish(IndexMetadata())
    store.place.keep(name)
    return name, memory


def amend_shard(place: str, name: str, settled: dict[str, Any]) -> str:
    """Publish a shard again with other search parameters or measurements; gives its name."""
    held = open_location(place)
    folder = held.vectors(name)
    made = amend(folder.parent, name, IndexMetadata(**settled))
    held.keep(made)
    return made


def _at_ease() -> None:
    """Several workers share a machine: none spins while it waits."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("LANCE_LOG", "error")
