"""Where candidates for negatives come from: the documents of a collection, or the passages of an index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from ...indexes.flat import FlatKind
from ...retriever.search.query import Query
from .text_db import name_key, text_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from ...core.arrays import Floats, Ids
    from ...indexes.base import VectorIndex
    from ...indexes.flat import FlatIndex
    from ...retriever.models.encoder import Encoder
    from ...retriever.search.query import Mode
    from ...retriever.store.snapshot import Snapshot
    from .text_db import TextDatabase


class FirstStage(Protocol):
    """What finds candidates."""

    size: int  # how many there are in all
    cut: bool  # whether they may be pieces of what the positives are

    def search(self, queries: Sequence[str], vectors: Floats, k: int) -> tuple[Floats, Ids]:
        """The k best candidates of each query, best first: cosines and ids, both (queries, k).

        Where there are fewer, the rest is filled with -inf and -1.
        """
        ...

    def keys(self, ids: Ids) -> tuple[Ids, Ids]:
        """`text_key` and `name_key` of these candidates, in their shape; anything for an id of -1."""
        ...

    def texts(self, ids: Ids) -> dict[int, str]: ...

    def bodies(self, ids: Ids) -> dict[int, str]:
        """Their texts without titles: what can be found again in the document that they are from."""
        ...


class Documents:
    """The documents of a collection, by exact search over their vectors."""

    cut = False

    def __init__(self, collection: TextDatabase, keys: tuple[Ids, Ids], index: VectorIndex) -> None:
        self.size = collection.documents
        self.texts = self.bodies = collection.texts
        self._text_keys, self._name_keys = keys
        self._index = index

    def search(self, queries: Sequence[str], vectors: Floats, k: int) -> tuple[Floats, Ids]:  # noqa: ARG002
        return self._index.search(vectors, k)

    def keys(self, ids: Ids) -> tuple[Ids, Ids]:
        return self._text_keys[ids], self._name_keys[ids]


class Passages:
    """The passages of an index as its own search ranks them. A passage's text is its context: titles, then text."""

    cut = True

    def __init__(self, snapshot: Snapshot, mode: Mode) -> None:
        self._snapshot = snapshot
        self._mode = mode
        table = snapshot.chunk_ids
        self.size = len(table)
        self._ids = table["id"].to_numpy()
        self._text_keys = np.empty(self.size, np.int64)
        for batch in snapshot.batches(["id", "text"]):
            places = np.searchsorted(self._ids, batch["id"].to_numpy())
            self._text_keys[places] = [text_key(text) for text in batch["text"].to_pylist()]
        paths = snapshot.read("documents", ["id", "path"]).to_pylist()
        keys = {row["id"]: name_key(row["path"]) for row in paths}
        documents, which = np.unique(table["document"].to_numpy(), return_inverse=True)
        self._name_keys = np.array([keys[number] for number in documents.tolist()], np.int64)[which]

    def search(self, queries: Sequence[str], vectors: Floats, k: int) -> tuple[Floats, Ids]:
        if self._mode == "semantic":
            return self._snapshot.index.search(vectors, k)
        cosines = np.full((len(queries), k), -np.inf, np.float32)
        ids = np.full((len(queries), k), -1, np.int64)
        for row, (text, vector) in enumerate(zip(queries, vectors, strict=True)):
            found, scores = Query(self._snapshot, text, _constant(vector[None])).ranked(k, mode=self._mode)
            ids[row, : len(found)], cosines[row, : len(found)] = found, scores
        return cosines, ids

    def keys(self, ids: Ids) -> tuple[Ids, Ids]:
        places = np.searchsorted(self._ids, ids)
        return self._text_keys[places], self._name_keys[places]

    def texts(self, ids: Ids) -> dict[int, str]:
        return self._column(ids, "context")

    def bodies(self, ids: Ids) -> dict[int, str]:
        return self._column(ids, "text")

    def _column(self, ids: Ids, name: str) -> dict[int, str]:
        rows = self._snapshot.chunks_by_id(np.unique(ids).tolist(), [name])
        return {number: row[name] for number, row in rows.items()}


def _constant(vector: Floats) -> Callable[[], Floats]:
    return lambda: vector


def encoded(collection: TextDatabase, encoder: Encoder, folder: Path, tell: Callable[[int], None]) -> FlatIndex:
    """The vectors of a collection's documents, written to a new folder and mapped into memory."""

    def batches() -> Iterator[tuple[Ids, Floats]]:
        for ids, texts in collection.document_blocks():
            yield ids, encoder.encode(texts)
            tell(int(ids[-1]) + 1)

    folder.mkdir()
    kind = FlatKind()
    kind.write(folder, batches(), dim=encoder.dim)
    return kind.load(folder, dim=encoder.dim)
