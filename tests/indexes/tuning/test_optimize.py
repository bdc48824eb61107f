from __future__ import annotations

import json
import math
import re
import shutil
from dataclasses import replace
from types import SimpleNamespace
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from click.testing import CliRunner

from binocle import Retriever
from binocle.cli import cli
from binocle.commands.upkeep.optimize import proof
from binocle.core.errors import InputError
from binocle.core.units import format_bytes
from binocle.indexes.flat import exact_index, is_exact
from binocle.indexes.manifest import IndexManifest, IndexMetadata
from binocle.indexes.published import amend, build
from binocle.indexes.registry import KINDS, IndexSpec
from binocle.indexes.sharded import BuiltShards, ShardedIndex, merge_manifests
from binocle.indexes.tuning import benchmark
from binocle.indexes.tuning import optimize as optimizing
from binocle.indexes.tuning import renewal as renewal_module
from binocle.indexes.tuning import sweep as sweep_module
from binocle.indexes.tuning.benchmark import (
    SEARCH_DEPTH,
    BenchmarkResult,
    Measurement,
    QuerySample,
    recall_lower_bound,
    split_queries,
)
from binocle.indexes.tuning.plot import plot_svg
from binocle.indexes.tuning.requirements import MAX_QUERIES, Requirements, queries_needed
from binocle.retriever.open_index import OpenIndex
from binocle.retriever.store import writer as writing
from binocle.retriever.store.derived import benchmark_queries as questions
from binocle.retriever.store.derived import vector_index as vectors
from binocle.retriever.store.derived.search_backend import SearchBackend
from binocle.retriever.store.snapshot import LiveIndex, Snapshot
from binocle.retriever.store.tables import matrix

DIM, COUNT = 32, 3_000


def vectors_of(count, seed=0, centres=40, spread=0.7):
    random = np.random.default_rng(seed)
    middle = np.random.default_rng(77).standard_normal((centres, DIM))
    vectors = middle[random.integers(0, centres, count)] + spread * random.standard_normal((count, DIM))
    vectors = vectors.astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


VECTORS, IDS = vectors_of(COUNT), np.arange(COUNT, dtype=np.int64) * 2 + 1


def bench(folder, vectors=VECTORS, ids=IDS):
    return lambda spec: build(folder, spec.check(DIM), [(ids, vectors)], dim=DIM, covers=1)


def brute_recall(index, vectors, ids, queries, k=10):
    """In double precision, by ids: there are no ties."""
    truth = ids[np.argsort(-(queries.astype(float) @ vectors.T.astype(float)), axis=1)[:, :k]]
    retrieved = index.search(queries, k)[1]
    return float(np.mean([len(set(a) & set(b)) / k for a, b in zip(truth.tolist(), retrieved.tolist(), strict=True)]))


@pytest.fixture(autouse=True)
def _few_timed_queries(monkeypatch):
    """Take the latency of ten queries, not of hundreds: that takes most of the time of choosing."""
    monkeypatch.setattr(benchmark, "_TIMED_QUERIES", 10)


# The bound


def test_the_bound_is_under_the_mean_in_nineteen_of_twenty_samples():
    random = np.random.default_rng(1)
    for values, shares in (
        ((0.0, 1.0), (0.005, 0.995)),
        ((0.7, 0.9, 1.0), (0.1, 0.3, 0.6)),
        ((0.0, 0.9, 1.0), (0.02, 0.2, 0.78)),
    ):
        mean = np.dot(values, shares)
        samples = random.choice(values, p=shares, size=(1_500, 300))
        assert np.mean([recall_lower_bound(sample) > mean for sample in samples]) <= 0.06


def test_the_bound_never_says_more_than_the_sample_can_show():
    assert recall_lower_bound(np.ones(3)) < 0.5
    assert (
        recall_lower_bound(np.ones(queries_needed(0.99) + 10))
        >= 0.99
        > recall_lower_bound(np.ones(queries_needed(0.99) - 10))
    )
    assert recall_lower_bound(np.array([])) == 0
    assert recall_lower_bound(np.full(100, 0.9)) < 0.9


def test_the_bound_is_that_of_students_distribution_with_one_more_query():
    # By hand: mean 3/4, deviation 1/2, and 1.6449 * (1 + (1.6449**2 + 1) / (4 * 3)) for the quantile.
    assert recall_lower_bound(np.ones(3)) == pytest.approx(0.75 - 2.15278 * 0.5 / 2, abs=5e-5)
    stats = pytest.importorskip("scipy.stats")
    recalls = np.random.default_rng(1).choice([0.8, 0.9, 1.0], 50)
    exact = stats.ttest_1samp(np.append(recalls, 0), 0).confidence_interval(0.90).low
    assert recall_lower_bound(recalls) == pytest.approx(exact, abs=2e-5)


@pytest.mark.parametrize("recall", [0.5, 0.9, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9999])
def test_as_many_queries_are_asked_for_as_can_prove_the_demand_though_a_few_fail(recall):
    count = Requirements(recall).query_count
    assert count >= 1.5 * queries_needed(recall)
    assert recall_lower_bound(np.append(np.ones(count - 1), 0.9)) >= recall


def test_what_takes_too_many_queries_to_prove_takes_no_more_than_the_rest():
    assert Requirements(1.0).query_count == Requirements(0.99999).query_count == 2_500


def test_recall_counts_what_scores_as_much_as_the_last_answer():
    sample = QuerySample(np.ones((2, 1), np.float32), np.array([[0.5], [0.5]], np.float32), 2)
    scores = np.array([[0.9, 0.5], [0.9, 0.4]], np.float32)
    assert sample.recalls_of_scores(scores).tolist() == [1.0, 0.5]


