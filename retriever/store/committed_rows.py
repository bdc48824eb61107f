"""The rows of one committed state: documents and chunks, read by id, by offset or in order."""

from __future__ import annotations

import contextlib
from threading import RLock
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core.arrays import distinct, isin_sorted
from ...core.errors import DamagedError, StoreError, panics_as_errors
from ...core.lazy import locked_cached_property
from ...core.words import spellings
from . import tombstones
from .derived.fragment_columns import FragmentColumns
from .derived.recent_rows import RecentRows
from .tables import LANCE_ERRORS, PREVIOUS, SYMBOLS, check_pages, document_schema, open_table, reading_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import lance

    from ...core.arrays import Ids, Positions
    from .head import Head
    from .store import Store

    Table = Literal["documents", "chunks"]

_PASSAGE = ("document", "heading", "text", "char_start", "char_end", "line_start", "line_end", "page")
_CITED_DOCUMENT = ("path", "sha256", "title", "format", "metadata", "source")
_KEPT_DOCUMENTS = 100_000  # without their texts 200 to 500 bytes each
_LAST_ID = np.iinfo(np.int64).max
_Rows = TypeVar("_Rows", pa.Table, pa.RecordBatch)
_NULLABLE = frozenset(("page", SYMBOLS, PREVIOUS))


