"""Exact search in a memory-mapped array: FAISS compares every vector, or numpy if they are few.

The vectors lie in a file of raw float32 numbers, and the ids in an .npy file. So opening costs the same at any size,
building streams, and a foreign file has no format for a parser to trip over. Every other kind keeps these two files
beside its own. It takes true scores from them, and exact answers where that is cheaper or safer.
"""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.arrays import from_npy
from ..core.errors import DamagedError, InputError
from ..core.files import read_regular
from .base import Parameter, check_parameters
from .metric import METRICS, Metric, metric_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from ..core.arrays import Floats, Ids, Mask, Positions
    from .base import Parameters, VectorIndex

_HEADER_BYTES = 4_096  # of ids.npy, more than numpy writes
_BLOCK = 65_536  # rows copied at a time
_COPY_SHARE = 0.25  # of allowed rows: below, copying them is faster than skipping the rest
_NUMPY_ROWS = 50_000  # for one query: numpy compares this many in 3 ms, and importing FAISS takes 60 to 190
_L2_QUERIES = 16  # at a time: FAISS computes distances directly only for so few; else it subtracts large numbers


@dataclass(frozen=True, slots=True)
class FlatIndex:
    """The exact kind of `VectorIndex`: `vectors[i]` belongs to `ids[i]`, ids ascending."""

    ids: Ids
    vectors: Floats
    metric: str = "ip"

    def search(self, vectors: Floats, k: int, *, allowed: Mask | Positions | None = None) -> tuple[Floats, Ids]:
        """Compare every allowed vector, in place or, if few are allowed, in copied blocks of 65,536."""
        queries = self.prepare_queries(vectors)
        scores = np.full((len(queries), k), -np.inf, np.float32)
        ids = np.full((len(queries), k), -1, np.int64)
        count = len(self.ids) if allowed is None else allowed_count(allowed)
        depth = min(k, count)
        if depth and len(queries):
            step = _L2_QUERIES if self.metric == "l2" else len(queries)
            for start in range(0, len(queries), step):
                batch = slice(start, start + step)
                scores[batch, :depth], ids[batch, :depth] = self._best(queries[batch], depth, allowed, count)
        return scores, ids

    def search_each(self, vectors: Floats, k: int) -> tuple[Floats, Ids] | None:
        """Return the same as `search` for each query alone, to the last bit, by one matrix product for all.

        The product selects the best vectors. Their scores are then computed as in `search`.

        :returns: None if one product would be no faster, or might select other vectors.
        """
        if self.metric != "ip" or len(self.ids) > _NUMPY_ROWS or not 0 < k <= len(self.ids):
            return None
        queries = self.prepare_queries(vectors)
        products = queries @ self.vectors.T
        lengths = [float(np.vecdot(rows, rows).max(initial=0)) for rows in (queries, self.vectors)]
        error = 4 * self.vectors.shape[1] * float(np.finfo(np.float32).eps) * math.sqrt(math.prod(lengths))
        if not (np.isfinite(products).all() and math.isfinite(error)):
            return None
        limits = np.partition(products, products.shape[1] - k, axis=1)[:, products.shape[1] - k]
        answers = [
            self._search_by_numpy(query, k, np.flatnonzero(row >= limit - error))
            for query, row, limit in zip(queries, products, limits, strict=True)
        ]
        return np.concatenate([scores for scores, _ in answers]), np.concatenate([ids for _, ids in answers])

    def prepare_queries(self, vectors: Floats) -> Floats:
        """Return queries as FAISS takes them.

        :raises InputError: when their dimension is not the index's.
        """
        if vectors.ndim != 2 or vectors.shape[1] != self.vectors.shape[1]:
            raise InputError(
                f"queries have shape {vectors.shape} but the index holds vectors of dimension "
                f"{self.vectors.shape[1]}: was it built with another encoder?"
            )
        return self._metric.prepare(vectors)

    def scores_at(self, queries: Floats, positions: Positions) -> Floats:
        """Return the true scores of the vectors at `positions`, (queries, m); -inf for a position of -1.

        :param queries: from `prepare_queries`.
        """
        import faiss

        count, dim = positions.shape[1], self.vectors.shape[1]
        scores, positions = np.empty(positions.shape, np.float32), np.ascontiguousarray(positions)

        def fill(function: Any, left: Floats) -> None:
            pointers = [faiss.swig_ptr(array) for array in (scores, left, self.vectors, positions)]
            function(*pointers, dim, len(left), count)

        if self._metric.normalizes:
            fill(faiss.fvec_L2sqr_by_idx, np.zeros_like(queries))
            squares = scores.copy()
        fill(faiss.fvec_inner_products_by_idx if self._metric.sign > 0 else faiss.fvec_L2sqr_by_idx, queries)
        if self._metric.normalizes:
            scores = np.divide(
                scores, np.sqrt(squares), out=np.zeros_like(scores), where=(squares > 0) & (positions >= 0)
            )
        scores *= self._metric.sign
        scores[positions < 0] = -np.inf
        return scores

    def reconstruct(self, ids: Ids) -> Floats:
        """Copy the rows from the mapped file.

        :raises InputError: when an id is missing.
        """
        return np.asarray(self.vectors[positions_of_ids(self.ids, ids)])

    def with_parameters(self, **search: Any) -> FlatIndex:
        """Return this index itself; any parameter raises InputError, since exact search has none."""
        check_parameters("exact search", (), search)
        return self

    @property
    def _metric(self) -> Metric:
        return METRICS[self.metric]

    def _best(self, queries: Floats, k: int, allowed: Mask | Positions | None, count: int) -> tuple[Floats, Ids]:
        if len(queries) == 1 and self.metric == "ip" and len(self.ids) <= _NUMPY_ROWS:
            return self._search_by_numpy(queries[0], k, allowed)
        if not self._metric.normalizes and (
            allowed is None or (count > _COPY_SHARE * len(self.ids) and len(queries) < 20)
        ):
            return self._search_in_place(queries, k, allowed)
        import faiss

        best: tuple[Floats, Ids] | None = None
        for ids, vectors in self._blocks(allowed):
            block = self._metric.prepare(vectors)
            values, positions = faiss.knn(queries, block, min(k, len(ids)), metric=self._metric.faiss)
            answers = self._answers(values, positions, ids)
            if best is not None:
                answers = top_k(np.hstack([best[0], answers[0]]), np.hstack([best[1], answers[1]]), k)
            best = answers
        assert best is not None
        return best

    def _search_by_numpy(self, query: Floats, k: int, allowed: Mask | Positions | None) -> tuple[Floats, Ids]:
        """Search without FAISS. Each product is computed by itself, so equal vectors have equal scores."""
        positions = np.arange(len(self.ids)) if allowed is None else allowed_positions(allowed)
        values = np.vecdot(self.vectors if allowed is None else self.vectors[positions], query)
        values[~np.isfinite(values)] = -np.inf
        worst = np.partition(values, len(values) - k)[len(values) - k]
        best = np.flatnonzero(values >= worst)
        best = best[np.argsort(-values[best], kind="stable")[:k]]
        scores = values[best]
        return scores[None], np.where(scores == -np.inf, -1, self.ids[positions[best]])[None]

    def _blocks(self, allowed: Mask | Positions | None) -> Iterator[tuple[Ids, Floats]]:
        positions = None if allowed is None else allowed_positions(allowed)
        for start in range(0, len(self.ids) if positions is None else len(positions), _BLOCK):
            block = slice(start, start + _BLOCK) if positions is None else positions[start : start + _BLOCK]
            yield self.ids[block], self.vectors[block]

    def _search_in_place(self, queries: Floats, k: int, allowed: Mask | Positions | None) -> tuple[Floats, Ids]:
        """Search the mapped array without a copy; FAISS skips the rows that are not allowed."""
        import faiss

        scores, positions = np.empty((len(queries), k), np.float32), np.empty((len(queries), k), np.int64)
        bits = None if allowed is None else np.packbits(allowed_mask(allowed, len(self.ids)), bitorder="little")
        selector = None if bits is None else faiss.IDSelectorBitmap(len(bits), faiss.swig_ptr(bits))
        inputs = [faiss.swig_ptr(array) for array in (queries, self.vectors)]
        sizes = (self.vectors.shape[1], len(queries), len(self.ids), k)
        search = faiss.knn_inner_product if self._metric.sign > 0 else faiss.knn_L2sqr
        last = (selector,) if self._metric.sign > 0 else (None, selector)
        search(*inputs, *sizes, faiss.swig_ptr(scores), faiss.swig_ptr(positions), *last)
        return self._answers(scores, positions, self.ids)

    def _answers(self, values: Floats, positions: Positions, ids: Ids) -> tuple[Floats, Ids]:
        """Turn FAISS's values and positions among `ids` into scores and ids.

        FAISS skips a vector that is not finite, so positions may run out; they are -1 then.
        """
        missing = positions < 0
        return np.where(missing, np.float32(-np.inf), values * self._metric.sign), np.where(missing, -1, ids[positions])