@pytest.mark.parametrize(("count", "depth"), [(5_000, SEARCH_DEPTH), (50, 50)])
def test_latency_is_taken_as_deep_as_searches_look_and_recall_and_rate_at_ten(count, depth):
    searches = []

    def search(queries, k):
        searches.append((len(queries), k))
        return np.ones((len(queries), k), np.float32), np.ones((len(queries), k), np.int64)

    index, sample = (
        SimpleNamespace(ids=range(count), search=search),
        QuerySample(VECTORS[:3], np.ones((3, 1), np.float32)),
    )
    sample.latencies(index)
    assert searches == 9 * [(1, depth)]
    searches.clear()
    sample.recalls(index)
    sample.rate(index)
    assert set(searches) == {(3, 10)}


# Choosing


def test_what_is_chosen_has_the_recall_that_brute_force_finds(tmp_path):
    queries = vectors_of(1_000, 5)
    result = optimizing.optimize(
        bench(tmp_path), queries, Requirements(0.97), source="test", kinds=["ivf_int8", "ivf_fp16"]
    )
    choice, measured = result.choice, result.choice.benchmark
    assert result.met and measured.met
    kept = choice.built.load().with_parameters(**choice.spec.search)
    order = np.random.default_rng(0).permutation(1_000)
    unseen = queries[np.sort(order[500:])]
    assert measured.recall == pytest.approx(brute_recall(kept, VECTORS, IDS, unseen), abs=4.1e-4)  # two hits
    assert brute_recall(kept, VECTORS, IDS, vectors_of(1_000, 6)) >= 0.97
    assert 0.97 <= measured.recall_bound < measured.recall
    assert 0 < measured.p50 <= measured.p99
    assert {point.kind for point in result.measurements} == {"flat", "ivf_int8", "ivf_fp16"}
    assert list(tmp_path.iterdir()) == [choice.built.folder]
    name = choice.built.publish(choice.metadata)
    published = IndexManifest.read(tmp_path / name)
    assert published.spec == choice.spec
    restored = BenchmarkResult.from_dict(json.loads(json.dumps(published.measurements)))
    assert (restored.recall, restored.requirements) == (measured.recall, result.requirements)


@pytest.mark.thorough
def test_the_memory_limit_is_kept_and_what_cannot_be_is_told(tmp_path):
    queries, most = vectors_of(1_000, 5), 250_000
    result = optimizing.optimize(bench(tmp_path), queries, Requirements(0.9, memory=most), source="test")
    assert result.met and result.choice.benchmark.memory <= most
    files = {file.name: file.stat().st_size for file in result.choice.built.folder.iterdir()}
    assert result.choice.benchmark.memory == files["index.faiss"] + files["ids.npy"]
    assert result.choice.spec.kind != "flat"
    result.choice.built.discard()
    for demand in (Requirements(0.99, memory=1_000), Requirements(0.99, latency=1e-9)):
        lines = []
        result = optimizing.optimize(
            bench(tmp_path), queries, demand, source="test", kinds=["ivf_int8"], log=lines.append
        )
        assert not result.met
        assert any(line.startswith("recall 0.99 takes ") for line in result.alternatives)
    assert list(tmp_path.iterdir()) == []


def test_only_exact_search_meets_a_recall_of_one(tmp_path):
    result = optimizing.optimize(bench(tmp_path), vectors_of(100), Requirements(1.0), source="test")
    assert result.choice.spec == IndexSpec() and (
        result.choice.benchmark.recall,
        result.choice.benchmark.recall_bound,
    ) == (1, 1)


def test_the_table_of_kinds_begins_with_the_ones_that_are_tried_without_a_name():
    tried = {"flat", *(spec.kind for specs in optimizing.candidates(100_000, 384, Requirements()) for spec in specs)}
    assert set(list(KINDS)[: len(tried)]) == tried


def test_too_few_queries_to_prove_with_are_told(tmp_path):
    line = "a recall of 0.999 takes 2,645 queries to prove, not 500: only exact search is sure to reach it"
    for recall, lines in ((0.999, [line]), (0.9, [])):
        log = []
        result = optimizing.optimize(
            bench(tmp_path),
            vectors_of(1_000, 5),
            Requirements(recall),
            source="t",
            kinds=["ivf_int8"],
            log=log.append,
        )
        assert [line for line in log if "to prove" in line] == lines
        assert {point.kind for point in result.measurements} == ({"flat"} if lines else {"flat", "ivf_int8"})
        assert result.met and (result.choice.spec == IndexSpec() or not lines)


def test_what_is_said_to_be_within_a_latency_was_timed():
    """Each of twelve settings takes a millisecond more than the one before, alone; in a batch all are quick."""
    points = [Measurement("ivf", {}, {"nprobe": n}, n / 20, n / 20, 1e6, 100) for n in range(1, 13)]
    timed_probes = []

    def at(search, *, timed):
        assert timed
        timed_probes.append(search["nprobe"])
        return replace(points[search["nprobe"] - 1], p99=search["nprobe"] / 1e3)

    sweep = SimpleNamespace(measurements={point.search["nprobe"]: point for point in points}, measure=at, best=None)
    for latency, line in (
        (0.0075, "within these limits: recall 0.3500, at least 0.3500, by ivf (nprobe 7)"),
        (1e-4, ""),
    ):
        assert optimizing.alternatives([sweep], Requirements(0.99, latency=latency)) == [line] * bool(line)
    assert len(timed_probes) <= 8
    assert optimizing.alternatives([sweep], Requirements(0.99, latency=1.0, memory=99)) == []
    timed_probes.clear()
    assert optimizing.alternatives([sweep], Requirements(0.99)) == [
        "at most: recall 0.6000, at least 0.6000, by ivf (nprobe 12)"
    ]
    assert not timed_probes


def test_vectors_count_where_there_are_too_few_to_learn_a_code_from(tmp_path):
    for count in (20, COUNT):
        built = bench(tmp_path, VECTORS[:count], IDS[:count])(IndexSpec("ivf_int8", {"nlist": 50}))
        sizes = {file.name: file.stat().st_size for file in built.folder.iterdir()}
        looked_at = ["ids.npy", "index.faiss" if count == COUNT else "vectors.f32"]
        assert built.memory == sum(sizes[name] for name in looked_at)


