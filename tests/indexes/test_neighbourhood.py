"""The neighbourhoods of passages: brute force is the oracle, and a stranger's files do no harm."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from binocle.core.errors import DamagedError
from binocle.indexes import neighbourhood
from binocle.indexes.neighbourhood import NEIGHBOURS, Neighbourhood, document_means, nearest_rows

DIM = 8


@pytest.fixture(scope="module")
def rows():
    """400 vectors in 150 documents, some texts twice, and 600 in clusters."""
    random = np.random.default_rng(1)
    centres = random.standard_normal((40, DIM))
    vectors = np.vstack([random.standard_normal((400, DIM)), np.repeat(centres, 15, 0)]).astype(np.float32)
    vectors[400:] += 0.1 * random.standard_normal((600, DIM))
    vectors[300:310] = vectors[:10]
    keys = np.arange(1000)
    keys[300:310] = keys[:10]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors, np.sort(random.integers(0, 150, 1000)), keys


def brute_force(vectors, documents, keys, row):
    """The positions of the nearest rows, one row after the other."""
    first = {}
    for position, key in enumerate(keys.tolist()):
        first.setdefault(key, position)
    others = [
        position for position in first.values() if documents[position] != documents[row] and keys[position] != keys[row]
    ]
    return sorted(others, key=lambda other: -float(vectors[row] @ vectors[other]))[:NEIGHBOURS]


def test_neighbours_are_the_nearest_rows_of_other_documents_and_texts(rows):
    vectors, documents, keys = rows
    nearest = nearest_rows(vectors, documents, keys)
    for row in [*range(0, 1000, 37), 300, 309]:
        assert nearest[row].tolist() == brute_force(vectors, documents, keys, row)


def test_few_rows_leave_places_empty():
    vectors = np.eye(4, DIM, dtype=np.float32)
    nearest = nearest_rows(vectors, np.array([1, 1, 2, 3]), np.arange(4))
    assert [set(row.tolist()) for row in nearest] == [{2, 3, -1}, {2, 3, -1}, {0, 1, 3, -1}, {0, 1, 2, -1}]
    assert nearest_rows(vectors[:0], np.arange(0), np.arange(0)).shape == (0, NEIGHBOURS)


def test_rows_of_many_clusters_find_most_of_their_neighbours(rows, monkeypatch):
    exact = nearest_rows(*rows)
    monkeypatch.setattr(neighbourhood, "_EXACT", 100)
    monkeypatch.setattr(neighbourhood, "_CLUSTER", 50)
    nearest = nearest_rows(*rows)
    shared = [len(set(mine) & set(theirs)) for mine, theirs in zip(nearest.tolist(), exact.tolist(), strict=True)]
    assert np.mean(shared) > 0.85 * NEIGHBOURS
    assert (rows[1][nearest] != rows[1][:, None])[nearest >= 0].all()


def test_the_mean_of_a_document_is_that_of_its_vectors(rows, monkeypatch):
    monkeypatch.setattr(neighbourhood, "_BLOCK", 7)
    vectors, documents, _ = rows
    mean_rows, means = document_means(vectors, documents)
    for row in range(0, 1000, 7):
        own = vectors[documents == documents[row]]
        if len(own) == 1:
            assert mean_rows[row] == -1
        else:
            mean = own.sum(axis=0) / np.linalg.norm(own.sum(axis=0))
            np.testing.assert_allclose(means[mean_rows[row]], mean, atol=2e-3)


@pytest.fixture(scope="module")
def _folder(rows, tmp_path_factory):
    """What `folder` is copied from. Not to be changed."""
    vectors, documents, keys = rows
    folder = tmp_path_factory.mktemp("neighbourhood")
    neighbourhood.write(folder, np.arange(1000) * 3, vectors, documents, keys)
    return folder


@pytest.fixture
def folder(_folder, tmp_path):
    return shutil.copytree(_folder, tmp_path, dirs_exist_ok=True)


def test_what_was_written_is_mapped_again(rows, folder):
    loaded = Neighbourhood.load(folder, 1000, DIM)
    positions, known = loaded.positions(np.array([0, 4, 6, 9999]))
    assert known.tolist() == [True, False, True, False]
    assert positions[known].tolist() == [0, 2]
    np.testing.assert_array_equal(loaded.nearest(np.arange(1000)), nearest_rows(*rows))
    np.testing.assert_array_equal(loaded.documents, rows[1])


@pytest.mark.parametrize("name", ["ids.i64", "neighbours.i32", "documents.i64", "mean_rows.i32", "means.f16"])
def test_a_cut_or_missing_file_is_damage(name, folder):
    (folder / name).write_bytes((folder / name).read_bytes()[:-3])
    with pytest.raises(DamagedError, match=name):
        Neighbourhood.load(folder, 1000, DIM)
    (folder / name).unlink()
    with pytest.raises(DamagedError, match=name):
        Neighbourhood.load(folder, 1000, DIM)


def test_ids_that_do_not_ascend_are_damage(folder):
    np.zeros(1000, np.int64).tofile(folder / "ids.i64")
    with pytest.raises(DamagedError, match="ascending"):
        Neighbourhood.load(folder, 1000, DIM)


def test_impossible_positions_and_numbers_count_as_none(folder):
    np.full((1000, NEIGHBOURS), 2**30, np.int32).tofile(folder / "neighbours.i32")
    np.full(1000, -7, np.int32).tofile(folder / "mean_rows.i32")
    loaded = Neighbourhood.load(folder, 1000, DIM)
    assert (loaded.nearest(np.arange(9)) == -1).all()
    cosines, vector = np.linspace(0, 1, 9, dtype=np.float32), np.ones(DIM, np.float32)
    np.testing.assert_array_equal(loaded.document_cosines(np.arange(9), vector, cosines), cosines)
    np.zeros(1000, np.int32).tofile(folder / "mean_rows.i32")
    for number in (np.nan, np.inf, 6e4):
        np.full((1, DIM), number, np.float16).tofile(folder / "means.f16")
        loaded = Neighbourhood.load(folder, 1000, DIM)
        np.testing.assert_array_equal(loaded.document_cosines(np.arange(9), vector, cosines), cosines)
