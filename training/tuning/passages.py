"""The passages of an index that a teacher ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...retriever.store.tables import matrix

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

    from ...core.arrays import Floats
    from ...retriever.store.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Passages:
    """Passages with their stored vectors and documents."""

    texts: list[str]
    vectors: Floats
    documents: NDArray[np.int64]  # number of the document of each passage
    numbers: dict[str, int]  # path of a document -> its number
    ids: NDArray[np.int64]  # of the chunks, ascending

    def sample(self, maximum: int, seed: int) -> Passages:
        """Draw at most `maximum` passages."""
        return self._of(np.sort(np.random.default_rng(seed).permutation(len(self.texts))[:maximum]))

    def without(self, documents: Collection[int]) -> Passages:
        """Return the passages of all other documents."""
        return self._of(np.flatnonzero(~np.isin(self.documents, list(documents))))

    def _of(self, rows: NDArray[np.int64]) -> Passages:
        texts = [self.texts[row] for row in rows.tolist()]
        return Passages(texts, self.vectors[rows], self.documents[rows], self.numbers, self.ids[rows])

    @classmethod
    def read(cls, snapshot: Snapshot, paths: Collection[str]) -> Passages:
        """Read the passages of some documents, in the order of the index."""
        rows = snapshot.read("documents", ["id", "path"]).to_pylist()
        numbers = {row["path"]: row["id"] for row in rows if row["path"] in paths}
        ids = np.array(list(numbers.values()), np.int64)
        texts: list[str] = []
        owners, numbers_of_chunks = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        vectors = [np.empty((0, snapshot.head.encoder.dim), np.float32)]
        for batch in snapshot.batches(["id", "document", "context", "vector"]):
            mask = np.isin(batch["document"].to_numpy(), ids)
            texts += [text for text, keep in zip(batch["context"].to_pylist(), mask.tolist(), strict=True) if keep]
            owners.append(batch["document"].to_numpy()[mask])
            numbers_of_chunks.append(batch["id"].to_numpy()[mask])
            vectors.append(matrix(batch["vector"], snapshot.head.encoder.dim)[mask])
        chunk_ids = np.concatenate(numbers_of_chunks)
        order = np.argsort(chunk_ids, kind="stable")
        return cls(
            [texts[row] for row in order.tolist()],
            np.concatenate(vectors)[order],
            np.concatenate(owners)[order],
            numbers,
            chunk_ids[order],
        )
