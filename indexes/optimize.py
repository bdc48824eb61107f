"""The kind of index, and how it is searched, that meets a demand fastest: found on some queries, proven on others.

Few structures are built, each at full size, for recall changes with size; of each, the parameters of a search are
swept. About the fastest setting that meets the demand on one half of the queries stands a ladder, from deeper settings
to somewhat shallower ones. On the other half it is gone down from its safest end until a setting can no longer be shown
to meet the demand at 95 %. In this order each test can be at the full level (fixed sequence testing, as in Angelopoulos
et al. 2021, "Learn then Test"), so that where it stopped is proven as if it alone had been tried.
"""

from __future__ import annotations

import bisect
import contextlib
import math
import time
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import InputError
from .faiss_kind import FaissKind
from .kinds import KINDS, Spec
from .proof import Measured, Point, Sample, as_size, at_least, exact, is_exact, meets, needed
from .published import Settled
from .structures import Lists

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .proof import Demand
    from .published import Built
    from .sharded import BuiltShards
    from .vector_index import Floats, VectorIndex

    Build = Callable[[Spec], Built | BuiltShards]
    Tell = Callable[[str], None]

_FEW = 2_000  # vectors that are compared sooner than anything else is done
_MANY = 50_000  # vectors from which on more lists are tried
_MOST = 4  # times as many, at most: learning them takes the square of their number
# Times the root of two that the settings to prove are off the chosen one.
_RUNGS = (4, 3, 2, 1.5, 1, 0.75, 0.5, 0.25, 0, -0.25, -0.5, -0.75, -1)
_FACTORS = (8, 16, 4, 32, 2, 64, 1)  # candidates compared with their vectors, in the order of promise
_TIE = 1.1  # exact search is kept where nothing is faster by more than this
_HOPELESS = 4  # times as slow as another kind that meets the demand: nothing deeper is tried
_SEED = 0
_NAMED = [kind for kind in KINDS if kind != "factory"]