def test_a_setting_that_only_luck_let_through_is_not_published(tmp_path, monkeypatch):
    """The queries to choose by are easy and those to prove with are not."""
    monkeypatch.setattr(sweep_module, "_LADDER", (0,))
    easy = VECTORS[:500] + 1e-4
    built = bench(tmp_path)(IndexSpec("ivf_int8", {"nlist": 50}))
    hard = vectors_of(500, 9, spread=3)
    index = built.load()
    sweep = sweep_module.ParameterSweep.of(built, QuerySample.of(easy, index))
    sweep.find_best(0.9)
    assert sweep.best.recall_bound >= 0.9
    proven = sweep.prove(QuerySample.of(hard, index), 0.97)
    assert (
        proven is None
        or recall_lower_bound(QuerySample.of(hard, index).recalls(index.with_parameters(**proven))) >= 0.97
    )


def test_a_setting_between_two_that_were_tried_is_proven_where_that_is_enough(tmp_path):
    index = (built := bench(tmp_path)(IndexSpec("ivf_int8", {"nlist": 500}))).load()
    sweep = sweep_module.ParameterSweep.of(built, QuerySample.of(VECTORS[:500], index))
    for chosen in (64, 8):
        sweep.best = sweep.measure({"nprobe": chosen, "k_factor": 4})
        unseen = QuerySample.of(vectors_of(500, 3), index)
        proven = sweep.prove(
            unseen, enough := recall_lower_bound(unseen.recalls(index.with_parameters(nprobe=round(chosen / 1.3))))
        )
        assert chosen / 2**0.5 - 1 <= proven["nprobe"] < chosen
        assert recall_lower_bound(unseen.recalls(index.with_parameters(**proven))) >= enough


def test_the_published_search_is_on_its_curve_though_so_few_rows_are_left(tmp_path):
    index = (built := bench(tmp_path, VECTORS[:400], IDS[:400])(IndexSpec("hnsw"))).load()
    sweep = sweep_module.ParameterSweep.of(built, QuerySample.of(VECTORS[400:500], index))
    assert sweep.settings_around({"ef_search": 724}, (-2, 0, 2)) == [{"ef_search": value} for value in (362, 724)]
    assert sweep.settings_around({"ef_search": 5}, (-2, 0, 2)) == [{"ef_search": value} for value in (5, 10)]
    unseen = QuerySample.of(VECTORS[500:900], index)
    measured = sweep.tuned_index({"ef_search": 724}, unseen, Requirements(0.9), "test").benchmark
    assert [line for _, line in proof(measured) if line.endswith("ef_search 724  <- chosen")]


@pytest.mark.parametrize("kind", ["int8", "ivf_int8"])
def test_the_deepest_setting_is_proven_first(tmp_path, monkeypatch, kind):
    index = (built := bench(tmp_path)(IndexSpec(kind))).load()
    sweep, settings = sweep_module.ParameterSweep.of(built, QuerySample.of(VECTORS[:50], index)), []
    sweep.best = sweep.measure({"nprobe": 4, "k_factor": 2} if kind == "ivf_int8" else {"k_factor": 2})

    def recalls(_, searched):
        settings.append({name: searched.search_values[name] for name in sweep.best.search})
        return np.zeros(50)

    monkeypatch.setattr(QuerySample, "recalls", recalls)
    assert sweep.prove(sweep.selection, 0.9) is None
    assert settings == [{"nprobe": 16, "k_factor": 4} if kind == "ivf_int8" else {"k_factor": 8}]


@pytest.mark.parametrize(
    ("rates", "lists"),
    [({55: 100, 110: 90}, [110]), ({55: 100, 110: 150, 220: 120}, [110, 220]), ({55: 1, 110: 2, 220: 3}, [110, 220])],
)
def test_lists_are_doubled_while_that_is_faster_and_twice_at_most(monkeypatch, rates, lists):
    def sweep(nlist, rate):
        manifest = SimpleNamespace(kind="ivf", build={"nlist": nlist})
        point = Measurement("ivf", manifest.build, {}, 1.0, 1.0, rate, 1)
        index = SimpleNamespace(ids=range(COUNT))
        return SimpleNamespace(built=SimpleNamespace(manifest=manifest), index=index, best=point)

    built = []

    def attempt(_build, spec, trials, _demand, _tell):
        built.append(spec.build["nlist"])
        trials.append(sweep(built[-1], rates[built[-1]]))

    monkeypatch.setattr(optimizing, "_try", attempt)
    monkeypatch.setattr(optimizing, "_REFINE_VECTORS", COUNT)
    optimizing._refine(None, [sweep(0, 0), sweep(55, rates[55])], Requirements(0.9), print)
    assert built == lists


def test_a_build_that_fails_leaves_nothing(tmp_path):
    def breaks(spec):
        if spec.kind != "flat":
            raise OSError("disk full")
        return bench(tmp_path)(spec)

    with pytest.raises(OSError, match="disk full"):
        optimizing.optimize(breaks, vectors_of(100), Requirements(0.9), source="test")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.thorough
def test_a_fallen_recall_is_mended_by_searching_more_or_by_another_kind(tmp_path, monkeypatch):
    queries = vectors_of(1_000, 5)
    result = optimizing.optimize(bench(tmp_path), queries, Requirements(0.97), source="test", kinds=["ivf_int8"])
    result.choice.built.discard()
    shallow = IndexSpec("ivf_int8", {"nlist": 55}, {"nprobe": 1, "k_factor": 1})
    renewal = renewal_module.renew(bench(tmp_path), shallow, result.choice.benchmark, queries)
    assert "fell to" in renewal.note and "mended by searching with nprobe " in renewal.note
    assert renewal.spec.search["nprobe"] > 1 and renewal.benchmark.met
    again = renewal_module.renew(bench(tmp_path), renewal.spec, renewal.benchmark, None)
    assert again.benchmark.source == "stored vectors, mixed"
    coarse = IndexSpec("pq", {"parts": 1, "part_bits": 4}, {"k_factor": 1})
    monkeypatch.setattr(sweep_module, "_FACTORS", (2,))
    monkeypatch.setattr(optimizing, "candidates", lambda *_: [[IndexSpec("ivf_int8", {"nlist": 50})]])
    renewal = renewal_module.renew(bench(tmp_path), coarse, result.choice.benchmark, queries)
    assert "mended by another index, " in renewal.note
    assert renewal.spec.kind != "pq" and renewal.benchmark.met


