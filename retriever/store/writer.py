"""The one process that writes: batches staged and committed, indexes brought up to date, old versions tidied away."""

from __future__ import annotations

import math
import shutil
import time
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...core.errors import InputError, LockedError
from . import benchmark_queries as questions
from . import vector_index as vectors
from .location import KEEP_SECONDS
from .snapshot import Snapshot
from .tables import (
    FULL_TEXT,
    LANCE_ERRORS,
    check,
    chunk_schema,
    delete,
    document_schema,
    open_table,
    reading,
    rows_among,
    writing,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import lance

    from ...indexes.base import VectorIndex
    from ...indexes.manifest import IndexMetadata
    from ...indexes.registry import IndexSpec
    from ...indexes.tuning.benchmark import Requirements
    from ...indexes.tuning.optimize import TuningResult
    from ..models.identity import EncoderId
    from .benchmark_queries import BenchmarkQueries
    from .head import Head
    from .store import Store
    from .tables import TableLocation
    from .vector_index import EncoderOf

_TIDY_COMMITS = 500  # in a long run: each version of a table lists all the pieces that commits have left
_KEEP_VERSIONS = timedelta(seconds=KEEP_SECONDS)
ASIDE = "switching"  # where a switch keeps the vectors it has made: no use to any other writer


class Writer:
    """The one process that writes. Each `commit` is atomic; nothing is visible before it."""

    def __init__(self, store: Store, encoder_of: EncoderOf | None = None) -> None:
        self._store = store
        self.encoder_of = encoder_of
        self.head, self._tag = store.tagged_head()
        self._latest = {"documents": self.head.documents, "chunks": self.head.chunks}  # versions that are this writer's
        self._staged = 0  # the id after the last staged chunk
        self._checked: dict[str, frozenset[str]] = {"documents": frozenset(), "chunks": frozenset()}
        self._note = ""  # of an erasure that another writer had begun
        if store.place.outlives:
            self._move(self.head)  # from now on, what a writer that was taken for dead commits is refused
        self._recover()
        if self.head.erase:
            self._note = self._erase()

    def _recover(self) -> None:
        """Take tables that a killed writer left ahead of HEAD back to it."""
        versions: dict[str, Any] = {}
        for name in ("documents", "chunks"):
            committed = getattr(self.head, name)
            table = open_table(self._table(name), committed)
            if table.latest_version != committed:
                table.restore()  # type: ignore[no-untyped-call]
                versions[name] = table.version
        if versions:
            self._move(replace(self.head, **versions))

    def snapshot(self) -> Snapshot:
        return Snapshot(self._store, self.head)

    def _table(self, name: str) -> TableLocation:
        return self._store.place.table(name)

    def _follow(self, name: str, table: lance.LanceDataset) -> None:
        """Take note of one more version of a table.

        :raises LockedError: when there is another in between: rows of a writer that was taken for dead.
        """
        if table.version > self._latest[name] + 1:
            raise self._not_alone()
        self._latest[name] = table.version

    def _rearranged(self, name: str, table: lance.LanceDataset) -> None:
        """Commit a version of a table that holds the rows of HEAD's in another way.

        :raises LockedError: when it holds others: those of a writer that was taken for dead.
        """
        before = getattr(self.head, name)
        if table.version != before:
            if table.count_rows() != open_table(self._table(name), before).count_rows():
                raise self._not_alone()
            moved: dict[str, Any] = {name: table.version}
            self._move(replace(self.head, **moved))

    def _not_alone(self) -> LockedError:
        return LockedError(f"{self._store.place} is being written by another process as well: run it again")

    def _check_turn(self) -> None:
        """Make sure that no other has written meanwhile, who took this one for dead.

        :raises LockedError: when one has.
        """
        if self._store.tagged_head()[1] != self._tag:
            raise self._not_alone()

    def stage(self, chunks: pa.Table) -> None:
        """Write chunk rows that the next `commit` makes visible."""
        with writing(self._store.place):
            self._check_turn()
            self._follow("chunks", self._table("chunks").write(chunks, mode="append"))
        self._staged = max(self._staged, _next(chunks))

    def commit(self, *, drop: Sequence[int], documents: pa.Table, erase: bool = False) -> None:
        """As one step: remove the documents with these ids and their chunks, add these rows and what was staged.

        :param erase: have what is removed erased by whoever writes next, should this process be killed before it is.
        """

        def added(table: TableLocation) -> lance.LanceDataset | None:
            return table.write(documents, mode="append") if len(documents) else None

        self._commit(drop, added, _next(documents), erase=erase)
        # `adopt` does not: what other machines have written for a later one is named by no version yet.
        if self.head.commits % _TIDY_COMMITS == 0 and not self.head.erase:
            with writing(self._store.place):
                self._tidy()

    def adopt(
        self, *, drop: Sequence[int], documents: list[Any], chunks: list[Any], next_document: int, next_chunk: int
    ) -> None:
        """As one step: as `commit`, with rows that others have written as fragments of the two tables."""

        def added(table: TableLocation) -> lance.LanceDataset | None:
            return table.append(documents, self._latest["documents"]) if documents else None

        with writing(self._store.place):
            if chunks:
                self._follow("chunks", self._table("chunks").append(chunks, self._latest["chunks"]))
        self._staged = max(self._staged, next_chunk)
        self._commit(drop, added, next_document)

    def _commit(
        self,
        drop: Sequence[int],
        added: Callable[[TableLocation], lance.LanceDataset | None],
        next_document: int,
        *,
        erase: bool = False,
    ) -> None:
        with writing(self._store.place):
            chunks, rows = open_table(self._table("chunks"), self._latest["chunks"]), self.snapshot().documents
            if drop:
                self.snapshot().read(
                    "chunks", ["id"], rows_among("document", drop)
                )  # a damaged table is not written to
                delete(chunks, rows_among("document", drop))
                self._follow("chunks", chunks)
                delete(rows, rows_among("id", drop))
                self._follow("documents", rows)
            written = added(self._table("documents"))
            if written is not None:
                rows = written
                self._follow("documents", rows)
            head = replace(
                self.head,
                documents=rows.version,
                chunks=chunks.version,
                next_document=max(self.head.next_document, next_document),
                next_chunk=max(self.head.next_chunk, self._staged),
                erase=erase or self.head.erase,
            )
            self._move(replace(head, rows=head.rows + (head.chunks != self.head.chunks)))

    def staged(self, columns: list[str], keys: Sequence[int]) -> pa.Table:
        """Columns of the chunks with these keys, those that are only staged included."""
        table = self._table("chunks")
        with reading(table):
            return table.at().to_table(columns=columns, filter=rows_among("key", keys))

    def replace_rows(self, documents: pa.Table, *, drop: Sequence[int] = ()) -> None:
        """Replace documents' own rows, by id, and drop rows that have no chunks; all chunks stay."""
        with writing(self._store.place):
            table = self.snapshot().documents
            delete(table, rows_among("id", [*documents["id"].to_pylist(), *drop]))
            self._follow("documents", table)
            table = self._table("documents").write(documents, mode="append")
            self._follow("documents", table)
            self._move(replace(self.head, documents=table.version))

    def forget(self, rows: Sequence[dict[str, Any]], reason: str, *, erase: bool = True) -> str:
        """Remove documents, leave a row that says why for those that are files, and erase them from the disk.

        Gives the line that `finish` gives.
        """
        kept = [
            {**row, "id": self.head.next_document + place, "state": "skipped", "reason": reason, "chunks": 0}
            for place, row in enumerate(row for row in rows if row["source"] == "file")
        ]
        blank = {"title": "", "metadata": "{}", "text": ""}
        table = pa.Table.from_pylist([{**row, **blank} for row in kept], document_schema())
        self.commit(drop=[row["id"] for row in rows], documents=table, erase=erase)
        return self._erase() if erase else self.finish()

    def _erase(self) -> str:
        """Leave nothing of what was deleted on the disk, as HEAD demands until it is done."""
        questions.forget(self._store.place)
        return self.finish(rebuild=True)

    def replace_vectors(
        self,
        chunks: Iterable[pa.RecordBatch],
        encoder: EncoderId,
        previous: EncoderId | None,
        *,
        erase: bool = False,
    ) -> str:
        """As one step: put these rows in the place of all chunks, with vectors of another encoder.

        Gives a line that says so if the vector index no longer meets what was demanded of it, or was mended.

        :param chunks: the chunks there are, in their order, under the same ids.
        :param previous: the encoder of their previous vectors, None if they have none.
        :param erase: leave nothing of the vectors that were there, even if a reader must then open the index again.
        """
        with writing(self._store.place):
            schema = chunk_schema(encoder.dim, keeps=previous is not None)
            table = self._table("chunks").write(chunks, schema=schema, mode="overwrite")
            self._follow("chunks", table)
            table.create_scalar_index("context", "INVERTED", **FULL_TEXT)
            self._follow("chunks", table)
            head = replace(
                self.head,
                chunks=table.version,
                rows=self.head.rows + 1,
                encoder=encoder,
                previous=previous,
                erase=erase or self.head.erase,
            )
            after = Snapshot(self._store, head)
            if erase:
                questions.forget(self._store.place, everything=True)
            note = ""
            if after.chunks.count_rows():
                note = self._renew(after)
            else:
                self._move(replace(head, vectors=None, shards=()))
            self._tidy()
        return note

    def _renew(self, snapshot: Snapshot) -> str:
        """Commit a state with a vector index of all its rows; queries are kept after that, as those of what is there.

        Gives what there is to say of it.
        """
        head, note, asked = vectors.renewed(snapshot, self.head, self.encoder_of)
        self._move(head)
        if asked:
            questions.store_queries(self._store.place, asked, head.encoder, alone=False)
        return note

    def drop_orphans(self, documents: Sequence[int]) -> None:
        """Remove these documents, and every chunk whose document is not in the table."""
        snapshot = self.snapshot()
        owners = set(snapshot.chunk_ids["document"].to_pylist()) - set(snapshot.document_rows["id"].to_pylist())
        self.commit(drop=[*documents, *owners], documents=document_schema().empty_table())

    def finish(self, *, rebuild: bool = False) -> str:
        """Bring the full-text index up to date, the vector index too if it is stale, and tidy away old versions.

        Gives a line that says so if the vector index was damaged and has been built anew, or no longer met what was
        demanded of it.
        """
        notes, self._note = [self._note], ""
        with writing(self._store.place):
            self._index_text(rebuild=rebuild)
            snapshot = self.snapshot()
            if snapshot.damage and not rebuild:
                notes.append(f"built the vector index anew from the store, because {snapshot.damage}")
            if rebuild or snapshot.damage or vectors.is_stale(snapshot):
                notes.append(self._renew(snapshot))
            self._tidy()
        return "; ".join(filter(None, notes))

    def optimize(
        self,
        demand: Requirements,
        asked: BenchmarkQueries,
        *,
        kinds: Sequence[str] = (),
        tell: Callable[[str], None] = lambda _: None,
    ) -> TuningResult:
        """Publish the vector index that meets a demand fastest; if none does, leave all as it is."""
        with writing(self._store.place):
            outcome, head = vectors.chosen(self.snapshot(), demand, asked, kinds=kinds, tell=tell)
            if outcome.met:
                self._move(head)
                questions.store_queries(self._store.place, asked, head.encoder)
            self._tidy()
            return outcome

    def build_index(self, spec: IndexSpec, settle: Callable[[VectorIndex], IndexMetadata] | None = None) -> None:
        """Publish a vector index of this kind in the place of the one there is, which readers keep while they use it.

        :param settle: is given the index as it was written and read again. What it raises prevents the publication.
        """
        spec = spec.check(self.head.encoder.dim)
        with writing(self._store.place):
            self._move(vectors.built(self.snapshot(), spec, settle))
            self._tidy()

    def amend_index(self, settled: IndexMetadata) -> None:
        """Publish the vector index there is with other search parameters or measurements."""
        if self.head.vectors is None:
            raise InputError("there is no vector index yet: index something first")
        with writing(self._store.place):
            self._move(vectors.amended(self.snapshot(), settled))
            self._tidy()

    def _index_text(self, *, rebuild: bool) -> None:
        table = self.snapshot().chunks
        if not rebuild:
            table.optimize.optimize_indices()
        if rebuild or not _splits_as_now(table):
            table.create_scalar_index("context", "INVERTED", replace=True, **FULL_TEXT)
        self._rearranged("chunks", table)

    def _tidy(self) -> None:
        """Merge small fragments when there are many, and remove versions and indexes that no reader can be at.

        Where HEAD says to erase, nothing of deleted rows is left, even if a reader must then open the index again.
        """
        snapshot, erase = self.snapshot(), self.head.erase
        keep = timedelta(0) if erase else _KEEP_VERSIONS
        for name, table in (("documents", snapshot.documents), ("chunks", snapshot.chunks)):
            if erase or len(table.get_fragments()) > 32:
                table.optimize.compact_files(materialize_deletions=True, materialize_deletions_threshold=0.0)
                self._rearranged(name, table)
            self._check_turn()
            # What no version names is of a killed writer: there is one at a time, and this is it. Where a writer may
            # be taken for dead while it lives, Lance keeps such files for seven days: they may be the next one's.
            table.cleanup_old_versions(keep, delete_unverified=erase or not self._store.place.outlives)
        self._store.place.tidy(self.head.parts, math.inf if erase else time.time() - keep.total_seconds())
        shutil.rmtree(self._store.path / ASIDE, ignore_errors=True)
        if erase:
            self._move(replace(self.head, erase=False))

    def _move(self, head: Head) -> None:
        """The commit itself."""
        for name in ("documents", "chunks"):
            version = getattr(head, name)
            if version != getattr(self.head, name):
                self._checked[name] = check(self._table(name), version, self._checked[name])
        for name in set(self.head.parts).difference(head.parts):
            self._store.place.supersede(name)
        head = replace(head, commits=self.head.commits + 1)
        self._tag = head.write(self._store.place, over=self._tag)
        self.head = head
        self._latest = {"documents": head.documents, "chunks": head.chunks}


def _splits_as_now(table: lance.LanceDataset) -> bool:
    """Whether the full-text index takes text apart as one made now would; an earlier version's left out more words."""
    try:
        segments = table.stats.index_stats("context_idx")["segments"]
    except LANCE_ERRORS:
        return True  # it is damaged, which `verify` says and mends
    made = [segment["params"] for segment in segments if segment]  # one of no rows says nothing
    return all({name: how.get(name) for name in FULL_TEXT} == FULL_TEXT for how in made)


def _next(table: pa.Table) -> int:
    return max(table["id"].to_pylist(), default=-1) + 1