class CommittedRows:
    """The rows that one state of the store names. The indexes in `derived` are made of these, and of nothing else."""

    def __init__(self, store: Store, head: Head) -> None:
        self.store = store
        self.head = head
        self.lock = RLock()
        self._offsets: dict[str, tuple[Ids, Positions]] = {}
        self._numbers = {name: FragmentColumns() for name in ("documents", "chunks")}
        self._locations = {name: store.location.table(name) for name in ("documents", "chunks")}

    @locked_cached_property
    def documents(self) -> lance.LanceDataset:
        """The documents table."""
        return self._opened("documents", self.head.documents)

    @locked_cached_property
    def chunks(self) -> lance.LanceDataset:
        """The chunks table.

        :raises DamagedError: when its vectors have another dimension than HEAD.json says.
        """
        location, dim = self._locations["chunks"], self.head.encoder.dim
        table = self._opened("chunks", self.head.chunks)
        if table.schema.field("vector").type.list_size != dim:
            raise DamagedError(f"{location} does not hold vectors of dimension {dim}, as HEAD.json says: index again")
        return table

    @locked_cached_property
    def passage_count(self) -> int:
        """The number of chunks. Lance counts anew at each call, which takes a fifth of a millisecond and more."""
        count: int = self.chunks.count_rows()
        return count

    def _opened(self, name: Table, version: int) -> lance.LanceDataset:
        with self.reading(name):
            table = open_table(self._locations[name], version)
            if not self.store.trusted:
                check_pages(table)
            return table

    def check_pages(self) -> None:
        """Check the descriptions of all pages of the tables. An untrusted index is checked so before it is read.

        :raises DamagedError: when one is damaged.
        """
        with self.reading("documents"):
            check_pages(self.documents)
        with self.reading("chunks"):
            check_pages(self.chunks)

    @property
    def has_symbols(self) -> bool:
        """Whether the chunks table has the names of definitions; a table of an earlier version has none."""
        schema = self.chunks.schema
        return SYMBOLS in schema.names and schema.field(SYMBOLS).type == pa.list_(pa.string())

    @contextlib.contextmanager
    def reading(self, table: Table) -> Iterator[None]:
        """Turn Lance's errors into ours. A missing file is no damage if a later commit tidied it away.

        :raises StoreError: then; a retriever reads the next state instead.
        """
        try:
            with panics_as_errors():
                yield
        except StoreError as error:
            self._refuse_if_outdated(error)
            raise
        except LANCE_ERRORS as error:
            ours = reading_error(self._locations[table], error)
            self._refuse_if_outdated(ours)
            raise ours from error

    def _refuse_if_outdated(self, error: Exception) -> None:
        """Raise a StoreError if a file is missing and another state was committed since."""
        if "not found" in str(error).lower() and self.store.head() != self.head:
            raise StoreError(
                f"{self.store.location} was written to meanwhile, and what was being read is gone: run it again"
            ) from error

    def read(self, table: Table, columns: list[str], where: str | None = None) -> pa.Table:
        """Read columns of the rows for which a condition in Lance's SQL holds.

        :raises DamagedError: when a file of the table is missing or not what was written.
        """
        with self.reading(table):
            return _without_nulls(getattr(self, table).to_table(columns=columns, filter=where))

    @locked_cached_property
    def document_rows(self) -> pa.Table:
        """All documents, without their texts."""
        rows = self._rows
        return rows.filter(pc.not_equal(rows["source"], tombstones.SOURCE)).combine_chunks()

    def rows_at(self, paths: Sequence[str], columns: list[str]) -> list[dict[str, Any]]:
        """Return these columns of the documents with these paths, of parts of these files, perhaps of a few others."""
        with self.reading("documents"), self.lock:
            offsets = self._numbers["documents"].offsets_of(self.documents, "path", paths) if paths else ()
            return self.documents.take(offsets, columns=columns).to_pylist() if len(offsets) else []

    @locked_cached_property
    def tombstones(self) -> dict[str, int]:
        """Forgotten files: hash of the path -> id of the row."""
        rows = self._rows.filter(pc.equal(self._rows["source"], tombstones.SOURCE))
        return dict(zip(rows["path"].to_pylist(), rows["id"].to_pylist(), strict=True))

    def tombstone_of(self, path: str) -> int | None:
        """Return the id of a forgotten file's row; None if the file was not forgotten."""
        return self.tombstones.get(tombstones.digest(path, self.head.tombstone_key)) if self.tombstones else None

    def is_forgotten(self, path: str) -> bool:
        """Whether the file with this name was forgotten, however its accents are written."""
        return any(self.tombstone_of(name) is not None for name in spellings(path))

    @locked_cached_property
    def _rows(self) -> pa.Table:
        return self.read("documents", [name for name in document_schema().names if name != "text"])

    @locked_cached_property
    def documents_in_order(self) -> Positions:
        """The positions of `document_rows` in order of path."""
        order: Positions = pc.sort_indices(
            self.document_rows, sort_keys=[("path", "ascending"), ("source", "ascending")]
        ).to_numpy()
        return order

    @locked_cached_property
    def chunk_ids(self) -> pa.Table:
        """Columns `id` and `document` of all chunks, ids ascending."""
        ids, offsets = self._row_offsets("chunks")
        return pa.table({"id": _column(ids), "document": _column(self.numbers("chunks", "document")[offsets])})

    @locked_cached_property
    def _chunks_by_document(self) -> tuple[Ids, Ids]:
        """The documents of all chunks, ascending, and the chunk of each."""
        owners, ids = self.chunk_ids["document"].to_numpy(), self.chunk_ids["id"].to_numpy()
        order = np.argsort(owners, kind="stable")
        return owners[order], ids[order]

    def chunks_of(self, documents: Ids) -> Ids:
        """Return the chunks of these documents, ascending."""
        owners, chunks = self._chunks_by_document
        starts = np.searchsorted(owners, documents)
        counts = np.searchsorted(owners, documents, side="right") - starts
        offsets = np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        return np.sort(chunks[offsets])

    def documents_of(self, chunks: Ids) -> Ids:
        """Return the document of each of these chunks."""
        rows = self.chunk_ids
        documents: Ids = rows["document"].to_numpy()[np.searchsorted(rows["id"].to_numpy(), chunks)]
        return documents

    def count_previous(self) -> int:
        """Count the chunks with a vector of the encoder before the last switch."""
        with self.reading("chunks"):
            return int(self.chunks.count_rows(f"{PREVIOUS} IS NOT NULL")) if self.head.previous else 0

    def documents_by_id(self, ids: Sequence[int], columns: Sequence[str] | None = None) -> dict[int, dict[str, Any]]:
        """Return the rows of these documents by id; all columns but `text` unless `columns` names them.

        Once `document_rows` is read, it answers: Lance takes a millisecond and more.
        """
        names = columns or self.document_rows.column_names
        if "document_rows" not in vars(self) or "text" in names:
            return self._by_id("documents", ids, names)
        known, order = self._documents_by_id
        requested = distinct(np.asarray(ids, np.int64))
        positions = order[np.searchsorted(known, requested[isin_sorted(requested, known)])]
        rows = self.document_rows.take(_column(positions)).select(list(dict.fromkeys(["id", *names]))).to_pylist()
        return {row["id"]: row for row in rows}

    def keep_documents(self) -> None:
        """Read the `document_rows` if they are few enough for the memory of a process that searches."""
        with self.reading("documents"):
            count = self.documents.count_rows()
        if count <= _KEPT_DOCUMENTS:
            _ = self.document_rows

    @locked_cached_property
    def _documents_by_id(self) -> tuple[Ids, Positions]:
        """The ids of `document_rows`, ascending, and the position of each."""
        ids = self.document_rows["id"].to_numpy()
        order = np.argsort(ids, kind="stable")
        return ids[order], order

    def chunks_by_id(self, ids: Sequence[int], columns: Sequence[str]) -> dict[int, dict[str, Any]]:
        """Return these columns of the rows of these chunks by id."""
        return self._by_id("chunks", ids, columns)

    def _by_id(self, table: Table, ids: Sequence[int], columns: Sequence[str]) -> dict[int, dict[str, Any]]:
        known, indices = self._row_offsets(table)[0], self._indices(table, ids)
        names = [name for name in columns if name != "id"]  # which is known, and would cost a read
        rows = self._taken(table, indices, names).to_pylist()
        return {number: {"id": number, **row} for number, row in zip(known[indices].tolist(), rows, strict=True)}

    @locked_cached_property
    def passage_columns(self) -> tuple[str, ...]:
        """The columns of passages that searches read."""
        return (*_PASSAGE, *([SYMBOLS] if self.has_symbols else []))

    @locked_cached_property
    def cited_documents(self) -> RecentRows:
        """The columns of documents that hits cite."""
        return RecentRows(lambda ids: self.documents_by_id(ids, _CITED_DOCUMENT))

    @locked_cached_property
    def document_texts(self) -> RecentRows:
        """The texts of documents."""
        return RecentRows(lambda ids: self.documents_by_id(ids, ["text"]))

    def take(self, table: Table, ids: Sequence[int] | Ids, columns: list[str]) -> pa.Table:
        """Read columns of the rows with these ids, in order of id.

        The rows are taken by their offset: a condition on ids would read all of them for each query.
        """
        return self._taken(table, self._indices(table, ids), columns)

    def _indices(self, table: Table, ids: Sequence[int] | Ids) -> Positions:
        """Return the positions of these ids among the ascending ids of the table; ids that it lacks are left out."""
        known, _ = self._row_offsets(table)
        requested = distinct(np.asarray(ids, np.int64))
        indices: Positions = np.searchsorted(known, requested[isin_sorted(requested, known)])
        return indices

    def _taken(self, table: Table, indices: Positions, columns: Sequence[str]) -> pa.Table:
        _, offsets = self._row_offsets(table)
        with self.reading(table):
            return _without_nulls(getattr(self, table).take(offsets[indices], columns=list(dict.fromkeys(columns))))

    def numbers(self, table: Table, column: str) -> Ids:
        """Return a column of whole numbers in the order of the table, shape (rows,)."""
        with self.reading(table), self.lock:
            return self._numbers[table].read(getattr(self, table), column)

    def newer(self, newest: int, columns: list[str]) -> pa.Table:
        """Return columns of the chunks with higher ids than `newest`, in order of id."""
        ids = self.sorted_ids
        return self.take("chunks", ids[np.searchsorted(ids, newest, side="right") :], columns)

    def _row_offsets(self, table: Table) -> tuple[Ids, Positions]:
        """Return the ids of all rows, ascending, and the offset of each in the table."""
        with self.lock:
            if table not in self._offsets:
                ids = self.numbers(table, "id")
                order = np.argsort(ids, kind="stable")  # fast, since they are nearly always in order
                self._offsets[table] = ids[order], order
            return self._offsets[table]

    @property
    def sorted_ids(self) -> Ids:
        """The ids of all chunks, ascending."""
        return self._row_offsets("chunks")[0]

    def batches(
        self, columns: list[str], *, rows: int = 8_192, first: int = 0, last: int = _LAST_ID
    ) -> Iterator[pa.RecordBatch]:
        """Read columns of the chunks with ids from `first` to `last`, in order of id and in bounded memory."""
        ids, offsets = self._row_offsets("chunks")
        offsets = offsets[np.searchsorted(ids, first) : np.searchsorted(ids, last, side="right")]
        with self.reading("chunks"):
            # Rows are appended in order, but Lance puts the rewritten part of a large table behind the rest.
            if len(offsets) == len(ids) and (offsets[1:] > offsets[:-1]).all():
                whole = self.chunks.to_batches(columns=columns, batch_size=rows, scan_in_order=True)
                yield from map(_without_nulls, whole)
                return
            for start in range(0, len(offsets), rows):
                batch = offsets[start : start + rows]
                yield from _without_nulls(self.chunks.take(batch, columns=columns).select(columns)).to_batches()

    def adopt(self, tables: Mapping[str, lance.LanceDataset]) -> None:
        """Read the tables that a writer has open, if this state names them."""
        for name, table in tables.items():
            if table.version == getattr(self.head, name):
                vars(self)[name] = table.checkout_version(table.version)

    def reuse_rows(self, earlier: CommittedRows) -> None:
        """Reuse rows of an earlier state that have not changed."""
        self._numbers = {name: columns.copy() for name, columns in earlier._numbers.items()}
        if not self.is_same_index(earlier):
            return
        head, before = self.head, earlier.head
        for names, is_same in (
            (("documents", "_rows", "document_rows", "tombstones"), head.documents == before.documents),
            (("chunks",), head.chunks == before.chunks),
            (("chunk_ids",), head.rows == before.rows),
        ):
            vars(self).update({name: vars(earlier)[name] for name in names if is_same and name in vars(earlier)})

    def is_same_index(self, earlier: CommittedRows) -> bool:
        """Tell whether both are states of one index, and not of another in the same place."""
        return bool(self.head.tombstone_key) and self.head.tombstone_key == earlier.head.tombstone_key


def _column(numbers: Ids) -> pa.Array:
    """Return numbers as a column of Arrow, without a copy. `pa.array` would import numpy.ma."""
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(np.ascontiguousarray(numbers))])


def _without_nulls(rows: _Rows) -> _Rows:
    """Check that required columns have no nulls, and return the rows.

    A damaged manifest can name a column that is in no file. Lance then fills it with nulls.

    :raises ValueError: when a value is missing that each row has.
    """
    for name in rows.schema.names:
        if name not in _NULLABLE and rows.column(name).null_count:
            raise ValueError(f"rows without {name}")
    return rows