def test_a_recall_that_has_not_fallen_but_is_no_longer_proven_is_proven_a_little_deeper_without_a_word(tmp_path):
    queries, spec = vectors_of(1_000, 5), IndexSpec("ivf_int8", {"nlist": 55}, {"nprobe": 2, "k_factor": 4})
    built = bench(tmp_path)(spec)
    index = built.load()
    recalls = split_queries(queries, index)[1].recalls(index)
    built.discard()
    demand = Requirements(float(recalls.mean() + recall_lower_bound(recalls)) / 2)
    assert recall_lower_bound(recalls) < demand.recall < recalls.mean()
    renewal = renewal_module.renew(bench(tmp_path), spec, BenchmarkResult(demand), queries)
    assert renewal.benchmark.met and renewal.note == ""
    assert renewal.spec == IndexSpec("ivf_int8", {"nlist": 55}, {"nprobe": 3, "k_factor": 4})


def test_what_is_missed_says_whether_the_recall_fell_or_only_its_proof():
    def missed(recall, least):
        return renewal_module._missed(BenchmarkResult(Requirements(0.99), recall=recall, recall_bound=least))

    assert missed(0.9852, 0.98) == "recall@10 fell to 0.9852 (at least 0.9800) under the required 0.99"
    assert missed(0.9914, 0.9877) == "recall@10 of at least 0.99 can no longer be shown: 0.9914, at least 0.9877"


@pytest.mark.parametrize(("limit", "kept"), [(None, "pq"), (300_000, "ivf_int8")])
def test_where_the_chosen_kind_cannot_be_built_all_are_compared_unless_that_misses_the_demand(
    tmp_path, monkeypatch, limit, kept
):
    """Of three thousand vectors nobody learns 2**12 centroids."""
    make = bench(tmp_path)

    def refusing(spec):
        if spec.kind == "pq":
            raise InputError("FAISS cannot learn this index from 3000 vectors: a reason")
        return make(spec)

    monkeypatch.setattr(optimizing, "candidates", lambda *_: [[IndexSpec("ivf_int8", {"nlist": 50})]])
    chosen = IndexSpec("pq", {"parts": 8}, {"k_factor": 8})
    why = (
        "the vector index compares all passages, for it could not be built as pq: "
        "FAISS cannot learn this index from 3000 vectors: a reason"
    )
    built, note = renewal_module.rebuild(refusing, chosen)
    assert (built.manifest.spec, note) == (IndexSpec(), why)
    built.discard()
    renewal = renewal_module.renew(
        refusing, chosen, BenchmarkResult(Requirements(0.9, memory=limit)), vectors_of(1_000, 5)
    )
    assert (renewal.requested or renewal.spec).kind == kept and renewal.benchmark.met
    assert renewal.note == why if limit is None else renewal.note.startswith(f"{why}; when the vector index was built")
    assert renewal.built.publish(renewal.metadata)


@pytest.fixture
def no_other(monkeypatch):
    """As if no other index met the demand."""
    monkeypatch.setattr(
        renewal_module, "optimize", lambda *given, **_: optimizing.OptimizationResult(given[2], None, [])
    )


def test_memory_that_has_grown_is_mended_by_another_kind(tmp_path, monkeypatch):
    monkeypatch.setattr(optimizing, "candidates", lambda *_: [[IndexSpec("ivf_int8", {"nlist": 50})]])
    demand = Requirements(0.9, memory=200_000)
    before = BenchmarkResult(demand, 1.0, 1.0, 1.0, 1.0, 1.0, 136_000, 1_000, 1, 1, "test", "t")
    renewal = renewal_module.renew(bench(tmp_path), IndexSpec(), before, vectors_of(1_000, 5))
    assert renewal.note.startswith(
        "when the vector index was built again for 3,000 passages, memory grew to 408.1 KB over the allowed 200 KB: "
        "mended by another index, ivf_int8, now "
    )
    assert renewal.spec.kind == "ivf_int8" and renewal.benchmark.met
    assert list(tmp_path.iterdir()) == [renewal.built.folder]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("demand", "says"),
    [
        (Requirements(0.9, memory=1_000), "memory grew to 408.1 KB over the allowed 1 KB"),
        (Requirements(0.9, latency=1e-9), "over the allowed 0.00 ms"),
    ],
)
def test_what_nothing_mends_is_published_as_not_met_and_told(tmp_path, no_other, demand, says):
    before = BenchmarkResult(demand, 1.0, 1.0, 1.0, 1.0, 1.0, 1, 1_000, 1, 1, "test", "t")
    renewal = renewal_module.renew(bench(tmp_path), IndexSpec(), before, vectors_of(400, 5))
    assert says in renewal.note
    assert renewal.note.endswith("and nothing mends that: 'binocle optimize' with other requirements")
    assert (renewal.spec, renewal.benchmark.recall, renewal.benchmark.met) == (IndexSpec(), 1, False)


def test_a_recall_mended_by_searching_more_than_the_latency_allows_is_not_called_mended(
    tmp_path, no_other, monkeypatch
):
    """One list takes a millisecond, more take two."""
    monkeypatch.setattr(
        QuerySample, "latencies", lambda _, index: (1e-3 if index.search_values["nprobe"] < 2 else 2e-3,) * 2
    )
    demand = Requirements(0.97, latency=1.5e-3)
    before = BenchmarkResult(demand, 1.0, 1.0, 1.0, 1.0, 1.0, 1, 1_000, 1, 1, "test", "t")
    shallow = IndexSpec("ivf_int8", {"nlist": 55}, {"nprobe": 1, "k_factor": 1})
    renewal = renewal_module.renew(bench(tmp_path), shallow, before, vectors_of(1_000, 5))
    assert "recall@10 fell to" in renewal.note and "nothing mends that" in renewal.note
    assert renewal.benchmark.recall_bound >= 0.97 and not renewal.benchmark.met


