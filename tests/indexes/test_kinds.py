from __future__ import annotations

import errno
import hashlib
import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import faiss
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from binocle import Retriever
from binocle.core.errors import DamagedError, InputError
from binocle.indexes.faiss_codes import INT8
from binocle.indexes.faiss_index import FaissIndex
from binocle.indexes.faiss_kind import FaissKind
from binocle.indexes.faiss_structures import Lists
from binocle.indexes.flat import FlatIndex
from binocle.indexes.manifest import IndexManifest, IndexMetadata
from binocle.indexes.metric import METRICS
from binocle.indexes.published import amend, build, publish_files
from binocle.indexes.registry import KINDS, IndexSpec
from binocle.indexes.sharded import BuiltShards
from binocle.indexes.tuning.renewal import rebuild
from binocle.retriever.store.snapshot import LiveIndex

DIM, COUNT = 16, 600
APPROXIMATE = [name for name in KINDS if name != "flat"]
SOME = ["flat", "int8", "pq_fast", "ivf", "ivf_rabitq_fast", "hnsw", "factory"]


def build_of(kind):
    """Parameters with which a few hundred vectors are enough to learn from, and little is to be learnt."""
    values = {"factory": "PCA8,IVF12,SQ8", "nlist": 12, "part_bits": 4, "m": 8, "ef_construction": 40}
    return {p.name: values[p.name] for p in KINDS[kind].build_parameters if p.name in values}


def spec_of(kind, metric="ip", **search):
    known = {parameter.name for parameter in KINDS[kind].search_parameters}
    return IndexSpec(kind, build_of(kind), {name: value for name, value in search.items() if name in known}, metric)


def vectors_of(count, seed=0, *, unit=True):
    random = np.random.default_rng(seed)
    centres = np.random.default_rng(77).standard_normal((20, DIM))
    vectors = (centres[random.integers(0, 20, count)] + 0.7 * random.standard_normal((count, DIM))).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True) if unit else vectors


def true_scores(metric, vectors, queries):
    """By definition, in double precision: (queries, vectors)."""
    vectors, queries = vectors.astype(float), queries.astype(float)
    if metric == "l2":
        return -((queries[:, None] - vectors[None]) ** 2).sum(axis=2)
    if metric == "cosine":
        lengths = np.linalg.norm(queries, axis=1)[:, None] * np.linalg.norm(vectors, axis=1)[None]
        return np.divide(queries @ vectors.T, lengths, out=np.zeros(lengths.shape), where=lengths > 0)
    return queries @ vectors.T


def publish(folder, spec, ids, vectors, *, covers=1, settled=None):
    batches = ((ids[at : at + 250], vectors[at : at + 250]) for at in range(0, len(ids), 250))
    return build(folder, spec.check(DIM), batches, dim=DIM, covers=covers).publish(settled or IndexMetadata())


def load(folder):
    return IndexManifest.read(folder).load(folder)


def assert_recall(given, ids, vectors, queries, k, metric, *, least=1.0, allowed=None):
    """Scores are true ones, best first; nothing forbidden, gone or twice; recall of what there is at least `least`."""
    scores, found = given
    truth = true_scores(metric, vectors, queries)
    if allowed is not None:
        truth = np.where(np.isin(ids, allowed), truth, -np.inf)
    there = min(k, int(np.isfinite(truth).sum(axis=1).min(initial=k)) if len(ids) else 0)
    assert scores.shape == found.shape == (len(queries), k)
    assert (scores.dtype, found.dtype) == (np.float32, np.int64)
    assert (found[:, :there] >= 0).all()
    assert (found[:, there:] == -1).all()
    assert (scores[:, there:] == -np.inf).all()
    if not there:
        return
    assert (np.diff(scores[:, :there]) <= 0).all()
    places = np.searchsorted(ids, found[:, :there])
    np.testing.assert_array_equal(ids[places], found[:, :there])
    np.testing.assert_allclose(scores[:, :there], np.take_along_axis(truth, places, 1), rtol=1e-5, atol=1e-5)
    assert all(len(set(row.tolist())) == there for row in found[:, :there])
    last = -np.sort(-truth, axis=1)[:, there - 1 : there]
    recall = (scores[:, :there] >= last - 1e-5 * (1 + abs(last))).mean()
    assert recall >= least, recall


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """Indexes of each kind and metric, each built once: `built(kind, metric)` gives the folder."""
    root = tmp_path_factory.mktemp("built")

    @cache
    def folder(kind, metric="ip"):
        ids, vectors = rows(metric)
        return root / publish(root, spec_of(kind, metric, k_factor=40, nprobe=10), ids, vectors)

    return folder


def rows(metric="ip"):
    return np.arange(COUNT, dtype=np.int64) * 3 + 5, vectors_of(COUNT, unit=metric == "ip")


@pytest.fixture
def eager(monkeypatch):
    """Filters are met through the index wherever it can, though so few vectors are compared sooner."""

    def is_better_exact(index, k, depth, passing, *, filtered):
        return index.index is None or k == 0 or depth >= len(index.ids) or k > passing

    monkeypatch.setattr(FaissIndex, "_is_better_exact", is_better_exact)


