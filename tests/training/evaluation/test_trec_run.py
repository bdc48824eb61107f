"""A run holds the order that was measured, also for tools that sort it by score."""

from __future__ import annotations

import random

import pytest

from binocle.training.evaluation.measures import values
from binocle.training.evaluation.trec_run import write_run


@pytest.mark.parametrize(
    "scores", [[0.5] * 12, [0.0] * 12, [30.0 - 1e-7 * n for n in range(12)], [*range(12)], [-4e6] * 12]
)
def test_a_run_with_equal_or_rising_scores_measures_as_the_ranking_that_it_was_written_from(scores, tmp_path):
    oracle = pytest.importorskip("ir_measures")
    names = [f"d{number}" for number in range(12)]
    random.Random(0).shuffle(names)
    run, qrels = {"q": list(zip(names, scores, strict=True))}, {"q": {names[3]: 1, names[8]: 2}}
    write_run(tmp_path / "run.txt", run, "test")
    read = list(oracle.read_trec_run(str(tmp_path / "run.txt")))
    given = [oracle.Qrel("q", name, grade) for name, grade in qrels["q"].items()]
    theirs = {"nDCG@10": oracle.nDCG @ 10, "MAP": oracle.AP}
    expected = oracle.calc_aggregate([*theirs.values()], given, read)
    ours = values(qrels, run)
    assert {name: ours[name]["q"] for name in theirs} == pytest.approx({n: expected[of] for n, of in theirs.items()})


def test_falling_scores_are_written_as_they_are(tmp_path):
    write_run(tmp_path / "run.txt", {"q": [("a", 12.25), ("b", 0.5), ("c", -3.0)]}, "test")
    scores = [line.split()[4] for line in (tmp_path / "run.txt").read_text().splitlines()]
    assert scores == ["12.250000", "0.500000", "-3.000000"]


@pytest.mark.parametrize(
    ("scores", "written"),
    [
        ([1.0, 1.0, 1.0], ["1.000000", "0.999999", "0.999998"]),
        ([1000.0, 1000.0], ["1000.000000", "999.999760"]),  # single precision has no number between
        ([-1000.0, -999.0, -2000.0], ["-1000.000000", "-1000.000240", "-2000.000000"]),
    ],
)
def test_a_score_that_does_not_fall_is_written_just_below_the_one_before(scores, written, tmp_path):
    write_run(tmp_path / "run.txt", {"q": [(str(score), score) for score in scores]}, "test")
    assert [line.split()[4] for line in (tmp_path / "run.txt").read_text().splitlines()] == written
