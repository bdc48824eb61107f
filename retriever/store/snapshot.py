"""One committed state of an index, for reading: its rows, its full-text index and its vector index."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from threading import RLock
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core.arrays import isin_sorted
from ...core.errors import DamagedError, StoreError, panics_as_errors
from ...core.lazy import locked_cached_property
from ...indexes.flat import FlatIndex
from . import tombstones
from .derived import lexical, neighbours, text_checksums
from .derived.fragment_columns import FragmentColumns
from .derived.live_index import LiveIndex, LoadedIndex, load_index
from .derived.recent_rows import RecentRows
from .derived.relevance_scale import Scale, scale_of
from .derived.search_backend import CPU, SearchBackend
from .tables import (
    LANCE_ERRORS,
    PREVIOUS,
    SYMBOLS,
    check_pages,
    document_schema,
    lance_message,
    matrix,
    open_table,
    reading_error,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import lance

    from ...core.arrays import Ids, Mask, Positions
    from ...indexes.inverted.lexical_index import LexicalIndex
    from ...indexes.manifest import IndexManifest
    from .derived.neighbours import LiveNeighbourhood
    from .derived.symbols import PassageSymbols
    from .filters.columns import Carried, DocumentColumns
    from .filters.filter import Filter
    from .head import Head
    from .store import Store

    Table = Literal["documents", "chunks"]

_CACHED_FILTERS = 8
_PASSAGE_TEXT = ("document", "heading", "text")
_PASSAGE_PLACE = ("char_start", "char_end", "line_start", "line_end", "page")
_CITED_DOCUMENT = ("path", "sha256", "title", "format", "metadata", "source")
_LAST_ID = np.iinfo(np.int64).max
_Rows = TypeVar("_Rows", pa.Table, pa.RecordBatch)
_NULLABLE = frozenset(("page", SYMBOLS, PREVIOUS))


@dataclass(frozen=True, slots=True)
class Passing:
    """Ids of the documents that pass a filter, and of their chunks, ascending."""

    documents: Ids
    chunks: Ids


class Snapshot:
    """One committed state of the store. It stays readable and unchanged while others write."""

    def __init__(self, store: Store, head: Head, backend: SearchBackend = CPU, *, fallback: str = "") -> None:
        """:param fallback: why this state stands in for the damaged one after it; "" if it is the committed state."""
        self.fallback = fallback
        self.store = store
        self.head = head
        self.backend = backend
        self.once = RLock()
        self._carried: Carried | None = None  # of the metadata of an earlier state
        self._passing: dict[Filter, Passing] = {}  # of the last filters
        self._offsets: dict[str, tuple[Ids, Positions]] = {}
        self._numbers = {name: FragmentColumns() for name in ("documents", "chunks")}
        self._checked_text: frozenset[str] = frozenset()  # segments of Lance's full-text index
        self._locations = {name: store.location.table(name) for name in ("documents", "chunks")}

    @classmethod
    def latest(cls, store: Store, backend: SearchBackend = CPU) -> Snapshot:
        """Read the committed state of a store now."""
        return cls(store, store.head(), backend)

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
        """Check the descriptions of all pages of the tables, as is done for each index that the user did not make.

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

    def full_text(self, words: str, limit: int, where: str | None = None, *, every: bool = False) -> pa.Table:
        """Return columns `id` and `_score` (BM25) of the chunks that contain any of these words, best first.

        :param every: of the chunks that contain all of them.
        """
        from lance.query import FullTextOperator, MatchQuery

        operator = FullTextOperator.AND if every else FullTextOperator.OR
        self.check_text()
        try:
            with panics_as_errors():
                return self.chunks.scanner(
                    columns=["id", "_score"],
                    full_text_query=MatchQuery(words, "context", operator=operator),
                    filter=where,
                    prefilter=where is not None,
                    limit=limit,
                ).to_table()
        except LANCE_ERRORS as error:
            self.read("chunks", ["id", "context"])  # raises if the table itself is damaged
            self._refuse_if_outdated(error)
            raise self._text_error(lance_message(error)) from error

    def _text_error(self, reason: str) -> DamagedError:
        return DamagedError(
            f"the full-text index of {self.store.location} is damaged ({reason}): {self.store.repairing('rebuilds it')}"
        )

    def has_current_text(self) -> bool:
        """Tell whether Lance's full-text index splits texts as a new one would; one of an earlier version may not."""
        with self.reading("chunks"):
            segments = text_checksums.segments(self.chunks)
        is_checked = segments <= self._checked_text
        return bool(segments) and (is_checked or segments <= text_checksums.noted(self.store.location).keys())

    def check_text(self, *, again: bool = False) -> None:
        """Compare Lance's full-text index with the noted checksums.

        :param again: check those segments too that were checked before.
        :raises DamagedError: when a checksum is another.
        """
        if self.damaged_text(again=again):
            raise self._text_error("other bytes than were written")

    def damaged_text(self, *, again: bool = False) -> frozenset[str]:
        """Return the segments of Lance's full-text index with a wrong checksum. Nothing may open them.

        :param again: check those too that an earlier call checked.
        """
        with self.reading("chunks"):
            segments = text_checksums.segments(self.chunks)
            checked = frozenset() if again else self._checked_text
            sound, damaged = text_checksums.check(self.store.location, segments - checked)
        self._checked_text = checked | sound
        return damaged

    def count_previous(self) -> int:
        """Count the chunks with a vector of the encoder before the last switch."""
        with self.reading("chunks"):
            return int(self.chunks.count_rows(f"{PREVIOUS} IS NOT NULL")) if self.head.previous else 0

    @locked_cached_property
    def document_rows(self) -> pa.Table:
        """All documents, without their texts."""
        rows = self._rows
        return rows.filter(pc.not_equal(rows["source"], tombstones.SOURCE))

    def rows_at(self, paths: Sequence[str], columns: list[str]) -> list[dict[str, Any]]:
        """Return these columns of the documents with these paths, of parts of these files, perhaps of a few others."""
        with self.reading("documents"), self.once:
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

    @locked_cached_property
    def _rows(self) -> pa.Table:
        return self.read("documents", [name for name in document_schema().names if name != "text"])

    @locked_cached_property
    def chunk_ids(self) -> pa.Table:
        """Columns `id` and `document` of all chunks, ids ascending."""
        ids, offsets = self._row_offsets("chunks")
        return pa.table({"id": ids, "document": self.numbers("chunks", "document")[offsets]})

    @locked_cached_property
    def columns(self) -> DocumentColumns:
        """The values of all documents by key, in the order of `document_rows`."""
        from .filters.columns import DocumentColumns

        return DocumentColumns(self.document_rows, self._carried)

    def select(self, where: Filter) -> Mask:
        """Return which of `document_rows` pass a filter, or have a passage that passes it.

        :raises InputError: when it names a key that no document has.
        """
        from .filters.evaluation import is_of_passages, select

        with self.once:
            if is_of_passages(where):
                mask = np.zeros(self.document_rows.num_rows, np.bool_)
                mask[self._symbols.owners[self._select_passages(where)]] = True
                return mask
            return select(where, self.columns)

    def _select_passages(self, where: Filter) -> Mask:
        from .filters.evaluation import select_passages

        return select_passages(where, self.columns, self._symbols)

    @locked_cached_property
    def _symbols(self) -> PassageSymbols:
        from .derived.symbols import PassageSymbols

        return PassageSymbols(self)

    def passing(self, where: Filter) -> Passing:
        """Select the documents with passages that pass a filter, and their chunks.

        :raises InputError: when it names a key that no document has.
        """
        passing = self._passing.get(where)
        if passing is None:
            passing = self._passing[where] = self._apply(where)
            for earlier in list(self._passing)[:-_CACHED_FILTERS]:
                self._passing.pop(earlier, None)
        return passing

    def _apply(self, where: Filter) -> Passing:
        from .filters.evaluation import is_of_passages

        if is_of_passages(where):
            mask = self._select_passages(where)
            return Passing(np.unique(self._searchable[0][self._symbols.owners[mask]]), self._symbols.ids[mask])
        ids, with_chunks = self._searchable
        documents = np.sort(ids[self.select(where) & with_chunks])
        return Passing(documents, self.chunks_of(documents))

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

    @locked_cached_property
    def documents_in_order(self) -> Positions:
        """The positions of `document_rows` in order of path."""
        order: Positions = pc.sort_indices(
            self.document_rows, sort_keys=[("path", "ascending"), ("source", "ascending")]
        ).to_numpy()
        return order

    @locked_cached_property
    def _searchable(self) -> tuple[Ids, Mask]:
        """The ids of `document_rows`, and whether each has chunks."""
        rows = self.document_rows
        return rows["id"].to_numpy(), rows["chunks"].to_numpy() > 0

    @locked_cached_property
    def _chunks_by_document(self) -> tuple[Ids, Ids]:
        """The documents of all chunks, ascending, and the chunk of each."""
        owners, ids = self.chunk_ids["document"].to_numpy(), self.chunk_ids["id"].to_numpy()
        order = np.argsort(owners, kind="stable")
        return owners[order], ids[order]

    def documents_by_id(self, ids: Sequence[int], columns: Sequence[str] | None = None) -> dict[int, dict[str, Any]]:
        """Return the rows of these documents by id; all columns but `text` unless `columns` names them."""
        return self._by_id("documents", ids, columns or self.document_rows.column_names)

    def chunks_by_id(self, ids: Sequence[int], columns: Sequence[str]) -> dict[int, dict[str, Any]]:
        """Return these columns of the rows of these chunks by id."""
        return self._by_id("chunks", ids, columns)

    def _by_id(self, table: Table, ids: Sequence[int], columns: Sequence[str]) -> dict[int, dict[str, Any]]:
        known, indices = self._row_offsets(table)[0], self._indices(table, ids)
        names = [name for name in columns if name != "id"]  # which is known, and would cost a read
        rows = self._taken(table, indices, names).to_pylist()
        return {number: {"id": number, **row} for number, row in zip(known[indices].tolist(), rows, strict=True)}

    @locked_cached_property
    def passage_texts(self) -> RecentRows:
        """The columns of passages that a search reads of many candidates."""
        return RecentRows(lambda ids: self.chunks_by_id(ids, _PASSAGE_TEXT))

    @locked_cached_property
    def passage_places(self) -> RecentRows:
        """The other columns of passages that hits cite."""
        columns = [*_PASSAGE_PLACE, *([SYMBOLS] if self.has_symbols else [])]
        return RecentRows(lambda ids: self.chunks_by_id(ids, columns))

    def cited_passages(self, ids: Iterable[int]) -> dict[int, dict[str, Any]]:
        """Return the columns of passages that hits cite, by id, in the order of `ids`; unknown ids are left out."""
        ids = list(ids)
        columns = self.passage_places.of(ids)
        return {number: {**row, **columns[number]} for number, row in self.passage_texts.of(ids).items()}

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
        """Return where the ids that the table has are among its ascending ids, ascending."""
        known, _ = self._row_offsets(table)
        requested = np.unique(np.asarray(ids, np.int64), return_index=True)[0]  # without the index it imports numpy.ma
        indices: Positions = np.searchsorted(known, requested[isin_sorted(requested, known)])
        return indices

    def _taken(self, table: Table, indices: Positions, columns: Sequence[str]) -> pa.Table:
        _, offsets = self._row_offsets(table)
        with self.reading(table):
            return _without_nulls(getattr(self, table).take(offsets[indices], columns=list(dict.fromkeys(columns))))

    def numbers(self, table: Table, column: str) -> Ids:
        """Return a column of whole numbers in the order of the table, shape (rows,)."""
        with self.reading(table), self.once:
            return self._numbers[table].read(getattr(self, table), column)

    def newer(self, newest: int, columns: list[str]) -> pa.Table:
        """Return columns of the chunks with higher ids than `newest`, in order of id."""
        ids = self.sorted_ids
        return self.take("chunks", ids[np.searchsorted(ids, newest, side="right") :], columns)

    def _row_offsets(self, table: Table) -> tuple[Ids, Positions]:
        """Return the ids of all rows, ascending, and the offset of each in the table."""
        with self.once:
            if table not in self._offsets:
                ids = self.numbers(table, "id")
                order = np.argsort(ids, kind="stable")  # as a rule they are in order, which takes no time
                self._offsets[table] = ids[order], order
            return self._offsets[table]

    @property
    def sorted_ids(self) -> Ids:
        """The ids of all chunks, ascending."""
        return self._row_offsets("chunks")[0]

    @locked_cached_property
    def lexical(self) -> LexicalIndex | None:
        """The inverted index of exactly these chunks.

        None if there is none, it is damaged or too many chunks are newer; then Lance's full-text index answers.
        If the store is not trusted, the texts are analysed instead: Lance's index could end the process.
        """
        with contextlib.suppress(DamagedError):
            if (index := lexical.load(self)) or self.store.trusted:
                return index
        return None if self.store.trusted else self._analysed

    @locked_cached_property
    def _analysed(self) -> LexicalIndex:
        return lexical.analyse(self)

    def lexical_indexes(self) -> Iterator[LexicalIndex]:
        """Yield the inverted index; then, if the store is not trusted, one of the texts in place of Lance's index."""
        if self.lexical:
            yield self.lexical
        if not self.store.trusted:
            yield self._analysed

    @locked_cached_property
    def neighbourhood(self) -> LiveNeighbourhood | None:
        """The neighbours of the passages; None if there are few passages, none were published, or they are damaged."""
        with contextlib.suppress(DamagedError):
            return neighbours.load(self)
        return None

    @locked_cached_property
    def index(self) -> LiveIndex:
        """The vector index of exactly these chunks."""
        published, manifest = self._loaded.index, self._loaded.published
        if manifest is not None and manifest.covers == self.head.rows:
            return LiveIndex(published, None, None)
        live_mask = isin_sorted(published.ids, self.sorted_ids)
        newer = self.newer(int(published.ids[-1]) if len(published.ids) else -1, ["id", "vector"])
        unindexed = FlatIndex(newer["id"].to_numpy(), matrix(newer["vector"], self.head.encoder.dim))
        return LiveIndex(published, None if live_mask.all() else live_mask, unindexed if len(newer) else None)

    @locked_cached_property
    def scale(self) -> Scale:
        """The scale of relevance."""
        return scale_of(self.store.location, self.head.encoder)

    @property
    def published_ids(self) -> Ids:
        """The ids of the rows in the published vector index, ascending; some may be gone."""
        return self._loaded.index.ids

    @property
    def published(self) -> IndexManifest | None:
        """The manifest of the vector index; None if there is no readable index."""
        return self._loaded.published

    @property
    def damage(self) -> DamagedError | None:
        """The damage of the vector index: all vectors are compared exactly until a writer builds it anew."""
        return self._loaded.damage

    @property
    def searched_by(self) -> str:
        """The hardware that compares vectors: "2 GPUs" or "the CPU", and the reason if GPUs were requested."""
        return self._loaded.searched_by

    def adopt(self, tables: Mapping[str, lance.LanceDataset]) -> None:
        """Read the tables that a writer has open, if this state names them."""
        for name, table in tables.items():
            if table.version == getattr(self.head, name):
                vars(self)[name] = table.checkout_version(table.version)

    def take_over(self, earlier: Snapshot) -> None:
        """Reuse data of an earlier state that is the same in this one.

        The vector index is not checked again. A damaged one is loaded again, since it may have been repaired.
        """
        self._numbers = {name: columns.copy() for name, columns in earlier._numbers.items()}
        columns = vars(earlier).get("columns")
        self._carried = columns.carried() if columns else earlier._carried
        head, before = self.head, earlier.head
        is_same_index = bool(head.tombstone_key) and head.tombstone_key == before.tombstone_key
        self._checked_text = earlier._checked_text if is_same_index else frozenset()
        for names, is_same in (
            (("documents", "_rows", "document_rows", "tombstones"), head.documents == before.documents),
            (("chunks",), head.chunks == before.chunks),
            (("chunk_ids",), head.rows == before.rows),
        ):
            vars(self).update(
                {name: vars(earlier)[name] for name in names if is_same_index and is_same and name in vars(earlier)}
            )
        loaded = vars(earlier).get("_loaded")
        same = earlier.head.parts == self.head.parts and earlier.head.encoder == self.head.encoder
        if same and loaded and earlier.damage is None and not self.backend.serve:
            self._loaded = loaded

    @locked_cached_property
    def _loaded(self) -> LoadedIndex:
        return load_index(self.store, self.head, self.backend)

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


def _without_nulls(rows: _Rows) -> _Rows:
    """Check that required columns have no nulls, and return the rows.

    A damaged manifest can name a column that is in no file. Lance then fills it with nulls.

    :raises ValueError: when a value is missing that each row has.
    """
    for name in rows.schema.names:
        if name not in _NULLABLE and rows.column(name).null_count:
            raise ValueError(f"rows without {name}")
    return rows
