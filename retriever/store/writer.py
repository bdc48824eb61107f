"""The one process that writes: batches staged and committed, both indexes brought up to date, old versions removed."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...core.errors import StoreError
from . import erasure, tombstones
from .commits import Commits
from .derived import benchmark_queries, live_neighbourhood, text_index
from .derived.lexical import LexicalPublisher
from .derived.search_backend import CPU, SearchBackend
from .derived.vector_index import IndexPublisher, is_stale
from .snapshot import Snapshot
from .store import locked, upgrade
from .tables import (
    FULL_TEXT,
    chunk_schema,
    delete,
    document_schema,
    reading,
    rows_among,
    writing,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import lance
    import pyarrow as pa

    from ..models.identity import EncoderId
    from .derived.vector_index import EncoderOf
    from .head import Head
    from .store import Store
    from .tables import TableLocation

_FEW_ROWS = 16  # new rows at most that both full-text indexes lack after a run: searches analyse them
_TIDY_COMMITS = 50  # in a long run: each commit lists all pieces that earlier ones have left


@contextlib.contextmanager
def open_writer(
    store: Store,
    encoder_of: EncoderOf | None = None,
    backend: SearchBackend = CPU,
    earlier: Snapshot | None = None,
) -> Iterator[Writer]:
    """Take the writer's lock, recover from a killed writer, and write until the end of the block.

    :param encoder_of: loads an encoder, to make the queries that measure a vector index.
    :param earlier: a state that was read before. If its vector index is still published, it is not loaded again.
    :raises LockedError: naming the process that writes, after the time of the location's `patience`.
    :raises UntrustedError: when the user neither made nor allowed the index.
    :raises NoIndexError: when the index was removed before this process had the lock.
    """
    store.check_trusted()
    with locked(store.location):
        with writing(store.location):
            store = upgrade(store)
            commits = Commits(store, *store.tagged_head(), backend, earlier)
            commits.recover()
            writer = Writer(commits, encoder_of)
            writer.hide_forgotten_names()
            writer.finish_erasure()
        yield writer


class Writer:
    """Writes rows and indexes. Each `commit` is atomic; nothing is visible before it."""

    def __init__(self, commits: Commits, encoder_of: EncoderOf | None = None) -> None:
        self._commits = commits
        self._location = commits.store.location
        self._next_chunk = 0  # the id after the last staged chunk
        self._note = ""  # of an erasure that another writer had begun
        self.erasure_due: float | None = None  # when deleted rows must be erased, in seconds since 1970
        self.index = IndexPublisher(commits, encoder_of)
        self._words = LexicalPublisher(commits.store)

    @property
    def head(self) -> Head:
        """The committed state."""
        return self._commits.head

    def snapshot(self) -> Snapshot:
        """The committed state, for reading."""
        return self._commits.snapshot()

    def stage(self, chunks: pa.Table) -> None:
        """Write chunk rows that the next `commit` makes visible."""
        with writing(self._location):
            self._commits.check_alone()
            self._commits.follow("chunks", self._commits.table("chunks").write(chunks, mode="append"))
        self._next_chunk = max(self._next_chunk, _next_id(chunks))

    def staged(self, columns: list[str], keys: Sequence[int]) -> pa.Table:
        """Read columns of the chunks with these keys, staged ones included."""
        table = self._commits.table("chunks")
        with reading(table):
            return table.at().to_table(columns=columns, filter=rows_among("key", keys))

    def commit(
        self, *, drop: Sequence[int], documents: pa.Table, replace: Sequence[int] = (), erase: bool = False
    ) -> None:
        """In one commit, remove these documents and their chunks, and add these rows and the staged chunks.

        :param replace: ids of rows among `documents` that replace the present ones; their chunks stay.
        :param erase: also erase the removed rows from the disk; the next writer does, if this process is killed.
        """

        def append(table: TableLocation) -> lance.LanceDataset | None:
            return table.write(documents, mode="append") if len(documents) else None

        self._commit(drop, append, _next_id(documents), replaced=replace, erase=erase)
        # `adopt` does not tidy: no version yet names the fragments that other machines have written for later commits.
        if self.head.commits % _TIDY_COMMITS == 0 and not self.head.erase:
            with writing(self._location):
                self._commits.tidy()

    def adopt(
        self, *, drop: Sequence[int], documents: list[Any], chunks: list[Any], next_document: int, next_chunk: int
    ) -> None:
        """Commit in one step, with the fragments of the two tables that other processes have written."""
        latest = self._commits.latest

        def append(table: TableLocation) -> lance.LanceDataset | None:
            return table.append(documents, latest["documents"]) if documents else None

        with writing(self._location):
            if chunks:
                self._commits.follow("chunks", self._commits.table("chunks").append(chunks, latest["chunks"]))
        self._next_chunk = max(self._next_chunk, next_chunk)
        self._commit(drop, append, next_document)

    def _commit(
        self,
        drop: Sequence[int],
        append: Callable[[TableLocation], lance.LanceDataset | None],
        next_document: int,
        *,
        replaced: Sequence[int] = (),
        erase: bool = False,
    ) -> None:
        with writing(self._location):
            commits = self._commits
            chunks, documents = (commits.open(name) for name in ("chunks", "documents"))
            if drop:
                with reading(commits.table("chunks")):  # do not write to a damaged table
                    chunks.to_table(columns=["id"], filter=rows_among("document", drop))
                delete(chunks, rows_among("document", drop))
                commits.follow("chunks", chunks)
            if drop or replaced:
                delete(documents, rows_among("id", [*drop, *replaced]))
                commits.follow("documents", documents)
            appended = append(commits.table("documents"))
            if appended is not None:
                documents = appended
                commits.follow("documents", documents)
            head = replace(
                self.head,
                documents=documents.version,
                chunks=chunks.version,
                next_document=max(self.head.next_document, next_document),
                next_chunk=max(self.head.next_chunk, self._next_chunk),
                erase=erase or self.head.erase,
            )
            commits.commit(replace(head, rows=head.rows + (head.chunks != self.head.chunks)))

    def replace_rows(self, documents: pa.Table, *, drop: Sequence[int] = ()) -> None:
        """Replace the rows of documents by id, and drop rows without chunks; all chunks stay."""
        with writing(self._location):
            table = self._commits.open("documents")
            delete(table, rows_among("id", [*documents["id"].to_pylist(), *drop]))
            self._commits.follow("documents", table)
            table = self._commits.table("documents").write(documents, mode="append")
            self._commits.follow("documents", table)
            self._commits.commit(replace(self.head, documents=table.version))

    def forget(self, rows: Sequence[dict[str, Any]], *, erase: bool = True) -> str:
        """Remove documents and erase them from the disk; leave a tombstone for each file.

        :returns: the note of `finish`.
        """
        files = [row["path"] for row in rows if row["source"] == "file"]
        table = tombstones.tombstones(files, self.head.tombstone_key, self.head.next_document)
        self.commit(drop=[row["id"] for row in rows], documents=table, erase=erase)
        return self._erase() if erase else self.finish(new_rows=False)

    def hide_forgotten_names(self) -> None:
        """Give an index of an earlier version a key, and put tombstones for its rows of forgotten files.

        The key is committed with the tombstones, so that a kill does no harm.
        """
        if self.head.tombstone_key:
            return
        self._commits.head = replace(self.head, tombstone_key=tombstones.new_key())
        rows = self.snapshot().document_rows.to_pylist()
        if forgotten := [row for row in rows if row["reason"] == tombstones.LEGACY_REASON]:
            self._note = self.forget(forgotten)

    def finish_erasure(self) -> None:
        """Finish the erasure of a killed writer, or do an erasure that is due; the next `finish` returns its note."""
        self.erasure_due = erasure.due(self._location)
        if self.head.erase:
            self._note = self._erase()
        elif self.erasure_due is not None and self.erasure_due <= time.time():
            self.erase_deleted()

    def promise_erasure(self, moment: float) -> None:
        """Erase deleted rows by this moment, in seconds since 1970."""
        self.erasure_due = erasure.promise(self._location, moment)

    def erase_deleted(self) -> None:
        """Erase the rows that were deleted and not erased yet; the next `finish` returns its note."""
        if self.erasure_due is not None:
            self.commit(drop=[], documents=document_schema().empty_table(), erase=True)
            self._note = self._erase()

    def _erase(self) -> str:
        """Erase all deleted rows from the disk, then commit that none are left."""
        benchmark_queries.forget(self._location)
        note = self.finish(rebuild=True)
        if self.erasure_due is not None:
            erasure.clear(self._location)
            self.erasure_due = None
        return note

    def replace_vectors(
        self,
        chunks: Iterable[pa.RecordBatch],
        encoder: EncoderId,
        previous: EncoderId | None,
        *,
        erase: bool = False,
        encoder_of: EncoderOf | None = None,
    ) -> str:
        """Replace all chunks by these rows, with vectors of another encoder, in one commit.

        :param chunks: the present chunks, in their order, under the same ids.
        :param previous: the encoder of their previous vectors, None if they have none.
        :param erase: leave nothing of the old vectors on the disk, even if a reader must then open the index again.
        :param encoder_of: loads the new encoder, the writer's own unless given.
        :returns: a note if the vector index no longer meets its requirements, or was repaired; else "".
        """
        with writing(self._location):
            schema = chunk_schema(encoder.dim, previous=previous is not None, symbols=self.snapshot().has_symbols)
            table = self._commits.table("chunks").write(chunks, schema=schema, mode="overwrite")
            self._commits.follow("chunks", table)
            table.create_scalar_index("context", "INVERTED", **FULL_TEXT)
            self._commits.follow("chunks", table)
            head = replace(
                self.head,
                chunks=table.version,
                rows=self.head.rows + 1,
                encoder=encoder,
                previous=previous,
                neighbours=None,
                erase=erase or self.head.erase,
            )
            after = Snapshot(self._commits.store, head, self._commits.backend)
            if erase:
                benchmark_queries.forget(self._location, everything=True)
            note = ""
            if after.chunks.count_rows():
                note = self.index.renew(after, encoder_of)
            else:
                self._commits.commit(replace(head, vectors=None, shards=()))
            self._renew_neighbours(rebuild=True)
            self._commits.tidy()
        return note

    def replace_encoder(self, encoder: EncoderId) -> None:
        """Name another encoder with the same vectors of documents: an adapter of the present one, or its base."""
        with writing(self._location):
            self._commits.commit(replace(self.head, encoder=encoder))

    def drop_orphans(self, documents: Sequence[int]) -> None:
        """Remove these documents, and all chunks without a row of their document."""
        snapshot = self.snapshot()
        owners = set(snapshot.chunk_ids["document"].to_pylist()) - set(snapshot.document_rows["id"].to_pylist())
        self.commit(drop=[*documents, *owners], documents=document_schema().empty_table())

    def finish(self, *, rebuild: bool = False, new_rows: bool = True) -> str:
        """Update both full-text indexes, renew the vector index if it is stale, and remove old versions.

        :param rebuild: build the indexes anew from the tables.
        :param new_rows: without them, the full-text indexes are current.
        :returns: a note if the vector index was damaged, or no longer met its requirements; else "".
        """
        notes, self._note = [self._note], ""
        with self._naming_unerased(), writing(self._location):
            if new_rows:
                self._index_text(rebuild=rebuild)
            snapshot = self.snapshot()
            if snapshot.damage and not rebuild:
                notes.append(f"built the vector index anew from the store, because {snapshot.damage}")
            if rebuild or snapshot.damage or is_stale(snapshot):
                notes.append(self.index.renew(snapshot))
            self._renew_neighbours(rebuild=rebuild)
            self._commits.tidy()
        return "; ".join(filter(None, notes))

    @contextlib.contextmanager
    def _naming_unerased(self) -> Iterator[None]:
        """Add to an error that deleted rows wait to be erased, if so: they are in no search any more."""
        try:
            yield
        except StoreError as error:
            if not self.head.erase:
                raise
            unerased = "deleted texts are still on the disk: the next command that writes tries to erase them again"
            raise type(error)(f"{error}; {unerased}") from error

    def _renew_neighbours(self, *, rebuild: bool) -> None:
        """Compute the neighbours of the passages again, and commit them, if many passages changed."""
        snapshot = self.snapshot()
        name = snapshot.head.neighbours
        if not live_neighbourhood.are_useful(snapshot.chunks.count_rows()):
            name = None
        elif rebuild or live_neighbourhood.is_stale(snapshot):
            name = live_neighbourhood.publish(snapshot, snapshot.index)
        if name != self.head.neighbours:
            self._commits.commit(replace(self.head, neighbours=name))

    def _index_text(self, *, rebuild: bool) -> None:
        snapshot, table = self.snapshot(), self._commits.open("chunks")
        is_current = snapshot.has_current_text()
        if rebuild or not (is_current and snapshot.has_current_words()) or text_index.new_rows(table) > _FEW_ROWS:
            words = self._words.update(snapshot, rebuild=rebuild)
            text_index.update(table, rebuild=rebuild or not is_current or bool(snapshot.damaged_text()))
            self._commits.commit_rearranged("chunks", table, words=words)


def _next_id(table: pa.Table) -> int:
    return max((number + 1 for number in table["id"].to_pylist()), default=0)
