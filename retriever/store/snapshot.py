"""One committed state of an index, for reading: its rows, its full-text index and its vector index."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.arrays import distinct, isin_sorted
from ...core.errors import DamagedError, panics_as_errors
from ...core.lazy import locked_cached_property
from ...indexes.flat import FlatIndex
from .committed_rows import CommittedRows
from .derived import lexical, live_neighbourhood, text_checksums
from .derived.live_index import LiveIndex, LoadedIndex, load_index
from .derived.recent_rows import RecentRows
from .derived.relevance_scale import RelevanceScale, scale_of
from .derived.search_backend import CPU, SearchBackend
from .tables import LANCE_ERRORS, lance_message, matrix

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from ...core.arrays import Ids, Mask
    from ...indexes.inverted.lexical_index import LexicalIndex
    from ...indexes.manifest import IndexManifest
    from .derived.lexical import PublishedSegment
    from .derived.live_neighbourhood import LiveNeighbourhood
    from .derived.symbols import PassageSymbols
    from .filters.filter import Filter
    from .filters.sorted_values import Carried, DocumentColumns
    from .head import Head
    from .store import Store

_CACHED_FILTERS = 8


@dataclass(frozen=True, slots=True)
class Passing:
    """Ids of the documents that pass a filter, and of their chunks, ascending."""

    documents: Ids
    chunks: Ids


class Snapshot(CommittedRows):
    """One committed state of the store. It stays readable and unchanged while others write."""

    def __init__(self, store: Store, head: Head, backend: SearchBackend = CPU, *, fallback: str = "") -> None:
        """:param fallback: why this state stands in for the damaged one after it; "" if it is the committed state."""
        super().__init__(store, head)
        self.fallback = fallback
        self.backend = backend
        self._carried: Carried | None = None  # of the metadata of an earlier state
        self._passing: dict[Filter, Passing] = {}  # of the last filters
        self._checked_text: frozenset[str] = frozenset()  # segments of Lance's full-text index

    @classmethod
    def latest(cls, store: Store, backend: SearchBackend = CPU) -> Snapshot:
        """Read the committed state of a store now."""
        return cls(store, store.head(), backend)

    @locked_cached_property
    def columns(self) -> DocumentColumns:
        """The values of all documents by key, in the order of `document_rows`."""
        from .filters.sorted_values import DocumentColumns

        return DocumentColumns(self.document_rows, self._carried)

    def select(self, where: Filter) -> Mask:
        """Return a mask of the `document_rows` that pass a filter, or have a passage that passes it.

        :raises InputError: when the filter names a key that no document has.
        """
        from .filters.condition_masks import is_of_passages, select

        with self.lock:
            if is_of_passages(where):
                mask = np.zeros(self.document_rows.num_rows, np.bool_)
                mask[self._symbols.owners[self._select_passages(where)]] = True
                return mask
            return select(where, self.columns)

    def _select_passages(self, where: Filter) -> Mask:
        from .filters.condition_masks import select_passages

        return select_passages(where, self.columns, self._symbols)

    @locked_cached_property
    def _symbols(self) -> PassageSymbols:
        from .derived.symbols import PassageSymbols

        return PassageSymbols.read(self)

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
        from .filters.condition_masks import is_of_passages

        if is_of_passages(where):
            mask = self._select_passages(where)
            return Passing(distinct(self._searchable[0][self._symbols.owners[mask]]), self._symbols.ids[mask])
        ids, with_chunks = self._searchable
        documents = np.sort(ids[self.select(where) & with_chunks])
        return Passing(documents, self.chunks_of(documents))

    @locked_cached_property
    def _searchable(self) -> tuple[Ids, Mask]:
        """The ids of `document_rows`, and whether each has chunks."""
        rows = self.document_rows
        return rows["id"].to_numpy(), rows["chunks"].to_numpy() > 0

    def full_text(self, words: str, limit: int, where: str | None = None, *, every: bool = False) -> pa.Table:
        """Return columns `id` and `_score` (BM25) of the chunks that contain any of these words, best first.

        :param every: only of chunks that contain all of these words.
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

        :param again: also check segments that an earlier call checked.
        :raises DamagedError: when a checksum differs.
        """
        if self.damaged_text(again=again):
            raise self._text_error("other bytes than were written")

    def damaged_text(self, *, again: bool = False) -> frozenset[str]:
        """Return the segments of Lance's full-text index with a wrong checksum. Nothing may open them.

        :param again: also check segments that an earlier call checked.
        """
        with self.reading("chunks"):
            segments = text_checksums.segments(self.chunks)
            checked = frozenset() if again else self._checked_text
            sound, damaged = text_checksums.check(self.store.location, segments - checked)
        self._checked_text = checked | sound
        return damaged

    @locked_cached_property
    def lexical(self) -> LexicalIndex | None:
        """The inverted index of exactly these chunks.

        None if there is none, it is damaged or too many chunks are newer; then Lance's full-text index answers.
        If the store is not trusted, the texts are analysed instead: Lance's index could end the process.
        """
        if (index := lexical.load(self, self._segments)) or self.store.trusted:
            return index
        return self._analysed

    @locked_cached_property
    def _segments(self) -> list[PublishedSegment]:
        """The segments of the inverted index; none if one is damaged."""
        with contextlib.suppress(DamagedError):
            return lexical.load_segments(self)
        return []

    def has_current_words(self) -> bool:
        """Tell whether searches need no other index of words, and no other file of passages, than there are."""
        return self.lexical is not None and all(part.columns == self.passage_columns for part in self._segments)

    @locked_cached_property
    def passages(self) -> RecentRows:
        """The columns of passages that a search reads."""
        return RecentRows(self._read_passages)

    def _read_passages(self, ids: Sequence[int]) -> dict[int, dict[str, Any]]:
        """Return the columns of passages, by id: from the files beside their words, and others from the table.

        An index that is not trusted is read by Lance alone.
        """
        rows: dict[int, dict[str, Any]] = {}
        if self.store.trusted:
            with contextlib.suppress(DamagedError):
                rows = lexical.read_passages(self._segments, np.sort(np.array(ids, np.int64)), self.passage_columns)
        rest = [number for number in ids if number not in rows]
        return {**rows, **self.chunks_by_id(rest, self.passage_columns)} if rest else rows

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
            return live_neighbourhood.load(self)
        return None

    @locked_cached_property
    def index(self) -> LiveIndex:
        """The vector index of exactly these chunks."""
        published = self._loaded.index
        if np.array_equal(published.ids, self.sorted_ids):
            return LiveIndex(published, None, None)
        live_mask = isin_sorted(published.ids, self.sorted_ids)
        newer = self.newer(int(published.ids[-1]) if len(published.ids) else -1, ["id", "vector"])
        unindexed = FlatIndex(newer["id"].to_numpy(), matrix(newer["vector"], self.head.encoder.dim))
        return LiveIndex(published, None if live_mask.all() else live_mask, unindexed if len(newer) else None)

    @locked_cached_property
    def scale(self) -> RelevanceScale:
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

    @locked_cached_property
    def _loaded(self) -> LoadedIndex:
        return load_index(self.store, self.head, self.backend)

    def take_over(self, earlier: Snapshot) -> None:
        """Reuse data of an earlier state that is the same in this one.

        The vector index is not checked again. A damaged one is loaded again, since it may have been repaired.
        """
        self.reuse_rows(earlier)
        columns = vars(earlier).get("columns")
        self._carried = columns.carried() if columns else earlier._carried
        self._checked_text = earlier._checked_text if self.is_same_index(earlier) else frozenset()
        loaded = vars(earlier).get("_loaded")
        same = earlier.head.parts == self.head.parts and earlier.head.encoder == self.head.encoder
        if same and loaded and earlier.damage is None and not self.backend.serve:
            self._loaded = loaded
