"""Classifiers in `evaluate` and `compare`: macro-F1 as scikit-learn has it, intervals, and tests of differences."""

from __future__ import annotations

import json

import numpy as np
import pytest

from binocle.training.evaluation.heads.classes import MEASURES
from binocle.training.heads.config import ClassifierConfig
from binocle.training.heads.train import train_classifier

PETS, FOOD = "cat dog queen king".split(), "bread cheese salt butter".split()


@pytest.fixture(scope="module")
def files(tmp_path_factory, tiny_model):
    """A file of labelled texts, a classifier that learned from such texts, and one that learned the wrong way round."""
    folder = tmp_path_factory.mktemp("classes")
    rows = [{"text": f"the {pet} ran {number}", "label": "pet"} for number in range(20) for pet in PETS]
    rows += [{"text": f"{food} in the oven {number}", "label": "food"} for number in range(20) for food in FOOD]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[::3]))
    swapped = [{**row, "label": {"pet": "food", "food": "pet"}[row["label"]]} for row in rows]
    for name, data in (("good", rows), ("bad", swapped)):
        train_classifier(data, folder / name, base=tiny_model, config=ClassifierConfig(held_out=0.2))
    return folder


def test_macro_f1_under_weights_is_that_of_repeated_rows():
    metrics = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(0)
    for _ in range(50):
        predicted, gold = random.integers(0, 4, (2, 12)).astype(float)
        weights = random.integers(0, 3, 12)
        rows = np.repeat(np.arange(12), weights)
        expected = metrics.f1_score(gold[rows], predicted[rows], average="macro", zero_division=0) if len(rows) else 0
        value = MEASURES["Macro-F1"].of(predicted, gold)(weights[None].astype(float))[0]
        assert value == pytest.approx(expected, abs=1e-9)


def test_evaluate_measures_a_classifier(files, run):
    answer = run("evaluate", files / "rows.jsonl", "--model", files / "good", "--json")
    (row,) = answer.rows
    assert row["kind"] == "classes" and row["measures"]["Accuracy"] > 0.95 and row["rows"] == 54
    low, high = row["intervals"]["Macro-F1"]
    assert low <= row["measures"]["Macro-F1"] <= high
    assert "Macro-F1" in run("evaluate", files / "rows.jsonl", "--model", files / "good").out
    (long,) = run("evaluate", files / "rows.jsonl", "--model", files / "bad", "--json", "--per-query").rows
    assert long["gold"] == [json.loads(line)["label"] for line in (files / "rows.jsonl").read_text().splitlines()]
    assert set(long["scores"]) == {"pet", "food"}
    assert np.mean(np.array(long["scores"]) == long["gold"]) == pytest.approx(long["measures"]["Accuracy"], abs=1e-4)
    wrong = run("evaluate", files / "rows.jsonl")
    assert wrong.code == 2 and "are for a classifier: give it as --model" in wrong.err


def test_compare_tests_the_difference_of_classifiers(files, run):
    answer = run("compare", files / "good", files / "bad", "--data", files / "rows.jsonl", "--json")
    assert answer.code == 0, answer.err
    assert "worse" in answer.out and '"Macro-F1"' in answer.out
    lexical = run("compare", files / "good", "lexical", "--data", files / "rows.jsonl")
    assert lexical.code == 2 and "lexical is no classifier" in lexical.err
