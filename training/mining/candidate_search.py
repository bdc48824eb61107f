"""Search candidates for negatives: the documents of a collection, or the passages of an index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from ...core.progress import Progress
from ...indexes.base import SEARCH_DEPTH
from ...indexes.flat import FlatKind
from ...retriever.search.query import Query
from .text_db import name_key, text_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from ...core.arrays import Floats, Ids
    from ...core.progress import OnProgress
    from ...indexes.base import VectorIndex
    from ...indexes.flat import FlatIndex
    from ...retriever.models.encoder import Encoder
    from ...retriever.search.mode import Mode
    from ...retriever.store.snapshot import Snapshot
    from .text_db import TextDatabase


_TOGETHER = 64  # queries to compare by one product of their vectors


class CandidateSource(Protocol):
    """Finds candidates."""

    size: int  # number of all candidates
    cut: bool  # whether a candidate may be a part of a positive

    def search(self, queries: Sequence[str], vectors: Floats, k: int) -> tuple[Floats, Ids]:
        """Return the k best candidates of each query, best first: cosines and ids, both (queries, k).

        A query with fewer candidates has -inf and -1 in the rest of its row.
        """
        ...

    def keys(self, ids: Ids) -> tuple[Ids, Ids]:
        """Return `text_key` and `name_key` of these candidates, in their shape; undefined for an id of -1."""
        ...

    def texts(self, ids: Ids) -> dict[int, str]:
        """Return the texts of these candidates by id."""
        ...

    def bodies(self, ids: Ids) -> dict[int, str]:
        """Return the texts of these candidates, unchanged and without titles."""
        ...


class DocumentCandidates:
    """Searches the documents of a collection, exactly."""

    cut = False

    def __init__(self, collection: TextDatabase, keys: tuple[Ids, Ids], index: VectorIndex) -> None:
        self.size = collection.documents
        self.texts = self.bodies = collection.texts
        self._text_keys, self._name_keys = keys
        self._index = index

    def search(self, queries: Sequence[str], vectors: Floats, k: int) -> tuple[Floats, Ids]:  # noqa: ARG002
        """Search the index of all documents; the texts of the queries are not read."""
        return self._index.search(vectors, k)

    def keys(self, ids: Ids) -> tuple[Ids, Ids]:
        """Look the keys up in arrays, where a document's id is its position."""
        return self._text_keys[ids], self._name_keys[ids]


class PassageCandidates:
    """Ranks the passages of an index by its own search. A passage's text is its context: titles, then text."""

    cut = True

    def __init__(self, snapshot: Snapshot, mode: Mode, ids: Ids, text_keys: Ids, name_keys: Ids) -> None:
        """
        :param ids: of the passages, ascending.
        :param text_keys: `text_key` of each passage.
        :param name_keys: `name_key` of each passage's document.
        """
        self._snapshot, self._mode, self.size = snapshot, mode, len(ids)
        self._ids, self._text_keys, self._name_keys = ids, text_keys, name_keys

    @classmethod
    def read(cls, snapshot: Snapshot, mode: Mode, name_of: Callable[[str], str] = str) -> PassageCandidates:
        """Read the keys of all passages of an index.

        :param name_of: gives the name of a document's source for its path, which is the name by default.
        """
        table = snapshot.chunk_ids
        ids = table["id"].to_numpy()
        text_keys = np.empty(len(ids), np.int64)
        for batch in snapshot.batches(["id", "text"]):
            rows = np.searchsorted(ids, batch["id"].to_numpy())
            text_keys[rows] = [text_key(text) for text in batch["text"].to_pylist()]
        paths = snapshot.read("documents", ["id", "path"]).to_pylist()
        keys = {row["id"]: name_key(name_of(row["path"])) for row in paths}
        documents, owners = np.unique(table["document"].to_numpy(), return_inverse=True)
        name_keys = np.array([keys[number] for number in documents.tolist()], np.int64)[owners]
        return cls(snapshot, mode, ids, text_keys, name_keys)

    def search(self, queries: Sequence[str], vectors: Floats, k: int) -> tuple[Floats, Ids]:
        """Search all vectors at once in semantic mode, else rank each query by the index's own search."""
        if self._mode == "semantic":
            return self._snapshot.index.search(vectors, k)
        cosines = np.full((len(queries), k), -np.inf, np.float32)
        ids = np.full((len(queries), k), -1, np.int64)
        depth = min(self.size, max(SEARCH_DEPTH, k))  # of a query's own search
        for start in range(0, len(queries), _TOGETHER):
            nearest = self._snapshot.index.search_each(vectors[start : start + _TOGETHER], depth)
            for row in range(start, min(start + _TOGETHER, len(queries))):
                of_query = None if nearest is None else (nearest[0][row - start], nearest[1][row - start])
                query = Query(self._snapshot, queries[row], _constant(vectors[row : row + 1]), nearest=of_query)
                hits, scores = query.ranked(k, mode=self._mode)
                ids[row, : len(hits)], cosines[row, : len(hits)] = hits, scores
        return cosines, ids

    def keys(self, ids: Ids) -> tuple[Ids, Ids]:
        """Look the keys up by bisection: the ids of passages have gaps."""
        rows = np.searchsorted(self._ids, ids)
        return self._text_keys[rows], self._name_keys[rows]

    def texts(self, ids: Ids) -> dict[int, str]:
        """Read the contexts from the store: the heading path, then the text; equal ids are read once."""
        return self._column(ids, "context")

    def bodies(self, ids: Ids) -> dict[int, str]:
        """Read the texts from the store, without their heading paths; equal ids are read once."""
        return self._column(ids, "text")

    def _column(self, ids: Ids, name: str) -> dict[int, str]:
        rows = self._snapshot.chunks_by_id(np.unique(ids).tolist(), [name])
        return {number: row[name] for number, row in rows.items()}


def _constant(vector: Floats) -> Callable[[], Floats]:
    return lambda: vector


def encode_documents(collection: TextDatabase, encoder: Encoder, folder: Path, progress: OnProgress) -> FlatIndex:
    """Encode a collection's documents, write the vectors to a new folder and map them into memory."""

    def batches() -> Iterator[tuple[Ids, Floats]]:
        for ids, texts in collection.document_blocks():
            yield ids, encoder.encode(texts)
            progress(Progress("encoding texts", int(ids[-1]) + 1, collection.documents))

    folder.mkdir()
    kind = FlatKind()
    kind.write(folder, batches(), dim=encoder.dim)
    return kind.load(folder, dim=encoder.dim)