def top_k(scores: Floats, ids: Ids, k: int) -> tuple[Floats, Ids]:
    """Return the k best of each row, best first; among equal scores the first column wins."""
    best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, best, 1), np.take_along_axis(ids, best, 1)


def positions_of_ids(known: Ids, ids: Ids) -> Positions:
    """Return the positions of `ids` in `known`, which ascends.

    :raises InputError: when an id is missing.
    """
    positions = np.searchsorted(known, ids)
    if len(ids) and (positions.max() >= len(known) or (known[positions] != ids).any()):
        raise InputError("reconstruct was asked for ids that the index does not hold")
    return positions


def allowed_count(allowed: Mask | Positions) -> int:
    """Count the vectors that a mask or positions allow."""
    return int(np.count_nonzero(allowed)) if allowed.dtype == np.bool_ else len(allowed)


def allowed_positions(allowed: Mask | Positions) -> Positions:
    """Turn a mask into positions; return positions unchanged."""
    return np.flatnonzero(allowed) if allowed.dtype == np.bool_ else allowed.astype(np.int64, copy=False)


def allowed_mask(allowed: Mask | Positions, count: int) -> Mask:
    """Turn positions into a mask of shape (count,); return a mask unchanged."""
    if allowed.dtype == np.bool_:
        return allowed.astype(np.bool_, copy=False)
    mask = np.zeros(count, np.bool_)
    mask[allowed] = True
    return mask