# Answers


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_gives_true_scores_and_finds_the_nearest(kind, metric, built):
    ids, vectors = rows(metric)
    index = load(built(kind, metric))
    assert kind == "flat" or index.index is not None
    queries = vectors_of(25, 3, unit=metric == "ip")
    for k in (0, 1, 10, 100, COUNT, COUNT + 7):
        assert_recall(index.search(queries, k), ids, vectors, queries, k, metric, least=1 if kind == "flat" else 0.95)
    np.testing.assert_array_equal(index.reconstruct(ids[::-7]), vectors[::-7])


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", KINDS)
def test_filters_keep_the_recall(kind, metric, built, eager):
    """Of any selectivity, as a mask and as positions; one passes only vectors far from the query."""
    ids, vectors = rows(metric)
    index = load(built(kind, metric))
    queries = vectors_of(25, 3, unit=metric == "ip")
    random = np.random.default_rng(0)
    far = true_scores(metric, vectors, queries[:1])[0]
    masks = [random.random(COUNT) < share for share in (0.99, 0.5, 0.2, 0.05, 0.01)]
    masks += [far < np.median(far), far < np.quantile(far, 0.1), np.zeros(COUNT, bool), np.arange(COUNT) == 9]
    for mask in masks:
        for allowed in (mask, np.flatnonzero(mask)):
            answers = index.search(queries, 10, allowed=allowed)
            assert_recall(answers, ids, vectors, queries, 10, metric, least=0.95, allowed=ids[mask])


@pytest.mark.parametrize("kind", SOME)
@pytest.mark.parametrize("metric", METRICS)
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(data=st.data())
def test_any_history_answers_as_brute_force(kind, metric, data, tmp_path_factory, monkeypatch):
    """Rows come, go and change, the index is published now and then; searched thoroughly it answers exactly."""
    monkeypatch.setattr(
        FaissIndex, "_is_better_exact", lambda i, k, depth, *_, **__: i.index is None or depth >= len(i.ids)
    )
    folder = tmp_path_factory.mktemp("history")
    held = {}
    next_id = 0
    published = None
    for step in range(data.draw(st.integers(2, 5))):
        for vector in vectors_of(data.draw(st.integers(0, 150)), data.draw(st.integers(0, 99)), unit=metric == "ip"):
            held[next_id] = vector
            next_id += 2
        for number in list(held)[data.draw(st.integers(0, 9)) :: data.draw(st.integers(2, 50))]:
            del held[number]
            if data.draw(st.booleans()):  # an update is a deletion and an addition under a new id
                held[next_id] = vectors_of(1, number, unit=metric == "ip")[0]
                next_id += 2
        ids = np.array(list(held), np.int64)
        vectors = np.array(list(held.values()), np.float32).reshape(-1, DIM)
        if published is None or data.draw(st.booleans()):
            spec = spec_of(kind, metric, nprobe=12, ef_search=400, k_factor=60)
            published = load(folder / publish(folder, spec, ids, vectors, covers=step))
        live = live_of(published, ids, vectors, metric)
        queries = vectors_of(4, 1000 + step, unit=metric == "ip")
        minimum = 0.9 if kind in ("hnsw", "factory", "ivf_rabitq_fast") else 1
        assert_recall(live.search(queries, 5), ids, vectors, queries, 5, metric, least=minimum)
        allowed = ids[data.draw(st.integers(0, 2)) :: data.draw(st.sampled_from([1, 2, 9, 60]))]
        allowed_ids = np.concatenate([allowed, np.array([10**9], np.int64)])
        assert_recall(
            live.search(queries, 5, allowed=allowed_ids),
            ids,
            vectors,
            queries,
            5,
            metric,
            least=minimum,
            allowed=allowed,
        )
        np.testing.assert_array_equal(live.reconstruct(ids), vectors)


def live_of(published, ids, vectors, metric):
    """As `Snapshot.index` puts one together."""
    newest = int(published.ids[-1]) if len(published.ids) else -1
    is_present, newer = np.isin(published.ids, ids), ids > newest
    tail = FlatIndex(ids[newer], vectors[newer], metric) if newer.any() else None
    return LiveIndex(published, None if is_present.all() else is_present, tail)


@pytest.mark.parametrize("count", [0, 1, 2, 15])
@pytest.mark.parametrize("kind", KINDS)
def test_few_vectors_are_no_special_case(kind, count, tmp_path):
    ids, vectors = np.arange(count, dtype=np.int64), vectors_of(count)
    index = load(tmp_path / publish(tmp_path, spec_of(kind), ids, vectors))
    queries = vectors_of(3, 1)
    assert_recall(index.search(queries, 4), ids, vectors, queries, 4, "ip")
    assert_recall(index.search(queries, 4, allowed=ids % 2 == 0), ids, vectors, queries, 4, "ip", allowed=ids[::2])
    assert [array.shape for array in index.search(queries[:0], 4)] == [(0, 4), (0, 4)]


ROTATIONS = [  # kind, its options, dimension, the fewest vectors to learn from
    ("ivf_opq_fast", {"nlist": 2}, 64, 64),
    ("opq", {"part_bits": 4}, 64, 64),
    ("factory", {"factory": "OPQ8,PQ8x4"}, 264, 264),
    ("factory", {"factory": "OPQ8_272,PQ8x4"}, 264, 272),
    ("factory", {"factory": "OPQ8_16,PQ8x4"}, 264, 264),
]


