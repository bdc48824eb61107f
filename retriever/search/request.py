"""A search: its words corrected, its arguments checked, ready for any snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from ...core.vectors import check_dimension
from ...indexes.base import SEARCH_DEPTH
from ..models.encoder import encode_finite
from ..models.encoders.no_encoder import check_encoder
from .query import Mode, Query, Reranking, finish, finish_together
from .results.joining import with_neighbours_joined
from .words import exact
from .words.corrections import corrections_for, replace_words

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ...core.arrays import Floats, Ids
    from ..models.encoder import Encoder
    from ..models.identity import EncoderId
    from ..store.filters.filter import Filter
    from ..store.snapshot import Snapshot
    from .deadline import Deadline
    from .query import Steps
    from .results.hits import Hits

_TOGETHER = 32  # searches that read their rows at once
_NONE: Mapping[str, Floats] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A search with checked arguments; any snapshot can answer it."""

    text: str
    k: int
    mode: Mode
    where: Filter | None
    reranking: Reranking | None = None
    per_document: int | None = None  # as in `duplicates.select`
    collapse: bool = True
    min_relevance: float | None = None
    vector: Floats | None = None  # of length 1, instead of that of the text
    with_vectors: bool = False
    by_document: bool = False
    mmr: float | None = None
    deadline: Deadline | None = None
    join: bool = False  # the neighbours of a page
    offset: int = 0  # hits of earlier pages, the first of the k

    def hits(
        self, snapshot: Snapshot, encoder_of: Callable[[EncoderId], Encoder], vectors: Mapping[str, Floats] = _NONE
    ) -> Hits:
        """The k best passages that are relevant enough, best first.

        :param vectors: text -> its vector, shape (dim,), of queries that were encoded already.
        :raises InputError: when the index has no encoder for a search by meaning, or the vector another dimension.
        """
        return finish(self.steps(snapshot, encoder_of, vectors))

    def steps(
        self,
        snapshot: Snapshot,
        encoder_of: Callable[[EncoderId], Encoder],
        vectors: Mapping[str, Floats],
        nearest: tuple[Floats, Ids] | None = None,
    ) -> Steps:
        """Search as `hits` does, in the steps of `Query.steps`.

        :param nearest: cosines and ids of the passages nearest to `vector`, or to the vector of the uncorrected text.
        """
        mode, vector = self._mode(snapshot), self.vector
        if vector is not None:
            check_dimension(vector, snapshot.head.encoder.dim, "the vector of the query")
        parts = exact.parse(self.text)

        def encoder() -> Encoder:
            return encoder_of(snapshot.head.encoder)

        if corrections := corrections_for(snapshot, parts, encoder, self.where):
            parts = exact.parse(replace_words(self.text, corrections))

        def encode() -> Floats:
            if vector is not None:
                return vector[None]
            if parts.text in vectors:
                return vectors[parts.text][None]
            return encode_finite(encoder(), [parts.text], kind="query")

        diversity = None
        if self.mmr is not None:
            from .results.diversity import Diversity  # few searches need it

            diversity = Diversity(self.mmr, self.min_relevance or 0.0)
        is_known = vector is not None or not corrections
        query = Query(snapshot, parts.text, encode, parts, self.deadline, nearest if is_known else None)
        hits = yield from query.steps(
            self.k,
            mode=mode,
            where=self.where,
            reranking=self.reranking,
            per_document=self.per_document,
            collapse=self.collapse,
            with_vectors=self.with_vectors,
            by_document=self.by_document,
            diversity=diversity,
            offset=self.offset,
        )
        hits.corrections, hits.version = corrections, snapshot.head.commits
        if self.min_relevance is not None:
            hits = hits.from_relevance(self.min_relevance)
        return with_neighbours_joined(hits, snapshot, self.offset) if self.join else hits

    def to_encode(self, snapshot: Snapshot) -> str | None:
        """The text to encode; None if there is nothing to encode."""
        is_needed = self.vector is None and self._mode(snapshot) != "lexical"
        return exact.parse(self.text).text if is_needed else None

    def _mode(self, snapshot: Snapshot) -> Mode:
        """The mode, without meaning where nothing gives the vector of the query.

        :raises InputError: when only meaning was asked for.
        """
        if self.vector is not None or not snapshot.head.encoder.is_none:
            return self.mode
        if self.mode == "semantic":
            check_encoder(snapshot.head.encoder, "give the vector of the query, or search in mode 'lexical'")
        return "lexical"


def hits_of_many(
    requests: Sequence[SearchRequest], snapshot: Snapshot, encoder_of: Callable[[EncoderId], Encoder]
) -> list[Hits]:
    """Answer several searches of one state; their queries are encoded together."""
    texts = list(filter(None, dict.fromkeys(request.to_encode(snapshot) for request in requests)))
    vectors = encode_finite(encoder_of(snapshot.head.encoder), texts, kind="query") if texts else ()
    encoded = dict(zip(texts, vectors, strict=True))
    rows = {"chunks": snapshot.cited_passages, "documents": snapshot.cited_documents}
    hits: list[Hits] = []
    for start in range(0, len(requests), _TOGETHER):
        block = requests[start : start + _TOGETHER]
        nearest = _nearest(block, snapshot, encoded)
        searches = [
            request.steps(snapshot, encoder_of, encoded, nearest.get(number)) for number, request in enumerate(block)
        ]
        hits += finish_together(searches, rows)
    return hits


def _nearest(
    requests: Sequence[SearchRequest], snapshot: Snapshot, encoded: Mapping[str, Floats]
) -> dict[int, tuple[Floats, Ids]]:
    """The cosines and ids of the passages nearest to some searches, by their numbers, if one product finds all."""
    vectors: dict[int, Floats] = {}
    for number, request in enumerate(requests):
        text = request.to_encode(snapshot)
        vector = request.vector if text is None else encoded.get(text)
        if vector is not None and request.where is None and len(vector) == snapshot.head.encoder.dim:
            vectors[number] = vector
    depth = min(snapshot.chunks.count_rows(), SEARCH_DEPTH)
    nearest = snapshot.index.search_each(np.stack(list(vectors.values())), depth) if vectors else None
    return {} if nearest is None else dict(zip(vectors, zip(*nearest, strict=True), strict=True))
