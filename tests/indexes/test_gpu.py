"""Exact search by torch, on the CPU as on a GPU; what needs one is marked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from binocle import Retriever
from binocle.core.errors import InputError
from binocle.indexes import gpu as gpus
from binocle.indexes.faiss_index import FaissIndex
from binocle.indexes.flat import FlatIndex
from binocle.indexes.gpu import GpuIndex, on_gpus
from binocle.indexes.manifest import IndexManifest, IndexMetadata
from binocle.indexes.published import build
from binocle.indexes.registry import IndexSpec
from binocle.retriever.models.bert import bert_encoder
from binocle.retriever.models.load import load_encoder
from binocle.retriever.store.derived.search_backend import SearchBackend
from binocle.retriever.store.snapshot import Snapshot
from binocle.training.mining import mine as mining

torch = pytest.importorskip("torch")
METRICS = ("ip", "cosine", "l2")


def index_of(count, *, dim=24, metric="ip", seed=0):
    random = np.random.default_rng(seed)
    ids = np.cumsum(random.integers(1, 5, count)).astype(np.int64)
    return FlatIndex(ids, random.standard_normal((count, dim)).astype(np.float32), metric)


def queries_of(count, dim=24):
    return np.random.default_rng(9).standard_normal((count, dim)).astype(np.float32)


def assert_same(given, expected):
    """The same answers; two in turn may change places where their scores differ by no more than by rounding."""
    np.testing.assert_allclose(given[0], expected[0], rtol=1e-5, atol=1e-5)
    tied = np.isclose(expected[0][:, 1:], expected[0][:, :-1], rtol=1e-5, atol=1e-5)
    near = np.pad(tied, ((0, 0), (0, 1))) | np.pad(tied, ((0, 0), (1, 0)))
    assert ((given[1] == expected[1]) | near).all()
    assert (given[1] == expected[1]).mean() > 0.99


@pytest.fixture
def small(monkeypatch):
    """Blocks so small that many are put together."""
    monkeypatch.setattr(gpus, "_SCORES", 1_000)
    monkeypatch.setattr(gpus, "_QUERIES", 7)
    monkeypatch.setattr(gpus, "_ROWS", 50)


@pytest.mark.parametrize("devices", [["cpu"], ["cpu", "cpu", "cpu"]])
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("k", [1, 3, 40, 999, 1_500])
def test_answers_are_those_of_the_cpu(devices, metric, k, small):
    index, vectors = index_of(1_000, metric=metric), queries_of(10)
    assert_same(GpuIndex.of(index, devices).search(vectors, k), index.search(vectors, k))


@pytest.mark.parametrize("count", [33, 3_200, 3_217])
@pytest.mark.parametrize("k", [1, 10, 101])
def test_the_best_are_found_among_groups_of_scores(count, k):
    index, vectors = index_of(count), queries_of(5)
    assert_same(GpuIndex.of(index, ["cpu"]).search(vectors, k), index.search(vectors, k))


@pytest.mark.parametrize("share", [0.001, 0.2, 0.9])
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("as_places", [False, True])
def test_only_what_is_allowed_is_found(share, metric, as_places, small):
    index, vectors = index_of(1_000, metric=metric), queries_of(10)
    mask = np.random.default_rng(3).random(1_000) < share
    mask[17] = True
    allowed = np.flatnonzero(mask) if as_places else mask
    gpu_index = GpuIndex.of(index, ["cpu", "cpu"])
    assert_same(gpu_index.search(vectors, 30, allowed=allowed), index.search(vectors, 30, allowed=allowed))
    nothing = gpu_index.search(vectors, 30, allowed=np.zeros(1_000, bool))
    assert (nothing[1] == -1).all()
    assert (nothing[0] == -np.inf).all()


@pytest.mark.parametrize("metric", ["ip", "l2"])
def test_vectors_that_are_not_finite_are_no_answers(metric):
    index = index_of(200, metric=metric)
    index.vectors[3], index.vectors[150, 2] = np.nan, np.inf
    whole = np.ones(200, bool)
    whole[[3, 150]] = False
    found = GpuIndex.of(index, ["cpu"]).search(queries_of(4), 200)
    assert_same(found, index.search(queries_of(4), 200, allowed=whole))
    scores, ids = GpuIndex.of(index, ["cpu"]).search(np.full((1, 24), np.nan, np.float32), 5)
    assert (ids == -1).all()
    assert (scores == -np.inf).all()


def test_distances_far_from_the_origin_keep_their_order():
    index = index_of(2_000, metric="l2")
    index.vectors[:] += 1_000
    vectors = queries_of(6) + 1_000
    gpu_index = GpuIndex.of(index, ["cpu"])
    true = -((index.vectors[None].astype(float) - vectors[:, None].astype(float)) ** 2).sum(2)
    np.testing.assert_array_equal(gpu_index.search(vectors, 10)[1], index.ids[np.argsort(-true, axis=1)[:, :10]])


def test_equal_vectors_are_all_found_and_none_twice():
    base = queries_of(3)
    index = FlatIndex(np.arange(3_000, dtype=np.int64), np.ascontiguousarray(base[np.arange(3_000) % 3]))
    scores, ids = GpuIndex.of(index, ["cpu", "cpu"]).search(base[:1], 1_000)
    assert len(set(ids[0].tolist())) == 1_000
    np.testing.assert_allclose(scores[0], np.sort(index.vectors @ base[0])[::-1][:1_000], rtol=1e-6)


def test_nothing_is_found_in_an_empty_index_or_for_no_queries():
    empty = GpuIndex.of(FlatIndex(np.empty(0, np.int64), np.empty((0, 24), np.float32)), ["cpu"])
    assert (empty.search(queries_of(2), 3)[1] == -1).all()
    assert GpuIndex.of(index_of(50), ["cpu"]).search(queries_of(0), 3)[1].shape == (0, 3)


def test_queries_of_another_dimension_are_refused():
    with pytest.raises(InputError, match="built with another encoder"):
        GpuIndex.of(index_of(50), ["cpu"]).search(queries_of(2, dim=23), 3)


def test_arrays_that_may_not_be_written_to_are_searched_for():
    index, vectors, mask = index_of(100), queries_of(2), np.ones(100, bool)
    vectors.flags.writeable = mask.flags.writeable = index.vectors.flags.writeable = False
    assert_same(GpuIndex.of(index, ["cpu"]).search(vectors, 3, allowed=mask), index.search(vectors, 3))


def test_vectors_are_given_back():
    index = index_of(100)
    gpu_index = GpuIndex.of(index, ["cpu"])
    np.testing.assert_array_equal(gpu_index.reconstruct(index.ids[[5, 2]]), index.vectors[[5, 2]])
    np.testing.assert_array_equal(gpu_index.with_parameters().ids, index.ids)


def written(folder, spec, count=600):
    index = index_of(count)
    name = build(folder, spec, [(index.ids, index.vectors)], dim=24, covers=1).publish(IndexMetadata())
    return IndexManifest.read(folder / name).load(folder / name), index


@pytest.fixture
def one_gpu(monkeypatch):
    """A machine with one GPU, which is its CPU."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda name: (2**33, 2**33))
    of = GpuIndex.of
    monkeypatch.setattr(GpuIndex, "of", lambda exact, devices: of(exact, ["cpu"] * len(devices)))
    monkeypatch.setattr(bert_encoder, "gpus", lambda: (["cpu"], "1 GPU"))


