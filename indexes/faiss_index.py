"""Approximate search by FAISS, with true scores: what FAISS finds is compared again with the stored vectors.

A filter is met in the way that keeps its recall at the least estimated cost. Few allowed vectors are all compared.
Where FAISS scans every code, a selector tells it which to leave out. Lists and graphs are instead asked for so many
neighbours that enough of them pass: with a selector they would look no further than the query's surroundings, and a
filter whose vectors lie elsewhere would get poor answers without anyone noticing. Here too few pass, which is noticed,
and such a query is answered by comparing all that is allowed: it then took at most about a fifth longer than that.
"""

from __future__ import annotations

import contextlib
import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.errors import InputError
from .base import check_parameters, with_defaults
from .flat import best_of, count_of, mask_of
from .metric import METRICS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..core.arrays import Floats, Ids, Mask
    from .base import Places
    from .faiss_kind import FaissKind
    from .flat import FlatIndex

_USUAL = 10  # how many answers the search parameters are meant for
_FIXED = 7e5  # what a search with a filter takes beside what FAISS does, in multiply-adds of an exact search
# A search that finds too few that pass is paid in addition to comparing all that does, and a filter may always lie far
# from a query: so it is tried where it is estimated to take no more than this share of comparing all.
_STAKE = 0.2


@dataclass(frozen=True, slots=True)
class FaissIndex:
    """A `VectorIndex` whose FAISS index knows the vectors by their place in `exact`."""

    exact: FlatIndex
    index: Any  # None: too few vectors to learn a code from, all are compared
    kind: FaissKind
    build_values: dict[str, Any]
    search_values: dict[str, Any]

    @property
    def ids(self) -> Ids:
        return self.exact.ids

    def search(self, vectors: Floats, k: int, *, allowed: Mask | Places | None = None) -> tuple[Floats, Ids]:
        count = len(self.ids) if allowed is None else count_of(allowed)
        depth = self.depth(k, count)
        if self._is_better_exact(k, depth, count, filtered=allowed is not None):
            return self.exact.search(vectors, k, allowed=allowed)
        queries = self.exact.checked(vectors)
        scores, found, enough = self._found(queries, k, depth, count, allowed)
        for row in np.flatnonzero(~enough):
            scores[row], found[row] = (
                part[0] for part in self.exact.search(vectors[row : row + 1], k, allowed=allowed)
            )
        return scores, found

    def reconstruct(self, ids: Ids) -> Floats:
        return self.exact.reconstruct(ids)

    def tuned(self, **search: Any) -> FaissIndex:
        check_parameters("searching this kind of index", self.kind.search_parameters, search)
        return replace(self, search_values=with_defaults(self.kind.search_parameters, {**self.search_values, **search}))

    def depth(self, k: int, passing: int) -> int:
        """How many neighbours to ask FAISS for, so that as many as are compared again pass."""
        wanted, share = k * self._factor, passing / max(1, len(self.ids))
        if share >= 1 or self._selects or not passing:
            return wanted
        return math.ceil((wanted + 3 * math.sqrt(wanted * (1 - share)) + 1) / share)

    def _is_better_exact(self, k: int, depth: int, passing: int, *, filtered: bool) -> bool:
        count, dim = self.exact.vectors.shape
        if self.index is None or k == 0 or depth >= count or 2 * k > passing:
            return True
        if not filtered:
            return False
        compared = 1.5 * passing * dim * (1 if self._selects else _STAKE)
        if compared < _FIXED:
            return True
        code = self.kind.code.cost(dim, self.build_values)
        scanned = passing if self._selects else count
        cost = self.kind.structure_of(self.build_values).cost(
            self._visits(depth), scanned, dim, code, self.build_values
        )
        cost += _FIXED + 3.0 * dim * k * self._factor + 30.0 * depth + (count / 8 if passing < count else 0)
        return bool(compared < cost)

    def _found(
        self, queries: Floats, k: int, depth: int, passing: int, allowed: Mask | Places | None
    ) -> tuple[Floats, Ids, Mask]:
        """The k best that FAISS finds, and for which queries it found enough to rely on."""
        mask = None if allowed is None else mask_of(allowed, len(self.ids))
        scores, places = self._neighbours(queries, depth, mask)
        if mask is not None and not self._selects:
            scores, places = _only(mask, scores, places, k * self._factor)
        needed = min(passing, k if self._factor == 1 else math.ceil(k * (1 + self._factor) / 2))
        enough = (places >= 0).sum(axis=1) >= needed
        if self.kind.code.depth:
            scores = self.exact.scores_at(queries, places)
        scores, places = best_of(scores, places, k)
        return scores, np.where(places < 0, -1, self.ids[places]), enough

    def _neighbours(self, queries: Floats, depth: int, mask: Mask | None) -> tuple[Floats, Places]:
        import faiss

        selector: dict[str, Any] = {}
        if mask is not None and self._selects:
            bits = np.packbits(mask, bitorder="little")
            selector = {"sel": faiss.IDSelectorBitmap(len(mask), faiss.swig_ptr(bits))}
        parameters = self.kind.structure_of(self.build_values).parameters(self._visits(depth), **selector)
        if parameters is not None and isinstance(self.index, faiss.IndexPreTransform):
            parameters = faiss.SearchParametersPreTransform(index_params=parameters)
        with refusal("search this index"):
            scores, places = self.index.search(queries, depth, params=parameters)
        scores *= METRICS[self.exact.metric].sign
        scores[places < 0] = -np.inf
        return scores, places

    def _visits(self, depth: int) -> int:
        structure = self.kind.structure_of(self.build_values)
        return structure.visits(depth, _USUAL * self._factor, len(self.ids), self.build_values, self.search_values)

    @property
    def _factor(self) -> int:
        return int(self.search_values.get("k_factor") or 1)

    @property
    def _selects(self) -> bool:
        return self.kind.selects(self.build_values)


def _only(mask: Mask, scores: Floats, places: Places, count: int) -> tuple[Floats, Places]:
    """The first `count` that pass, in their order."""
    passes = (places >= 0) & mask[places]
    order = np.argsort(~passes, axis=1, kind="stable")[:, :count]
    places = np.where(np.take_along_axis(passes, order, 1), np.take_along_axis(places, order, 1), -1)
    scores = np.take_along_axis(scores, order, 1)
    scores[places < 0] = -np.inf
    return scores, places


@contextlib.contextmanager
def refusal(doing: str) -> Iterator[None]:
    """Have FAISS's errors say that it cannot do this."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        raise InputError(f"FAISS cannot {doing}: {reason(error)}") from None


def reason(error: Exception) -> str:
    """FAISS's message without the place in its source."""
    first = re.sub(r"^Error in .* at \S+:[0-9]+: (Error: )?", "", str(error).split("\n", 1)[0])
    return first.split(" failed: ")[-1][:160]