@pytest.mark.parametrize("kind", ["flat", "ivf_int8"])
def test_without_vectors_the_measurement_stays_as_it_was(tmp_path, kind):
    before = BenchmarkResult(Requirements(0.9, latency=1.0), 0.99, 0.98, 1.0, 1.0, 1.0, 5, COUNT, 1, 1, "s", "t")
    renewal = renewal_module.renew(bench(tmp_path, VECTORS[:0], IDS[:0]), IndexSpec(kind), before, None)
    assert renewal.benchmark == replace(before, count=0, memory=renewal.built.memory)
    assert (renewal.spec, renewal.note) == (IndexSpec(kind), "")


def test_one_query_is_both_halves(tmp_path):
    result = optimizing.optimize(bench(tmp_path, VECTORS[:1], IDS[:1]), VECTORS[:1], Requirements(0.9), source="test")
    assert (result.choice.spec, result.choice.benchmark.queries, result.choice.benchmark.recall) == (
        IndexSpec(),
        1,
        1,
    )


def test_what_is_not_a_measurement_is_none():
    right = BenchmarkResult(Requirements(), 0.99, 0.98, 1.0, 1.0, 1.0, 1, 1, 1, 1, "s", "t").as_dict()
    assert BenchmarkResult.from_dict(right).recall == 0.99
    wrong = [{}, {"recall": 0.97}, *({**right, name: "x"} for name in ("recall", "count", "demand", "p99", "curve"))]
    wrong += [
        {**right, "recall": math.nan},
        {**right, "rate": 10**400},
        {**right, "memory": -1},
        {**right, "source": 5},
    ]
    wrong += [{**right, "demand": {"recall": 2}}, {**right, "demand": {"recall": []}}, {**right, "queries": True}]
    assert [BenchmarkResult.from_dict(data) for data in wrong] == [None] * len(wrong)


def test_the_frontier_is_a_picture(tmp_path):
    result = optimizing.optimize(bench(tmp_path), vectors_of(400), Requirements(0.9), source="test", kinds=["ivf_int8"])
    drawn = plot_svg(result.measurements, result.requirements, result.choice.measurement)
    ET.fromstring(drawn)
    assert "ivf_int8" in drawn and "recall 0.9 required" in drawn and "nan" not in drawn
    assert plot_svg(result.measurements, result.requirements, result.choice.measurement) == drawn
    ET.fromstring(plot_svg([], Requirements(0.1)))
    ET.fromstring(plot_svg(result.measurements[:1], Requirements(1.0)))


@pytest.mark.parametrize(
    "values",
    [{"recall": 0}, {"recall": 1.1}, {"memory": 0}, {"latency": -1}, {"recall": math.nan}, {"memory": 10**400}],
)
def test_a_demand_that_makes_no_sense_is_refused(values):
    with pytest.raises(InputError):
        Requirements(**values).check()


# Through the retriever


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"recall": "0.95"}, "a recall lies above 0 and is at most 1, such as 0.99, not '0.95'"),
        ({"recall": None}, "not None"),
        ({"recall": True}, "not True"),
        ({"memory": "250MB"}, "memory is a number of bytes above 0, such as 250e6, not '250MB'"),
        ({"memory": True}, "not True"),
        ({"latency": "5ms"}, "latency is a number of seconds above 0, such as 0.005, not '5ms'"),
        ({"kinds": None}, "kinds are a list of names, such as 'ivf_int8', not None"),
        ({"kinds": "ivf_int8"}, "a list of names"),
        (
            {"kinds": ["nonsense"], "recall": 1.0},
            "there is no kind of index 'nonsense' to try: expected some of flat, ",
        ),
        ({"kinds": ["factory"]}, "no kind of index 'factory' to try"),
        ({"kinds": [["ivf"]]}, r"no kind of index \['ivf'\] to try"),
        ({"seed": -1}, "a seed is a whole number from 0, not -1"),
        ({"seed": 1.5}, "not 1.5"),
        ({"seed": None}, "not None"),
        ({"queries": 5}, "queries are a list of texts, or of vectors, not 5"),
        ({"queries": "cat"}, "queries are a list of texts, or of vectors, not 'cat'"),
        ({"queries": ["cat", 5]}, "a query is a text, not 5"),
        ({"queries": [["cat"]]}, "query 0 is a list of str: expected a list of numbers"),
        ({"queries": [[1.0], [1.0, 2.0]]}, "a query has dimension 2"),
    ],
)
def test_what_cannot_be_optimized_for_is_refused_before_the_index_is_opened(tmp_path, given, says):
    with pytest.raises(InputError, match=says) as error:
        Retriever.open(tmp_path / "none").optimize(**given)
    assert "\n" not in str(error.value)


@pytest.fixture
def few(monkeypatch):
    """As if a hundred passages were many, and few queries enough."""
    monkeypatch.setattr(optimizing, "_MIN_VECTORS", 60)
    monkeypatch.setattr(Requirements, "query_count", 150)
    monkeypatch.setattr(vectors, "_STALE_ROWS", 20)


def words(number, salt=""):
    random = np.random.default_rng([number, len(salt)])
    some = "cat dog house tax task worker server index moon river bread cheese linux row price queen salt year".split()
    return " ".join(random.choice(some, 9)) + f" {salt}{number}."


def documents(first, count, salt=""):
    return [{"id": f"{salt}{n}", "text": words(n, salt)} for n in range(first, first + count)]


@pytest.fixture(scope="session")
def _stored(tmp_path_factory, tiny_model):
    path = tmp_path_factory.mktemp("stored") / "index"
    Retriever.open(path, model=tiny_model).add(documents(0, 200))
    return path


@pytest.fixture
def stored(few, _stored, tmp_path):
    return Retriever.open(shutil.copytree(_stored, tmp_path / "index"))