@pytest.mark.thorough
def test_a_rotation_is_learnt_from_as_many_vectors_as_dimensions():
    """FAISS ends the process of one who tries with fewer."""
    script = """
import sys, tempfile, pathlib, json, numpy as np
from binocle.indexes.registry import IndexSpec
from binocle.indexes.published import build
rotations = json.loads(sys.argv[1])
for kind, options, dim, count in [(*rest, least - less) for *rest, least in rotations for less in (1, 0)]:
    ids, vectors = np.arange(count), np.random.default_rng(0).standard_normal((count, dim)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        index = build(pathlib.Path(folder) / "v", IndexSpec(kind, options), [(ids, vectors)], dim=dim, covers=1).load()
        found = len(set(index.search(vectors[:1], 5)[1][0].tolist()))
        print(json.dumps([kind, options, count, index.index is not None, found]), flush=True)
"""
    command = [sys.executable, "-c", script, json.dumps(ROTATIONS)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert [json.loads(line) for line in run.stdout.splitlines()] == [
        [kind, options, least - less, less == 0, 5] for kind, options, _, least in ROTATIONS for less in (1, 0)
    ], run.stderr
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("kind", SOME)
def test_equal_and_zero_vectors_are_all_found_and_none_twice(kind, tmp_path):
    ids = np.arange(400, dtype=np.int64)
    for metric in METRICS:
        vectors = np.repeat(np.vstack([vectors_of(7), np.zeros((1, DIM), np.float32)]), 50, axis=0)
        index = load(tmp_path / publish(tmp_path, spec_of(kind, metric), ids, vectors))
        assert_recall(index.search(vectors[::50], 50), ids, vectors, vectors[::50], 50, metric, least=0.9)


@pytest.mark.parametrize("kind", APPROXIMATE)
def test_queries_of_another_dimension_are_refused(kind, built):
    for shape in ((1, DIM + 1), (DIM,), (1, 0)):
        with pytest.raises(InputError, match="built with another encoder"):
            load(built(kind)).search(np.zeros(shape, np.float32), 1)


@pytest.mark.parametrize("kind", SOME)
def test_threads_may_share_an_index(kind, built, eager):
    index, queries = load(built(kind)), vectors_of(8, 5)
    masks = [np.arange(COUNT) % n > 0 for n in range(2, 6)]
    expected = [index.search(queries, 7, allowed=mask)[1] for mask in masks]
    wrong = []

    def search(number):
        answers = [index.search(queries, 7, allowed=masks[number])[1] for _ in range(20)]
        wrong.extend(number for ids in answers if not np.array_equal(ids, expected[number]))

    threads = [threading.Thread(target=search, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_few_of_many_are_compared_and_most_of_many_looked_up():
    """The choice is by cost: neither way for all filters."""
    index = FaissIndex(
        FlatIndex(np.arange(10**6), np.broadcast_to(np.zeros(384, np.float32), (10**6, 384))),
        object(),
        Lists(),
        INT8,
        KINDS["ivf_int8"].search_parameters,
        {"nlist": 4096},
        {"nprobe": 32, "k_factor": 4},
    )
    exact = [
        index._is_better_exact(10, index.depth(10, n), n, filtered=True) for n in (10, 100, 5_000, 500_000, 990_000)
    ]
    assert exact == [True, True, True, False, False]
    assert not index._is_better_exact(10, 40, 10**6, filtered=False)


# Parameters


@pytest.mark.parametrize("kind", APPROXIMATE)
def test_search_parameters_change_what_is_found_and_never_its_scores(kind, built):
    ids, vectors = rows()
    index, queries = load(built(kind)), vectors_of(25, 3)
    for parameter in KINDS[kind].search_parameters:
        low, high = index.with_parameters(**{parameter.name: 1}), index.with_parameters(**{parameter.name: 50})
        assert_recall(low.search(queries, 5), ids, vectors, queries, 5, "ip", least=0.1)
        assert_recall(high.search(queries, 5), ids, vectors, queries, 5, "ip", least=0.95)
    with pytest.raises(InputError, match="has no parameter 'depth'"):
        index.with_parameters(depth=3)


@pytest.mark.parametrize("kind", APPROXIMATE)
def test_every_parameter_says_its_range_and_holds_to_it(kind):
    kinds = KINDS[kind]
    for parameter, where in [(p, "build") for p in kinds.build_parameters] + [
        (p, "search") for p in kinds.search_parameters
    ]:
        grid = parameter.grid(64)
        assert grid == sorted(set(grid))
        for value in (parameter.low - 1, parameter.high + 1, 1.5, True, "3" if parameter.name != "factory" else "", []):
            with pytest.raises(InputError):
                IndexSpec(
                    kind, **{where: {**(build_of(kind) if where == "build" else {}), parameter.name: value}}
                ).check(DIM)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (IndexSpec("annoy"), "no kind of index 'annoy'"),
        (IndexSpec(metric="dot"), "no metric 'dot'"),
        (IndexSpec("flat", {"nlist": 3}), "expected none"),
        (IndexSpec("pq", {"parts": 7}), "parts may be 1, 2, 4, 8, among"),
        (IndexSpec("factory"), "not the factory string"),
        (IndexSpec("factory", {"factory": "IVF4,Flat,RFlat"}), "without IDMap and Refine"),
        (IndexSpec("factory", {"factory": "Annoy10"}), "cannot make 'Annoy10' for dimension 16: could not parse"),
        (IndexSpec("factory", {"factory": "HNSW8,PQ8"}), "cannot make 'HNSW8,PQ8' for the inner product"),
        *(
            (IndexSpec("factory", {"factory": recipe}), f"'{recipe}' holds a number that no index can have")
            for recipe in (
                "HNSW0",
                "IVF10_HNSW0,Flat",
                "IVF0,Flat",
                "PQ8x0",
                "PQ8x4fs_0",
                "RaBitQfs_0",
                "OPQ0,PQ8",
                "PCA00,Flat",
                "RR99999999,Flat",
            )
        ),
        (IndexSpec("factory", {"factory": "HNSW1"}), "a node of HNSW in 'HNSW1' has from 2 to 256 neighbours, not 1"),
        (IndexSpec("factory", {"factory": "IVF10_HNSW01,Flat"}), "from 2 to 256 neighbours, not 01"),
        (IndexSpec("factory", {"factory": "NSG16,Flat"}), "without NSG"),
    ],
)
def test_what_cannot_be_built_is_refused_in_one_line(spec, says):
    with pytest.raises(InputError, match=says) as refusal:
        spec.check(DIM)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "recipe", ["IVF10,SQ8", "PCA10,IVF12,SQ8", "HNSW10,SQfp16", "IVF10_HNSW10,Flat", "RQ4x10", "PQ8x10"]
)
def test_numbers_that_are_written_with_a_nought_are_taken(recipe):
    assert IndexSpec("factory", {"factory": recipe}).check(DIM)