@dataclass(frozen=True, slots=True)
class Choice:
    """An index that was built, how it is to be searched, and what was measured of it."""

    built: Built | BuiltShards  # to be put or discarded
    spec: Spec
    measured: Measured
    note: str = ""  # of one that is built anew: which part of its demand was missed, and what was done
    wanted: Spec | None = None  # what it stands in for, which could not be built

    @property
    def settled(self) -> Settled:
        return Settled(self.spec.search, self.measured.as_dict())

    @property
    def point(self) -> Point:
        made, spec = self.measured, self.spec
        figures = (made.recall, made.least, made.rate, made.memory, made.p50, made.p99)
        return Point(spec.kind, spec.build, spec.search, *figures)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was chosen, and all that was measured on the way."""

    demand: Demand
    choice: Choice | None  # None: nothing meets the demand
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


def candidates(count: int, dim: int, demand: Demand, kinds: Sequence[str] = ()) -> list[list[Spec]]:
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


def _possible(specs: Sequence[Spec], count: int, dim: int, demand: Demand) -> list[Spec]:
    """Those that vectors of this dimension can have within the memory."""
    found = []
    for spec in specs:
        with contextlib.suppress(InputError):
            size = count * KINDS[spec.kind].bytes_per_vector(dim, spec.checked(dim).build, count)
            if demand.memory is None or size <= demand.memory:
                found.append(spec)
    return found


@dataclass(slots=True)
class Trial:
    """One built index, and the settings that it has been searched with."""

    built: Built | BuiltShards
    index: VectorIndex
    seen: Sample
    points: dict[tuple[tuple[str, Any], ...], Point] = field(default_factory=dict)
    chosen: Point | None = None  # the fastest setting to meet the recall on the seen queries

    @classmethod
    def of(cls, built: Built | BuiltShards, seen: Sample) -> Trial:
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
            best = self._along(settings, recall, best, max(least_rate, best.rate / _TIE if best else 0.0))
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

    def choice(self, search: dict[str, Any], unseen: Sample, demand: Demand, source: str) -> Choice:
        """Of the index searched so, measured with the curve around that setting."""
        point = self.at(search, unseen, timed=True)
        settings = [] if is_exact(self.index) else self.around(search, (-6, -4, -2, 0, 2, 4))
        curve = [point if one == search else self.at(one, unseen, timed=True) for one in settings] or [point]
        measured = measured_of(point, curve, demand, unseen, len(self.index.ids), source)
        return Choice(self.built, replace(self.built.manifest.spec, search=search), measured)


def measured_of(
    point: Point, curve: Sequence[Point], demand: Demand, sample: Sample, count: int, source: str
) -> Measured:
    import faiss

    names = ("search", "recall", "least", "rate", "p50", "p99")
    return Measured(
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


def optimize(
    build: Build,
    queries: Floats,
    demand: Demand,
    *,
    source: str,
    kinds: Sequence[str] = (),
    tell: Tell = lambda _: None,
) -> Outcome:
    """Build, measure and prove. What is not chosen is discarded.

    :param build: makes an index of the rows to be searched, aside.
    :param queries: (n, dim): half of them to choose by, half to prove with.
    """
    began, trials = time.perf_counter(), []
    tell("building flat, and searching it for the exact answers")
    try:
        built = build(Spec())
        seen, unseen = halves(queries, built.load())
        trials.append(flat := Trial.of(built, seen))
        flat.sweep(1)
        tell(_told(flat))
        count, dim = len(flat.index.ids), queries.shape[1]
        rounds = candidates(count, dim, demand, kinds) if demand.recall < 1 else []
        if rounds and len(unseen.queries) < needed(demand.recall):
            rounds = []
            tell(
                f"a recall of {demand.recall:g} takes {needed(demand.recall):,} queries to prove, not "
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


def _try(build: Build, spec: Spec, trials: list[Trial], demand: Demand, tell: Tell) -> None:
    tell(f"building {Point(spec.kind, spec.build, {}, 0, 0, 0, 0).name}")
    try:
        built = build(spec)
    except InputError as error:  # vectors that this kind cannot learn from
        tell(f"{spec.kind} is left out: {error}")
        return
    built.share(trials[0].built)
    best = max((_rate(trial) for trial in trials[1:] if _fits(trial, demand)), default=0.0)
    trials.append(trial := Trial.of(built, trials[0].seen))
    trial.sweep(demand.recall, best / _HOPELESS)
    tell(_told(trial))


def _refine(build: Build, trials: list[Trial], demand: Demand, tell: Tell) -> None:
    """The best kind again with twice the lists, and again while that makes it faster; where there are many vectors."""
    count, tried = len(trials[0].index.ids), 0
    while count >= _MANY and (fitting := [trial for trial in trials[1:] if _fits(trial, demand)]):
        made = max(fitting, key=_rate).built.manifest
        lists = 2 * made.build.get("nlist", count)
        if not tried < lists <= _MOST * _least_lists(count):
            return
        tried = lists
        _try(build, Spec(made.kind, {**made.build, "nlist": lists}), trials, demand, tell)


def _told(trial: Trial) -> str:
    point = trial.chosen
    if point is None:
        top = max(trial.points.values(), key=lambda one: one.recall)
        return (
            f"{trial.built.manifest.kind} falls short or behind: recall {top.recall:.4f} at {top.rate:,.0f} queries/s"
        )
    return f"{point.name}: recall {point.recall:.4f} at {point.rate:,.0f} queries/s, p99 {1e3 * point.p99:.2f} ms"


def _fits(trial: Trial, demand: Demand) -> bool:
    point = trial.chosen
    return point is not None and meets(demand, point.least, point.memory, point.p99)


def _rate(trial: Trial) -> float:
    """To compare by: exact search, which has nothing to keep up, is preferred to what is hardly faster."""
    assert trial.chosen is not None
    return trial.chosen.rate * (_TIE if is_exact(trial.index) else 1)


def _proven(trials: list[Trial], unseen: Sample, demand: Demand, source: str, tell: Tell) -> Outcome:
    """The fastest that meets the demand on queries that had no part in choosing it."""
    points = [point for trial in trials for point in trial.points.values()]
    for trial in sorted((trial for trial in trials if _fits(trial, demand)), key=_rate, reverse=True):
        search = trial.prove(unseen, demand.recall)
        if search is None:
            tell(f"{trial.built.manifest.kind} does not hold on the other queries")
            continue
        choice = trial.choice(search, unseen, demand, source)
        if choice.measured.met:
            return Outcome(demand, choice, [*points, choice.point])
        tell(f"{trial.built.manifest.kind} does not meet the demand on the other queries")
    return Outcome(demand, None, points, nearest(trials, demand))


def nearest(trials: Sequence[Trial], demand: Demand) -> list[str]:
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
        lines.append(f"recall {demand.recall:g} takes {as_size(small.memory)}, by {small.name}")
    return lines


def _within(trial: Trial, demand: Demand) -> list[Point]:
    """The best setting within the limits, if there is one; a few are timed, for what finds more takes longer."""
    points = sorted(trial.points.values(), key=lambda point: (point.least, -point.rate))

    def is_beyond(point: Point) -> bool:
        if demand.latency and math.isnan(point.p99):
            point = trial.at(point.search, timed=True)
        return not meets(demand, demand.recall, point.memory, point.p99)

    end = bisect.bisect_left(points, True, key=is_beyond)
    return points[:end][-1:]


def rebuilt(build: Build, spec: Spec) -> tuple[Built | BuiltShards, str]:
    """An index of this kind, or one that stands in for it where it cannot be built, and then a line that says why.

    Too few vectors may be left to learn from, or the machine may be another.
    """
    try:
        return build(spec), ""
    except InputError as error:
        if spec.build.get("gpu"):
            built, note = rebuilt(build, replace(spec, build={**spec.build, "gpu": 0}))
            return built, note or f"the vector index was built without a GPU: {error}"
        note = f"the vector index compares all passages, for it could not be built as {spec.kind}: {error}"
        return build(Spec(metric=spec.metric)), note


def renew(build: Build, spec: Spec, before: Measured, queries: Floats | None) -> Choice:
    """Build what was chosen for a demand again, and measure again; where it is no longer met, mend that.

    Without a vector there is nothing to measure, and what was measured stays for when there are some again.

    :param queries: those that were measured with; mixed from the vectors unless there are.
    """
    (built, why), demand, source = rebuilt(build, spec), before.demand, before.source
    index, made, wanted = built.load(), built.manifest.spec, spec if why else None
    if not len(index.ids):
        return Choice(built, made, replace(before, count=0, memory=built.memory), why, wanted)
    if queries is None:
        queries, source = mixed(exact(index), 2 * demand.queries), "stored vectors, mixed"
    seen, unseen = halves(queries, index)
    trial = Trial.of(built, seen)
    first = replace(trial.choice(made.search, unseen, demand, source), note=why, wanted=wanted)
    if first.measured.met:
        return first
    missed = f"when the vector index was built again for {len(index.ids):,} passages, {_missed(first.measured)}"
    missed = f"{why}; {missed}" if why else missed
    mended = _mended(trial, first, unseen)
    if mended and mended.measured.met:
        values = ", ".join(f"{name} {value}" for name, value in mended.spec.search.items())
        note = f"{missed}: mended by searching with {values}{_now(mended.measured)}"
        return replace(mended, note=why if _is_as_good(first.measured) else note, wanted=wanted)
    other = optimize(build, queries, demand, source=source).choice
    if other:
        built.discard()
        return replace(other, note=f"{missed}: mended by another index, {other.spec.kind}{_now(other.measured)}")
    if first.measured.least >= demand.recall:
        mended = first
    elif mended is None:
        deepest = max(trial.points.values(), key=lambda point: point.recall).search
        mended = trial.choice(deepest, unseen, demand, source)
    note = f"{missed}, and nothing mends that: 'binocle optimize' with another demand"
    return replace(mended, note=note, wanted=wanted)


def _mended(trial: Trial, first: Choice, unseen: Sample) -> Choice | None:
    """The same index searched otherwise: about as it was, or if that is not enough as is found to be fastest now."""
    if is_exact(trial.index):
        return None
    demand, mended = first.measured.demand, None
    trial.chosen = first.point
    for again in (False, True):
        if again:
            trial.sweep(demand.recall)
        if trial.chosen and (search := trial.prove(unseen, demand.recall)) is not None:
            mended = trial.choice(search, unseen, demand, first.measured.source)
            if mended.measured.met:
                break
    return mended


def _is_as_good(measured: Measured) -> bool:
    """Whether all that it lacks is the proof: what was chosen lay at the edge of its own."""
    return meets(measured.demand, measured.recall, measured.memory, measured.p99)


def _missed(measured: Measured) -> str:
    """What of its demand an index no longer meets."""
    demand, said = measured.demand, []
    if measured.least < demand.recall:
        found, least = f"{measured.recall:.4f}", f"at least {measured.least:.4f}"
        if measured.recall < demand.recall:
            said.append(f"recall@10 fell to {found} ({least}) under the demanded {demand.recall:g}")
        else:
            said.append(f"recall@10 of at least {demand.recall:g} can no longer be shown: {found}, {least}")
    if demand.memory is not None and measured.memory > demand.memory:
        said.append(f"memory grew to {as_size(measured.memory)} over the demanded {as_size(demand.memory)}")
    if demand.latency is not None and measured.p99 > demand.latency:
        said.append(f"latency grew to {1e3 * measured.p99:.2f} ms over the demanded {1e3 * demand.latency:.2f} ms")
    return " and ".join(said)


def _now(measured: Measured) -> str:
    return f", now {measured.recall:.4f}, at least {measured.least:.4f}"


def mixed(index: VectorIndex, count: int) -> Floats:
    """Queries made of the vectors there are: between three of them, and off their common plane, of their length.

    They have to be about as hard as sentences: of 800 on 3,425 real vectors, lists of codes found .92 of the answers to
    these, .89 of those to sentences, and .97 of those to points between two vectors (nprobe 8).
    """
    random, ids = np.random.default_rng(_SEED), index.ids
    near, *others = (index.reconstruct(ids[random.integers(0, len(ids), count)]) for _ in range(3))
    queries = (near + sum(others)) / math.sqrt(3) + near.std(axis=0) * random.standard_normal(near.shape)
    queries *= np.linalg.norm(near, axis=1, keepdims=True) / np.maximum(np.linalg.norm(queries, axis=1), 1e-12)[:, None]
    return np.ascontiguousarray(queries, np.float32)
