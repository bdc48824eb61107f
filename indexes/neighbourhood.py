"""The neighbourhood of each passage: its nearest passages of other documents, and the mean vector of its document.

Five files, named by a manifest with their checksums. n is the number of passages:

    ids.i64          (n,) ascending
    neighbours.i32   (n, 50) positions of the nearest passages of other documents, best first; -1 where there are fewer
    documents.i64    (n,) the document of each passage
    mean_rows.i32    (n,) the row of the document's mean in means.f16; -1 for a document of one passage
    means.f16        (m, dim) mean vectors of unit length

Only the first of equal passages can be a neighbour: fifty copies of a passage say no more than a single passage.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.errors import DamagedError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from ..core.arrays import Floats, Ids, Mask, Positions

    Rows = NDArray[np.int32]

NEIGHBOURS = 50

_EXACT = 16_384  # maximum of passages to compare each with all
_CLUSTER = 1_024  # passages of a cluster, in the mean
_NEARBY = 8  # clusters that a cluster is compared with
_SAMPLE = 64  # passages for each cluster that the clusters are learned from
_CELLS = 2**22  # of a matrix of cosines: 16 MiB
_GROUP = 32  # cosines of a row that are first compared by their maximum
_MAX_COSINE = 1.01  # the highest cosine, with rounding
_BLOCK = 65_536  # vectors summed at a time


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """The neighbourhoods of n passages, mapped from disk.

    The files may be a stranger's, so each value is checked when it is used.
    """

    ids: Ids
    neighbours: Rows
    documents: Ids
    mean_rows: Rows
    means: NDArray[np.float16]

    @classmethod
    def load(cls, folder: Path, count: int, dim: int) -> Neighbourhood:
        """Map the files of `count` passages.

        :raises DamagedError: when a file is missing or has another size, or the ids do not ascend.
        """
        ids = _mapped(folder / "ids.i64", np.int64, (count,))
        if (ids[1:] <= ids[:-1]).any():
            raise DamagedError(f"{folder} does not hold ascending ids")
        return cls(
            ids,
            _mapped(folder / "neighbours.i32", np.int32, (count, NEIGHBOURS)),
            _mapped(folder / "documents.i64", np.int64, (count,)),
            _mapped(folder / "mean_rows.i32", np.int32, (count,)),
            _mapped(folder / "means.f16", np.float16, (-1, dim)),
        )

    def positions(self, ids: Ids) -> tuple[Positions, Mask]:
        """Return the position of each id, and whether it is here at all."""
        positions = np.searchsorted(self.ids, ids).clip(max=max(0, len(self.ids) - 1))
        known = self.ids[positions] == ids if len(self.ids) else np.zeros(len(ids), np.bool_)
        return positions, known

    def nearest(self, positions: Positions) -> Rows:
        """Return the positions of the neighbours of each passage, (len(positions), 50); -1 for none."""
        nearest: Rows = self.neighbours[positions]
        nearest[(nearest < 0) | (nearest >= len(self.ids))] = -1
        return nearest

    def document_cosines(self, positions: Positions, vector: Floats, cosines: Floats) -> Floats:
        """Return the cosines of a vector with the means of the documents of passages.

        :param cosines: with the passages themselves, which stay for documents of one passage.
        """
        rows = self.mean_rows[positions]
        known = np.flatnonzero((rows >= 0) & (rows < len(self.means)))
        with np.errstate(all="ignore"):  # a stranger's numbers
            of_means = self.means[rows[known]].astype(np.float32) @ vector
        possible = np.abs(of_means) <= _MAX_COSINE
        result = cosines.copy()
        result[known[possible]] = of_means[possible]
        return result


def write(folder: Path, ids: Ids, vectors: Floats, documents: Ids, keys: Ids) -> None:
    """Write the files of these passages.

    :param ids: ascending.
    :param vectors: of unit length, shape (n, dim).
    :param documents: the document of each passage.
    :param keys: equal for passages of the same text.
    """
    mean_rows, means = document_means(vectors, documents)
    arrays: dict[str, NDArray[Any]] = {
        "ids.i64": ids.astype(np.int64),
        "neighbours.i32": nearest_rows(vectors, documents, keys),
        "documents.i64": documents.astype(np.int64),
        "mean_rows.i32": mean_rows,
        "means.f16": means,
    }
    for name, array in arrays.items():
        (folder / name).write_bytes(np.ascontiguousarray(array).data)


def document_means(vectors: Floats, documents: Ids) -> tuple[Rows, NDArray[np.float16]]:
    """Return for each row the row of its document's mean, -1 for a document of one row, and the means."""
    _, of_rows, counts = np.unique(documents, return_inverse=True, return_counts=True)
    shared = counts > 1
    rows = np.where(shared, np.cumsum(shared) - 1, -1).astype(np.int32)[of_rows]
    order = np.flatnonzero(rows >= 0)
    order = order[np.argsort(rows[order], kind="stable")]
    starts = np.cumsum(counts[shared]) - counts[shared]
    means = np.empty((len(starts), vectors.shape[1]), np.float16)
    for first, last in _blocks_of_groups(starts):
        block = order[starts[first] : starts[last] if last < len(starts) else len(order)]
        sums = np.add.reduceat(np.asarray(vectors[block], np.float32), starts[first:last] - starts[first], axis=0)
        means[first:last] = sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-12)
    return rows, means