def test_what_faiss_cannot_build_or_search_is_refused_in_one_line(tmp_path, built, monkeypatch):
    with pytest.raises(InputError, match=r"^FAISS cannot learn this index from 600 vectors: .+$"):
        publish(tmp_path, IndexSpec("factory", {"factory": "PQ8x10"}), *rows())
    index = load(built("int8"))
    monkeypatch.setattr(faiss.IndexScalarQuantizer, "search", unable)
    with pytest.raises(InputError, match="^FAISS cannot search this index: a reason$"):
        index._neighbours(vectors_of(1), 5, None)
    with pytest.raises(InputError, match="^FAISS cannot build 'SQ8': a reason$"):
        publish(tmp_path, IndexSpec("int8"), *rows())


def test_a_single_query_is_searched_in_one_thread(built, eager, monkeypatch):
    index, threads = load(built("int8")), []
    search = faiss.IndexScalarQuantizer.search
    monkeypatch.setattr(
        faiss.IndexScalarQuantizer,
        "search",
        lambda *values, **named: [threads.append(faiss.omp_get_max_threads()), search(*values, **named)][1],
    )
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(3)
    try:
        index.search(vectors_of(1), 5)
        index.search(vectors_of(2), 5)
        monkeypatch.setattr(faiss.IndexScalarQuantizer, "search", unable)
        with pytest.raises(InputError):
            index.search(vectors_of(1), 5)
        assert [*threads, faiss.omp_get_max_threads()] == [1, 3, 3]
    finally:
        faiss.omp_set_num_threads(before)


def unable(*_, **__):
    """As FAISS says that it cannot do something."""
    raise RuntimeError("Error in virtual void faiss::Index at /project/Index.cpp:5: Error: 'x > 0' failed: a reason\n")


def test_a_choice_that_does_not_fit_other_vectors_falls_back_to_its_kind():
    assert IndexSpec("pq", {"parts": 16}).supported(16).build == {"parts": 16}
    assert IndexSpec("pq", {"parts": 16}).supported(15) == IndexSpec("pq")
    assert (
        IndexSpec("future").supported(16)
        == IndexSpec("factory", {"factory": "HNSW0"}).supported(16)
        == IndexSpec("flat")
    )


@pytest.mark.parametrize("kind", APPROXIMATE)
def test_the_estimate_of_memory_is_near_the_size_of_the_file(kind, built):
    folder = built(kind)
    manifest, size = IndexManifest.read(folder), (folder / "index.faiss").stat().st_size
    estimate = KINDS[kind].bytes_per_vector(DIM, manifest.build, COUNT) * COUNT
    assert 0.6 * (size - 6_000) < estimate < 1.5 * size + 8 * COUNT


def test_no_gpu_is_said_in_one_line(tmp_path):
    if getattr(faiss, "get_num_gpus", lambda: 0)():
        pytest.skip("there is one")
    with pytest.raises(InputError, match=r"leave gpu out.* --no-deps faiss-gpu-cuvs$") as caught:
        publish(tmp_path, IndexSpec("ivf", {"gpu": 1, "nlist": 4}), *rows())
    assert "\n" not in str(caught.value)


