"""Exact search: every vector is compared, by FAISS, over a memory-mapped array.

The vectors lie in an ordinary .npy file, so that opening costs nothing whatever the size, building streams, and a
foreign file has no format for a parser to trip over. Every other kind keeps the same two files beside its own: for
the true scores of what it finds, and for answers where comparing all that is allowed is cheaper or safer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.errors import DamagedError, InputError
from .base import Parameter, check_parameters
from .metric import METRICS, Metric, metric_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from ..core.arrays import Floats, Ids, Mask
    from .base import Parameters, Places, VectorIndex

_BLOCK = 65_536  # rows that are copied at a time
_FEW = 0.25  # the share of allowed rows below which copying them is quicker than passing over the others
_DIRECT = 16  # queries at a time for which FAISS computes distances as such: for more it subtracts large numbers


@dataclass(frozen=True, slots=True)
class FlatIndex:
    """The exact kind of `VectorIndex`: `vectors[i]` belongs to `ids[i]`, ids ascending."""

    ids: Ids
    vectors: Floats
    metric: str = "ip"

    def search(self, vectors: Floats, k: int, *, allowed: Mask | Places | None = None) -> tuple[Floats, Ids]:
        queries = self.checked(vectors)
        scores = np.full((len(queries), k), -np.inf, np.float32)
        found = np.full((len(queries), k), -1, np.int64)
        count = len(self.ids) if allowed is None else count_of(allowed)
        reach = min(k, count)
        if reach and len(queries):
            step = _DIRECT if self.metric == "l2" else len(queries)
            for at in range(0, len(queries), step):
                part = slice(at, at + step)
                scores[part, :reach], found[part, :reach] = self._best(queries[part], reach, allowed, count)
        return scores, found

    def checked(self, vectors: Floats) -> Floats:
        """Queries as FAISS takes them, if they can be of this index."""
        if vectors.ndim != 2 or vectors.shape[1] != self.vectors.shape[1]:
            raise InputError(
                f"queries have shape {vectors.shape} but the index holds vectors of dimension "
                f"{self.vectors.shape[1]}: was it built with another encoder?"
            )
        return self._metric.prepared(vectors)

    def scores_at(self, queries: Floats, places: Places) -> Floats:
        """The true scores of the vectors at `places`, (queries, m), for `checked` queries; -inf where a place is -1."""
        import faiss

        count, dim = places.shape[1], self.vectors.shape[1]
        scores, places = np.empty(places.shape, np.float32), np.ascontiguousarray(places)

        def fill(function: Any, left: Floats) -> None:
            pointers = [faiss.swig_ptr(array) for array in (scores, left, self.vectors, places)]
            function(*pointers, dim, len(left), count)

        if self._metric.normalizes:
            fill(faiss.fvec_L2sqr_by_idx, np.zeros_like(queries))
            squares = scores.copy()
        fill(faiss.fvec_inner_products_by_idx if self._metric.sign > 0 else faiss.fvec_L2sqr_by_idx, queries)
        if self._metric.normalizes:
            scores = np.divide(scores, np.sqrt(squares), out=np.zeros_like(scores), where=(squares > 0) & (places >= 0))
        scores *= self._metric.sign
        scores[places < 0] = -np.inf
        return scores

    def reconstruct(self, ids: Ids) -> Floats:
        places = np.searchsorted(self.ids, ids)
        if len(ids) and (places.max() >= len(self.ids) or (self.ids[places] != ids).any()):
            raise InputError("reconstruct was asked for ids that the index does not hold")
        return np.asarray(self.vectors[places])

    def tuned(self, **search: Any) -> FlatIndex:
        check_parameters("exact search", (), search)
        return self

    @property
    def _metric(self) -> Metric:
        return METRICS[self.metric]

    def _best(self, queries: Floats, k: int, allowed: Mask | Places | None, count: int) -> tuple[Floats, Ids]:
        import faiss

        if not self._metric.normalizes and (allowed is None or (count > _FEW * len(self.ids) and len(queries) < 20)):
            return self._passed_over(queries, k, allowed)
        so_far: tuple[Floats, Ids] | None = None
        for ids, vectors in self._blocks(allowed):
            held = self._metric.prepared(vectors)
            best, places = faiss.knn(queries, held, min(k, len(ids)), metric=self._metric.faiss)
            best, found = self._answers(best, places, ids)
            if so_far is not None:
                best, found = best_of(np.hstack([so_far[0], best]), np.hstack([so_far[1], found]), k)
            so_far = best, found
        assert so_far is not None
        return so_far

    def _blocks(self, allowed: Mask | Places | None) -> Iterator[tuple[Ids, Floats]]:
        places = None if allowed is None else positions_of(allowed)
        for at in range(0, len(self.ids) if places is None else len(places), _BLOCK):
            block = slice(at, at + _BLOCK) if places is None else places[at : at + _BLOCK]
            yield self.ids[block], self.vectors[block]

    def _passed_over(self, queries: Floats, k: int, allowed: Mask | Places | None) -> tuple[Floats, Ids]:
        """Without a copy: FAISS leaves out what is not allowed."""
        import faiss

        scores, places = np.empty((len(queries), k), np.float32), np.empty((len(queries), k), np.int64)
        bits = None if allowed is None else np.packbits(mask_of(allowed, len(self.ids)), bitorder="little")
        selector = None if bits is None else faiss.IDSelectorBitmap(len(self.ids), faiss.swig_ptr(bits))
        given = [faiss.swig_ptr(array) for array in (queries, self.vectors)]
        sizes = (self.vectors.shape[1], len(queries), len(self.ids), k)
        search = faiss.knn_inner_product if self._metric.sign > 0 else faiss.knn_L2sqr
        last = (selector,) if self._metric.sign > 0 else (None, selector)
        search(*given, *sizes, faiss.swig_ptr(scores), faiss.swig_ptr(places), *last)
        return self._answers(scores, places, self.ids)

    def _answers(self, values: Floats, places: Places, ids: Ids) -> tuple[Floats, Ids]:
        """What FAISS found among these ids; a vector that is not finite, which it passes over, leaves a place -1."""
        nothing = places < 0
        return np.where(nothing, np.float32(-np.inf), values * self._metric.sign), np.where(nothing, -1, ids[places])


def best_of(scores: Floats, ids: Ids, k: int) -> tuple[Floats, Ids]:
    """The k best of each row, best first; of equal ones the first."""
    best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, best, 1), np.take_along_axis(ids, best, 1)


def count_of(allowed: Mask | Places) -> int:
    return int(np.count_nonzero(allowed)) if allowed.dtype == np.bool_ else len(allowed)


def positions_of(allowed: Mask | Places) -> Places:
    return np.flatnonzero(allowed) if allowed.dtype == np.bool_ else allowed.astype(np.int64, copy=False)


def mask_of(allowed: Mask | Places, count: int) -> Mask:
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
        check_parameters("exact search", (), {**build, **search})

    def bytes_per_vector(self, dim: int, build: Parameters, count: int = 1_000_000) -> float:  # noqa: ARG002
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
        metric_of(metric)
        held = []
        with (folder / "vectors.f32").open("wb") as stream:
            for ids, vectors in batches:
                held.append(ids)
                stream.write(np.ascontiguousarray(vectors, np.float32).reshape(-1, dim).data)
        np.save(folder / "ids.npy", np.concatenate(held) if held else np.empty(0, np.int64), allow_pickle=False)

    def load(
        self,
        folder: Path,
        *,
        dim: int,
        metric: str = "ip",
        build: Parameters | None = None,  # noqa: ARG002
        search: Parameters | None = None,  # noqa: ARG002
    ) -> FlatIndex:
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
            return FlatIndex(ids, np.empty((0, dim), np.float32), metric)
        vectors = np.memmap(folder / "vectors.f32", np.float32, "r").reshape(len(ids), dim)
        return FlatIndex(ids, vectors.view(np.ndarray), metric)


def exact(index: VectorIndex) -> VectorIndex:
    """The same vectors, all compared."""
    beside: VectorIndex = getattr(index, "exact", index)
    return beside


def is_exact(index: VectorIndex) -> bool:
    """Whether it answers by comparing all, so that there is nothing to prove."""
    shards = getattr(index, "shards", None)
    if shards is not None:
        return all(map(is_exact, shards))
    return isinstance(index, FlatIndex) or getattr(index, "index", index) is None
