"""Publish vector indexes: build an index, store it beside the tables, and commit a state that names it.

Searches use an index only after that commit.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from ....core.errors import BinocleError, DamagedError, InputError
from ....indexes.manifest import IndexManifest, IndexMetadata
from ....indexes.published import amend, build
from ....indexes.registry import IndexSpec
from ....indexes.tuning.automatic import build_default
from ....indexes.tuning.benchmark import BenchmarkResult
from ....indexes.tuning.optimize import optimize
from ....indexes.tuning.renewal import rebuild, renew
from ....indexes.tuning.requirements import queries_needed
from ..tables import matrix, writing
from . import benchmark_queries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ....core.arrays import Floats, Ids
    from ....indexes.base import VectorIndex
    from ....indexes.manifest import BuiltIndex
    from ....indexes.tuning.optimize import OptimizationResult
    from ....indexes.tuning.requirements import Requirements
    from ...models.encoder import Encoder
    from ...models.identity import EncoderId
    from ..commits import Commits
    from ..head import Head
    from ..snapshot import Snapshot
    from .benchmark_queries import BenchmarkQueries

    EncoderOf = Callable[[EncoderId], Encoder]

# Limits of rows that are newer than a vector index or deleted from it; beyond them it is built anew. Until then newer
# rows are searched exactly and deleted ones masked: this trades a little search time for a lot of writing.
_STALE_ROWS = 1_000
_STALE_SHARE = 0.1


def is_stale(snapshot: Snapshot) -> bool:
    """Tell whether too many rows changed since the index was built, so that it must be built anew."""
    if snapshot.head.vectors is None:
        return bool(snapshot.chunks.count_rows())
    ids, present = snapshot.published_ids, snapshot.sorted_ids
    total = len(present)
    newer = int((present > ids[-1]).sum()) if len(ids) else total
    masked = len(ids) - (total - newer)
    return masked + newer > max(_STALE_ROWS, _STALE_SHARE * total)


class IndexPublisher:
    """Publishes vector indexes of the committed state; readers keep the old one while they use it."""

    def __init__(self, commits: Commits, encoder_of: EncoderOf | None) -> None:
        self._commits = commits
        self._encoder_of = encoder_of
        self._location = commits.store.location

    def build(self, spec: IndexSpec, settle: Callable[[VectorIndex], IndexMetadata] | None = None) -> None:
        """Publish a vector index of this kind, without requirements.

        :param settle: gets the index, written and read again, and returns its metadata. An error of it prevents the
            publication and discards the index.
        """
        spec = spec.check(self._commits.head.encoder.dim)
        with writing(self._location):
            index = self._builder(self._commits.snapshot())(spec)
            try:
                metadata = IndexMetadata() if settle is None else settle(index.load())
                names = self._put(index, metadata)
            except BaseException:
                index.discard()
                raise
            spec = spec if metadata.search is None else replace(spec, search=metadata.search)
            self._commit(replace(self._commits.head, demand=None), names, spec)

    def optimize(
        self,
        requirements: Requirements,
        queries: BenchmarkQueries,
        *,
        kinds: Sequence[str] = (),
        log: Callable[[str], None] = lambda _: None,
    ) -> OptimizationResult:
        """Publish the fastest vector index that meets the requirements; change nothing if none does."""
        with writing(self._location):
            builder = self._builder(self._commits.snapshot())
            result = optimize(builder, queries.vectors, requirements, source=queries.source, kinds=kinds, log=log)
            if choice := result.choice:
                names = self._put(choice.built, choice.metadata)
                head = replace(self._commits.head, demand=requirements)
                self._commit(head, names, choice.spec, queries)
            else:
                self._commits.tidy()
        return result

    def amend(self, metadata: IndexMetadata) -> None:
        """Publish the present vector index with other search parameters or measurements, without building it."""
        head = self._commits.head
        if head.vectors is None:
            raise InputError("there is no vector index yet: index something first")
        with writing(self._location):
            folders = [self._location.vectors(name) for name in head.parts]
            names = [amend(folder.parent, folder.name, metadata) for folder in folders]
            for name in names:
                self._location.keep(name)
            manifest = IndexManifest.read(self._location.vectors(names[0]))
            result = BenchmarkResult.from_dict(manifest.measurements)
            self._commit(replace(head, demand=None if result is None else result.requirements), names, manifest.spec)

    def renew(self, snapshot: Snapshot, encoder_of: EncoderOf | None = None) -> str:
        """Commit a state with a new vector index of all its rows, of the kind chosen before.

        An index with requirements is measured again with its new rows, and improved if it misses them.
        New queries are stored after the commit: they belong to the rows that it made visible.

        :param encoder_of: loads the encoder, to make queries with; the writer's own unless given.
        :returns: a note for people, or "".
        """
        head, before, result = snapshot.head, self._commits.head, self._requirements_and_result()
        builder, spec = self._builder(snapshot), head.index.supported(head.encoder.dim)
        if result is None:
            index, metadata, note = self._unmeasured(snapshot, spec)
            self._commits.commit(_with_index(head, self._put(index, metadata), head.index))
            return note
        vectors = benchmark_queries.read_stored(self._location, head.encoder)
        queries = None
        if vectors is None:
            queries = _queries_from_passages(snapshot, result.requirements, encoder_of or self._encoder_of)
        if queries:
            vectors, result = queries.vectors, replace(result, source=queries.source)
        elif head.encoder.fingerprint != before.encoder.fingerprint:  # the old source was of other vectors
            result = replace(result, source=BenchmarkResult(result.requirements).source)
        renewal = renew(builder, spec, result, vectors)
        names = self._put(renewal.built, renewal.metadata)
        published = renewal.requested or renewal.spec
        self._commits.commit(_with_index(replace(head, demand=result.requirements), names, published))
        if queries:
            benchmark_queries.store_queries(self._location, queries, head.encoder, replace_all=False)
        return renewal.note

    def _unmeasured(self, snapshot: Snapshot, spec: IndexSpec) -> tuple[BuiltIndex, IndexMetadata, str]:
        """Build an index without requirements: of the chosen kind, or of a kind that suits the number of rows."""
        builder = self._builder(snapshot)
        if spec == IndexSpec() and not self._commits.backend.build_shards:
            return *build_default(builder, snapshot.chunks.count_rows()), ""
        index, note = rebuild(builder, spec)
        return index, IndexMetadata(), note

    def _requirements_and_result(self) -> BenchmarkResult | None:
        """Read the requirements and measurements of the published index; without measurements if it is damaged."""
        head = self._commits.head
        with contextlib.suppress(DamagedError):
            if head.vectors is not None:
                published = IndexManifest.read(self._location.vectors(head.vectors))
                if result := BenchmarkResult.from_dict(published.measurements):
                    return result
        return BenchmarkResult(head.demand) if head.demand else None

    def _builder(self, snapshot: Snapshot) -> Callable[[IndexSpec], BuiltIndex]:
        """Return a function that builds vector indexes of a state: here, or in shards on a cluster."""
        store, head, build_shards = snapshot.store, snapshot.head, self._commits.backend.build_shards

        def build_index(spec: IndexSpec) -> BuiltIndex:
            if build_shards:
                shards = build_shards(store, head, snapshot.chunk_ids["id"].to_numpy(), spec)
                if shards:
                    return shards
            return build(store.path / "vectors", spec, _rows(snapshot), dim=head.encoder.dim, covers=head.rows)

        return build_index

    def _put(self, index: BuiltIndex, metadata: IndexMetadata) -> tuple[str, ...]:
        """Move a built index where all machines find it; return the names of its parts."""
        names = index.publish(metadata)
        if isinstance(names, str):
            self._location.keep(names)
            return (names,)
        return names

    def _commit(
        self, head: Head, names: Sequence[str], spec: IndexSpec, queries: BenchmarkQueries | None = None
    ) -> None:
        self._commits.commit(_with_index(head, names, spec))
        if queries:
            benchmark_queries.store_queries(self._location, queries, head.encoder)
        self._commits.tidy()


def _queries_from_passages(
    snapshot: Snapshot, requirements: Requirements, encoder_of: EncoderOf | None
) -> BenchmarkQueries | None:
    """Make queries from the passages; None if the encoder is missing or they are too few to prove the requirements."""
    needed = queries_needed(requirements.recall)
    if encoder_of and snapshot.chunks.count_rows() and needed <= requirements.query_count:
        with contextlib.suppress(BinocleError):
            encoder = encoder_of(snapshot.head.encoder)
            queries = benchmark_queries.of_passages(snapshot, encoder, requirements, seed=0)
            if len(queries.vectors) >= 2 * needed:
                return queries
    return None


def _rows(snapshot: Snapshot) -> Iterable[tuple[Ids, Floats]]:
    dim = snapshot.head.encoder.dim
    return ((batch["id"].to_numpy(), matrix(batch["vector"], dim)) for batch in snapshot.batches(["id", "vector"]))


def _with_index(head: Head, names: Sequence[str], spec: IndexSpec) -> Head:
    """Name a vector index in a state, in one part or several."""
    return replace(head, vectors=names[0] if names else None, shards=tuple(names[1:]), index=spec)
