"""The index that nobody chose: exact for few vectors, lists of codes for many if they find nearly all neighbours."""

from __future__ import annotations

import numpy as np
import pytest

from binocle import Retriever
from binocle.indexes.base import SEARCH_DEPTH
from binocle.indexes.flat import exact_index
from binocle.indexes.published import build
from binocle.indexes.registry import IndexSpec
from binocle.indexes.tuning import automatic
from binocle.indexes.tuning.automatic import build_default
from binocle.retriever.store.derived import vector_index

DIM, COUNT = 32, 3_000


def clustered(count, seed):
    random = np.random.default_rng(seed)
    middles = np.random.default_rng(77).standard_normal((40, DIM))
    vectors = middles[random.integers(0, 40, count)] + 0.7 * random.standard_normal((count, DIM))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def vectors():
    return clustered(COUNT, 0)


@pytest.fixture
def bench(tmp_path, vectors):
    ids = np.arange(COUNT, dtype=np.int64) * 2 + 1
    return lambda spec: build(tmp_path, spec.check(DIM), [(ids, vectors)], dim=DIM, covers=1)


@pytest.fixture
def few_are_many(monkeypatch):
    monkeypatch.setattr(automatic, "_MIN_VECTORS", 100)


@pytest.mark.usefixtures("few_are_many")
def test_lists_of_codes_find_nearly_all_neighbours_of_other_queries(bench, vectors):
    built, metadata = build_default(bench, COUNT)
    assert built.manifest.kind == "ivf_pq_fast" and metadata.search.keys() == {"nprobe", "k_factor"}
    index, queries = built.load().with_parameters(**metadata.search), clustered(300, 5)
    scores, ids = index.search(queries, SEARCH_DEPTH)
    exact, truth = exact_index(index).search(queries, SEARCH_DEPTH)
    found = [len(set(own) & set(true)) / SEARCH_DEPTH for own, true in zip(ids.tolist(), truth.tolist(), strict=True)]
    assert np.mean(found) >= 0.98
    np.testing.assert_allclose(scores[:, 0], exact[:, 0], atol=1e-5)
    np.testing.assert_allclose(scores, np.take_along_axis(queries @ vectors.T, (ids - 1) // 2, 1), atol=1e-5)


def test_few_vectors_are_compared(bench):
    built, metadata = build_default(bench, COUNT)
    assert built.manifest.spec == IndexSpec() and not metadata.search


@pytest.mark.usefixtures("few_are_many")
def test_lists_that_miss_neighbours_are_not_published(bench, tmp_path, monkeypatch):
    monkeypatch.setattr(automatic, "_RECALL", 1)
    built, metadata = build_default(bench, COUNT)
    assert built.manifest.spec == IndexSpec() and not metadata.search
    assert len(list(tmp_path.iterdir())) == 1  # the lists are gone


@pytest.mark.usefixtures("few_are_many")
def test_lists_that_cannot_be_built_give_way_to_exact_search(tmp_path):
    built, metadata = build_default(lambda spec: build(tmp_path, spec.check(DIM), [], dim=DIM, covers=1), COUNT)
    assert len(built.load().ids) == 0 and not metadata.search


@pytest.mark.usefixtures("few_are_many")
def test_a_store_that_grows_gets_lists_of_codes_until_a_kind_is_chosen(tmp_path, vectors, monkeypatch):
    monkeypatch.setattr(vector_index, "_STALE_ROWS", 20)
    retriever = Retriever.open(tmp_path / "index", encoder=None, dim=DIM)

    def add(first, count):
        rows = range(first, first + count)
        retriever.add([{"id": str(row), "text": f"row {row}", "embedding": vectors[row].tolist()} for row in rows])
        return retriever.snapshot()

    before = add(0, 90)
    assert before.published.kind == "flat"
    after = add(90, 600)
    assert (after.published.kind, after.head.index) == ("ivf_pq_fast", IndexSpec())
    for query in clustered(20, 9):
        hits = retriever.search(vector=query, k=5)
        assert [hit.document for hit in hits] == [str(row) for row in np.argsort(-(vectors[:690] @ query))[:5]]
    retriever.build_index("ivf_int8")
    assert add(690, 200).published.kind == "ivf_int8"