def test_an_index_of_any_kind_is_compared_whole_on_a_gpu(tmp_path, one_gpu):
    loaded, index = written(tmp_path, IndexSpec("ivf_pq_fast", {"nlist": 4}, {"nprobe": 1}))
    assert isinstance(loaded, FaissIndex)
    made, by = on_gpus(loaded)
    assert by == "1 GPU"
    assert_same(made.search(queries_of(5), 10), index.search(queries_of(5), 10))


def test_without_a_gpu_the_index_itself_answers(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    loaded, _ = written(tmp_path, IndexSpec("hnsw"))
    assert on_gpus(loaded) == (loaded, "the CPU: torch sees no GPU")


def test_vectors_that_a_gpu_has_no_room_for_stay_on_the_cpu(one_gpu, monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda name: (10**9, 2**33))
    index = index_of(100)
    assert on_gpus(index) == (index, "the CPU: a GPU has 1 GB of memory free where 4.295 GB are needed")


@pytest.mark.gpu
@pytest.mark.parametrize("metric", METRICS)
def test_answers_of_a_gpu_are_those_of_the_cpu(metric):
    index, vectors = index_of(100_000, metric=metric, dim=64), queries_of(300, dim=64)
    made, by = on_gpus(index)
    assert "GPU" in by
    assert isinstance(made, GpuIndex)
    mask = np.random.default_rng(3).random(100_000) < 0.3
    for allowed in (None, mask):
        assert_same(made.search(vectors, 100, allowed=allowed), index.search(vectors, 100, allowed=allowed))


def test_a_retriever_searches_on_gpus_when_it_is_told_to(retriever, one_gpu):
    on_gpu = Retriever.open(retriever.path, gpu=True)
    assert (retriever.snapshot().searched_by, on_gpu.snapshot().searched_by) == ("the CPU", "1 GPU")
    for where in (None, "path=*.md"):
        actual, expected = (one.search("a queue of work", mode="semantic", where=where) for one in (on_gpu, retriever))
        assert [hit.passage for hit in actual] == [hit.passage for hit in expected]
        np.testing.assert_allclose([hit.score for hit in actual], [hit.score for hit in expected], atol=1e-6)
    before = on_gpu.snapshot().index.published
    on_gpu.add([{"id": "new", "text": "A queue of work that is new."}])
    assert on_gpu.snapshot().index.published is before  # not copied to the device again
    assert "new" in [hit.path for hit in on_gpu.search("a queue of work that is new", mode="semantic")]


def test_a_retriever_without_a_gpu_says_why(retriever, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    on_cpu = Retriever.open(retriever.path, gpu=True)
    assert on_cpu.snapshot().searched_by == "the CPU: torch sees no GPU"
    assert [hit.passage for hit in on_cpu.search("a queue")] == [hit.passage for hit in retriever.search("a queue")]


def test_shards_are_searched_on_the_cpu_and_it_is_said(retriever, one_gpu):
    on_gpu = Retriever.open(retriever.path, gpu=True)
    snapshot = on_gpu.snapshot()
    store, head, index = snapshot.store, snapshot.head, retriever.snapshot().index.published
    halves = np.array_split(np.arange(len(index.ids)), 2)
    rows = [[(index.ids[half], index.reconstruct(index.ids[half]))] for half in halves]
    parent = store.path / "vectors"
    made = [build(parent, IndexSpec("flat"), some, dim=head.encoder.dim, covers=head.rows) for some in rows]
    first, second = (one.publish(IndexMetadata()) for one in made)
    in_shards = Snapshot(store, replace(head, vectors=first, shards=(second,)), SearchBackend(gpu=True))
    assert in_shards.searched_by == "the CPU: the index is in shards"
    np.testing.assert_array_equal(in_shards.index.published.ids, index.ids)
    served = index, retriever.snapshot().published
    for gpu, searched_by in ((True, "the CPU: a Ray cluster searches"), (False, "the CPU")):
        assert Snapshot(store, head, SearchBackend(gpu, lambda *_: served)).searched_by == searched_by
    assert Snapshot(retriever.snapshot().store, in_shards.head).searched_by == "the CPU"


def test_negatives_of_many_queries_are_looked_for_on_gpus(tmp_path, tiny_model, one_gpu, monkeypatch):
    texts = [f"word{number} word{number + 1} word{number % 7}" for number in range(60)]
    pairs = [{"query": f"word{number}", "positive": text} for number, text in enumerate(texts)]
    encoder = load_encoder(tiny_model)  # its own, for it computes on the GPU from then on
    options = {"corpus": texts, "model": encoder, "negatives": 2}
    on_cpu = mining.mine(pairs, tmp_path / "cpu.jsonl", **options)
    monkeypatch.setattr(mining, "_GPU_COMPARISONS", 1)
    monkeypatch.setattr(mining, "_GPU_DOCUMENTS", 1)
    on_gpu = mining.mine(pairs, tmp_path / "gpu.jsonl", **options)
    assert (on_cpu.encoded_by, on_cpu.searched_by) == ("the CPU", "the CPU")
    assert (on_gpu.encoded_by, on_gpu.searched_by) == ("1 GPU", "1 GPU")
    assert (tmp_path / "gpu.jsonl").read_text() == (tmp_path / "cpu.jsonl").read_text()
