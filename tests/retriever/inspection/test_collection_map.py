"""The map of a collection: near vectors stay near, documents are divided by folder."""

from __future__ import annotations

import numpy as np
import pytest

from binocle.retriever.inspection import collection_map
from binocle.retriever.inspection.collection_map import CollectionMap, folders
from binocle.retriever.inspection.layout import plane


def test_near_vectors_stay_near():
    random = np.random.default_rng(0)
    centres = random.normal(size=(6, 32))
    labels = np.arange(300) % 6
    vectors = centres[labels] + 0.3 * random.normal(size=(300, 32))
    vectors = np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)
    points = plane(vectors)
    assert points.shape == (300, 2) and points.min() == 0 and points.max() == 1
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    assert (labels[distances.argsort(1)[:, :10]] == labels[:, None]).mean() > 0.95
    assert np.array_equal(points, plane(vectors))


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 20])
def test_few_vectors_and_copies_have_places_too(count):
    points = plane(np.ones((count, 1), np.float32))
    assert points.shape == (count, 2) and np.isfinite(points).all()


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        ([], []),
        (["a.md", "b.md"], [""]),
        (["docs/a/1.md", "docs/a/2.md", "docs/b/1.md"], ["docs/a", "docs/b"]),
        (["docs/a/1.md", "docs/a/2.md", "docs/b.md"], ["docs/a", "docs"]),
        ([f"{letter}/1.md" for letter in "aabcdefghij"], [*"abcdefg", ""]),
        ([f"a/{number}/1.md" for number in range(20)], ["a"]),
    ],
)
def test_documents_are_divided_by_folder(paths, names):
    found, of_path = folders(paths)
    assert found == names
    assert all(path.startswith(found[number]) for path, number in zip(paths, of_path, strict=True))


def test_a_large_index_shows_a_part_and_places_the_rest_near_it(retriever, monkeypatch):
    monkeypatch.setattr(collection_map, "MAX_PASSAGES", 5)
    snapshot = retriever.snapshot()
    part = CollectionMap.of(snapshot)
    assert len(part.points) == 5 and part.passages == len(snapshot.sorted_ids) > 5
    positions = part.positions(snapshot, snapshot.sorted_ids)
    assert np.array(positions).min() >= 0 and np.array(positions).max() <= 1
    shown = np.searchsorted(snapshot.sorted_ids, part.rows["id"].to_numpy())
    assert np.array_equal(np.array(positions, np.float32)[shown], part.points)
    assert part.positions(snapshot, np.array([2**40])) == [None]
