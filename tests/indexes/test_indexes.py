from __future__ import annotations

import hashlib
import json
import os
import shutil

import numpy as np
import pytest

from binocle.core.errors import DamagedError, InputError
from binocle.indexes import flat
from binocle.indexes.flat import FlatIndex, FlatKind
from binocle.indexes.manifest import IndexManifest, IndexMetadata
from binocle.indexes.metric import cosines
from binocle.indexes.published import build
from binocle.indexes.registry import IndexSpec
from binocle.retriever.store.snapshot import LiveIndex

DIM = 16


def vectors_of(count, seed=0, dim=DIM):
    vectors = np.random.default_rng(seed).standard_normal((count, dim)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def index_of(count, seed=0):
    ids = np.cumsum(np.random.default_rng(seed + 1).integers(1, 9, count)).astype(np.int64)
    return FlatIndex(ids, vectors_of(count, seed))


def brute_force(ids, vectors, queries, k):
    """Scores and ids by definition, in double precision; equal scores in order of id."""
    scores = queries.astype(float) @ vectors.astype(float).T if len(ids) else np.empty((len(queries), 0))
    found = np.full((len(queries), k), -1, np.int64)
    best = np.full((len(queries), k), -np.inf)
    for row, values in enumerate(scores):
        order = np.lexsort((ids, -values))[:k]
        best[row, : len(order)], found[row, : len(order)] = values[order], ids[order]
    return best, found


def assert_answers(given, expected):
    (scores, ids), (true_scores, true_ids) = given, expected
    assert scores.dtype == np.float32
    assert ids.dtype == np.int64
    np.testing.assert_array_equal(ids, true_ids)
    np.testing.assert_allclose(scores, true_scores, atol=1e-6)


def published(folder, index, *, covers=3, batch=7):
    batches = ((index.ids[at : at + batch], index.vectors[at : at + batch]) for at in range(0, len(index.ids), batch))
    name = build(folder, IndexSpec(), batches, dim=DIM, covers=covers).publish(IndexMetadata())
    return folder / name


@pytest.mark.parametrize("queries", [1, 3, 50])
@pytest.mark.parametrize("k", [1, 10, 99, 100, 250])
def test_search_equals_brute_force(queries, k):
    index = index_of(100)
    vectors = vectors_of(queries, 5)
    assert_answers(index.search(vectors, k), brute_force(index.ids, index.vectors, vectors, k))


@pytest.mark.parametrize("count", [9, 300, 3_000])
@pytest.mark.parametrize("queries", [1, 40])
def test_equal_vectors_are_all_found_and_none_twice(count, queries):
    base = vectors_of(3)
    index = FlatIndex(np.arange(count, dtype=np.int64) * 2, np.ascontiguousarray(base[np.arange(count) % 3]))
    vectors = np.repeat(base[:1], queries, 0)
    for k in (2, count // 3, count):
        scores, ids = index.search(vectors, k)
        np.testing.assert_allclose(scores, brute_force(index.ids, index.vectors, vectors, k)[0], atol=1e-6)
        for row_scores, row_ids in zip(scores, ids, strict=True):
            assert len(set(row_ids.tolist())) == k
            np.testing.assert_allclose(row_scores, index.reconstruct(row_ids) @ base[0], atol=1e-6)


def test_nothing_is_found_in_an_empty_index():
    index = FlatIndex(np.empty(0, np.int64), np.empty((0, DIM), np.float32))
    scores, ids = index.search(vectors_of(2), 3)
    assert (scores == -np.inf).all()
    assert (ids == -1).all()
    assert ids.shape == (2, 3)
    assert index.reconstruct(np.empty(0, np.int64)).shape == (0, DIM)


def test_no_queries_and_no_results_have_their_shapes():
    index = index_of(10)
    assert [array.shape for array in index.search(np.empty((0, DIM), np.float32), 3)] == [(0, 3), (0, 3)]
    assert [array.shape for array in index.search(vectors_of(2), 0)] == [(2, 0), (2, 0)]


def test_rows_are_compared_one_by_one_and_a_vector_of_zeros_is_like_none():
    one = np.array([[3, 4], [1, 0], [2, 0], [0, 0]], np.float32)
    other = np.array([[4, 3], [0, 5], [-1, 0], [1, 1]], np.float32)
    np.testing.assert_allclose(cosines(one, other), [0.96, 0, -1, 0], atol=1e-7)


@pytest.mark.parametrize("share", [0.03, 0.5, 1])
@pytest.mark.parametrize("k", [1, 7, 400])
def test_numpy_and_faiss_find_the_same_for_one_query(share, k, monkeypatch):
    index, vectors = index_of(400), vectors_of(1, 9)
    allowed = None if share == 1 else np.random.default_rng(0).random(400) < share
    by_numpy = index.search(vectors, k, allowed=allowed)
    monkeypatch.setattr(flat, "_NUMPY_ROWS", 0)
    by_faiss = index.search(vectors, k, allowed=allowed)
    np.testing.assert_allclose(by_numpy[0], by_faiss[0], atol=1e-6)
    np.testing.assert_array_equal(by_numpy[1], by_faiss[1])


@pytest.mark.parametrize("k", [1, 7, 400])
def test_queries_searched_together_have_the_answers_of_each_to_the_last_bit(k):
    draw = np.random.default_rng(2)
    vectors = vectors_of(400, dim=384)[draw.integers(0, 60, 400)]  # copies, which tie
    vectors[300:] *= draw.uniform(0.1, 30, (100, 1)).astype(np.float32)
    index = FlatIndex(np.arange(400) * 3, vectors)
    queries = np.concatenate([vectors_of(40, 9, 384), vectors[:9] + np.float32(1e-7)])
    scores, ids = index.search_each(queries, k)
    for number, query in enumerate(queries):
        own_scores, own_ids = index.search(query[None], k)
        np.testing.assert_array_equal(scores[number], own_scores[0])
        np.testing.assert_array_equal(ids[number], own_ids[0])


def test_queries_are_searched_one_by_one_where_a_product_would_not_find_the_same():
    index, queries = index_of(20), vectors_of(3)
    vectors = index.vectors.copy()
    vectors[7, 3] = np.nan
    assert FlatIndex(index.ids, vectors).search_each(queries, 5) is None
    assert FlatIndex(index.ids, index.vectors, "l2").search_each(queries, 5) is None
    assert index.search_each(queries, 21) is index.search_each(queries, 0) is None


@pytest.mark.parametrize("share", [0, 0.03, 0.5, 1])
def test_only_what_is_allowed_is_found(share):
    index = index_of(100)
    allowed = np.random.default_rng(0).random(100) < share
    vectors = vectors_of(4, 9)
    assert_answers(
        index.search(vectors, 20, allowed=allowed),
        brute_force(index.ids[allowed], index.vectors[allowed], vectors, 20),
    )


@pytest.mark.parametrize("metric", ["ip", "l2"])
@pytest.mark.parametrize("queries", [1, 20])
def test_a_vector_that_is_not_finite_lets_nothing_through_a_filter(queries, metric):
    vectors = vectors_of(8)
    vectors[3] = np.nan
    index, wanted = FlatIndex(np.arange(10, 18), vectors, metric), np.tile(vectors[:1], (queries, 1))
    for allowed, expected in (
        (None, {*range(10, 18)} - {13}),
        (np.arange(8) < 5, {10, 11, 12, 14}),
        (np.array([2, 3]), {12}),
        (np.array([3]), set()),
    ):
        scores, ids = index.search(wanted, 8, allowed=allowed)
        for row in ids.tolist():
            assert sorted(row) == sorted([*expected, *[-1] * (8 - len(expected))])
        assert np.isneginf(scores[ids < 0]).all() and np.isfinite(scores[ids >= 0]).all()


@pytest.mark.parametrize("shape", [(1, DIM + 1), (1, 0), (DIM,), (1, 1, DIM)])
def test_queries_of_another_dimension_are_refused_with_both_numbers(shape):
    with pytest.raises(InputError, match=rf"{DIM}: was it built with another encoder"):
        index_of(5).search(np.zeros(shape, np.float32), 1)


def test_vectors_come_back_by_id_in_the_order_asked():
    index = index_of(50)
    order = np.random.default_rng(1).permutation(50)
    np.testing.assert_array_equal(index.reconstruct(index.ids[order]), index.vectors[order])


@pytest.mark.parametrize("missing", [-1, 0, 10**9])
def test_ids_that_are_not_held_are_refused(missing):
    index = FlatIndex(np.array([3, 7], np.int64), vectors_of(2))
    with pytest.raises(InputError):
        index.reconstruct(np.array([3, missing], np.int64))
    with pytest.raises(InputError):
        FlatIndex(np.empty(0, np.int64), np.empty((0, DIM), np.float32)).reconstruct(np.array([missing], np.int64))


# On disk


@pytest.mark.parametrize("count", [0, 1, 7, 50])
def test_what_is_published_is_loaded_by_value(count, tmp_path):
    index = index_of(count)
    folder = published(tmp_path / "vectors", index)
    manifest = IndexManifest.read(folder)
    assert (manifest.kind, manifest.count, manifest.dim, manifest.covers) == ("flat", count, DIM, 3)
    loaded = manifest.load(folder)
    np.testing.assert_array_equal(loaded.ids, index.ids)
    np.testing.assert_array_equal(loaded.reconstruct(index.ids), index.vectors)
    vectors = vectors_of(2, 3)
    assert_answers(loaded.search(vectors, 9), brute_force(index.ids, index.vectors, vectors, 9))


def test_nothing_is_left_aside_and_no_name_is_used_twice(tmp_path):
    names = {published(tmp_path / "vectors", index_of(5)).name for _ in range(20)}
    assert len(names) == 20
    assert {path.name for path in (tmp_path / "vectors").iterdir()} == names


def test_an_index_that_cannot_be_built_is_not_published(tmp_path):
    def broken():
        yield np.arange(2), vectors_of(2)
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        build(tmp_path / "vectors", IndexSpec(), broken(), dim=DIM, covers=1).publish(IndexMetadata())
    assert not list((tmp_path / "vectors").iterdir())


def load(folder):
    return IndexManifest.read(folder).load(folder)


def sealed(folder):
    """The folder under the name that its manifest now asks for, so that the manifest is read."""
    data = (folder / "manifest.json").read_bytes()
    name = f"{folder.name.rsplit('-', 1)[0]}-{hashlib.sha256(data).hexdigest()[:16]}"
    return folder.rename(folder.with_name(name))


@pytest.mark.parametrize("name", ["ids.npy", "vectors.f32", "manifest.json"])
def test_a_missing_file_is_damage(name, tmp_path):
    folder = published(tmp_path / "vectors", index_of(20))
    (folder / name).unlink()
    with pytest.raises(DamagedError, match=folder.name):
        load(folder)


@pytest.mark.parametrize("name", ["ids.npy", "vectors.f32"])
def test_any_flipped_bit_is_damage(name, tmp_path):
    folder = published(tmp_path / "vectors", index_of(20))
    whole = (folder / name).read_bytes()
    random = np.random.default_rng(0)
    for place in [0, 7, len(whole) - 1, *random.integers(0, len(whole), 40).tolist()]:
        data = bytearray(whole)
        data[place] ^= 1 << int(random.integers(0, 8))
        (folder / name).write_bytes(data)
        with pytest.raises(DamagedError, match="checksum"):
            load(folder)


@pytest.mark.parametrize("name", ["ids.npy", "vectors.f32", "manifest.json"])
def test_a_cut_or_longer_file_is_damage(name, tmp_path):
    folder = published(tmp_path / "vectors", index_of(20))
    whole = (folder / name).read_bytes()
    for data in (b"", whole[:10], whole[: len(whole) // 2], whole[:-1], whole + b"\0" * DIM * 4):
        (folder / name).write_bytes(data)
        with pytest.raises(DamagedError):
            load(folder)


@pytest.mark.parametrize(
    ("name", "read"),
    [("manifest.json", IndexManifest.read), ("ids.npy", lambda folder: FlatKind().load(folder, dim=DIM))],
)
def test_a_file_that_claims_terabytes_is_not_read(name, read, tmp_path):
    folder = published(tmp_path / "vectors", index_of(20))
    os.truncate(folder / name, 2**42)  # sparse: it takes no space
    with pytest.raises(DamagedError, match="larger than"):
        read(folder)


MANIFESTS = {
    "not an object": "[]",
    "null": "null",
    "nested beyond reason": "[" * 100_000,
    "lacks a field": {"dim": None, "...": "remove"},
    "an unknown field": {"extra": 1},
    "text for a count": {"count": "20"},
    "negative": {"count": -1},
    "true for a count": {"covers": 1.5},
    "unknown kind": {"kind": "pickle"},
    "kind a list": {"kind": ["flat"]},
    "files a list": {"files": ["ids.npy"]},
    "files outside": {"files": {"../../etc/passwd": "0" * 64}},
    "files parent": {"files": {"..": "0" * 64}},
    "checksums of numbers": {"files": {"ids.npy": 3}},
    "another format": {"format": 2},
    "another metric": {"metric": "l3"},
    "parameters a list": {"build": []},
    "a parameter of another kind": {"search": {"nprobe": 3}},
    "another count": {"count": 19},
    "another dimension": {"dim": DIM // 2},
}


@pytest.mark.parametrize("case", MANIFESTS)
def test_a_manifest_that_says_the_impossible_is_damage(case, tmp_path):
    folder = published(tmp_path / "vectors", index_of(20))
    change = MANIFESTS[case]
    if isinstance(change, dict):
        value = {**json.loads((folder / "manifest.json").read_text()), **change}
        if "..." in value:
            value = {name: one for name, one in value.items() if one is not None and name != "..."}
        change = json.dumps(value)
    (folder / "manifest.json").write_text(change)
    with pytest.raises(DamagedError):
        load(folder)
    with pytest.raises(DamagedError, match=r"^(?!.*checksum differs)|vectors.f32|ids.npy"):
        load(sealed(folder))


def test_a_flipped_bit_of_the_manifest_is_damage(tmp_path):
    folder = published(tmp_path / "vectors", index_of(20))
    whole = (folder / "manifest.json").read_bytes()
    for place in range(len(whole)):
        data = bytearray(whole)
        data[place] ^= 1 << place % 8
        (folder / "manifest.json").write_bytes(data)
        with pytest.raises(DamagedError):
            load(folder)


def test_an_index_in_the_place_of_another_is_damage(tmp_path):
    """Else a commit could be answered from vectors that are not its own."""
    one, other = (published(tmp_path / "vectors", index_of(20, seed)) for seed in (0, 1))
    shutil.rmtree(one)
    with pytest.raises(DamagedError, match="checksum"):
        load(other.rename(one))


def test_a_manifest_without_files_proves_nothing(tmp_path):
    """Else a folder without checksums would be trusted."""
    folder = published(tmp_path / "vectors", index_of(20))
    value = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**value, "files": {}}))
    with pytest.raises(DamagedError, match="were expected"):
        load(sealed(folder))


@pytest.mark.parametrize("case", ["float ids", "two axes", "descending", "pickle", "fewer", "not npy"])
def test_ids_that_are_no_ids_are_damage_even_under_a_true_checksum(case, tmp_path):
    folder = published(tmp_path / "vectors", index_of(20))
    ids = np.load(folder / "ids.npy")
    if case == "pickle":
        np.save(folder / "ids.npy", np.array([{"a": 1}] * 20, object), allow_pickle=True)
    elif case == "not npy":
        (folder / "ids.npy").write_bytes(b"PK\x03\x04" + bytes(100))
    else:
        np.save(
            folder / "ids.npy",
            {"float ids": ids.astype(float), "two axes": ids[:, None], "descending": ids[::-1], "fewer": ids[:3]}[case],
        )
    value = json.loads((folder / "manifest.json").read_text())
    from binocle.core.files import sha256

    value["files"]["ids.npy"] = sha256(folder / "ids.npy")
    (folder / "manifest.json").write_text(json.dumps(value))
    with pytest.raises(DamagedError, match="flat index"):
        load(sealed(folder))


def test_a_folder_that_is_a_file_is_damage(tmp_path):
    (tmp_path / "flat").write_text("")
    with pytest.raises(DamagedError):
        IndexManifest.read(tmp_path / "flat")
    shutil.rmtree(tmp_path)


# Rows newer than the published index, and rows gone from it


@pytest.mark.parametrize("seed", range(4))
def test_a_live_index_equals_brute_force_over_what_there_is(seed, tmp_path):
    """Random additions, deletions and publications, as the store makes them."""
    random = np.random.default_rng(seed)
    rows: dict[int, np.ndarray] = {}
    next_id = 0
    folder = published(tmp_path / "vectors", index_of(0))
    for step in range(20):
        action = random.choice(["add", "add", "delete", "publish", "delete all"], p=[0.3, 0.2, 0.3, 0.15, 0.05])
        if action == "add":
            for vector in vectors_of(int(random.integers(1, 12)), 1000 * seed + step):
                rows[next_id] = vector
                next_id += int(random.integers(1, 3))
        elif action == "delete" and rows:
            for number in random.choice(
                list(rows), int(random.integers(1, len(rows) + 1)) // 2, replace=False
            ).tolist():
                del rows[number]
        elif action == "delete all":
            rows.clear()
        elif action == "publish":
            folder = published(
                tmp_path / "vectors",
                FlatIndex(np.array(list(rows), np.int64), np.array(list(rows.values()), np.float32).reshape(-1, DIM)),
            )
        live = live_index(load(folder), rows)
        ids = np.array(list(rows), np.int64)
        held = np.array(list(rows.values()), np.float32).reshape(-1, DIM)
        vectors = vectors_of(2, step)
        for k in (1, 5, len(rows) + 3):
            assert_answers(live.search(vectors, k), brute_force(ids, held, vectors, k))
            allowed = random.choice(
                [*ids.tolist(), 10**9], int(random.integers(0, len(ids) + 1)), replace=False
            ).astype(np.int64)
            allowed.sort()
            among = np.isin(ids, allowed)
            assert_answers(live.search(vectors, k, allowed=allowed), brute_force(ids[among], held[among], vectors, k))
        order = random.permutation(len(ids))
        np.testing.assert_array_equal(live.reconstruct(ids[order]), held[order])


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("gap", [1, 3, 2**24])
def test_what_is_allowed_of_a_live_index_is_what_isin_says(gap, seed):
    """However far apart the ids lie, and however few are allowed."""
    random = np.random.default_rng(seed)
    count = int(random.integers(20, 200))
    ids = np.cumsum(random.choice([1, gap], count + 10))
    index = FlatIndex(ids[:count], vectors_of(count, seed))
    held = random.random(count) < 0.8 if seed % 2 else None
    live = LiveIndex(index, held, FlatIndex(ids[count:], vectors_of(10, seed + 1)))
    every = np.concatenate([ids, ids + 1, [0, ids[-1] + gap]])
    vectors = np.concatenate([index.vectors, live.unindexed.vectors])
    there = np.full(len(ids), True) if held is None else np.concatenate([held, np.full(10, True)])
    for some in (0, 1, count // 20, count // 2, len(every)):
        allowed = np.unique(random.choice(every, some, replace=False))
        passing = np.isin(ids, allowed) & there
        wanted = vectors_of(2, seed + 2)
        expected = brute_force(ids[passing], vectors[passing], wanted, 7)
        assert_answers(live.search(wanted, 7, allowed=allowed), expected)


def live_index(loaded, rows):
    """As `Snapshot.index` puts one together."""
    newest = int(loaded.ids[-1]) if len(loaded.ids) else -1
    held = np.isin(loaded.ids, np.array(list(rows), np.int64))
    newer = [number for number in rows if number > newest]
    tail = (
        FlatIndex(np.array(newer, np.int64), np.array([rows[number] for number in newer], np.float32))
        if newer
        else None
    )
    return LiveIndex(loaded, None if held.all() else held, tail)
