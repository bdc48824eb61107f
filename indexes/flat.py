"""Exact search: every vector is compared, by FAISS, over a memory-mapped array.

The vectors lie in an ordinary .npy file, so that opening costs nothing whatever the size, building streams, and a
foreign file has no format for a parser to trip over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .errors import DamagedError, InputError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from .vector_index import Floats, Ids, Mask


@dataclass(frozen=True, slots=True)
class FlatIndex:
    """The exact kind of `VectorIndex`: `vectors[i]` belongs to `ids[i]`, ids ascending."""

    ids: Ids
    vectors: Floats

    def search(self, vectors: Floats, k: int, *, allowed: Mask | None = None) -> tuple[Floats, Ids]:
        import faiss

        if vectors.ndim != 2 or vectors.shape[1] != self.vectors.shape[1]:
            raise InputError(
                f"queries have shape {vectors.shape} but the index holds vectors of dimension "
                f"{self.vectors.shape[1]}: was it built with another encoder?"
            )
        ids, held = (self.ids, self.vectors) if allowed is None else (self.ids[allowed], self.vectors[allowed])
        scores = np.full((len(vectors), k), -np.inf, np.float32)
        found = np.full((len(vectors), k), -1, np.int64)
        reach = min(k, len(ids))
        if reach:
            best, places = faiss.knn(
                np.ascontiguousarray(vectors, np.float32), held, reach, metric=faiss.METRIC_INNER_PRODUCT
            )
            scores[:, :reach], found[:, :reach] = best, ids[places]
        return scores, found

    def reconstruct(self, ids: Ids) -> Floats:
        places = np.searchsorted(self.ids, ids)
        if len(ids) and (places.max() >= len(self.ids) or (self.ids[places] != ids).any()):
            raise InputError("reconstruct was asked for ids that the index does not hold")
        return np.asarray(self.vectors[places])


class FlatKind:
    """Writes and loads `FlatIndex`."""

    files = frozenset({"vectors.f32", "ids.npy"})

    def write(self, folder: Path, batches: Iterable[tuple[Ids, Floats]], *, dim: int) -> None:
        held = []
        with (folder / "vectors.f32").open("wb") as stream:
            for ids, vectors in batches:
                held.append(ids)
                stream.write(np.ascontiguousarray(vectors, np.float32).reshape(-1, dim).data)
        np.save(folder / "ids.npy", np.concatenate(held) if held else np.empty(0, np.int64), allow_pickle=False)

    def load(self, folder: Path, *, dim: int) -> FlatIndex:
        try:
            with (folder / "ids.npy").open("rb") as stream:  # not np.load, which would also take archives
                ids = np.lib.format.read_array(stream, allow_pickle=False)
            size = (folder / "vectors.f32").stat().st_size
        except (OSError, ValueError, EOFError) as error:
            raise DamagedError(f"{folder} does not hold a flat index: {error}") from error
        if ids.dtype != np.int64 or ids.ndim != 1 or size != 4 * dim * len(ids):
            raise DamagedError(
                f"{folder} does not hold a flat index: {size} bytes of vectors of dimension {dim} for {ids.shape} ids"
            )
        if (np.diff(ids) <= 0).any():
            raise DamagedError(f"{folder} does not hold a flat index: its ids do not ascend")
        if not len(ids):
            return FlatIndex(ids, np.empty((0, dim), np.float32))
        vectors = np.memmap(folder / "vectors.f32", np.float32, "r").reshape(len(ids), dim)
        return FlatIndex(ids, vectors.view(np.ndarray))
