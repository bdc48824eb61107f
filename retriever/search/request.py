"""A search: its words corrected, its arguments checked, ready for any snapshot."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ...core.runtime.threads import Threads
from ...core.vectors import check_dimension
from ...indexes.base import SEARCH_DEPTH
from ..models.encoder import encode_finite
from ..models.encoders.no_encoder import check_encoder
from .query import Query
from .results.joining import with_neighbours_joined
from .steps import finish, finish_together
from .words import exact
from .words.corrections import corrections_for, replace_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ...core.arrays import Floats, Ids
    from ..models.encoder import Encoder
    from ..models.identity import EncoderId
    from ..store.snapshot import Snapshot
    from .deadline import Deadline
    from .mode import Mode
    from .results.hits import Hits
    from .selection import Selection
    from .steps import Steps

_TOGETHER = 64  # searches that read their rows at once
_ENCODED = 256  # queries at least in a group that is encoded at once


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A search with checked arguments; any snapshot can answer it."""

    text: str
    selection: Selection
    min_relevance: float | None = None
    vector: Floats | None = None  # of length 1, instead of the vector of the text
    deadline: Deadline | None = None
    join: bool = False  # the neighbours of a page

    def hits(self, snapshot: Snapshot, encoder_of: Callable[[EncoderId], Encoder]) -> Hits:
        """The k best passages that are relevant enough, best first.

        :raises InputError: when the index has no encoder for a search by meaning, or the vector another dimension.
        """
        return finish(self.corrected(snapshot, encoder_of).steps({}))

    def corrected(self, snapshot: Snapshot, encoder_of: Callable[[EncoderId], Encoder]) -> CorrectedRequest:
        """Correct the words of this search for a snapshot.

        :raises InputError: as `hits` does.
        """
        mode = self._mode(snapshot)
        if self.vector is not None:
            check_dimension(self.vector, snapshot.head.encoder.dim, "the vector of the query")
        parts = exact.parse(self.text)

        def encoder() -> Encoder:
            return encoder_of(snapshot.head.encoder)

        if corrections := corrections_for(snapshot, parts, encoder, self.selection.where):
            parts = exact.parse(replace_words(self.text, corrections))
        return CorrectedRequest(self, snapshot, encoder, mode, parts, corrections)

    def _mode(self, snapshot: Snapshot) -> Mode:
        """The mode, without meaning where nothing gives the vector of the query.

        :raises InputError: when only meaning was asked for.
        """
        if self.vector is not None or not snapshot.head.encoder.is_none:
            return self.selection.mode
        if self.selection.mode == "semantic":
            check_encoder(snapshot.head.encoder, "give the vector of the query, or search in mode 'lexical'")
        return "lexical"


@dataclass(frozen=True, slots=True)
class CorrectedRequest:
    """A search of one snapshot, with the corrections of its words."""

    request: SearchRequest
    snapshot: Snapshot
    encoder: Callable[[], Encoder]
    mode: Mode
    parts: exact.ExactQuery
    corrections: dict[str, str]

    @property
    def unencoded(self) -> str | None:
        """The text to encode; None if there is nothing to encode."""
        return self.parts.text if self.request.vector is None and self.mode != "lexical" else None

    def steps(self, vectors: Mapping[str, Floats], nearest: tuple[Floats, Ids] | None = None) -> Steps:
        """Search as `SearchRequest.hits` does, in the steps of `Query.steps`.

        :param vectors: text -> vector, shape (dim,), of queries that are already encoded.
        :param nearest: cosines and ids of the passages nearest to the vector of the query.
        """
        request, snapshot, text = self.request, self.snapshot, self.parts.text

        def encode() -> Floats:
            vector = vectors.get(text) if request.vector is None else request.vector
            return encode_finite(self.encoder(), [text], kind="query") if vector is None else vector[None]

        encode_texts = None if request.vector is not None else lambda texts: encode_finite(self.encoder(), texts)
        query = Query(snapshot, text, encode, self.parts, request.deadline, nearest, encode_texts)
        hits = yield from query.steps(replace(request.selection, mode=self.mode))
        hits.corrections, hits.version = self.corrections, snapshot.head.commits
        offset = request.selection.offset
        if request.min_relevance is not None:
            hits = hits.from_relevance(request.min_relevance, offset)
        return with_neighbours_joined(hits, snapshot, offset) if request.join else hits


def hits_of_many(
    requests: Sequence[SearchRequest], snapshot: Snapshot, encoder_of: Callable[[EncoderId], Encoder]
) -> list[Hits]:
    """Answer several searches of one snapshot. From 512 on, a thread encodes the next group while one is answered."""
    corrected = [request.corrected(snapshot, encoder_of) for request in requests]
    count = max(1, len(corrected) // _ENCODED)
    bounds = [len(corrected) * number // count for number in range(count + 1)]
    groups = [corrected[start:stop] for start, stop in pairwise(bounds)]
    if count == 1:
        return list(_answers(corrected, snapshot, _encoded(corrected)))
    with Threads(1) as pool:
        vectors = pool.map(_encoded, groups)
        try:
            return [hits for group in groups for hits in _answers(group, snapshot, next(vectors))]
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # after an error, the other groups are not encoded


def _encoded(requests: Sequence[CorrectedRequest]) -> dict[str, Floats]:
    """Map the text of each search to its vector, shape (dim,); all are encoded together."""
    texts = list(filter(None, dict.fromkeys(request.unencoded for request in requests)))
    vectors = encode_finite(requests[0].encoder(), texts, kind="query") if texts else ()
    return dict(zip(texts, vectors, strict=True))


def _answers(requests: Sequence[CorrectedRequest], snapshot: Snapshot, vectors: Mapping[str, Floats]) -> Iterator[Hits]:
    """Answer searches; `_TOGETHER` of them read their rows at once."""
    rows = {
        "chunks": snapshot.passages,
        "documents": snapshot.cited_documents,
    }
    for start in range(0, len(requests), _TOGETHER):
        block = requests[start : start + _TOGETHER]
        nearest = _nearest(block, snapshot, vectors)
        searches = [request.steps(vectors, nearest.get(number)) for number, request in enumerate(block)]
        yield from finish_together(searches, rows)


def _nearest(
    requests: Sequence[CorrectedRequest], snapshot: Snapshot, encoded: Mapping[str, Floats]
) -> dict[int, tuple[Floats, Ids]]:
    """The cosines and ids of the passages nearest to some searches, by their numbers, if one product finds all."""
    vectors: dict[int, Floats] = {}
    for number, corrected in enumerate(requests):
        text, request = corrected.unencoded, corrected.request
        vector = request.vector if text is None else encoded.get(text)
        if vector is not None and request.selection.where is None and len(vector) == snapshot.head.encoder.dim:
            vectors[number] = vector
    depth = min(snapshot.passage_count, SEARCH_DEPTH)
    nearest = snapshot.index.search_each(np.stack(list(vectors.values())), depth) if vectors else None
    return {} if nearest is None else dict(zip(vectors, zip(*nearest, strict=True), strict=True))