@pytest.fixture
def gpu(monkeypatch):
    """As if there were one: CAGRA's graph is one that the processor has made, and nothing else can be built there."""

    class Cagra:
        def __init__(self, _resources, dim, metric, config):
            assert config.intermediate_graph_degree == 2 * config.graph_degree
            self.made = faiss.IndexHNSWCagra(dim, config.graph_degree // 2, metric)

        def train(self, vectors):
            self.made.add(vectors)

        def copyTo(self, index):  # noqa: N802
            index.hnsw = self.made.hnsw

    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 1)
    for name, value in (
        ("GpuIndexCagra", Cagra),
        ("GpuIndexCagraConfig", SimpleNamespace),
        ("StandardGpuResources", SimpleNamespace),
        ("GpuMultipleClonerOptions", SimpleNamespace),
        ("index_cpu_to_all_gpus", unable),
    ):
        monkeypatch.setattr(faiss, name, value, raising=False)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", ["hnsw", "hnsw_fp16", "hnsw_int8"])
def test_a_graph_that_a_gpu_has_made_is_searched_over_the_codes_of_its_kind(kind, metric, tmp_path, gpu, eager, built):
    ids, vectors = rows(metric)
    spec = IndexSpec(kind, {"m": 8, "gpu": 1}, {"ef_search": 200}, metric)
    folder = tmp_path / publish(tmp_path, spec, ids, vectors)
    index, queries = load(folder), vectors_of(25, 3, unit=metric == "ip")
    assert_recall(index.search(queries, 10), ids, vectors, queries, 10, metric, least=0.95)
    sizes = [(folder_of / "index.faiss").stat().st_size for folder_of in (folder, built(kind, metric))]
    assert sizes[0] == pytest.approx(sizes[1], rel=0.02)


def test_what_cannot_be_built_on_a_gpu_is_refused_in_one_line(tmp_path, gpu):
    with pytest.raises(InputError, match="^FAISS cannot build this kind of index on a GPU: a reason$"):
        publish(tmp_path, IndexSpec("ivf_int8", {"gpu": 1, "nlist": 4}), *rows())


@pytest.mark.parametrize(("kind", "limit"), [("flat", 800), ("hnsw", 35_000)])
def test_a_file_that_the_disk_does_not_take_whole_is_an_error(kind, limit, tmp_path):
    resource = pytest.importorskip("resource")
    vectors = np.random.default_rng(0).standard_normal((200, 8 if kind == "hnsw" else 1)).astype(np.float32)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            KINDS[kind].write(tmp_path, [(np.arange(200), vectors)], dim=vectors.shape[1], metric="ip", build={})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_faiss_says_nothing_while_it_learns(tmp_path, capfd):
    for kind in ("ivf", "pq", "ivf_pq_fast", "ivf_opq"):
        publish(tmp_path, spec_of(kind), *(part[:100] for part in rows()))
    assert capfd.readouterr() == ("", "")


# Publication


def test_what_is_settled_is_published_and_served(tmp_path):
    ids, vectors = rows()
    name = publish(tmp_path, spec_of("ivf"), ids, vectors, settled=IndexMetadata({"nprobe": 5}, {"recall": 0.99}))
    manifest = IndexManifest.read(tmp_path / name)
    assert (manifest.search, manifest.measurements) == ({"nprobe": 5}, {"recall": 0.99})
    assert load(tmp_path / name).search_values == {"nprobe": 5}
    again = IndexManifest.read(tmp_path / amend(tmp_path, name, IndexMetadata({"nprobe": 12}, {"recall": 1.0})))
    assert (again.search, again.measurements, again.files) == ({"nprobe": 12}, {"recall": 1.0}, manifest.files)
    with pytest.raises(InputError, match="nprobe"):
        amend(tmp_path, name, IndexMetadata({"nprobe": 0}))


def test_equal_rows_make_equal_files(tmp_path):
    """Learning does not depend on chance, so a rebuilt index equals the first."""
    for kind in ("ivf", "pq_fast", "ivf_rabitq"):
        first, second = (IndexManifest.read(tmp_path / publish(tmp_path, spec_of(kind), *rows())) for _ in range(2))
        assert first.files == second.files


def test_an_index_is_published_again_on_a_file_system_without_links(tmp_path, monkeypatch):
    def link(*_):
        raise OSError(errno.EPERM, "Operation not permitted")

    ids, vectors = rows()
    name = publish(tmp_path, spec_of("flat"), ids, vectors)
    monkeypatch.setattr(os, "link", link)
    again = tmp_path / amend(tmp_path, name, IndexMetadata(None, {"recall": 1.0}))
    for file in IndexManifest.read(again).files:
        assert (again / file).read_bytes() == (tmp_path / name / file).read_bytes()
    assert load(again).search(vectors[:3], 1)[1].tolist() == [[number] for number in ids[:3]]


def test_files_that_cannot_be_written_leave_nothing(tmp_path):
    def write(folder):
        (folder / "words.bin").write_bytes(b"part")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        publish_files(tmp_path / "vectors", "words", write, count=1, covers=1, description={})
    assert list((tmp_path / "vectors").iterdir()) == []


def test_shards_on_other_machines_have_no_files_to_share(tmp_path):
    built = build(tmp_path, spec_of("flat").check(DIM), [rows()], dim=DIM, covers=1)
    before = {file: file.stat().st_ino for file in built.folder.iterdir()}
    built.share_files(BuiltShards(("flat-1",), built.manifest, 0, load, None, None))
    assert {file: file.stat().st_ino for file in built.folder.iterdir()} == before


# Damage


