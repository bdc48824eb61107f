"""A built index on trial: which setting of a search is fastest, and down to which one it is proven to find enough.

About the fastest setting that meets the demand on one half of the queries stands a ladder, from deeper settings to
somewhat shallower ones. On the other half it is gone down from its safest end until a setting can no longer be shown to
meet the demand at 95 %. In this order each test can be at the full level (fixed sequence testing, as in Angelopoulos et
al. 2021, "Learn then Test"), so that where it stopped is proven as if it alone had been tried.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..faiss_kind import FaissKind
from ..faiss_structures import Lists
from ..flat import is_exact
from ..published import IndexMetadata
from ..registry import KINDS, Spec
from .benchmark import BenchmarkResult, Point, Sample, at_least

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...core.arrays import Floats
    from ..base import VectorIndex
    from ..published import Built
    from ..sharded import BuiltShards
    from .benchmark import Requirements

TIE = 1.1  # exact search is kept where nothing is faster by more than this
# Times the root of two that the settings to prove are off the chosen one.
_RUNGS = (4, 3, 2, 1.5, 1, 0.75, 0.5, 0.25, 0, -0.25, -0.5, -0.75, -1)
_FACTORS = (8, 16, 4, 32, 2, 64, 1)  # candidates compared with their vectors, in the order of promise
_SEED = 0


@dataclass(frozen=True, slots=True)
class TunedIndex:
    """An index that was built, how it is to be searched, and what was measured of it."""

    built: Built | BuiltShards  # to be put or discarded
    spec: Spec
    measured: BenchmarkResult
    note: str = ""  # of one that is built anew: which part of its demand was missed, and what was done
    wanted: Spec | None = None  # what it stands in for, which could not be built

    @property
    def settled(self) -> IndexMetadata:
        return IndexMetadata(self.spec.search, self.measured.as_dict())

    @property
    def point(self) -> Point:
        made, spec = self.measured, self.spec
        figures = (made.recall, made.least, made.rate, made.memory, made.p50, made.p99)
        return Point(spec.kind, spec.build, spec.search, *figures)


@dataclass(slots=True)
class ParameterSweep:
    """One built index, and the settings that it has been searched with."""

    built: Built | BuiltShards
    index: VectorIndex
    seen: Sample
    points: dict[tuple[tuple[str, Any], ...], Point] = field(default_factory=dict)
    chosen: Point | None = None  # the fastest setting to meet the recall on the seen queries

    @classmethod
    def of(cls, built: Built | BuiltShards, seen: Sample) -> ParameterSweep:
        return cls(built, built.load(), seen)

    def at(self, search: dict[str, Any], sample: Sample | None = None, *, timed: bool = False) -> Point:
        """A setting, measured on the seen queries unless on others."""
        key = tuple(search.items())
        if sample is None and key in self.points and not timed:
            return self.points[key]
        on, index = sample or self.seen, self.index.tuned(**search)
        began = time.perf_counter()
        scores = index.search(on.queries, on.k)[0]
        rate = len(on.queries) / (time.perf_counter() - began)
        recalls = on.compared(scores)
        least = 1.0 if is_exact(index) else at_least(recalls)
        made = self.built.manifest
        point = Point(made.kind, made.build, search, float(recalls.mean()), least, rate, self.built.memory)
        if timed:
            p50, p99 = on.timed(index)
            point = replace(point, rate=on.rate(index), p50=p50, p99=p99)
        if sample is None:
            self.points[key] = point
        return point

    def sweep(self, recall: float, least_rate: float = 0.0) -> None:
        """Find `chosen`: for each number of candidates the fewest lists or nodes, while that can be the fastest.

        :param least_rate: queries a second from which on a setting is of use.
        """
        if is_exact(self.index):
            self.chosen = self.at({}, timed=True)
            return
        self.index.search(self.seen.queries, self.seen.k)  # reads what is mapped
        best: Point | None = None
        for settings in self._ways():
            best = self._along(settings, recall, best, max(least_rate, best.rate / TIE if best else 0.0))
        self.chosen = best and self.at(best.search, timed=True)

    def _along(
        self, settings: list[dict[str, Any]], recall: float, best: Point | None, least_rate: float
    ) -> Point | None:
        """In steps of two settings; the one between is tried when the first meets the recall."""
        before: Point | None = None
        for place in range(0, len(settings), 2):
            point = self.at(settings[place])
            if point.least >= recall:
                between = self.at(settings[place - 1]) if place else point
                good = [one for one in (best, point, between) if one and one.least >= recall]
                return max(good, key=lambda one: one.rate)
            hopeless = before is not None and point.recall - before.recall < (1 - recall) / 10
            if hopeless or point.rate < least_rate:
                break
            before = point
        return best

    def _ways(self) -> Iterator[list[dict[str, Any]]]:
        """Settings from shallow to deep, for each number of candidates that are compared again."""
        name, values = self._breadths()
        known = [parameter.name for parameter in KINDS[self.built.manifest.kind].search_parameters]
        for factor in _FACTORS if "k_factor" in known else (None,):
            again = {} if factor is None else {"k_factor": factor}
            yield [{**({name: value} if name else {}), **again} for value in values]

    def around(self, search: dict[str, Any], steps: Sequence[float]) -> list[dict[str, Any]]:
        """The settings so many times the root of two from one, in their order, without repetition."""
        breadth, values = self._breadths()
        name, least, most = (breadth, values[0], values[-1]) if breadth else ("k_factor", 1, 256)
        if name not in search:
            return [search]
        least, most = min(least, search[name]), max(most, search[name])  # rows may have gone since it was chosen
        wider = (round(search[name] * 2 ** (step / 2)) for step in steps)
        return [{**search, name: value} for value in dict.fromkeys(min(most, max(least, one)) for one in wider)]

    def _breadths(self) -> tuple[str | None, list[int]]:
        """The parameter that says how much of the structure is visited, and its values from little to all."""
        made, count = self.built.manifest, len(self.index.ids)
        kind = KINDS[made.kind]
        assert isinstance(kind, FaissKind)
        build = kind.values(made.build)
        structure = kind.structure_of(build)
        if not structure.search_parameters:
            return None, [0]
        breadth = structure.search_parameters[0]
        if isinstance(structure, Lists):
            return breadth.name, breadth.grid(structure.nlist(count, build))
        return breadth.name, [value for value in breadth.grid(max(16, count // 4)) if value >= 10]

    def prove(self, unseen: Sample, recall: float) -> dict[str, Any] | None:
        """The shallowest setting shown to meet the recall, from the safest one down; None if not even that."""
        assert self.chosen is not None
        if is_exact(self.index):
            return self.chosen.search
        ladder, proven = self.around(self.chosen.search, _RUNGS), None
        if self._breadths()[0] and self.chosen.search.get("k_factor", max(_FACTORS)) < max(_FACTORS):
            ladder.insert(0, {**ladder[0], "k_factor": 2 * self.chosen.search["k_factor"]})
        for search in ladder:
            if at_least(unseen.recalls(self.index.tuned(**search))) < recall:
                break
            proven = search
        return proven

    def choice(self, search: dict[str, Any], unseen: Sample, demand: Requirements, source: str) -> TunedIndex:
        """Of the index searched so, measured with the curve around that setting."""
        point = self.at(search, unseen, timed=True)
        settings = [] if is_exact(self.index) else self.around(search, (-6, -4, -2, 0, 2, 4))
        curve = [point if one == search else self.at(one, unseen, timed=True) for one in settings] or [point]
        measured = measured_of(point, curve, demand, unseen, len(self.index.ids), source)
        return TunedIndex(self.built, replace(self.built.manifest.spec, search=search), measured)


def measured_of(
    point: Point, curve: Sequence[Point], demand: Requirements, sample: Sample, count: int, source: str
) -> BenchmarkResult:
    import faiss

    names = ("search", "recall", "least", "rate", "p50", "p99")
    return BenchmarkResult(
        demand,
        recall=point.recall,
        least=point.least,
        rate=point.rate,
        p50=point.p50,
        p99=point.p99,
        memory=point.memory,
        count=count,
        threads=faiss.omp_get_max_threads(),
        queries=len(sample.queries),
        source=source,
        at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        curve=[{name: getattr(one, name) for name in names} for one in curve],
    )


def halves(queries: Floats, index: VectorIndex) -> tuple[Sample, Sample]:
    """Those to choose by and those to prove with, each with its exact answers; the same one where there is but one.

    Kept queries are divided as they were, so that those to prove with never had a part in choosing.
    """
    order = np.random.default_rng(_SEED).permutation(len(queries))
    half = len(queries) // 2
    seen, unseen = order[:half] if half else order, order[half:]
    return Sample.of(queries[np.sort(seen)], index), Sample.of(queries[np.sort(unseen)], index)
