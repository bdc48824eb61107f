"""Many machines as one: Ray workers read and embed a folder, build the vector index in shards, and serve it.

    index   this process scans the folder and splits the files to read into batches
            -> tasks: read, chunk, embed, write fragments of the store's tables, invisible so far
            -> this process commits the finished batches in order: HEAD.json is the one atomic step
            -> tasks: a vector index for each range of ids, put into the store; the next commit names them together,
               after they were searched together if there are requirements to prove
    search  an actor for each shard, which the cluster keeps -> each answers for its own ids -> the best of all

If a machine is lost, another does its tasks again. No version of a table names the fragments of a lost task: a writer
tidies them away, on object storage after a week. If this process is killed, only uncommitted work is lost.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections import deque
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.errors import BinocleError, InputError, MissingExtraError, StoreError
from ...core.version import __version__
from ...indexes.manifest import IndexManifest
from ...indexes.sharded import BuiltShards, merge_manifests
from ..documents.file_parts import file_of
from ..indexing.report import progress_of_files
from . import tasks
from .batch_worker import CHUNK_IDS, FileBatch, fragments_of
from .serving import RemoteShard, RemoteShardedIndex, Shard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from ...core.arrays import Ids
    from ...core.progress import OnProgress
    from ...indexes.base import VectorIndex
    from ...indexes.manifest import IndexMetadata
    from ...indexes.registry import IndexSpec
    from ..documents.scan import Entry
    from ..indexing.report import Report
    from ..store.head import Head
    from ..store.store import Store
    from ..store.writer import Writer
    from .batch_worker import BatchResult

_QUEUED = 3  # batches per worker that are submitted and not committed yet
_BATCHES = 12  # batches per worker in all, so that none waits long for the last; within these bounds:
_BATCH_FILES = (16, 4_096)
_BATCH_BYTES = (128 << 10, 32 << 20)
_RETRIES = 10  # attempts at a task after its worker or machine was lost: memory may be short on all machines
_UNSEEN_PART = "part of a file over 64 MB, which a worker reads only where it sees the folder"
_POLL_SECONDS = 15.0  # between two checks that the cluster has a processor for the task
_PATIENCE = 300.0  # seconds that the cluster may have no processor: it may be starting machines
_MAXIMUM_SHARD = 1_000_000  # vectors
_MINIMUM_SHARD = 1_000  # vectors: fewer are not worth a shard


class Cluster:
    """A Ray cluster, by its address: "local" for this machine alone, "auto" for the cluster of this machine."""

    def __init__(self, ray: Any, *, processors: int, gpus: int) -> None:
        self._ray, self._gpus = ray, gpus
        self.workers = max(1, gpus or processors)

    @classmethod
    def connect(cls, address: str) -> Cluster:
        """Connect to the cluster at an address."""
        ray = connect(address)
        resources = ray.cluster_resources()
        return cls(ray, processors=int(resources.get("CPU", 1)), gpus=int(resources.get("GPU", 0)))

    def index(
        self,
        writer: Writer,
        root: Path,
        entries: list[Entry],
        known: dict[str, dict[str, Any]],
        report: Report,
        progress: OnProgress,
    ) -> None:
        """Read, embed and commit files: a `sync.FileIndexer`.

        :param known: path -> the document row that a new version of the file replaces.
        """
        store, head = writer.snapshot().store, writer.head
        work = self._remote(tasks.work, num_cpus=1, num_gpus=1 if self._gpus else 0)
        arguments = (str(store.location), asdict(head), str(root.resolve()), bool(self._gpus))
        waiting = deque(self._batches(entries, head))
        under_way: deque[tuple[FileBatch, Any]] = deque()
        start = time.monotonic()
        total, files, size = sum(entry.size for entry in entries), 0, 0
        while waiting or under_way:
            while waiting and len(under_way) < _QUEUED * self.workers:
                batch = waiting.popleft()
                under_way.append((batch, work.remote(*arguments, batch)))
            done = []
            for batch, result in self._ready(under_way):
                if result is None:
                    shipped = _with_contents(root, batch)
                    result = self._get(work.remote(*arguments, shipped))  # noqa: PLW2901
                done.append((batch, result))
            _commit(writer, done, known, report)
            files += sum(len(batch.entries) for batch, _ in done)
            size += sum(entry.size for batch, _ in done for entry in batch.entries)
            passages = report.embedded + report.reused
            progress(progress_of_files((files, len(entries)), (size, total), passages, start))

    def _batches(self, entries: list[Entry], head: Head) -> Iterator[FileBatch]:
        """Split files, in order of path, so that each worker gets several batches."""
        shares = _BATCHES * self.workers
        max_files = min(max(len(entries) // shares, _BATCH_FILES[0]), _BATCH_FILES[1])
        max_size = min(max(sum(entry.size for entry in entries) // shares, _BATCH_BYTES[0]), _BATCH_BYTES[1])
        document, chunk, batch, size = head.next_document, head.next_chunk, list[Any](), 0
        for entry in entries:
            if batch and (len(batch) >= max_files or size + entry.size > max_size):
                yield FileBatch(tuple(batch), document, chunk)
                document, chunk, batch, size = document + len(batch), chunk + CHUNK_IDS, [], 0
            batch.append(entry)
            size += 0 if entry.reason else entry.size
        if batch:
            yield FileBatch(tuple(batch), document, chunk)

    def _ready(self, under_way: deque[tuple[FileBatch, Any]]) -> Iterator[tuple[FileBatch, BatchResult | None]]:
        """Wait for the first batch; yield it and the finished batches behind it."""
        self._get(under_way[0][1])
        ready = set(self._ray.wait([ref for _, ref in under_way], num_returns=len(under_way), timeout=0)[0])
        while under_way and under_way[0][1] in ready:
            batch, ref = under_way.popleft()
            yield batch, self._get(ref)

    def _get(self, ref: Any) -> Any:
        """Return a result, or raise the error of the worker here."""
        try:
            return self._wait(ref)
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, BinocleError):
                raise error.cause from None
            raise
        except self._ray.exceptions.RayError as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise StoreError(f"the Ray cluster gave up ({reason}); what was committed is kept: run it again") from None

    def _wait(self, ref: Any) -> Any:
        """Wait for a result.

        :raises StoreError: when the cluster has had no processor for `_PATIENCE` seconds.
        """
        needed = "GPU" if self._gpus else "CPU"
        idle = 0.0
        while idle < _PATIENCE:
            try:
                return self._ray.get(ref, timeout=_POLL_SECONDS)
            except self._ray.exceptions.GetTimeoutError:
                idle = 0.0 if self._ray.cluster_resources().get(needed) else idle + _POLL_SECONDS
        raise StoreError(
            f"the Ray cluster has had no {needed} for {_PATIENCE / 60:g} minutes; what was committed is kept: add "
            "workers with 'ray start --address HEAD', and run it again"
        )

    def _remote(self, function: Callable[..., Any], **resources: Any) -> Any:
        # max_calls: else Ray ends the worker after each call with a GPU, and loads the encoder anew.
        return self._ray.remote(max_retries=_RETRIES, max_calls=0, scheduling_strategy="SPREAD", **resources)(function)

    # The vector index

    def build_shards(self, store: Store, head: Head, ids: Ids, spec: IndexSpec) -> BuiltShards | None:
        """Build the vector index of the chunks with these ids, a task for each range of ids; None if there are none."""
        if not len(ids):
            return None
        count = max(-(-len(ids) // _MAXIMUM_SHARD), min(self.workers, len(ids) // _MINIMUM_SHARD), 1)
        arguments = (str(store.location), asdict(head), asdict(spec))
        ranges = [(int(part[0]), int(part[-1])) for part in np.array_split(ids, count)]
        work = self._remote(tasks.build_shard, num_cpus=1)
        built = self._all([work.remote(*arguments, *bounds) for bounds in ranges])

        def load(names: tuple[str, ...]) -> VectorIndex:
            return self.serve(store, replace(head, vectors=names[0], shards=names[1:]))[0]

        def amend(names: tuple[str, ...], metadata: IndexMetadata) -> tuple[str, ...]:
            work = self._remote(tasks.amend_shard, num_cpus=1)
            amended = self._all([work.remote(str(store.location), name, asdict(metadata)) for name in names])
            drop(names)
            return tuple(amended)

        def drop(names: tuple[str, ...]) -> None:
            self._kill(store, names.__contains__)
            for name in names:
                store.location.drop(name)

        return BuiltShards(
            names=tuple(name for name, _ in built),
            manifest=IndexManifest(
                spec.kind, len(ids), head.encoder.dim, head.rows, {}, spec.metric, spec.build, spec.search
            ),
            memory=sum(memory for _, memory in built),
            open_shards=load,
            amend_shards=amend,
            delete_shards=drop,
        )

    def serve(self, store: Store, head: Head) -> tuple[VectorIndex, IndexManifest]:
        """Open the published vector index of a state: each shard in an actor that stays for the next search.

        :raises DamagedError: when a shard is damaged.
        """
        detached: dict[str, Any] = {"lifetime": "detached", "get_if_exists": True, "scheduling_strategy": "SPREAD"}
        retries = {"max_restarts": -1, "max_task_retries": _RETRIES}  # on another machine, if one is lost
        actor = self._ray.remote(num_cpus=0, **retries)(Shard)
        location, dim = str(store.location), head.encoder.dim
        # The process that replaced other shards may have had no cluster.
        self._kill(store, lambda part: part not in head.parts and not store.location.has(part))
        actors = [
            actor.options(name=_name(location, part), **detached).remote(location, part, dim) for part in head.parts
        ]
        manifests = [IndexManifest(**values) for values in self._all([shard.manifest.remote() for shard in actors])]
        contents = self._all([shard.contents.remote() for shard in actors])
        shards = [RemoteShard(self._get, shard, *ids) for shard, ids in zip(actors, contents, strict=True)]
        return RemoteShardedIndex(self._get, shards), merge_manifests(manifests)

    def retire(self, store: Store, head: Head) -> None:
        """End the actors of shards that are no longer in service."""
        self._kill(store, lambda part: part not in head.parts)

    def _kill(self, store: Store, condition: Callable[[str], bool]) -> None:
        """End the actors of the shards with a name that meets a condition."""
        for name in self._ray.util.list_named_actors():
            digest, _, part = name.partition("/")
            if digest == _digest(str(store.location)) and condition(part.partition("/")[0]):
                with contextlib.suppress(ValueError):  # another process was first
                    self._ray.kill(self._ray.get_actor(name))

    def _all(self, refs: Sequence[Any]) -> list[Any]:
        return [self._get(ref) for ref in refs]


def connect(address: str) -> Any:
    """Connect to a Ray cluster and return the `ray` module."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # or a cluster that starts here reports to Ray's makers
    try:
        import ray
    except ImportError:
        raise MissingExtraError("ray", "ray", "--ray") from None
    if not address:
        raise InputError("--ray expects the address of a Ray cluster, such as auto, local or head:6379")
    try:
        ray.init(
            address=address,
            namespace="binocle",
            ignore_reinit_error=True,
            log_to_driver=False,
            configure_logging=False,
        )
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"there is no Ray cluster at {address} ({reason}): start one with 'ray start --head'"
        ) from None
    return ray