def test_index_of_another_format_is_refused(tmp_path):
    folder = tmp_path / publish(tmp_path, spec_of("flat"), *rows())
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "format": 99}))
    with pytest.raises(DamagedError, match="has format 99, this version reads"):
        IndexManifest.read(folder)


def test_index_of_another_dimension_is_refused(tmp_path):
    folder = tmp_path / publish(tmp_path, spec_of("flat"), *rows())
    assert IndexManifest.read(folder, dim=DIM).dim == DIM
    with pytest.raises(DamagedError, match=f"holds vectors of dimension {DIM} where {DIM + 1} was expected"):
        IndexManifest.read(folder, dim=DIM + 1)


def reseal(folder, **changes):
    """A folder with true checksums, whatever its files hold."""
    record = json.loads((folder / "manifest.json").read_text()) | changes
    record["files"] = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in record["files"]}
    data = json.dumps(record).encode()
    (folder / "manifest.json").write_bytes(data)
    return folder.rename(folder.with_name(f"{folder.name.rsplit('-', 1)[0]}-{hashlib.sha256(data).hexdigest()[:16]}"))


def mutate(whole, random):
    """Bytes as accidents and enemies leave them."""
    data = bytearray(whole)
    position = int(random.integers(0, max(1, len(data))))
    match int(random.integers(0, 7)):
        case 0 if data:
            data[position] ^= 1 << int(random.integers(0, 8))
        case 1:
            del data[position:]
        case 2:
            data[position:position] = random.bytes(int(random.integers(1, 40)))
        case 3:
            data[position : position + 8] = b"\xff" * 8
        case 4:
            data[position : position + 8] = int(random.integers(0, 2**62)).to_bytes(8, "little")
        case 5:
            del data[position : position + int(random.integers(1, 64))]
        case _:
            data[:4] = random.choice([b"IxMp", b"IxHe", b"IwFl", b"IHNf", b"\x80\x04\x95."])
    return bytes(data)


def fuzz(built, kind, rounds, seed, monkeypatch):
    """Search an index with one mutated file after another; return how many were refused."""
    folder = built(kind)
    whole = {file: file.read_bytes() for file in folder.iterdir()}
    queries = vectors_of(2, 3)
    expected = load(folder).search(queries, 5)
    reads = []
    read = faiss.read_index
    monkeypatch.setattr(faiss, "read_index", lambda *arguments: reads.append(arguments) or read(*arguments))
    random = np.random.default_rng(seed)
    refused = 0
    for _ in range(rounds):
        file = sorted(whole)[int(random.integers(0, len(whole)))]
        mutated = mutate(whole[file], random)
        file.write_bytes(mutated)
        reads.clear()
        try:
            answer = load(folder).search(queries, 5)
        except DamagedError as error:
            message = str(error)
            assert "\n" not in message
            assert not reads, "FAISS was given bytes that match no checksum"
            refused += 1
        else:
            assert mutated == whole[file]
            np.testing.assert_array_equal(answer[1], expected[1])
        finally:
            file.write_bytes(whole[file])
    return refused


