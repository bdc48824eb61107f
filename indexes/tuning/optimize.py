"""Find the index kind and search parameters that meet the requirements fastest, and prove it on held-out queries.

Few structures are built, each at full size, because recall changes with size. The search parameters of each are swept.
The fastest setting on one half of the queries wins, if the other half proves that it meets the requirements.
"""

from __future__ import annotations

import bisect
import contextlib
import math
import time
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ...core.errors import InputError
from ...core.units import format_bytes
from ..flat import is_exact
from ..registry import KINDS, IndexSpec
from .benchmark import meets_requirements, setting_name, split_queries
from .requirements import queries_needed
from .sweep import TIE, ParameterSweep, TunedIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...core.arrays import Floats
    from ..manifest import BuiltIndex
    from .benchmark import Measurement, QuerySample
    from .requirements import Requirements

    Build = Callable[[IndexSpec], BuiltIndex]
    Log = Callable[[str], None]

_MIN_VECTORS = 2_000  # below, exact search is faster than any build
_REFINE_VECTORS = 50_000  # from here on, more lists are tried
_MAX_LIST_FACTOR = 4  # times the root of the number of vectors: learning takes the square of the number of lists
_HOPELESS = 4  # the sweep of a kind ends where it is this many times slower than another kind that meets them
_NAMES = [kind for kind in KINDS if kind != "factory"]


@dataclass(frozen=True, slots=True)
class OptimizationResult:
    """The chosen index, and every measurement on the way."""

    requirements: Requirements
    choice: TunedIndex | None  # None: no index meets the requirements
    measurements: list[Measurement]
    alternatives: list[str] = field(default_factory=list)  # lines about other possibilities
    seconds: float = 0.0

    @property
    def met(self) -> bool:
        """Whether any measured index meets the requirements."""
        return self.choice is not None


def check_kinds(kinds: Collection[str]) -> None:
    """Check that each kind can be tried.

    :raises InputError: for the first that cannot.
    """
    if isinstance(kinds, str) or not isinstance(kinds, Collection):
        raise InputError(f"kinds are a list of names, such as 'ivf_int8', not {kinds!r}")
    for kind in kinds:
        if kind not in _NAMES:
            raise InputError(f"there is no kind of index {kind!r} to try: expected some of {', '.join(_NAMES)}")