class FlatKind:
    """Writes and loads `FlatIndex`."""

    files = frozenset({"vectors.f32", "ids.npy"})
    build_parameters: tuple[Parameter, ...] = ()
    search_parameters: tuple[Parameter, ...] = ()

    def check(self, dim: int, build: Parameters, search: Parameters) -> None:  # noqa: ARG002
        """Raise InputError for any parameter, since exact search has none; every dimension will do."""
        check_parameters("exact search", (), {**build, **search})

    def bytes_per_vector(self, dim: int, build: Parameters, count: int = 1_000_000) -> float:  # noqa: ARG002
        """Count the float32 numbers and the id: here every search reads all vectors."""
        return 4.0 * dim + 8

    def write(
        self,
        folder: Path,
        batches: Iterable[tuple[Ids, Floats]],
        *,
        dim: int,
        metric: str = "ip",
        build: Parameters | None = None,  # noqa: ARG002
    ) -> None:
        """Stream vectors to the disk batch by batch; only the ids, 8 bytes each, stay in memory."""
        metric_of(metric)
        ids_of_batches = []
        with (folder / "vectors.f32").open("wb") as stream:
            for ids, vectors in batches:
                ids_of_batches.append(ids)
                stream.write(np.ascontiguousarray(vectors, np.float32).reshape(-1, dim).data)
        all_ids = np.concatenate(ids_of_batches) if ids_of_batches else np.empty(0, np.int64)
        file = io.BytesIO()  # NumPy writes to a real file through C, and passes over an error when it closes that
        np.save(file, all_ids, allow_pickle=False)
        (folder / "ids.npy").write_bytes(file.getbuffer())

    def load(
        self,
        folder: Path,
        *,
        dim: int,
        metric: str = "ip",
        build: Parameters | None = None,  # noqa: ARG002
        search: Parameters | None = None,  # noqa: ARG002
    ) -> FlatIndex:
        """Map the vectors without reading them; read the ids, and check that they ascend."""
        try:
            size = (folder / "vectors.f32").stat().st_size
            ids = from_npy(read_regular(folder / "ids.npy", _HEADER_BYTES + 8 * (size // (4 * dim))))
        except (OSError, ValueError) as error:
            raise DamagedError(f"{folder} does not hold a flat index: {error}") from error
        if ids.dtype != np.int64 or ids.ndim != 1 or size != 4 * dim * len(ids):
            raise DamagedError(
                f"{folder} does not hold a flat index: {size} bytes of vectors of dimension {dim} for {ids.shape} ids"
            )
        if (np.diff(ids) <= 0).any():
            raise DamagedError(f"{folder} does not hold a flat index: its ids do not ascend")
        if not len(ids):
            return FlatIndex(ids, np.empty((0, dim), np.float32), metric)
        vectors = np.memmap(folder / "vectors.f32", np.float32, "r").reshape(len(ids), dim)
        return FlatIndex(ids, vectors.view(np.ndarray), metric)


def exact_index(index: VectorIndex) -> VectorIndex:
    """Return the exact index over the same vectors."""
    exact: VectorIndex = getattr(index, "exact", index)
    return exact


def is_exact(index: VectorIndex) -> bool:
    """Whether the index compares every vector, so that its recall needs no proof."""
    shards = getattr(index, "shards", None)
    if shards is not None:
        return all(map(is_exact, shards))
    return isinstance(index, FlatIndex) or getattr(index, "index", index) is None