def test_an_index_is_optimized_shown_and_measured_again(stored):
    queries = [words(n, "q") for n in range(300)]
    result = stored.optimize(0.9, kinds=["ivf_int8"], queries=queries)
    assert result.met
    shown = BenchmarkResult.from_dict(stored.status().vector_kind["measured"])
    assert (shown.count, shown.source) == (200, "300 of 300 queries that were given")
    assert len(questions.read_stored(stored.location, stored.snapshot().head.encoder)) == 300
    stored.add(documents(1_000, 10))
    assert BenchmarkResult.from_dict(stored.status().vector_kind["measured"]).count == 200
    stored.add(documents(2_000, 60))
    again = BenchmarkResult.from_dict(stored.status().vector_kind["measured"])
    assert (again.count, again.source, again.requirements) == (270, shown.source, result.requirements)
    assert again.recall_bound >= 0.9
    assert stored.snapshot().head.index == stored.snapshot().published.spec


def test_a_search_looks_as_deep_as_latency_is_taken(stored, monkeypatch):
    depths, search = [], LiveIndex.search

    def recorded(index, vectors, k, **options):
        depths.append(k)
        return search(index, vectors, k, **options)

    monkeypatch.setattr(LiveIndex, "search", recorded)
    stored.add(documents(1_000, 50))
    for mode in ("hybrid", "semantic"):
        stored.search("cat", 3, mode=mode)
    assert depths == [SEARCH_DEPTH, SEARCH_DEPTH]


def test_an_index_built_again_is_measured_with_the_half_that_had_no_part_in_choosing_it(stored, monkeypatch):
    parts, split = [], split_queries

    def recorded(*given):
        parts.append(split(*given))
        return parts[-1]

    for module in (optimizing, renewal_module):
        monkeypatch.setattr(module, "split_queries", recorded)
    assert stored.optimize(0.9, kinds=["ivf_int8"], queries=[words(n, "q") for n in range(400)], seed=7).met
    stored.add(documents(2_000, 60))
    (seen, unseen), (seen_again, unseen_again) = parts
    np.testing.assert_array_equal(seen.queries, seen_again.queries)
    np.testing.assert_array_equal(unseen.queries, unseen_again.queries)


def in_two_shards(store, head, ids, spec):
    """Build shards as a cluster does."""
    parent, dim = store.path / "vectors", head.encoder.dim
    rows = Snapshot(store, head).read("chunks", ["id", "vector"]).sort_by("id")
    assert rows["id"].to_pylist() == ids.tolist()
    vectors = matrix(rows["vector"], dim)
    names = tuple(
        build(parent, spec, [(ids[part], vectors[part])], dim=dim, covers=head.rows).publish(IndexMetadata())
        for part in np.array_split(np.arange(len(ids)), 2)
    )

    def opened(names):
        return ShardedIndex([IndexManifest.read(parent / name).load(parent / name) for name in names])

    return BuiltShards(
        names,
        merge_manifests([IndexManifest.read(parent / name) for name in names]),
        memory=10_000,
        open_shards=opened,
        amend_shards=lambda names, settled: tuple(amend(parent, name, settled) for name in names),
        delete_shards=lambda names: None,
    )


def test_an_index_in_shards_is_optimized_and_measured_again_as_one(stored, monkeypatch):
    monkeypatch.setattr(OpenIndex, "_backend", lambda _: SearchBackend(build_shards=in_two_shards))
    monkeypatch.setattr(optimizing, "TIE", 1e-6)  # not exact search, however few they are
    result = stored.optimize(0.9, kinds=["ivf_int8"], queries=[words(n, "q") for n in range(300)])
    assert result.met
    for count, more in ((200, 60), (260, 0)):
        snapshot = stored.snapshot()
        index = snapshot.index.published
        assert len(snapshot.head.parts) == len(index.shards) == 2 and len(index.ids) == count
        shown = BenchmarkResult.from_dict(stored.status().vector_kind["measured"])
        assert (shown.count, shown.requirements) == (count, result.requirements) and shown.recall_bound >= 0.9
        assert snapshot.published.spec == snapshot.head.index and snapshot.head.index.kind == "ivf_int8"
        sample = QuerySample.of(stored.encoder.encode([words(n, "r") for n in range(100)], kind="query"), index)
        truth = exact_index(index).search(sample.queries, 10)[0]
        np.testing.assert_array_equal(sample.thresholds[:, 0], truth[:, -1])
        assert not is_exact(index) and is_exact(exact_index(index)) and sample.recalls(index).mean() >= 0.9
        stored.add(documents(2_000, more))


def test_what_is_not_met_changes_nothing(stored):
    before = stored.snapshot().head
    (stored.path / "vectors/.0123456789ab").mkdir()  # of a writer that was killed
    result = stored.optimize(0.99, memory=100)
    assert not result.met and stored.snapshot().head == before
    assert {folder.name for folder in (stored.path / "vectors").iterdir()} == {*before.published}
    with pytest.raises(InputError, match="3 queries cannot prove a recall of 0.99"):
        stored.optimize(0.99, queries=["a", "b", "c"])
    with pytest.raises(InputError, match="no kind of index 'annoy'"):
        stored.optimize(0.9, kinds=["annoy"])


def test_the_only_document_can_be_optimized_for_and_forgotten(tmp_path, tiny_model):
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add([{"id": "a", "text": "The cat sat on the mat."}])
    assert retriever.optimize(1.0, queries=["cat"]).met
    with pytest.raises(InputError, match="0 queries cannot prove a recall of 1"):
        retriever.optimize(1.0, queries=[])
    assert retriever.optimize(0.9).met
    retriever.delete("a", erase=True)
    assert retriever.status().vector_kind["measured"]["count"] == 0
    files = [file for file in retriever.path.rglob("*") if file.is_file()]
    assert not [file for file in files if b"The cat sat" in file.read_bytes()]
    retriever.add(documents(0, 3))
    retriever.delete("0", erase=True)
    shown = BenchmarkResult.from_dict(retriever.status().vector_kind["measured"])
    assert (shown.count, shown.met, shown.source) == (2, True, "stored vectors, mixed")


