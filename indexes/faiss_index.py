"""Approximate search by FAISS with true scores: FAISS's candidates are compared again with the stored vectors.

A filtered search takes the cheapest way, by estimate, that keeps its recall:

- With few allowed vectors, compare them all.
- If FAISS scans every code, give it a selector that leaves out the rest.
- With lists or a graph, ask for so many neighbours that enough of them pass the filter. A selector would not do:
  FAISS would look no further than the query's surroundings. A filter that passes vectors elsewhere would get poor
  answers unnoticed. If too few neighbours pass, that is noticed, and all allowed vectors are compared. Such a query
  took at most about a fifth longer than the comparison alone.
"""

from __future__ import annotations

import contextlib
import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.errors import InputError
from .base import Parameter, check_parameters, with_defaults
from .faiss_structures import Scan
from .flat import allowed_count, allowed_mask, top_k
from .metric import METRICS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..core.arrays import Floats, Ids, Mask, Positions
    from .faiss_codes import Code
    from .faiss_structures import Structure
    from .flat import FlatIndex

_USUAL_DEPTH = 10  # answers that the search parameters are meant for
_FILTER_COST = 7e5  # of a filtered search beside FAISS's own work, in multiply-adds of an exact search

# A search that finds too few allowed vectors is wasted: all of them are compared after it. Any filter may lie far from
# a query. So a search is tried only if its estimated cost is at most this share of the cost of comparing all.
_SEARCH_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class FaissIndex:
    """A `VectorIndex` on top of FAISS, which numbers the vectors by their position in `exact`."""

    exact: FlatIndex
    index: Any  # None: too few vectors to learn a code from, so all are compared
    structure: Structure
    code: Code
    search_parameters: tuple[Parameter, ...]
    build_values: dict[str, Any]
    search_values: dict[str, Any]

    @property
    def ids(self) -> Ids:
        """The ids of `exact`, position by position: FAISS itself stores none."""
        return self.exact.ids

    def search(self, vectors: Floats, k: int, *, allowed: Mask | Positions | None = None) -> tuple[Floats, Ids]:
        """Search by FAISS, or compare all allowed vectors if that is cheaper; with too few candidates, do both."""
        count = len(self.ids) if allowed is None else allowed_count(allowed)
        depth = self.depth(k, count)
        if self._is_better_exact(k, depth, count, filtered=allowed is not None):
            return self.exact.search(vectors, k, allowed=allowed)
        queries = self.exact.prepare_queries(vectors)
        with faiss_in_one_thread() if len(queries) == 1 else contextlib.nullcontext():
            scores, ids, enough = self._approximate_search(queries, k, depth, count, allowed)
        for row in np.flatnonzero(~enough):
            scores[row], ids[row] = (part[0] for part in self.exact.search(vectors[row : row + 1], k, allowed=allowed))
        return scores, ids

    def reconstruct(self, ids: Ids) -> Floats:
        """Read the stored float32 vectors, not FAISS's codes."""
        return self.exact.reconstruct(ids)

    def with_parameters(self, **search: Any) -> FaissIndex:
        """Return a copy over the same files; parameters not named here keep their values."""
        check_parameters("searching this kind of index", self.search_parameters, search)
        return replace(self, search_values=with_defaults(self.search_parameters, {**self.search_values, **search}))

    def depth(self, k: int, passing: int) -> int:
        """Return how many neighbours to ask FAISS for, so that k times `k_factor` of them pass the filter."""
        candidates, share = k * self._factor, passing / max(1, len(self.ids))
        if share >= 1 or self._selects or not passing:
            return candidates
        return math.ceil((candidates + 3 * math.sqrt(candidates * (1 - share)) + 1) / share)

    def _is_better_exact(self, k: int, depth: int, passing: int, *, filtered: bool) -> bool:
        """Estimate whether comparing all allowed vectors is cheaper than a search by FAISS, or the only way."""
        count, dim = self.exact.vectors.shape
        if self.index is None or k == 0 or depth >= count or 2 * k > passing:
            return True
        if not filtered:
            return False
        exact_cost = 1.5 * passing * dim * (1 if self._selects else _SEARCH_SHARE)
        if exact_cost < _FILTER_COST:
            return True
        code = self.code.cost(dim, self.build_values)
        scanned = passing if self._selects else count
        cost = self.structure.cost(self._visits(depth), scanned, dim, code, self.build_values)
        cost += _FILTER_COST + 3.0 * dim * k * self._factor + 30.0 * depth + (count / 8 if passing < count else 0)
        return bool(exact_cost < cost)

    def _approximate_search(
        self, queries: Floats, k: int, depth: int, passing: int, allowed: Mask | Positions | None
    ) -> tuple[Floats, Ids, Mask]:
        """Return scores and ids of the k best, and a mask of the queries with enough candidates to rely on."""
        mask = None if allowed is None else allowed_mask(allowed, len(self.ids))
        scores, positions = self._neighbours(queries, depth, mask)
        if mask is not None and not self._selects:
            scores, positions = _first_allowed(mask, scores, positions, k * self._factor)
        needed = min(passing, k if self._factor == 1 else math.ceil(k * (1 + self._factor) / 2))
        enough = (positions >= 0).sum(axis=1) >= needed
        if self.code.candidates:
            scores = self.exact.scores_at(queries, positions)
        scores, positions = top_k(scores, positions, k)
        return scores, np.where(positions < 0, -1, self.ids[positions]), enough

    def _neighbours(self, queries: Floats, depth: int, mask: Mask | None) -> tuple[Floats, Positions]:
        """Search by FAISS: scores and positions, (queries, depth); -inf and -1 for missing neighbours."""
        import faiss

        selector: dict[str, Any] = {}
        if mask is not None and self._selects:
            bits = np.packbits(mask, bitorder="little")
            selector = {"sel": faiss.IDSelectorBitmap(len(bits), faiss.swig_ptr(bits))}
        parameters = self.structure.parameters(self._visits(depth), **selector)
        if parameters is not None and isinstance(self.index, faiss.IndexPreTransform):
            parameters = faiss.SearchParametersPreTransform(index_params=parameters)
        with faiss_errors("search this index"):
            scores, positions = self.index.search(queries, depth, params=parameters)
        positions[positions.view(np.uint64) >= len(self.ids)] = -1  # whatever the file holds, these are addresses
        scores *= METRICS[self.exact.metric].sign
        scores[positions < 0] = -np.inf
        return scores, positions

    def _visits(self, depth: int) -> int:
        usual = _USUAL_DEPTH * self._factor
        return self.structure.visits(depth, usual, len(self.ids), self.build_values, self.search_values)

    @property
    def _factor(self) -> int:
        return int(self.search_values.get("k_factor") or 1)

    @property
    def _selects(self) -> bool:
        """Whether FAISS gets the filter as a selector."""
        return self.code.selects and isinstance(self.structure, Scan)