def candidates(count: int, dim: int, requirements: Requirements, kinds: Sequence[str] = ()) -> list[list[IndexSpec]]:
    """Return the specs to build beside exact search, in rounds; a round is built only if all before it failed.

    Measured at 100,000 and a million vectors of dimension 384 (benchmarks/vectors/vectors.py): lists of FastScan codes
    answer as many queries a second as graphs of equal or higher recall, in a fourteenth of their memory or less. Codes
    of half the length, with more candidates compared again, are often faster still.
    """
    lists = {"nlist": _default_lists(count)}
    if kinds:
        named = [IndexSpec(kind, lists if kind.startswith("ivf") else {}) for kind in kinds if kind != "flat"]
        return [_affordable(named, count, dim, requirements)]
    if count < _MIN_VECTORS:
        return []
    shorter, shortest = (IndexSpec("ivf_pq_fast", {**lists, "parts": max(1, dim // share)}) for share in (4, 8))
    fast = [IndexSpec("ivf_pq_fast", lists), shorter, IndexSpec("ivf_rabitq_fast", lists)]
    slow = [IndexSpec("ivf_int8", lists), IndexSpec("ivf_fp16", lists), IndexSpec("hnsw_int8"), IndexSpec("hnsw")]
    rounds = [_affordable(specs, count, dim, requirements) for specs in (fast, slow, [shortest])]
    return [specs for specs in rounds if specs]


def _default_lists(count: int) -> int:
    return max(1, round(math.sqrt(count)))


def _affordable(specs: Sequence[IndexSpec], count: int, dim: int, requirements: Requirements) -> list[IndexSpec]:
    """Keep the specs that vectors of this dimension allow and that fit the memory limit."""
    affordable = []
    for spec in specs:
        with contextlib.suppress(InputError):
            size = count * KINDS[spec.kind].bytes_per_vector(dim, spec.check(dim).build, count)
            if requirements.memory is None or size <= requirements.memory:
                affordable.append(spec)
    return affordable


def optimize(
    build: Build,
    queries: Floats,
    requirements: Requirements,
    *,
    source: str,
    kinds: Sequence[str] = (),
    log: Log = lambda _: None,
) -> OptimizationResult:
    """Build candidates, measure them, and prove the best; the indexes that are not chosen are discarded.

    :param build: builds an index of the rows to search, outside the store's published state.
    :param queries: (n, dim): one half to choose by, one half for the proof.
    :param source: where the queries came from, for the report.
    """
    start, sweeps = time.perf_counter(), []
    log("building flat, and searching it for the exact answers")
    try:
        built = build(IndexSpec())
        selection, holdout = split_queries(queries, built.load())
        sweeps.append(flat := ParameterSweep.of(built, selection))
        flat.find_best(1)
        log(_summary(flat))
        for specs in _rounds(len(flat.index.ids), queries.shape[1], requirements, kinds, holdout, log):
            for spec in specs:
                _try(build, spec, sweeps, requirements, log)
            if any(_meets(sweep, requirements) for sweep in sweeps[1:]):
                break
        _refine(build, sweeps, requirements, log)
        result = _prove_best(sweeps, holdout, requirements, source, log)
    except BaseException:
        for sweep in sweeps:
            sweep.built.discard()
        raise
    for sweep in sweeps:
        if result.choice is None or sweep.built is not result.choice.built:
            sweep.built.discard()
    return replace(result, seconds=time.perf_counter() - start)


def _rounds(
    count: int, dim: int, requirements: Requirements, kinds: Sequence[str], holdout: QuerySample, log: Log
) -> list[list[IndexSpec]]:
    """Return the rounds of candidates; none if the queries could not prove the recall of an approximate index."""
    rounds = candidates(count, dim, requirements, kinds) if requirements.recall < 1 else []
    needed, available = queries_needed(requirements.recall), len(holdout.queries)
    if not rounds or available >= needed:
        return rounds
    log(
        f"a recall of {requirements.recall:g} takes {needed:,} queries to prove, not {available:,}: "
        "only exact search is sure to reach it"
    )
    return []


def _try(build: Build, spec: IndexSpec, sweeps: list[ParameterSweep], requirements: Requirements, log: Log) -> None:
    """Build one candidate and sweep it."""
    log(f"building {setting_name(spec.kind, spec.build)}")
    try:
        built = build(spec)
    except InputError as error:  # vectors that this kind cannot learn from
        log(f"{spec.kind} is left out: {error}")
        return
    built.share_files(sweeps[0].built)
    best = max((_rate(sweep) for sweep in sweeps[1:] if _meets(sweep, requirements)), default=0.0)
    sweeps.append(sweep := ParameterSweep.of(built, sweeps[0].selection))
    sweep.find_best(requirements.recall, best / _HOPELESS)
    log(_summary(sweep))


def _refine(build: Build, sweeps: list[ParameterSweep], requirements: Requirements, log: Log) -> None:
    """With many vectors, build the best kind again with twice the lists, and so on while it gets faster."""
    count, last_tried = len(sweeps[0].index.ids), 0
    while count >= _REFINE_VECTORS and (passing := [sweep for sweep in sweeps[1:] if _meets(sweep, requirements)]):
        manifest = max(passing, key=_rate).built.manifest
        lists = 2 * manifest.build.get("nlist", count)
        if not last_tried < lists <= _MAX_LIST_FACTOR * _default_lists(count):
            return
        last_tried = lists
        _try(build, IndexSpec(manifest.kind, {**manifest.build, "nlist": lists}), sweeps, requirements, log)


def _summary(sweep: ParameterSweep) -> str:
    best = sweep.best
    if best is None:
        top = max(sweep.measurements.values(), key=lambda result: result.recall)
        return (
            f"{sweep.built.manifest.kind} falls short or behind: recall {top.recall:.4f} at {top.rate:,.0f} queries/s"
        )
    return f"{best.name}: recall {best.recall:.4f} at {best.rate:,.0f} queries/s, p99 {1e3 * best.p99:.2f} ms"


def _meets(sweep: ParameterSweep, requirements: Requirements) -> bool:
    best = sweep.best
    return best is not None and meets_requirements(requirements, best.recall_bound, best.memory, best.p99)


def _rate(sweep: ParameterSweep) -> float:
    """Return the rate to compare by; exact search needs no upkeep, so it wins against a kind that is hardly faster."""
    assert sweep.best is not None
    return sweep.best.rate * (TIE if is_exact(sweep.index) else 1)


def _prove_best(
    sweeps: list[ParameterSweep], holdout: QuerySample, requirements: Requirements, source: str, log: Log
) -> OptimizationResult:
    """Choose the fastest index that meets the requirements on the held-out queries."""
    measurements = [result for sweep in sweeps for result in sweep.measurements.values()]
    for sweep in sorted((sweep for sweep in sweeps if _meets(sweep, requirements)), key=_rate, reverse=True):
        search = sweep.prove(holdout, requirements.recall)
        if search is None:
            log(f"{sweep.built.manifest.kind} does not reach the recall on the held-out queries")
            continue
        choice = sweep.tuned_index(search, holdout, requirements, source)
        if choice.benchmark.met:
            return OptimizationResult(requirements, choice, [*measurements, choice.measurement])
        log(f"{sweep.built.manifest.kind} does not meet the requirements on the held-out queries")
    return OptimizationResult(requirements, None, measurements, alternatives(sweeps, requirements))


def alternatives(sweeps: Sequence[ParameterSweep], requirements: Requirements) -> list[str]:
    """Describe other possibilities: the best recall within the limits, and the lowest limits for the recall."""
    lines = []
    if within := [result for sweep in sweeps for result in _best_within_limits(sweep, requirements)]:
        best = max(within, key=lambda result: result.recall_bound)
        limits = "within these limits" if requirements.memory or requirements.latency else "at most"
        lines.append(f"{limits}: recall {best.recall:.4f}, at least {best.recall_bound:.4f}, by {best.name}")
    good = [sweep.best for sweep in sweeps if sweep.best and sweep.best.recall_bound >= requirements.recall]
    if requirements.latency and good:
        fast = min(good, key=lambda result: result.p99)
        lines.append(f"recall {requirements.recall:g} takes {1e3 * fast.p99:.2f} ms (p99), by {fast.name}")
    if requirements.memory and good:
        small = min(good, key=lambda result: result.memory)
        lines.append(f"recall {requirements.recall:g} takes {format_bytes(small.memory)}, by {small.name}")
    return lines


def _best_within_limits(sweep: ParameterSweep, requirements: Requirements) -> list[Measurement]:
    """Return the setting with the highest recall within the limits, if any.

    Higher recall takes longer, so a binary search over the settings has to time only a few of them.
    """
    results = sorted(sweep.measurements.values(), key=lambda result: (result.recall_bound, -result.rate))

    def is_beyond(result: Measurement) -> bool:
        if requirements.latency and math.isnan(result.p99):
            result = sweep.measure(result.search, timed=True)
        return not meets_requirements(requirements, requirements.recall, result.memory, result.p99)

    end = bisect.bisect_left(results, True, key=is_beyond)
    return results[:end][-1:]