def test_a_measurement_that_was_tampered_with_does_no_harm(stored):
    for turn, measured in enumerate([{"recall": "high"}, {"demand": {"recall": 0.9}}, {"demand": None, "curve": [1]}]):
        with stored._index.writer() as writer:
            writer.index.amend(IndexMetadata(None, measured))
        assert stored.status().vector_kind["measured"] == measured
        stored.add(documents(1_000 * (turn + 1), 60))
        assert stored.status().vector_kind["count"] == 260 + 60 * turn
        assert stored.status().vector_kind["measured"] == {}


@pytest.mark.parametrize("lost", ["manifest.json", "index.faiss", "the folder", "all folders"])
def test_what_was_demanded_outlives_the_index_that_was_chosen_for_it(stored, monkeypatch, lost):
    monkeypatch.setattr(optimizing, "TIE", 1e-6)  # not exact search, however few they are
    demand = stored.optimize(0.9, kinds=["ivf_int8"], queries=[words(n, "q") for n in range(300)]).requirements
    folder = stored.path / "vectors" / stored.snapshot().head.vectors
    if lost in ("manifest.json", "index.faiss"):
        (folder / lost).write_bytes((folder / lost).read_bytes()[:-1])
    else:
        shutil.rmtree(folder if lost == "the folder" else folder.parent)
    stored = Retriever.open(stored.path)
    assert stored.add(documents(1_000, 1)).note.startswith("built the vector index anew from the store, because")
    shown = BenchmarkResult.from_dict(stored.status().vector_kind["measured"])
    assert (shown.requirements, shown.met, shown.count, shown.queries) == (demand, True, 201, 150)
    assert stored.snapshot().head.index.kind == "ivf_int8"


def test_what_was_demanded_outlives_all_rows_but_not_a_kind_that_is_chosen_by_hand(stored):
    demand = stored.optimize(0.9, kinds=["ivf_int8"], queries=[words(n, "q") for n in range(300)]).requirements
    assert stored.snapshot().head.demand == Retriever.open(stored.path).snapshot().head.demand == demand
    stored.delete(*map(str, range(200)), erase=True)
    stored.add(documents(1_000, 50))
    shown = BenchmarkResult.from_dict(stored.status().vector_kind["measured"])
    assert (shown.requirements, shown.met, shown.count) == (demand, True, 50)
    published = stored.snapshot().published
    with stored._index.writer() as writer:
        writer.index.amend(IndexMetadata(published.search, published.measurements))
    assert stored.snapshot().head.demand == demand
    stored.build_index("ivf_int8", nlist=3)
    assert stored.snapshot().head.demand is None
    stored.repair()
    assert stored.status().vector_kind["measured"] == {}


def test_an_index_optimized_before_its_demand_was_written_down_keeps_it(stored):
    demand = stored.optimize(0.9, kinds=["ivf_int8"], queries=[words(n, "q") for n in range(300)]).requirements
    file = stored.path / "HEAD.json"
    head = json.loads(file.read_text())
    assert head.pop("demand") == {"recall": 0.9, "memory": None, "latency": None}
    file.write_text(json.dumps(head))
    stored = Retriever.open(stored.path)
    assert stored.snapshot().head.demand is None
    stored.add(documents(1_000, 60))
    assert stored.snapshot().head.demand == demand


def test_queries_made_from_passages_go_when_a_document_is_forgotten(stored):
    assert stored.optimize(0.9).choice.benchmark.source.endswith("sentences of the passages, encoded as queries")
    encoder = stored.snapshot().head.encoder
    (file,) = stored.path.glob("queries-made-*.npy")
    assert questions.read_stored(stored.location, encoder) is not None
    whole = file.read_bytes()
    for damaged in (b"", b"PK\x03\x04", whole[:-7], whole + bytes(8 * MAX_QUERIES * encoder.dim)):
        file.write_bytes(damaged)
        assert questions.read_stored(stored.location, encoder) is None
    stored.delete("7", erase=True)
    left = {" ".join(words(n).split()) for n in range(200) if n != 7}
    made = {vector.tobytes() for vector in stored.encoder.encode(sorted(left), kind="query")}
    assert len(kept := questions.read_stored(stored.location, encoder)) > 50
    assert {vector.tobytes() for vector in kept} <= made
    source = stored.status().vector_kind["measured"]["source"]
    assert source == f"{len(kept):,} sentences of the passages, encoded as queries"


