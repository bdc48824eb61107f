"""Structures: how FAISS finds its way among codes, through all of them, some of many lists, or along a graph.

The parameters of a search are meant for its ten best. A deeper search, for more answers or under a filter that lets few
vectors pass, has to visit more: `visits` says how many.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from .base import Parameter

Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Scan:
    """Compare every code."""

    build_parameters: ClassVar[tuple[Parameter, ...]] = ()
    search_parameters: ClassVar[tuple[Parameter, ...]] = ()

    def factory(self, count: int, build: Values) -> str:  # noqa: ARG002
        """Return the structure's part of FAISS's factory string."""
        return ""

    def size(self, count: int, dim: int, build: Values) -> float:  # noqa: ARG002
        """Return the bytes a vector takes beside its code."""
        return 0

    def training_vectors(self, count: int, build: Values) -> int:  # noqa: ARG002
        """Return the minimum number of vectors to learn the structure from."""
        return 1

    def visits(self, depth: int, usual: int, count: int, build: Values, search: Values) -> int:  # noqa: ARG002
        """Return how many lists or nodes a search for the `depth` best visits.

        :param usual: the depth that the search parameters are meant for.
        """
        return count

    def cost(self, visits: int, count: int, dim: int, code: float, build: Values) -> float:  # noqa: ARG002
        """Estimate the cost of one query, in multiply-adds of an exact search.

        The formulas are fitted to measurements on one core with AVX-512.
        """
        return visits * code

    def parameters(self, visits: int, **selector: Any) -> Any:  # noqa: ARG002
        """Return FAISS's search parameters."""
        import faiss

        return faiss.SearchParameters(**selector) if selector else None


@dataclass(frozen=True, slots=True)
class Lists:
    """IVF: divide the vectors into k-means cells and search the nearest cells."""

    build_parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("nlist", "the number of lists; 4 times the root of the number of vectors unless given", 1, 1_048_576),
    )
    search_parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("nprobe", "how many lists are searched; a sixteenth, at least 8, unless given", 1, 1_048_576),
    )

    def nlist(self, count: int, build: Values) -> int:
        """Return the number of lists for `count` vectors."""
        if build.get("nlist"):
            return int(build["nlist"])
        return max(1, min(round(4 * math.sqrt(count)), count // 39))

    def factory(self, count: int, build: Values) -> str:
        """Return `IVF2000,`, for example; the number of lists may follow from `count`."""
        return f"IVF{self.nlist(count, build)},"

    def size(self, count: int, dim: int, build: Values) -> float:
        """Return 8 bytes for the id, plus the vector's share of the float32 centroids."""
        return 8 + 4 * dim * self.nlist(count, build) / max(1, count)

    def training_vectors(self, count: int, build: Values) -> int:
        """Return the number of lists: k-means needs a vector for each."""
        return self.nlist(count, build)

    def visits(self, depth: int, usual: int, count: int, build: Values, search: Values) -> int:
        """Return `nprobe`, times (depth / usual) to the power of 0.4 for a deeper search, at most all lists."""
        nlist = self.nlist(count, build)
        nprobe = int(search.get("nprobe") or max(8, nlist // 16))
        return min(nlist, math.ceil(nprobe * math.pow(max(1.0, depth / usual), 0.4)))

    def cost(self, visits: int, count: int, dim: int, code: float, build: Values) -> float:
        """Add the comparison with every centroid, the codes of the visited lists, and 2,000 to open a list."""
        nlist = self.nlist(count, build)
        return nlist * dim + visits * (code * count / nlist + 2_000)

    def parameters(self, visits: int, **selector: Any) -> Any:
        """Pass `visits` to FAISS as `nprobe`."""
        import faiss

        return faiss.SearchParametersIVF(nprobe=visits, **selector)


@dataclass(frozen=True, slots=True)
class Graph:
    """HNSW: follow a graph of near neighbours (Malkov and Yashunin 2016)."""

    build_parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("m", "how many neighbours a node has, and twice as many on the ground", 2, 256, 16),
        Parameter("ef_construction", "how many candidates for neighbours are looked at", 4, 4_096, 128),
    )
    search_parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("ef_search", "how many of the best nodes so far are kept to go on from", 1, 65_536, 96),
    )

    def factory(self, count: int, build: Values) -> str:  # noqa: ARG002
        """Return `HNSW16,`, for example; the string has no place for `ef_construction`."""
        return f"HNSW{build['m']},"

    def size(self, count: int, dim: int, build: Values) -> float:  # noqa: ARG002
        """Return the bytes of the links over all levels, plus 20 for a vector's own entry."""
        return float(8.5 * build["m"] + 20)

    def training_vectors(self, count: int, build: Values) -> int:  # noqa: ARG002
        """Return 1: a graph learns nothing before vectors are added."""
        return 1

    def visits(self, depth: int, usual: int, count: int, build: Values, search: Values) -> int:  # noqa: ARG002
        """Return `ef_search` plus 1.5 for each neighbour beyond `usual`, at least `depth`, at most `count`."""
        ef_search = int(search["ef_search"])
        return min(count, max(depth, math.ceil(ef_search + 1.5 * max(0, depth - usual))))

    def cost(self, visits: int, count: int, dim: int, code: float, build: Values) -> float:  # noqa: ARG002
        """Charge each visited node `m` comparisons, and 100 more each for a read at random."""
        return float(visits * build["m"] * (code + 100))

    def parameters(self, visits: int, **selector: Any) -> Any:
        """Pass `visits` to FAISS as `efSearch`."""
        import faiss

        return faiss.SearchParametersHNSW(efSearch=visits, **selector)


Structure = Scan | Lists | Graph