@pytest.mark.parametrize("kind", SOME)
def test_mutated_files_are_refused_before_faiss_reads_them(kind, built, monkeypatch):
    assert fuzz(built, kind, 40, 0, monkeypatch) > 20


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_ten_thousand_mutated_files_crash_nothing(kind, built, monkeypatch):
    assert fuzz(built, kind, 10_000 // len(KINDS) + 1, 1, monkeypatch) > 5_000 // len(KINDS)


@pytest.mark.parametrize("kind", ["int8", "ivf", "hnsw", "pq_fast", "ivf_rabitq"])
def test_a_file_that_faiss_cannot_mean_is_damage_even_under_a_true_checksum(kind, tmp_path):
    ids, vectors = rows()
    cases = {
        "empty": lambda data: b"",
        "cut": lambda data: data[:-9],
        "half": lambda data: data[: len(data) // 2],
        "longer than it can be": lambda data: data + bytes(2**25),
        "of an unknown type": lambda data: b"IxMp" + data[4:],
        "a pickle": lambda data: b"\x80\x04\x95." + data[4:],
        "of other vectors": lambda data: faiss.serialize_index(other_index(kind, 2 * DIM, COUNT)).tobytes(),
        "of fewer vectors": lambda data: faiss.serialize_index(other_index(kind, DIM, COUNT - 1)).tobytes(),
    }
    for case, change in cases.items():
        folder = tmp_path / publish(tmp_path, spec_of(kind), ids, vectors)
        file = folder / "index.faiss"
        file.write_bytes(change(file.read_bytes()))
        with pytest.raises(DamagedError, match="index.faiss") as refusal:
            load(reseal(folder))
        assert "\n" not in str(refusal.value), case


def rewrite(index, change):
    """The bytes of an index, after a change to FAISS's own object."""
    change(index)
    return faiss.serialize_index(index).tobytes()


def set_ids(index, value):
    lists = faiss.try_extract_index_ivf(index).invlists
    number = max(range(lists.nlist), key=lists.list_size)
    faiss.rev_swig_ptr(lists.get_ids(number), lists.list_size(number))[:3] = value


def set_links(index):
    graph = index.hnsw
    node = int(np.flatnonzero(faiss.vector_to_array(graph.levels) > 1)[0])
    ground = int(np.flatnonzero(faiss.vector_to_array(graph.levels) == 1)[0])
    position = graph.offsets.at(node) + graph.cum_nneighbor_per_level.at(1)
    faiss.rev_swig_ptr(graph.neighbors.data(), graph.neighbors.size())[position] = ground


HOSTILE = {
    "ids beyond the vectors": ("ivf_int8", lambda index: set_ids(index, 2**40)),
    "negative ids": ("ivf_pq_fast", lambda index: set_ids(index, -7)),
    "one id many times": ("ivf_rabitq", lambda index: set_ids(index, 5)),
    "links below their level": ("hnsw", set_links),
    "another entry": ("hnsw_int8", lambda index: setattr(index.hnsw, "max_level", 0)),
    "more bits": ("rabitq_fast", lambda index: setattr(index.rabitq, "nb_bits", 9)),
    "room for more": ("pq_fast", lambda index: setattr(index, "ntotal2", 2**20)),
    "other blocks": ("ivf_rabitq_fast", lambda index: setattr(index, "qbs2", 2**20)),
    "fewer codes": ("rabitq", lambda index: index.codes.resize(index.codes.size() - 1)),
    "no centre": ("rabitq", lambda index: index.center.resize(0)),
    "untrained": ("fp16", lambda index: setattr(index, "is_trained", False)),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_an_index_whose_numbers_would_be_used_as_addresses_is_damage(case, tmp_path):
    ids, vectors = rows()
    kind, change = HOSTILE[case]
    folder = tmp_path / publish(tmp_path, spec_of(kind), ids, vectors)
    file = folder / "index.faiss"
    file.write_bytes(rewrite(faiss.read_index(str(file)), change))
    with pytest.raises(DamagedError, match="not an index of the vectors beside it"):
        load(reseal(folder))


@pytest.mark.parametrize("kind", ["ivf_int8", "ivf_rabitq_fast"])
def test_positions_beyond_the_vectors_are_no_answers(kind, built, eager):
    index = replace(load(built(kind)), index=faiss.read_index(str(built(kind) / "index.faiss")))
    set_ids(index.index, 2**40)
    ids, _ = rows()
    for allowed in (None, np.arange(COUNT) % 2 == 0, np.arange(0, COUNT, 2)):
        _, found = index.search(vectors_of(4, 3), 5, allowed=allowed)
        assert np.isin(found, ids if allowed is None else ids[::2]).all()


def test_a_file_cut_within_a_number_is_damage(tmp_path):
    ids, vectors = rows()
    folder = tmp_path / publish(tmp_path, spec_of("factory"), ids, vectors)
    whole = (folder / "index.faiss").read_bytes()
    for size in (26, 28, 46, 60, len(whole) // 2):
        (folder / "index.faiss").write_bytes(whole[:size])
        folder = reseal(folder)
        with pytest.raises(DamagedError, match="index.faiss"):
            load(folder)


def test_ids_are_read_by_the_size_of_their_file_not_by_what_their_header_claims(tmp_path):
    ids, vectors = rows()
    folder = tmp_path / publish(tmp_path, spec_of("flat"), ids, vectors)
    whole = (folder / "ids.npy").read_bytes()
    for header in (b"(600000000000,)", b"(600,", b"(600,), 'x': ((((", b"(-1,)", b"(600,1)"):
        (folder / "ids.npy").write_bytes(whole.replace(b"(600,), }" + b" " * 20, (header + b" }").ljust(29)))
        folder = reseal(folder)
        with pytest.raises(DamagedError, match="flat index"):
            load(folder)


def other_index(kind, dim, count):
    recipes = {
        "int8": "SQ8",
        "ivf": "IVF4,Flat",
        "hnsw": "HNSW8,Flat",
        "pq_fast": "PQ8x4fs",
        "ivf_rabitq": "IVF4,RaBitQ",
    }
    index = faiss.index_factory(dim, recipes[kind], faiss.METRIC_INNER_PRODUCT)
    vectors = np.random.default_rng(0).standard_normal((count, dim)).astype(np.float32)
    index.train(vectors)
    index.add(vectors)
    return index


# In an index of documents


TEXTS = [
    {"id": f"d{n}", "text": f"The {a} {b} the {c} number {n}."}
    for n, (a, b, c) in enumerate(
        (a, b, c)
        for a in ("cat", "dog", "queen", "ship", "moon")
        for b in ("saw", "ran to", "is")
        for c in ("sea", "oven", "city", "river")
    )
]


@pytest.fixture
def added(tmp_path, tiny_model):
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add(TEXTS)
    return retriever


def answers(retriever):
    return [(hit.path, round(hit.score, 4)) for hit in retriever.search("the queen of the sea", 8, mode="semantic")]


def test_a_kind_is_built_beside_the_old_one_and_changes_over_at_once(added):
    before, reading = answers(added), added.snapshot().index
    old = added.snapshot().head.vectors
    manifest = added.build_index("ivf_int8", nlist=3, search={"nprobe": 3})
    assert (manifest.kind, manifest.build, manifest.search, manifest.count) == (
        "ivf_int8",
        {"nlist": 3},
        {"nprobe": 3},
        len(TEXTS),
    )
    assert added.snapshot().head.vectors not in (None, old)
    assert answers(added) == answers(Retriever.open(added.path)) == before
    assert reading.search(np.ones((1, 32), np.float32), 3)[1].min() >= 0
    assert added.verify().faults == []
    status = added.status()
    assert status.damage is None
    assert (status.vector_kind["kind"], status.vector_kind["search"]) == ("ivf_int8", {"nprobe": 3})


def test_the_chosen_kind_stays_through_additions_deletions_and_rebuilding(added):
    added.build_index("hnsw_int8", m=4)
    added.delete("d3", erase=True)
    added.add([{"id": "new", "text": "The queen of the sea."}])
    assert added.snapshot().published.kind == "hnsw_int8"
    assert answers(added)[0][0] == "new"
    added.repair()
    assert (added.snapshot().published.kind, added.snapshot().published.build) == ("hnsw_int8", {"m": 4})
    assert "d3" not in [path for path, _ in answers(added)]
    assert added.verify().faults == []


def test_a_damaged_index_is_built_anew_as_it_was_and_a_line_says_so(added):
    added.build_index("ivf", nlist=3, search={"nprobe": 3})
    before = answers(added)
    folder = added.path / "vectors" / added.snapshot().head.vectors
    for name in ("index.faiss", "manifest.json", "vectors.f32"):
        folder = added.path / "vectors" / added.snapshot().head.vectors
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole[:-1])
        fresh = Retriever.open(added.path)
        assert answers(fresh) == before
        assert folder.name in fresh.status().damage
        report = fresh.add([])
        assert report.note.startswith("built the vector index anew from the store, because")
        assert "\n" not in report.note
        assert fresh.snapshot().damage is None
        assert fresh.snapshot().published.spec == IndexSpec("ivf", {"nlist": 3}, {"nprobe": 3})
        assert fresh.add([]).note == ""
        assert answers(fresh) == before


def test_an_index_that_can_no_longer_be_built_as_chosen_is_written_to_all_the_same(added, monkeypatch):
    added.build_index("ivf_int8", nlist=3, search={"nprobe": 3})
    chosen, build_of_kind = added.snapshot().head.index, FaissKind._build

    def unable_to_learn(*_):
        raise InputError("FAISS cannot learn this index from 59 vectors: a reason")

    monkeypatch.setattr(FaissKind, "_build", unable_to_learn)
    for name in ("d3", "d4"):
        assert added.delete(name, erase=True).removed == 1
    assert added.snapshot().published.spec == IndexSpec()
    assert added.snapshot().head.index == chosen and not added.snapshot().head.erase
    assert added.verify().faults == [] and "d3" not in [path for path, _ in answers(added)]
    monkeypatch.setattr(FaissKind, "_build", build_of_kind)
    added.delete("d5", erase=True)
    assert added.snapshot().published.spec == chosen


def test_an_index_built_on_a_gpu_is_built_again_without_where_there_is_none(tmp_path):
    if getattr(faiss, "get_num_gpus", lambda: 0)():
        pytest.skip("there is one")
    ids, vectors = rows()
    spec = IndexSpec("ivf_int8", {"nlist": 4, "gpu": 1}, {"nprobe": 4})
    built, note = rebuild(lambda spec: build(tmp_path, spec, [(ids, vectors)], dim=DIM, covers=1), spec)
    assert built.manifest.spec == IndexSpec("ivf_int8", {"nlist": 4, "gpu": 0}, {"nprobe": 4})
    assert note.startswith("the vector index was built without a GPU: gpu=1 needs a GPU")


@pytest.mark.parametrize("kind", [["x"], None, 5])
def test_a_kind_is_a_name(added, kind):
    with pytest.raises(InputError, match="a kind of index is named by a text"):
        added.build_index(kind)


@pytest.mark.parametrize("search", [5, [], "nprobe"])
def test_search_parameters_are_a_mapping(added, search):
    with pytest.raises(InputError, match="search is a mapping"):
        added.build_index("ivf_int8", search=search)


def test_an_index_that_is_refused_leaves_the_old_one_in_service(added):
    old, folders = added.snapshot().head.vectors, set((added.path / "vectors").iterdir())

    def settle(_):
        raise InputError("too slow")

    for kind, options in (("ivf", {"settle": settle}), ("annoy", {}), ("ivf", {"nlist": 0}), ("pq", {"parts": 5})):
        with pytest.raises(InputError):
            added.build_index(kind, **options)
    assert added.snapshot().head.vectors == old
    assert set((added.path / "vectors").iterdir()) == folders
    assert added.verify().faults == []


def test_a_new_index_is_searched_as_was_settled_when_it_was_read_again(added):
    added.build_index("ivf", nlist=3, settle=lambda index: IndexMetadata({"nprobe": 2}, {"seen": len(index.ids)}))
    manifest = added.snapshot().published
    assert (manifest.search, manifest.measurements) == ({"nprobe": 2}, {"seen": manifest.count})


def test_search_parameters_can_be_published_without_building(added):
    added.build_index("ivf", nlist=3)
    before = added.snapshot().published
    with added._index.writer() as writer:
        writer.index.amend(IndexMetadata({"nprobe": 2}, {"recall": 0.97}))
    after = added.snapshot().published
    assert (after.files, after.search, after.measurements) == (before.files, {"nprobe": 2}, {"recall": 0.97})
    added.repair()
    assert added.snapshot().published.search == {"nprobe": 2}
