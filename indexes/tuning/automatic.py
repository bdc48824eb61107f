"""Build the vector index of a store for which nobody chose one: exact search, or lists of codes for many vectors.

Lists of 4-bit codes answer from a fraction of the vectors. They are published only if they find nearly all neighbours
that a search takes into account. `benchmarks/results/vectors-default.json` has the figures.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..base import SEARCH_DEPTH
from ..flat import exact_index, is_exact
from ..manifest import IndexMetadata
from ..registry import IndexSpec
from .benchmark import QuerySample, recall_lower_bound
from .renewal import rebuild, synthetic_queries

if TYPE_CHECKING:
    from ..base import VectorIndex
    from ..manifest import BuiltIndex
    from .optimize import Build

_MIN_VECTORS = 100_000  # vectors: from here on, comparing all takes a third of a search's time
_RECALL = 0.99  # minimum of the lower 95 % bound, over the neighbours that a search asks for
_QUERIES = 1_000
# From the cheapest on. (16, 4): search a 16th of the lists, with a `k_factor` of 4.
_SETTINGS = ((16, 4), (16, 8), (12, 8), (10, 8), (8, 8), (6, 8), (8, 16), (7, 16), (6, 16), (5, 16), (4, 16))


def build_default(build: Build, count: int) -> tuple[BuiltIndex, IndexMetadata]:
    """Build an index of this many vectors; return it with the search parameters that reach the recall."""
    if count < _MIN_VECTORS:
        return build(IndexSpec()), IndexMetadata()
    lists = round(math.sqrt(count))
    built, _ = rebuild(build, IndexSpec("ivf_pq_fast", {"nlist": lists}))
    index = built.load()
    if is_exact(index):
        return built, IndexMetadata()
    sample = _neighbours(index)
    for share, factor in _SETTINGS:
        search = {"nprobe": max(1, round(lists / share)), "k_factor": factor}
        if recall_lower_bound(sample.recalls(index.with_parameters(**search))) >= _RECALL:
            return built, IndexMetadata(search)
    built.discard()
    return build(IndexSpec()), IndexMetadata()


def _neighbours(index: VectorIndex) -> QuerySample:
    """Mix queries from the vectors, and search exactly for their neighbours."""
    exact = exact_index(index)
    queries, k = synthetic_queries(exact, _QUERIES), min(SEARCH_DEPTH, len(index.ids))
    return QuerySample(queries, exact.search(queries, k)[0][:, -1:], k)
