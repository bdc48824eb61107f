"""Rebuild the vector index for the current rows, measure it against its requirements, and mend it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ...core.errors import InputError
from ...core.units import format_bytes
from ..flat import exact_index, is_exact
from ..registry import IndexSpec
from .benchmark import BenchmarkResult, meets_requirements, split_queries
from .optimize import optimize
from .sweep import ParameterSweep, TunedIndex

if TYPE_CHECKING:
    from ...core.arrays import Floats
    from ..base import VectorIndex
    from ..manifest import BuiltIndex
    from .benchmark import QuerySample
    from .optimize import Build

_SEED = 0


def rebuild(build: Build, spec: IndexSpec) -> tuple[BuiltIndex, str]:
    """Build an index of this spec, or a replacement with a line that says why the spec could not be built.

    Too few vectors may be left to learn from, or this machine may lack the GPU that built it before.
    """
    try:
        return build(spec), ""
    except InputError as error:
        if spec.build.get("gpu"):
            built, note = rebuild(build, replace(spec, build={**spec.build, "gpu": 0}))
            return built, note or f"the vector index was built without a GPU: {error}"
        note = f"the vector index compares all passages, for it could not be built as {spec.kind}: {error}"
        return build(IndexSpec(metric=spec.metric)), note


def renew(build: Build, spec: IndexSpec, before: BenchmarkResult, queries: Floats | None) -> TunedIndex:
    """Rebuild a tuned index and benchmark it again; mend it if it no longer meets its requirements.

    An index without vectors cannot be measured: it keeps the old figures until it has vectors again.

    :param before: the benchmark of the index that this one replaces, with its requirements.
    :param queries: the queries of that benchmark; None: synthetic queries from the vectors.
    """
    (built, why), requirements, source = rebuild(build, spec), before.requirements, before.source
    index, actual, requested = built.load(), built.manifest.spec, spec if why else None
    if not len(index.ids):
        return TunedIndex(built, actual, replace(before, count=0, memory=built.memory), why, requested)
    if queries is None:
        queries = synthetic_queries(exact_index(index), 2 * requirements.query_count)
        source = "stored vectors, mixed"
    selection, holdout = split_queries(queries, index)
    sweep = ParameterSweep.of(built, selection)
    first = replace(sweep.tuned_index(actual.search, holdout, requirements, source), note=why, requested=requested)
    if first.benchmark.met:
        return first
    missed = f"when the vector index was built again for {len(index.ids):,} passages, {_missed(first.benchmark)}"
    missed = f"{why}; {missed}" if why else missed
    mended = _mend(sweep, first, holdout)
    if mended and mended.benchmark.met:
        values = ", ".join(f"{name} {value}" for name, value in mended.spec.search.items())
        note = f"{missed}: mended by searching with {values}{_new_recall(mended.benchmark)}"
        return replace(mended, note=why if _lacks_only_proof(first.benchmark) else note, requested=requested)
    replacement = optimize(build, queries, requirements, source=source).choice
    if replacement:
        built.discard()
        kind, recall = replacement.spec.kind, _new_recall(replacement.benchmark)
        return replace(replacement, note=f"{missed}: mended by another index, {kind}{recall}")
    if first.benchmark.recall_bound >= requirements.recall:
        mended = first
    elif mended is None:
        deepest = max(sweep.measurements.values(), key=lambda result: result.recall).search
        mended = sweep.tuned_index(deepest, holdout, requirements, source)
    note = f"{missed}, and nothing mends that: 'binocle optimize' with other requirements"
    return replace(mended, note=note, requested=requested)


def _mend(sweep: ParameterSweep, first: TunedIndex, holdout: QuerySample) -> TunedIndex | None:
    """Search the same index with other parameters: near the old ones, or else the fastest of a new sweep."""
    if is_exact(sweep.index):
        return None
    requirements, mended = first.benchmark.requirements, None
    sweep.best = first.measurement
    for sweeps_again in (False, True):
        if sweeps_again:
            sweep.find_best(requirements.recall)
        if sweep.best and (search := sweep.prove(holdout, requirements.recall)) is not None:
            mended = sweep.tuned_index(search, holdout, requirements, first.benchmark.source)
            if mended.benchmark.met:
                break
    return mended


def _lacks_only_proof(result: BenchmarkResult) -> bool:
    """Whether the recall itself meets the limit and only its bound does not, because the choice was a close one."""
    return meets_requirements(result.requirements, result.recall, result.memory, result.p99)


def _missed(result: BenchmarkResult) -> str:
    """Describe the requirements that an index no longer meets."""
    required, parts = result.requirements, []
    if result.recall_bound < required.recall:
        recall, bound = f"{result.recall:.4f}", f"at least {result.recall_bound:.4f}"
        if result.recall < required.recall:
            parts.append(f"recall@10 fell to {recall} ({bound}) under the required {required.recall:g}")
        else:
            parts.append(f"recall@10 of at least {required.recall:g} can no longer be shown: {recall}, {bound}")
    if required.memory is not None and result.memory > required.memory:
        parts.append(f"memory grew to {format_bytes(result.memory)} over the allowed {format_bytes(required.memory)}")
    if required.latency is not None and result.p99 > required.latency:
        parts.append(f"latency grew to {1e3 * result.p99:.2f} ms over the allowed {1e3 * required.latency:.2f} ms")
    return " and ".join(parts)


def _new_recall(result: BenchmarkResult) -> str:
    return f", now {result.recall:.4f}, at least {result.recall_bound:.4f}"


def synthetic_queries(index: VectorIndex, count: int) -> Floats:
    """Mix queries from the index's vectors: between three of them, off their common plane, and of equal length.

    The mixture makes them about as hard as sentences. Of 800 queries on 3,425 real vectors, lists of codes (nprobe 8)
    found .92 of the answers to these, .89 for sentences, and .97 for points between two vectors.
    """
    random, ids = np.random.default_rng(_SEED), index.ids
    base, *further = (index.reconstruct(ids[random.integers(0, len(ids), count)]) for _ in range(3))
    queries = (base + sum(further)) / math.sqrt(3) + base.std(axis=0) * random.standard_normal(base.shape)
    queries *= np.linalg.norm(base, axis=1, keepdims=True) / np.maximum(np.linalg.norm(queries, axis=1), 1e-12)[:, None]
    return np.ascontiguousarray(queries, np.float32)
