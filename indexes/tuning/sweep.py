"""Sweep the search parameters of one built index: find the fastest setting, and prove its recall on other queries.

The proof starts from the fastest setting that meets the recall on the first half of the queries. It tests a fixed
sequence of settings around that one, from deeper ones to somewhat shallower ones, on the held-out queries. It stops at
the first setting with a 95 % bound below the recall. In a fixed sequence each test runs at the full level (Angelopoulos
et al. 2021, "Learn then Test"). So the last setting that passed is proven as if it alone had been tried.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..faiss_kind import FaissKind
from ..faiss_structures import Lists
from ..flat import is_exact
from ..manifest import IndexMetadata
from ..registry import KINDS, IndexSpec
from .benchmark import BenchmarkResult, Measurement, recall_lower_bound

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..base import VectorIndex
    from ..manifest import BuiltIndex
    from .benchmark import QuerySample
    from .requirements import Requirements

    Setting = dict[str, Any]  # search parameters

TIE = 1.1  # exact search wins unless another kind is faster by more than this factor
_LADDER = (4, 3, 2, 1.5, 1, 0.75, 0.5, 0.25, 0, -0.25, -0.5, -0.75, -1)  # steps to prove, in factors of root two
_FACTORS = (8, 16, 4, 32, 2, 64, 1)  # candidates to compare with their vectors for each answer, most promising first


@dataclass(frozen=True, slots=True)
class TunedIndex:
    """A built index, the search parameters chosen for it, and its benchmark."""

    built: BuiltIndex  # to be published or discarded
    spec: IndexSpec
    benchmark: BenchmarkResult
    note: str = ""  # after a rebuild: the missed requirement, and the remedy
    requested: IndexSpec | None = None  # the spec that could not be built, if this one replaces it

    @property
    def metadata(self) -> IndexMetadata:
        """The chosen search parameters and the benchmark as JSON, for `BuiltIndex.publish`."""
        return IndexMetadata(self.spec.search, self.benchmark.as_dict())

    @property
    def measurement(self) -> Measurement:
        """The benchmark's figures without its curve, to compare with other settings."""
        result, spec = self.benchmark, self.spec
        figures = (result.recall, result.recall_bound, result.rate, result.memory, result.p50, result.p99)
        return Measurement(spec.kind, spec.build, spec.search, *figures)