def test_an_erasure_that_was_cut_short_is_finished_with_queries_as_before(stored, monkeypatch):
    assert stored.optimize(0.9).met
    with monkeypatch.context() as patch:
        patch.setattr(vectors.IndexPublisher, "renew", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            stored.delete("7", erase=True)
    assert stored.snapshot().head.erase
    again = Retriever.open(stored.path)
    again.add(documents(1_000, 1))
    assert again.status().vector_kind["measured"]["source"].endswith("sentences of the passages, encoded as queries")


def test_who_forgets_or_repairs_is_told_that_the_demand_is_no_longer_met(stored, monkeypatch):
    with stored._index.writer() as writer:
        writer.index.amend(IndexMetadata(measurements=BenchmarkResult(Requirements(0.9, memory=100)).as_dict()))
    says = r"when the vector index was built again for \d+ passages, memory grew to .+, and nothing mends that: .+\n"
    for command in (["forget", "7"], ["verify", "--repair"]):
        run = CliRunner().invoke(cli, [*command, "--index", str(stored.path)], standalone_mode=False)
        assert run.return_value == 0 and re.fullmatch(says, run.stderr)
    monkeypatch.setattr(writing.Writer, "_erase", lambda _: None)  # as if it were killed
    stored.delete("8", erase=True)
    monkeypatch.undo()
    assert stored.snapshot().head.erase
    assert re.fullmatch(says.removesuffix(r"\n"), stored.add([]).note)


def test_the_command_says_what_was_chosen_or_what_would_be(stored, tmp_path):
    run = CliRunner().invoke(cli, ["optimize", "--index", str(stored.path), "--recall", "0.9"], standalone_mode=False)
    assert (run.return_value, run.exception) == (0, None)
    assert re.search(r"^recall@10  \d\.\d{4}, at least \d\.\d{4} with 95 % confidence, by ", run.stdout, re.MULTILINE)
    shown = CliRunner().invoke(cli, ["status", "--index", str(stored.path)]).stdout
    assert run.stdout.split("\n", 1)[1] in shown
    picture, before = tmp_path / "frontier.svg", stored.snapshot().head.vectors
    options = ["--memory", "1KB", "--json", "--plot", str(picture)]
    run = CliRunner().invoke(cli, ["optimize", "--index", str(stored.path), *options], standalone_mode=False)
    assert run.return_value == 1 and json.loads(run.stdout)["met"] is False
    assert json.loads(run.stdout)["nearest"][0].startswith("recall 0.99 takes ")
    assert picture.read_text("utf-8").startswith("<svg") and stored.snapshot().head.vectors == before
    assert CliRunner().invoke(cli, ["optimize", "--index", str(stored.path), "--plot", str(tmp_path)]).exit_code != 0
    other = CliRunner().invoke(cli, ["optimize", "--index", str(stored.path), "--plot", str(tmp_path / "plot.png")])
    assert "plot.png would be an SVG by another name: expected one that ends in .svg" in str(other.exception)
    assert not (tmp_path / "plot.png").exists()


@pytest.mark.parametrize(
    ("option", "amount", "expected"),
    [
        ("--memory", "much", "an amount of memory: expected one such as 250MB or 2GB"),
        ("--memory", "250", "an amount of memory: expected one such as 250MB or 2GB"),
        ("--latency", "5 years", "a time: expected one such as 5ms"),
        ("--latency", "5", "a time: expected one such as 5ms"),
    ],
)
def test_an_amount_has_a_unit(option, amount, expected):
    run = CliRunner().invoke(cli, ["optimize", option, amount])
    assert run.exit_code == 2
    assert f"{amount!r} is not {expected}" in run.stderr


def test_the_curve_is_a_table_in_which_the_chosen_search_is_marked():
    def row(search, *figures):
        return {"search": search, **dict(zip(("recall", "least", "rate", "p50", "p99"), figures, strict=True))}

    less = row({"nprobe": 8, "k_factor": 4}, 0.91, 0.9, 20_000.4, 0.1, 0.2)
    chosen = row({"nprobe": 12, "k_factor": 4}, 0.97, 0.96, 9_876.6, 0.2, 0.3)
    figures = {name: chosen[name] for name in ("recall", "least", "rate", "p50", "p99")}
    figures["recall_bound"] = figures.pop("least")
    measured = BenchmarkResult(Requirements(0.95), **figures, memory=122_000, count=1_000, curve=[chosen, less])
    assert [f"{name:<10} {text}" for name, text in proof(measured)][-3:] == [
        "curve      recall@10  at least  queries/s  bytes/vector  search",
        "              0.9100    0.9000     20,000           122  nprobe 8, k_factor 4",
        "              0.9700    0.9600      9,877           122  nprobe 12, k_factor 4  <- chosen",
    ]
    assert [name for name, _ in proof(replace(measured, curve=[chosen]))][-1] == "measured"
    assert BenchmarkResult.from_dict(json.loads(json.dumps(measured.as_dict()))) == measured
    wrong = [1, {}, {**less, "rate": None}, {**less, "search": 5}, {**less, "search": {"\x1b[2J": 1}}]
    wrong += [{**less, "search": {"nprobe": "1"}}, {**less, "p99": math.nan}]
    for one in wrong:
        assert BenchmarkResult.from_dict({**measured.as_dict(), "curve": [one]}) is None


def test_queries_are_read_from_lines_and_from_json_lines(tmp_path):
    plain, lines, bad = (tmp_path / name for name in ("a.txt", "b.jsonl", "c.jsonl"))
    plain.write_text("one\n\ntwo\none\n", "utf-8")
    lines.write_text('{"_id": "1", "text": "one"}\n{"_id": "2", "text": "two"}\n', "utf-8")
    bad.write_text('{"_id": "1"}\n', "utf-8")
    assert questions.read(plain) == questions.read(lines) == ["one", "two"]
    for file in (plain, lines):
        file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
        assert questions.read(file) == ["one", "two"]
    lines.write_text('{"text": "one\u2028line"}\n{"text": "caf\x85e"}\n', "utf-8")
    assert questions.read(lines) == ["one\u2028line", "caf\x85e"]
    for file, message in ((bad, "c.jsonl:1 is not a query"), (tmp_path / "none", "cannot be read")):
        with pytest.raises(InputError, match=message):
            questions.read(file)


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1 KB"),
        (10_240, "10.24 KB"),
        (123_456, "123.5 KB"),
        (999_999, "1000 KB"),
        (250e6, "250 MB"),
        (1_536_000_000, "1.536 GB"),
        (2e12, "2 TB"),
    ],
)
def test_a_size_is_shown_in_its_own_unit(count, shown):
    assert format_bytes(count) == shown


def test_a_sentence_is_a_query():
    assert questions.sentences("Short. This one has quite enough words.\n\nSo does this other one!") == [
        "This one has quite enough words.",
        "So does this other one!",
    ]
    assert questions.sentences("two words") == ["two words"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "今天天气很好，我们去公园散步。他说：「明天会下雨吗？」好。",
            ["今天天气很好，我们去公园散步。", "他说：「明天会下雨吗？"],
        ),
        ("วันนี้อากาศดีมาก เราไปเดินเล่นที่สวนสาธารณะ", ["วันนี้อากาศดีมาก", "เราไปเดินเล่นที่สวนสาธารณะ"]),
        ("字" * 200, ["字" * 32]),
        ("Die Wörter 漢字 und 仮名 stehen in einem Satz.", ["Die Wörter 漢字 und 仮名 stehen in einem Satz."]),
    ],
)
def test_a_sentence_is_found_where_no_blanks_stand_between_words(text, found):
    assert questions.sentences(text) == found
