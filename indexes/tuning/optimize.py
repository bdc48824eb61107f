"""The kind of index, and how it is searched, that meets a demand fastest: found on some queries, proven on others.

Few structures are built, each at full size, for recall changes with size; of each, the parameters of a search are
swept. The fastest setting on one half of the queries that is proven to meet the demand on the other half is chosen.
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
from ..registry import KINDS, Spec
from .benchmark import Point, Sample, meets, queries_needed
from .trial import TIE, ParameterSweep, TunedIndex, halves

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...core.arrays import Floats
    from ..published import Built
    from ..sharded import BuiltShards
    from .benchmark import Requirements

    Build = Callable[[Spec], Built | BuiltShards]
    Tell = Callable[[str], None]

_FEW = 2_000  # vectors that are compared sooner than anything else is done
_MANY = 50_000  # vectors from which on more lists are tried
_MOST = 4  # times as many, at most: learning them takes the square of their number
_HOPELESS = 4  # times as slow as another kind that meets the demand: nothing deeper is tried
_NAMED = [kind for kind in KINDS if kind != "factory"]


@dataclass(frozen=True, slots=True)
class TuningResult:
    """What was chosen, and all that was measured on the way."""

    demand: Requirements
    choice: TunedIndex | None  # None: nothing meets the demand
    points: list[Point]
    nearest: list[str] = field(default_factory=list)  # what would be possible instead
    seconds: float = 0.0

    @property
    def met(self) -> bool:
        return self.choice is not None


def check_kinds(kinds: Collection[str]) -> None:
    """Whether each can be tried."""
    if isinstance(kinds, str) or not isinstance(kinds, Collection):
        raise InputError(f"kinds are a list of names, such as 'ivf_int8', not {kinds!r}")
    for kind in kinds:
        if kind not in _NAMED:
            raise InputError(f"there is no kind of index {kind!r} to try: expected some of {', '.join(_NAMED)}")


def candidates(count: int, dim: int, demand: Requirements, kinds: Sequence[str] = ()) -> list[list[Spec]]:
    """What is worth building beside exact search, in rounds: the next only if none of this one meets the demand.

    Measured at 100 thousand and a million vectors of dimension 384 (benchmarks/vectors.py): lists of FastScan codes
    answered as many queries a second as graphs of the same recall or more, in a fourteenth of their memory or less.
    Codes of half the length and more candidates compared again are often faster still.
    """
    lists = {"nlist": _least_lists(count)}
    if kinds:
        named = [Spec(kind, lists if kind.startswith("ivf") else {}) for kind in kinds if kind != "flat"]
        return [_possible(named, count, dim, demand)]
    if count < _FEW:
        return []
    shorter, shortest = (Spec("ivf_pq_fast", {**lists, "parts": max(1, dim // share)}) for share in (4, 8))
    fast = [Spec("ivf_pq_fast", lists), shorter, Spec("ivf_rabitq_fast", lists)]
    slow = [Spec("ivf_int8", lists), Spec("ivf_fp16", lists), Spec("hnsw_int8"), Spec("hnsw")]
    rounds = [_possible(specs, count, dim, demand) for specs in (fast, slow, [shortest])]
    return [specs for specs in rounds if specs]


def _least_lists(count: int) -> int:
    return max(1, round(math.sqrt(count)))


def _possible(specs: Sequence[Spec], count: int, dim: int, demand: Requirements) -> list[Spec]:
    """Those that vectors of this dimension can have within the memory."""
    found = []
    for spec in specs:
        with contextlib.suppress(InputError):
            size = count * KINDS[spec.kind].bytes_per_vector(dim, spec.checked(dim).build, count)
            if demand.memory is None or size <= demand.memory:
                found.append(spec)
    return found


def optimize(
    build: Build,
    queries: Floats,
    demand: Requirements,
    *,
    source: str,
    kinds: Sequence[str] = (),
    tell: Tell = lambda _: None,
) -> TuningResult:
    """Build, measure and prove. What is not chosen is discarded.

    :param build: makes an index of the rows to be searched, aside.
    :param queries: (n, dim): half of them to choose by, half to prove with.
    """
    began, trials = time.perf_counter(), []
    tell("building flat, and searching it for the exact answers")
    try:
        built = build(Spec())
        seen, unseen = halves(queries, built.load())
        trials.append(flat := ParameterSweep.of(built, seen))
        flat.sweep(1)
        tell(_told(flat))
        count, dim = len(flat.index.ids), queries.shape[1]
        rounds = candidates(count, dim, demand, kinds) if demand.recall < 1 else []
        if rounds and len(unseen.queries) < queries_needed(demand.recall):
            rounds = []
            tell(
                f"a recall of {demand.recall:g} takes {queries_needed(demand.recall):,} queries to prove, not "
                f"{len(unseen.queries):,}: only exact search is sure to reach it"
            )
        for specs in rounds:
            for spec in specs:
                _try(build, spec, trials, demand, tell)
            if any(_fits(trial, demand) for trial in trials[1:]):
                break
        _refine(build, trials, demand, tell)
        outcome = _proven(trials, unseen, demand, source, tell)
    except BaseException:
        for trial in trials:
            trial.built.discard()
        raise
    for trial in trials:
        if outcome.choice is None or trial.built is not outcome.choice.built:
            trial.built.discard()
    return replace(outcome, seconds=time.perf_counter() - began)


def _try(build: Build, spec: Spec, trials: list[ParameterSweep], demand: Requirements, tell: Tell) -> None:
    tell(f"building {Point(spec.kind, spec.build, {}, 0, 0, 0, 0).name}")
    try:
        built = build(spec)
    except InputError as error:  # vectors that this kind cannot learn from
        tell(f"{spec.kind} is left out: {error}")
        return
    built.share(trials[0].built)
    best = max((_rate(trial) for trial in trials[1:] if _fits(trial, demand)), default=0.0)
    trials.append(trial := ParameterSweep.of(built, trials[0].seen))
    trial.sweep(demand.recall, best / _HOPELESS)
    tell(_told(trial))


def _refine(build: Build, trials: list[ParameterSweep], demand: Requirements, tell: Tell) -> None:
    """The best kind again with twice the lists, and again while that makes it faster; where there are many vectors."""
    count, tried = len(trials[0].index.ids), 0
    while count >= _MANY and (fitting := [trial for trial in trials[1:] if _fits(trial, demand)]):
        made = max(fitting, key=_rate).built.manifest
        lists = 2 * made.build.get("nlist", count)
        if not tried < lists <= _MOST * _least_lists(count):
            return
        tried = lists
        _try(build, Spec(made.kind, {**made.build, "nlist": lists}), trials, demand, tell)


def _told(trial: ParameterSweep) -> str:
    point = trial.chosen
    if point is None:
        top = max(trial.points.values(), key=lambda one: one.recall)
        return (
            f"{trial.built.manifest.kind} falls short or behind: recall {top.recall:.4f} at {top.rate:,.0f} queries/s"
        )
    return f"{point.name}: recall {point.recall:.4f} at {point.rate:,.0f} queries/s, p99 {1e3 * point.p99:.2f} ms"


def _fits(trial: ParameterSweep, demand: Requirements) -> bool:
    point = trial.chosen
    return point is not None and meets(demand, point.least, point.memory, point.p99)


def _rate(trial: ParameterSweep) -> float:
    """To compare by: exact search, which has nothing to keep up, is preferred to what is hardly faster."""
    assert trial.chosen is not None
    return trial.chosen.rate * (TIE if is_exact(trial.index) else 1)


def _proven(
    trials: list[ParameterSweep], unseen: Sample, demand: Requirements, source: str, tell: Tell
) -> TuningResult:
    """The fastest that meets the demand on queries that had no part in choosing it."""
    points = [point for trial in trials for point in trial.points.values()]
    for trial in sorted((trial for trial in trials if _fits(trial, demand)), key=_rate, reverse=True):
        search = trial.prove(unseen, demand.recall)
        if search is None:
            tell(f"{trial.built.manifest.kind} does not hold on the other queries")
            continue
        choice = trial.choice(search, unseen, demand, source)
        if choice.measured.met:
            return TuningResult(demand, choice, [*points, choice.point])
        tell(f"{trial.built.manifest.kind} does not meet the demand on the other queries")
    return TuningResult(demand, None, points, nearest(trials, demand))


def nearest(trials: Sequence[ParameterSweep], demand: Requirements) -> list[str]:
    """What would be possible: the best recall within the limits, and the least limits for the recall."""
    lines = []
    if within := [point for trial in trials for point in _within(trial, demand)]:
        best = max(within, key=lambda point: point.least)
        limits = "within these limits" if demand.memory or demand.latency else "at most"
        lines.append(f"{limits}: recall {best.recall:.4f}, at least {best.least:.4f}, by {best.name}")
    good = [trial.chosen for trial in trials if trial.chosen and trial.chosen.least >= demand.recall]
    if demand.latency and good:
        fast = min(good, key=lambda point: point.p99)
        lines.append(f"recall {demand.recall:g} takes {1e3 * fast.p99:.2f} ms (p99), by {fast.name}")
    if demand.memory and good:
        small = min(good, key=lambda point: point.memory)
        lines.append(f"recall {demand.recall:g} takes {format_bytes(small.memory)}, by {small.name}")
    return lines


def _within(trial: ParameterSweep, demand: Requirements) -> list[Point]:
    """The best setting within the limits, if there is one; a few are timed, for what finds more takes longer."""
    points = sorted(trial.points.values(), key=lambda point: (point.least, -point.rate))

    def is_beyond(point: Point) -> bool:
        if demand.latency and math.isnan(point.p99):
            point = trial.at(point.search, timed=True)
        return not meets(demand, demand.recall, point.memory, point.p99)

    end = bisect.bisect_left(points, True, key=is_beyond)
    return points[:end][-1:]
