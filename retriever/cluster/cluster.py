"""Many machines as one: Ray workers read and embed a folder, build the vector index in shards, and serve it.

    index   this process looks through the folder, as ever, and cuts what is to be read into portions
            -> tasks: read, chunk, embed, write fragments of the store's tables, which nobody sees yet
            -> this process commits the portions that are done, in order: HEAD.json is the one atomic step
            -> tasks: a vector index for each range of ids, put into the store; named together by the next commit,
               after they have been searched together where a recall was demanded of them
    search  an actor for each shard, kept by the cluster -> each answers for its own ids -> the best of all

A task that is lost with its machine is done again by another. Its fragments, if it had written any, are named by no
version of a table and go when a writer tidies, on object storage after a week. This process being killed costs what was
not yet committed.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections import deque
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.errors import BinocleError, InputError, MissingExtraError, StoreError
from ...core.version import __version__
from ...indexes.manifest import IndexManifest
from ...indexes.sharded import BuiltShards, merge_manifests
from ..indexing.report import progress_of_files
from . import tasks
from .serving import RemoteShard, RemoteShardedIndex, Shard
from .worker import ROOM, FileBatch, fragments_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from ...core.progress import OnProgress
    from ...indexes.base import VectorIndex
    from ...indexes.manifest import IndexMetadata
    from ...indexes.registry import IndexSpec
    from ..documents.scan import Entry
    from ..indexing.report import Report
    from ..store.head import Head
    from ..store.snapshot import Snapshot
    from ..store.store import Store
    from ..store.writer import Writer
    from .worker import BatchResult

_AHEAD = 3  # portions a worker that are under way or done before those before them
_PORTIONS = 12  # portions a worker in all, so that none waits long for the last, within these bounds:
_FILES = (16, 4_096)
_BYTES = (128 << 10, 32 << 20)
_RETRIES = 10  # times that a task is done again because its worker or machine was lost: memory may be short everywhere
_GLANCE = 15.0  # seconds between two looks at whether the cluster could do what is waited for
_PATIENCE = 300.0  # seconds that it may have no processor for it: it may be starting machines
_SHARD = 1_000_000  # most vectors in a shard
_LEAST_SHARD = 1_000  # fewer are not worth a shard of their own


class Cluster:
    """A Ray cluster: at an address, "local" for this machine alone, "auto" for the one that it is part of."""

    def __init__(self, address: str) -> None:
        self._ray = connected(address)
        resources = self._ray.cluster_resources()
        self._gpus = int(resources.get("GPU", 0))
        self.workers = max(1, self._gpus or int(resources.get("CPU", 1)))

    def index(
        self,
        writer: Writer,
        root: Path,
        entries: list[Entry],
        known: dict[str, dict[str, Any]],
        report: Report,
        progress: OnProgress,
    ) -> None:
        """Read, embed and commit files: a `sync.Crew`.

        :param known: path -> the document row that a file takes the place of.
        """
        store, head = writer.snapshot().store, writer.head
        work = self._remote(tasks.work, num_cpus=1, num_gpus=1 if self._gpus else 0)
        first = (str(store.place), asdict(head), str(root.resolve()), bool(self._gpus))
        waiting = deque(self._portions(entries, head))
        under_way: deque[tuple[FileBatch, Any]] = deque()
        start = time.monotonic()
        total, files, size = sum(entry.size for entry in entries), 0, 0
        while waiting or under_way:
            while waiting and len(under_way) < _AHEAD * self.workers:
                portion = waiting.popleft()
                under_way.append((portion, work.remote(*first, portion)))
            done = []
            for portion, result in self._ready(under_way):
                if result is None:
                    shipped = _with_contents(root, portion)
                    result = self._got(work.remote(*first, shipped))  # noqa: PLW2901
                done.append((portion, result))
            _commit(writer, done, known, report)
            files += sum(len(portion.entries) for portion, _ in done)
            size += sum(entry.size for portion, _ in done for entry in portion.entries)
            passages = report.embedded + report.reused
            progress(progress_of_files((files, len(entries)), (size, total), passages, start))

    def _portions(self, entries: list[Entry], head: Head) -> Iterator[FileBatch]:
        """Files in order of path, cut so that each worker has several portions."""
        shares = _PORTIONS * self.workers
        files = min(max(len(entries) // shares, _FILES[0]), _FILES[1])
        size = min(max(sum(entry.size for entry in entries) // shares, _BYTES[0]), _BYTES[1])
        document, chunk, some, held = head.next_document, head.next_chunk, list[Any](), 0
        for entry in entries:
            if some and (len(some) >= files or held + entry.size > size):
                yield FileBatch(tuple(some), document, chunk)
                document, chunk, some, held = document + len(some), chunk + ROOM, [], 0
            some.append(entry)
            held += 0 if entry.reason else entry.size
        if some:
            yield FileBatch(tuple(some), document, chunk)

    def _ready(self, under_way: deque[tuple[FileBatch, Any]]) -> Iterator[tuple[FileBatch, BatchResult | None]]:
        """The first portion, when it is done, and those behind it that are done too."""
        self._got(under_way[0][1])
        ready = set(self._ray.wait([ref for _, ref in under_way], num_returns=len(under_way), timeout=0)[0])
        while under_way and under_way[0][1] in ready:
            portion, ref = under_way.popleft()
            yield portion, self._got(ref)

    def _got(self, ref: Any) -> Any:
        """A result, or the error of the worker as if it were raised here."""
        try:
            return self._awaited(ref)
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, BinocleError):
                raise error.cause from None
            raise
        except self._ray.exceptions.RayError as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise StoreError(f"the Ray cluster gave up ({reason}); what was committed is kept: run it again") from None

    def _awaited(self, ref: Any) -> Any:
        """The result.

        :raises StoreError: when the cluster has had no processor to do it with for so long that it may never have.
        """
        needed = "GPU" if self._gpus else "CPU"
        idle = 0.0
        while idle < _PATIENCE:
            try:
                return self._ray.get(ref, timeout=_GLANCE)
            except self._ray.exceptions.GetTimeoutError:
                idle = 0.0 if self._ray.cluster_resources().get(needed) else idle + _GLANCE
        raise StoreError(
            f"the Ray cluster has had no {needed} for {_PATIENCE / 60:g} minutes; what was committed is kept: add "
            "workers with 'ray start --address HEAD', and run it again"
        )

    def _remote(self, function: Callable[..., Any], **resources: Any) -> Any:
        # Ray would end the worker after each call that has a GPU, and load the encoder anew.
        return self._ray.remote(max_retries=_RETRIES, max_calls=0, scheduling_strategy="SPREAD", **resources)(function)

    # The vector index

    def shards(self, snapshot: Snapshot, spec: IndexSpec) -> BuiltShards | None:
        """Build the vector index of a state, a task for each range of ids; None where there is nothing to build."""
        ids, store, head = snapshot.chunk_ids["id"].to_numpy(), snapshot.store, snapshot.head
        if not len(ids):
            return None
        count = max(-(-len(ids) // _SHARD), min(self.workers, len(ids) // _LEAST_SHARD), 1)
        first = (str(store.place), asdict(head), asdict(spec))
        ranges = [(int(part[0]), int(part[-1])) for part in np.array_split(ids, count)]
        work = self._remote(tasks.build_shard, num_cpus=1)
        made = self._all([work.remote(*first, *bounds) for bounds in ranges])

        def opened(names: tuple[str, ...]) -> VectorIndex:
            return self.serve(store, replace(head, vectors=names[0], shards=names[1:]))[0]

        def amended(names: tuple[str, ...], settled: IndexMetadata) -> tuple[str, ...]:
            work = self._remote(tasks.amend_shard, num_cpus=1)
            others = self._all([work.remote(str(store.place), name, asdict(settled)) for name in names])
            dropped(names)
            return tuple(others)

        def dropped(names: tuple[str, ...]) -> None:
            self._kill(store, names.__contains__)
            for name in names:
                store.place.drop(name)

        return BuiltShards(
            names=tuple(name for name, _ in made),
            manifest=IndexManifest(
                spec.kind, len(ids), head.encoder.dim, head.rows, {}, spec.metric, spec.build, spec.search
            ),
            memory=sum(memory for _, memory in made),
            open_shards=opened,
            amend_shards=amended,
            delete_shards=dropped,
        )

    def serve(self, store: Store, head: Head) -> tuple[VectorIndex, IndexManifest]:
        """The published vector index of a state, each shard in an actor that stays for the next search.

        :raises DamagedError: when one is not what was published.
        """
        kept: dict[str, Any] = {"lifetime": "detached", "get_if_exists": True, "scheduling_strategy": "SPREAD"}
        again = {"max_restarts": -1, "max_task_retries": _RETRIES}  # on another machine, where one is lost
        actor = self._ray.remote(num_cpus=0, **again)(Shard)
        place, dim = str(store.place), head.encoder.dim
        # Who took others out of service may have had no cluster.
        self._kill(store, lambda part: part not in head.parts and not store.place.has(part))
        actors = [actor.options(name=_name(place, part), **kept).remote(place, part, dim) for part in head.parts]
        manifests = [IndexManifest(**found) for found in self._all([one.manifest.remote() for one in actors])]
        held = self._all([one.held.remote() for one in actors])
        shards = [RemoteShard(self._got, one, *part) for one, part in zip(actors, held, strict=True)]
        return RemoteShardedIndex(self._got, shards), merge_manifests(manifests)

    def retire(self, store: Store, head: Head) -> None:
        """End the actors of shards that are no longer part of the index."""
        self._kill(store, lambda part: part not in head.parts)

    def _kill(self, store: Store, chosen: Callable[[str], bool]) -> None:
        """End the actors of the shards that are chosen, by their names in the store."""
        for name in self._ray.util.list_named_actors():
            place, _, part = name.partition("/")
            if place == _digest(str(store.place)) and chosen(part.partition("/")[0]):
                with contextlib.suppress(ValueError):  # another process was first
                    self._ray.kill(self._ray.get_actor(name))

    def _all(self, refs: Sequence[Any]) -> list[Any]:
        return [self._got(ref) for ref in refs]


def connected(address: str) -> Any:
    """Ray, connected."""
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


def _with_contents(root: Path, portion: FileBatch) -> FileBatch:
    contents = {}
    for entry in portion.entries:
        if not entry.reason:
            try:
                contents[entry.path] = (root / entry.path).read_bytes()
            except OSError:
                continue  # the worker says of it what would be said here: that it is not there
    return FileBatch(portion.entries, portion.document, portion.chunk, contents)


def _commit(
    writer: Writer, done: list[tuple[FileBatch, BatchResult]], known: dict[str, dict[str, Any]], report: Report
) -> None:
    replaced = [known[entry.path]["id"] for portion, _ in done for entry in portion.entries if entry.path in known]
    writer.adopt(
        drop=replaced,
        documents=fragments_of([text for _, result in done for text in result.documents]),
        chunks=fragments_of([text for _, result in done for text in result.chunks]),
        next_document=max(result.next_document for _, result in done),
        next_chunk=max(result.next_chunk for _, result in done),
    )
    for _, result in done:
        report.join(result.report)


def _name(place: str, part: str) -> str:
    return f"{_digest(place)}/{part}/{__version__}"


def _digest(place: str) -> str:
    return hashlib.sha256(place.encode()).hexdigest()[:12]