def _blocks_of_groups(starts: NDArray[Any]) -> Iterator[tuple[int, int]]:
    """Yield the first of some groups and the one after their last; together they hold about 65,536 rows."""
    first = 0
    while first < len(starts):
        last = int(np.searchsorted(starts, starts[first] + _BLOCK, side="right"))
        last = max(first + 1, min(last, len(starts)))
        yield first, last
        first = last


def nearest_rows(vectors: Floats, documents: Ids, keys: Ids, *, count: int = NEIGHBOURS) -> Rows:
    """Return the positions of the `count` nearest rows of other documents and texts, best first; -1 for none.

    Up to 16,384 rows all are compared. Beyond, a cluster is compared with the nearest clusters.
    """
    nearest = np.full((len(vectors), count), -1, np.int32)
    _, first_of_key, key_of_row = np.unique(keys, return_index=True, return_inverse=True)
    for rows, columns in _compared(vectors, np.sort(first_of_key)):
        targets = np.ascontiguousarray(vectors[columns])
        documents_there, keys_there = documents[columns], key_of_row[columns]
        step = max(1, _CELLS // max(1, len(columns)))
        for start in range(0, len(rows), step):
            block = rows[start : start + step]
            cosines = vectors[block] @ targets.T
            cosines[documents[block][:, None] == documents_there] = -np.inf
            cosines[key_of_row[block][:, None] == keys_there] = -np.inf
            best = _largest(cosines, count)
            nearest[block, : best.shape[1]] = np.where(best < 0, -1, columns[best])
    return nearest


def _compared(vectors: Floats, targets: Positions) -> Iterator[tuple[Positions, Positions]]:
    """Yield rows and the targets with which to compare them."""
    if len(targets) <= _EXACT:
        yield np.arange(len(vectors)), targets
        return
    import faiss

    centroids = len(targets) // _CLUSTER
    kmeans = faiss.Kmeans(vectors.shape[1], centroids, niter=5, spherical=True, max_points_per_centroid=_SAMPLE, seed=1)
    order = np.empty(len(targets), np.int32)
    faiss.rand_perm(faiss.swig_ptr(order), len(order), 1)
    kmeans.train(vectors[targets[order[: _SAMPLE * centroids]]])  # `train` would draw the same from a copy of all
    cluster = np.empty(len(vectors), np.int32)
    for start in range(0, len(vectors), _BLOCK):
        block = slice(start, start + _BLOCK)
        cluster[block] = kmeans.index.search(np.ascontiguousarray(vectors[block]), 1)[1][:, 0]
    _, nearby = kmeans.index.search(kmeans.centroids, min(_NEARBY, centroids))
    rows_of = _by_cluster(np.arange(len(vectors)), cluster, centroids)
    targets_of = _by_cluster(targets, cluster[targets], centroids)
    for rows, near in zip(rows_of, nearby, strict=True):
        if len(rows):
            yield rows, np.sort(np.concatenate([targets_of[number] for number in near if number >= 0]))


def _by_cluster(rows: Positions, cluster: Rows, centroids: int) -> list[Positions]:
    """Return the rows of each cluster, in their order."""
    order = np.argsort(cluster, kind="stable")
    return np.split(rows[order], np.searchsorted(cluster[order], np.arange(1, centroids)))


def _largest(values: Floats, count: int) -> Positions:
    """Return the columns of the `count` largest finite values of each row, best first; -1 for none.

    The `count`-th largest of the maxima of groups is no larger than the `count`-th largest value. So few values need
    sorting.
    """
    rows, columns = values.shape
    groups = columns // _GROUP
    if groups > count:
        maxima = values[:, : groups * _GROUP].reshape(rows, groups, _GROUP).max(axis=2)
        threshold = np.partition(maxima, groups - count, axis=1)[:, groups - count]
    else:
        threshold = np.full(rows, -np.inf, np.float32)
    row, column = np.nonzero((values >= threshold[:, None]) & np.isfinite(values))
    order = np.lexsort((column, -values[row, column], row))
    row, column = row[order], column[order]
    rank = np.arange(len(row)) - np.searchsorted(row, row)
    best = np.full((rows, min(count, columns)), -1, np.intp)
    leading = rank < best.shape[1]
    best[row[leading], rank[leading]] = column[leading]
    return best


def _mapped(file: Path, dtype: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """Map an array of this shape; the first axis may be -1.

    :raises DamagedError: when the file is missing or has another size.
    """
    row = np.dtype(dtype).itemsize * math.prod(shape[1:])
    try:
        size = file.stat().st_size
        rows = size // row if shape[0] < 0 else shape[0]
        mapped = np.memmap(file, dtype, "r") if size else np.empty(0, dtype)
    except (OSError, ValueError) as error:
        raise DamagedError(f"{file} cannot be mapped: {error}") from error
    if size != rows * row:
        raise DamagedError(f"{file} has {size} bytes where {rows * row} were expected")
    return mapped.view(np.ndarray).reshape(rows, *shape[1:])
