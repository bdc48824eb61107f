"""A teacher's scores of mined rows: by hand, of several teachers, and learned from."""

from __future__ import annotations

import json

import numpy as np
import pytest

from binocle.core.errors import InputError
from binocle.training.data.columns import Shape
from binocle.training.data.dataset import prepare
from binocle.training.encoders import teacher_scores
from binocle.training.encoders.teacher_scores import score
from binocle.training.evaluation import scorers

ROWS = [
    {"query": "the cat", "positive": f"the cat {number} sat", "negative_1": "a ship", "negative_2": "cat and dog"}
    for number in range(3)
]


class Lengths:
    """A cross-encoder: the letters that a passage has more than the query."""

    name = "lengths"

    def score(self, query, passages):
        return np.array([len(text) - len(query) for text in passages], np.float32)


class Angles:
    """An encoder: the angle of a text is its length, in degrees."""

    name, dim = "angles", 2

    def encode(self, texts, *, kind="document"):
        angles = np.radians([len(text) + (kind == "query") for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float32)


@pytest.fixture(autouse=True)
def models(monkeypatch):
    monkeypatch.setattr(scorers, "load", {"lengths": Lengths(), "angles": Angles()}.__getitem__)


def scored(tmp_path, *names, rows=ROWS):
    report = score(rows, tmp_path / "out.jsonl", models=names)
    return [json.loads(line) for line in (tmp_path / "out.jsonl").read_text("utf-8").splitlines()], report


def test_a_cross_encoder_scores_the_positive_and_then_each_negative(tmp_path):
    rows, report = scored(tmp_path, "lengths")
    assert rows == [row | {"scores": [6, -1, 4]} for row in ROWS]
    assert (report.rows, report.scores, report.agreement) == (3, 3, 1)


def test_an_encoder_gives_cosines_in_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(teacher_scores, "_BLOCK", 2)
    rows, report = scored(tmp_path, "angles")
    expected = np.cos(np.radians([13 - 8, 6 - 8, 11 - 8]))
    assert [row["scores"] for row in rows] == [pytest.approx(expected, abs=1e-6)] * 3
    assert report.agreement == 0


def test_several_teachers_count_alike_whatever_their_scales(tmp_path):
    rows, _ = scored(tmp_path, "lengths", "angles")
    alone = [np.array([row["scores"] for row in scored(tmp_path, name)[0]]) for name in ("lengths", "angles")]
    expected = sum((values - values.mean()) / values.std() for values in alone) / 2
    np.testing.assert_allclose([row["scores"] for row in rows], expected, atol=1e-6)


def test_scored_rows_are_learned_from_and_keep_their_documents(tmp_path):
    named = [row | {"document_id": "d", "scores": [0.0, 0.0, 0.0]} for row in ROWS]
    rows, _ = scored(tmp_path, "lengths", rows=named)
    assert [row["document_id"] for row in rows] == ["d"] * 3
    data = prepare(rows, tmp_path / "data", held_out=0.0)
    assert data.shape is Shape.GRADED
    assert data.table()["label"].to_pylist() == [[6, -1, 4]] * 3


def test_rows_without_negatives_and_no_teacher_are_refused(tmp_path):
    pairs = [{"query": "a", "positive": "b"}, {"query": "c", "positive": "d"}]
    with pytest.raises(InputError, match="expected query, positive and negatives, as 'binocle mine' writes them"):
        scored(tmp_path, "lengths", rows=pairs)
    with pytest.raises(InputError, match="expected a model that scores"):
        scored(tmp_path)
    assert list(tmp_path.iterdir()) == []
