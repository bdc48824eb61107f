"""One committed state of an index, for reading: its rows, its full-text index, and its vector index made current."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from threading import RLock
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ...core.arrays import isin_sorted
from ...core.errors import DamagedError, StoreError
from ...core.lazy import locked_cached_property
from ...indexes.flat import FlatIndex, top_k
from ...indexes.gpu import on_gpus
from ...indexes.manifest import IndexManifest
from ...indexes.sharded import ShardedIndex, merge_manifests
from .filters import COLUMNS
from .tables import LANCE_ERRORS, PREVIOUS, document_schema, lance_message, matrix, open_table, reading

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import lance
    import pyarrow as pa
    from numpy.typing import NDArray

    from ...indexes.base import VectorIndex
    from .filters import Filter
    from .head import Head
    from .store import Store

    Table = Literal["documents", "chunks"]

_FILTERS = 8  # whose documents and chunks are remembered
_FEW = 16  # a filter that lets pass fewer than one in so many is looked up row by row


@dataclass(frozen=True, slots=True)
class Loaded:
    """The vector index, what it says of itself, or what is wrong with it."""

    index: VectorIndex
    published: IndexManifest | None = None
    damage: DamagedError | None = None
    searched_by: str = "the CPU"


@dataclass(frozen=True, slots=True)
class Passing:
    """Ids of the documents that pass a filter, and of their chunks, ascending."""

    documents: NDArray[np.int64]
    chunks: NDArray[np.int64]


class Snapshot:
    """One committed state of the store."""

    def __init__(self, store: Store, head: Head) -> None:
        self.store = store
        self.head = head
        self._passed: dict[Filter, Passing] = {}  # of the last few filters
        self._placed: dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}
        self.once = RLock()

    @locked_cached_property
    def documents(self) -> lance.LanceDataset:
        with self.reading("documents"):
            return open_table(self.store.place.table("documents"), self.head.documents)

    @locked_cached_property
    def chunks(self) -> lance.LanceDataset:
        location, dim = self.store.place.table("chunks"), self.head.encoder.dim
        with self.reading("chunks"):
            table = open_table(location, self.head.chunks)
        if table.schema.field("vector").type.list_size != dim:
            raise DamagedError(f"{location} does not hold vectors of dimension {dim}, as HEAD.json says: index again")
        return table

    @contextlib.contextmanager
    def reading(self, table: Table) -> Iterator[None]:
        """Lance's errors as ours; a file that is missing is no damage where it was tidied away meanwhile.

        :raises StoreError: then, which `Retriever.read` knows to read the state there is now instead.
        """
        try:
            with reading(self.store.place.table(table)):
                yield
        except StoreError as error:
            self._refuse_if_past(error)
            raise

    def _refuse_if_past(self, error: Exception) -> None:
        """What is missing, where another state was committed since, was tidied away with this one."""
        if "not found" in str(error).lower() and self.store.head() != self.head:
            raise StoreError(
                f"{self.store.place} was written to meanwhile, and what was being read is gone: run it again"
            ) from error

    def read(self, table: Table, columns: list[str], where: str | None = None) -> pa.Table:
        """Columns of the rows for which a condition in Lance's SQL holds.

        :raises DamagedError: when a file of the table is missing or not what was written.
        """
        with self.reading(table):
            return getattr(self, table).to_table(columns=columns, filter=where)

    def full_text(self, words: str, limit: int, where: str | None = None) -> pa.Table:
        """Columns `id` and `_score` (BM25) of the chunks that hold any of these words, best first."""
        from lance.query import MatchQuery

        try:
            return self.chunks.scanner(
                columns=["id", "_score"],
                full_text_query=MatchQuery(words, "context"),
                filter=where,
                prefilter=where is not None,
                limit=limit,
            ).to_table()
        except LANCE_ERRORS as error:
            self.read("chunks", ["id", "context"])  # is it the table itself?
            self._refuse_if_past(error)
            raise DamagedError(
                f"the full-text index of {self.store.place} is damaged ({lance_message(error)}): "
                "run 'binocle verify --repair'"
            ) from error

    def count_kept(self) -> int:
        """How many chunks have a vector of the encoder before the last switch."""
        with self.reading("chunks"):
            return self.chunks.count_rows(f"{PREVIOUS} IS NOT NULL") if self.head.previous else 0

    @locked_cached_property
    def document_rows(self) -> pa.Table:
        """Every document, without its text."""
        return self.read("documents", [name for name in document_schema().names if name != "text"])

    @locked_cached_property
    def chunk_ids(self) -> pa.Table:
        """Columns `id` and `document` of every chunk, ids ascending."""
        return self.read("chunks", ["id", "document"]).sort_by("id")

    def passing(self, where: Filter) -> Passing:
        """What passes a filter; of the last few it is remembered, for every document's row has to be looked at."""
        found = self._passed.get(where)
        if found is None:
            found = self._passed[where] = self._passing(where)
            for earlier in list(self._passed)[:-_FILTERS]:
                self._passed.pop(earlier, None)
        return found

    def _passing(self, where: Filter) -> Passing:
        rows = self.document_rows.select(["id", "chunks", *COLUMNS]).to_pylist()
        documents = np.sort(np.array([row["id"] for row in rows if row["chunks"] and where.passes(row)], np.int64))
        held = self.chunk_ids["document"].to_numpy()
        return Passing(documents, self.chunk_ids["id"].to_numpy()[isin_sorted(held, documents)])

    def documents_by_id(self, ids: Sequence[int], columns: Sequence[str] | None = None) -> dict[int, dict[str, Any]]:
        return self._by_id("documents", ids, [*(columns or self.document_rows.column_names), "id"])

    def chunks_by_id(self, ids: Sequence[int], columns: Sequence[str]) -> dict[int, dict[str, Any]]:
        return self._by_id("chunks", ids, [*columns, "id"])

    def _by_id(self, table: Table, ids: Sequence[int], columns: list[str]) -> dict[int, dict[str, Any]]:
        """Rows are taken from where they lie: to look for their ids would read all of them for each query."""
        known, places = self._places(table)
        wanted = np.unique(np.asarray(ids, np.int64))
        at = np.searchsorted(known, wanted[isin_sorted(wanted, known)])
        with self.reading(table):
            rows = getattr(self, table).take(places[at], columns=list(dict.fromkeys(columns))).to_pylist()
        return {row["id"]: row for row in rows}

    def _places(self, table: Table) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The ids of all rows, ascending, and where in the table each lies."""
        with self.once:
            if table not in self._placed:
                rows = self.read(table, ["id", "_rowoffset"]).sort_by("id")
                self._placed[table] = rows["id"].to_numpy(), rows["_rowoffset"].to_numpy().astype(np.int64)
            return self._placed[table]

    @locked_cached_property
    def index(self) -> LiveIndex:
        """The vector index of exactly these chunks."""
        published, manifest = self._loaded.index, self._loaded.published
        if manifest is not None and manifest.covers == self.head.rows:
            return LiveIndex(published, None, None)
        live = self.chunk_ids["id"].to_numpy()
        held = np.isin(published.ids, live, assume_unique=True)
        newest = int(published.ids[-1]) if len(published.ids) else -1
        newer = self.read("chunks", ["id", "vector"], f"id > {newest}").sort_by("id")
        tail = FlatIndex(newer["id"].to_numpy(), matrix(newer["vector"], self.head.encoder.dim))
        return LiveIndex(published, None if held.all() else held, tail if len(newer) else None)

    @property
    def published(self) -> IndexManifest | None:
        """What the vector index says of itself; None if there is none that can be read."""
        return self._loaded.published

    @property
    def damage(self) -> DamagedError | None:
        """What is wrong with the vector index: all is searched exactly until the next writer builds it anew."""
        return self._loaded.damage

    @property
    def searched_by(self) -> str:
        """What compares vectors: the CPU, and why, if GPUs were asked for; or how many GPUs."""
        return self._loaded.searched_by

    def take_over(self, earlier: Snapshot) -> None:
        """Have the vector index that an earlier state loaded, if this one has the same, without checking it again.

        Not a damaged one: it may have been put right.
        """
        loaded = vars(earlier).get("_loaded")
        same = earlier.head.parts == self.head.parts and earlier.head.encoder == self.head.encoder
        if same and loaded and earlier.damage is None and not self.store.serve:
            self._loaded = loaded

    @locked_cached_property
    def _loaded(self) -> Loaded:
        nothing = FlatIndex(np.empty(0, np.int64), np.empty((0, self.head.encoder.dim), np.float32))
        if self.head.vectors is None:
            return Loaded(nothing)
        try:
            if self.store.serve:
                return Loaded(*self.store.serve(self.store, self.head), searched_by=self._cpu("a Ray cluster searches"))
            folders = [self.store.place.vectors(name) for name in self.head.parts]
            manifests = [IndexManifest.read(folder, dim=self.head.encoder.dim) for folder in folders]
            shards = [manifest.load(folder) for manifest, folder in zip(manifests, folders, strict=True)]
            if len(shards) > 1:
                found = ShardedIndex(shards), merge_manifests(manifests)
                return Loaded(*found, searched_by=self._cpu("the index is in shards"))
        except DamagedError as error:  # the index is a cache: what it lacks is searched exactly; `verify` reports it
            return Loaded(nothing, damage=error)
        index, searched_by = on_gpus(shards[0]) if self.store.gpu else (shards[0], "the CPU")
        return Loaded(index, manifests[0], searched_by=searched_by)

    def _cpu(self, why: str) -> str:
        return f"the CPU: {why}" if self.store.gpu else "the CPU"

    def batches(self, columns: list[str], *, rows: int = 8_192, where: str | None = None) -> Iterator[pa.RecordBatch]:
        """Columns of every chunk, or of those for which a condition holds, in order of id, in bounded memory."""
        order = self._order(where)
        with self.reading("chunks"):
            if order is None:
                yield from self.chunks.to_batches(columns=columns, batch_size=rows, filter=where, scan_in_order=True)
                return
            for start in range(0, len(order), rows):
                yield from self.chunks.take(order[start : start + rows], columns=columns).select(columns).to_batches()

    def _order(self, where: str | None) -> pa.Array | None:
        """The places in the table of the chunks that `batches` gives, in order of id; None where they lie so.

        They are appended so, but Lance puts the part of a large table that it writes anew behind the others.
        """
        ids = self.read("chunks", ["id"], where)["id"].to_numpy()
        if (ids[1:] > ids[:-1]).all():
            return None
        return self.read("chunks", ["id", "_rowoffset"], where).sort_by("id")["_rowoffset"].combine_chunks()


@dataclass(frozen=True, slots=True)
class LiveIndex:
    """A published index made current: newer rows are searched exactly, deleted ones masked."""

    published: VectorIndex
    held: NDArray[np.bool_] | None  # which of the published rows still exist; None: all
    tail: FlatIndex | None

    def search(
        self, vectors: NDArray[np.float32], k: int, *, allowed: NDArray[np.int64] | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """As `VectorIndex.search`, but `allowed` are ids, ascending and each once."""
        scores, ids = self.published.search(vectors, k, allowed=self._passing(allowed))
        if self.tail is None:
            return scores, ids
        passing_tail = None if allowed is None else isin_sorted(self.tail.ids, allowed)
        tail_scores, tail_ids = self.tail.search(vectors, k, allowed=passing_tail)
        return top_k(np.hstack([scores, tail_scores]), np.hstack([ids, tail_ids]), k)

    def _passing(self, allowed: NDArray[np.int64] | None) -> NDArray[np.bool_] | NDArray[np.int64] | None:
        """Of the published rows those that still exist and are allowed, as `VectorIndex.search` takes them."""
        if allowed is None:
            return self.held
        ids = self.published.ids
        if len(allowed) < len(ids) / _FEW:
            places = np.unique(np.searchsorted(ids, allowed))
            places = places[places < len(ids)]
            places = places[isin_sorted(ids[places], allowed)]
            return places if self.held is None else places[self.held[places]]
        passing = np.isin(ids, allowed, assume_unique=True)
        return passing if self.held is None else self.held & passing

    def reconstruct(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """The vectors of these ids, in their order."""
        if self.tail is None:
            return self.published.reconstruct(ids)
        newer = ids >= self.tail.ids[0]
        vectors = np.empty((len(ids), self.tail.vectors.shape[1]), np.float32)
        vectors[newer] = self.tail.reconstruct(ids[newer])
        if not newer.all():
            vectors[~newer] = self.published.reconstruct(ids[~newer])
        return vectors