@dataclass(slots=True)
class ParameterSweep:
    """One built index, and the settings of its searches."""

    built: BuiltIndex
    index: VectorIndex
    selection: QuerySample  # the queries to choose by
    measurements: dict[tuple[tuple[str, Any], ...], Measurement] = field(default_factory=dict)
    best: Measurement | None = None  # the fastest setting to meet the recall on the selection

    @classmethod
    def of(cls, built: BuiltIndex, selection: QuerySample) -> ParameterSweep:
        """Open the index once, for all its settings."""
        return cls(built, built.load(), selection)

    def measure(self, search: Setting, holdout: QuerySample | None = None, *, timed: bool = False) -> Measurement:
        """Measure one setting on the selection, once, or on held-out queries.

        :param timed: measure latencies too, and the rate more carefully.
        """
        key = tuple(search.items())
        if holdout is None and key in self.measurements and not timed:
            return self.measurements[key]
        sample, index = holdout or self.selection, self.index.with_parameters(**search)
        start = time.perf_counter()
        scores = index.search(sample.queries, sample.k)[0]
        rate = len(sample.queries) / (time.perf_counter() - start)
        recalls = sample.recalls_of_scores(scores)
        bound = 1.0 if is_exact(index) else recall_lower_bound(recalls)
        spec = self.built.manifest
        result = Measurement(spec.kind, spec.build, search, float(recalls.mean()), bound, rate, self.built.memory)
        if timed:
            p50, p99 = sample.latencies(index)
            result = replace(result, rate=sample.rate(index), p50=p50, p99=p99)
        if holdout is None:
            self.measurements[key] = result
        return result

    def find_best(self, recall: float, minimum_rate: float = 0.0) -> None:
        """Set `best`: for each number of candidates, search the fewest lists or nodes that reach the recall.

        :param minimum_rate: queries a second; slower settings are given up.
        """
        if is_exact(self.index):
            self.best = self.measure({}, timed=True)
            return
        self.index.search(self.selection.queries, self.selection.k)  # reads the mapped files
        best: Measurement | None = None
        for settings in self._series():
            best = self._deepen(settings, recall, best, max(minimum_rate, best.rate / TIE if best else 0.0))
        self.best = best and self.measure(best.search, timed=True)

    def _deepen(
        self, settings: list[Setting], recall: float, best: Measurement | None, minimum_rate: float
    ) -> Measurement | None:
        """Try every second setting, from shallow to deep. When one meets the recall, try the setting before it too."""
        before: Measurement | None = None
        for number in range(0, len(settings), 2):
            current = self.measure(settings[number])
            if current.recall_bound >= recall:
                between = self.measure(settings[number - 1]) if number else current
                good = [result for result in (best, current, between) if result and result.recall_bound >= recall]
                return max(good, key=lambda result: result.rate)
            is_hopeless = before is not None and current.recall - before.recall < (1 - recall) / 10
            if is_hopeless or current.rate < minimum_rate:
                break
            before = current
        return best

    def _series(self) -> Iterator[list[Setting]]:
        """Yield settings from shallow to deep, for each number of candidates to compare again."""
        name, values = self._depths()
        parameters = [parameter.name for parameter in KINDS[self.built.manifest.kind].search_parameters]
        for factor in _FACTORS if "k_factor" in parameters else (None,):
            rerank = {} if factor is None else {"k_factor": factor}
            yield [{**({name: value} if name else {}), **rerank} for value in values]

    def settings_around(self, search: Setting, steps: Sequence[float]) -> list[Setting]:
        """Return the settings that lie these steps of a factor of root two from one, in order, without repetition."""
        name, values = self._depths()
        name, low, high = (name, values[0], values[-1]) if name else ("k_factor", 1, 256)
        if name not in search:
            return [search]
        low, high = min(low, search[name]), max(high, search[name])  # the index may have shrunk since it was tuned
        scaled = (round(search[name] * 2 ** (step / 2)) for step in steps)
        return [{**search, name: value} for value in dict.fromkeys(min(high, max(low, value)) for value in scaled)]

    def _depths(self) -> tuple[str | None, list[int]]:
        """Return the parameter that sets how much of the structure is visited, and its values from little to all."""
        manifest, count = self.built.manifest, len(self.index.ids)
        kind = KINDS[manifest.kind]
        assert isinstance(kind, FaissKind)
        build = kind.values(manifest.build)
        structure = kind.structure_of(build)
        if not structure.search_parameters:
            return None, [0]
        depth = structure.search_parameters[0]
        if isinstance(structure, Lists):
            return depth.name, depth.grid(structure.nlist(count, build))
        return depth.name, [value for value in depth.grid(max(16, count // 4)) if value >= 10]

    def prove(self, holdout: QuerySample, recall: float) -> Setting | None:
        """Return the shallowest setting proven to meet the recall, from the safest down; None if none is."""
        assert self.best is not None
        if is_exact(self.index):
            return self.best.search
        ladder, proven = self.settings_around(self.best.search, _LADDER), None
        if self._depths()[0] and self.best.search.get("k_factor", max(_FACTORS)) < max(_FACTORS):
            ladder.insert(0, {**ladder[0], "k_factor": 2 * self.best.search["k_factor"]})
        for search in ladder:
            if recall_lower_bound(holdout.recalls(self.index.with_parameters(**search))) < recall:
                break
            proven = search
        return proven

    def tuned_index(self, search: Setting, holdout: QuerySample, requirements: Requirements, source: str) -> TunedIndex:
        """Measure the index with this setting, and the curve around it, on held-out queries."""
        measurement = self.measure(search, holdout, timed=True)
        settings = [] if is_exact(self.index) else self.settings_around(search, (-6, -4, -2, 0, 2, 4))
        curve = [
            measurement if setting == search else self.measure(setting, holdout, timed=True) for setting in settings
        ] or [measurement]
        queries, count = len(holdout.queries), len(self.index.ids)
        benchmark = BenchmarkResult.of(measurement, curve, requirements, queries=queries, count=count, source=source)
        return TunedIndex(self.built, replace(self.built.manifest.spec, search=search), benchmark)