def _with_contents(root: Path, batch: FileBatch) -> FileBatch:
    contents = {}
    entries = tuple(
        entry if file_of(entry.path) == entry.path else replace(entry, reason=_UNSEEN_PART) for entry in batch.entries
    )
    for entry in entries:
        if not entry.reason:
            try:
                contents[entry.path] = (root / entry.path).read_bytes()
            except OSError:
                continue  # the worker reports it as missing
    return FileBatch(entries, batch.document, batch.chunk, contents)


def _commit(
    writer: Writer, done: list[tuple[FileBatch, BatchResult]], known: dict[str, dict[str, Any]], report: Report
) -> None:
    replaced = [known[entry.path]["id"] for batch, _ in done for entry in batch.entries if entry.path in known]
    writer.adopt(
        drop=replaced,
        documents=fragments_of([text for _, result in done for text in result.documents]),
        chunks=fragments_of([text for _, result in done for text in result.chunks]),
        next_document=max(result.next_document for _, result in done),
        next_chunk=max(result.next_chunk for _, result in done),
    )
    for _, result in done:
        report.join(result.report)


def _name(location: str, part: str) -> str:
    return f"{_digest(location)}/{part}/{__version__}"


def _digest(location: str) -> str:
    return hashlib.sha256(location.encode()).hexdigest()[:12]