def _first_allowed(mask: Mask, scores: Floats, positions: Positions, count: int) -> tuple[Floats, Positions]:
    """Return the first `count` of each row that pass the filter, in their order."""
    passes = (positions >= 0) & mask[positions]
    order = np.argsort(~passes, axis=1, kind="stable")[:, :count]
    positions = np.where(np.take_along_axis(passes, order, 1), np.take_along_axis(positions, order, 1), -1)
    scores = np.take_along_axis(scores, order, 1)
    scores[positions < 0] = -np.inf
    return scores, positions


@contextlib.contextmanager
def faiss_in_one_thread() -> Iterator[None]:
    """Let FAISS compute in the calling thread alone.

    FAISS does not divide the work of a single query. But it waits for its other threads, which then spin for a while.
    """
    import faiss

    before = faiss.omp_get_max_threads()  # of the calling thread
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


@contextlib.contextmanager
def faiss_errors(action: str) -> Iterator[None]:
    """Turn an error of FAISS into an InputError: "FAISS cannot ACTION: reason"."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        raise InputError(f"FAISS cannot {action}: {faiss_reason(error)}") from None


def faiss_reason(error: Exception) -> str:
    """Return FAISS's message without the file and line of its source."""
    first = re.sub(r"^Error in .* at \S+:[0-9]+: (Error: )?", "", str(error).split("\n", 1)[0])
    return first.split(" failed: ")[-1][:160]
