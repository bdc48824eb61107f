"""An evaluation counts as worse only when the rows say so; chance stops no run."""

from __future__ import annotations

import numpy as np
import pytest

from binocle.training.encoders import heldout
from binocle.training.evaluation.best_so_far import BestSoFar
from binocle.training.evaluation.significance import Difference
from binocle.training.runs.checkpoints import worse_evaluations


def history(best, means, generator):
    """The log of a run with these means of its evaluations over 60 queries, with noise."""
    queries = generator.normal(0, 0.3, 60)
    rows = []
    for mean in means:
        values = 0.5 + mean + queries + generator.normal(0, 0.1, 60)
        rows += [{"loss": 1.0}, {f"eval_{k}": v for k, v in best.metrics(heldout.mean("m", values, 0)).items()}]
    return rows


def stopping_evaluation(rows, patience=3):
    """The number of the evaluation after which a run would stop; None if it would not."""
    evaluations = rows[1::2]
    stops = (n for n in range(1, len(evaluations) + 1) if worse_evaluations(rows[: 2 * n]) >= patience)
    return next(stops, None)


def test_a_run_on_a_plateau_is_not_stopped_by_chance(tmp_path):
    generator = np.random.default_rng(0)
    runs = [history(BestSoFar(tmp_path / f"{n}"), np.zeros(8), generator) for n in range(60)]
    figures = [[row["eval_m"] for row in rows[1::2]] for rows in runs]
    by_figures = [any(values.index(max(values[:n])) < n - 3 for n in range(4, 9)) for values in figures]
    assert np.mean(by_figures) > 0.6  # as patience on bare figures would stop
    assert sum(stopping_evaluation(rows) is not None for rows in runs) <= 2


def test_a_run_that_becomes_worse_is_stopped(tmp_path):
    means = [0, 0.1, 0.1, -0.1, -0.2, -0.3, -0.4, -0.5]
    rows = history(BestSoFar(tmp_path / "best"), means, np.random.default_rng(1))
    assert stopping_evaluation(rows) == 6


def test_a_resumed_run_compares_with_the_best_of_the_process_before(tmp_path):
    generator = np.random.default_rng(2)
    history(BestSoFar(tmp_path / "best"), [0.3], generator)
    (_, row) = history(BestSoFar(tmp_path / "best"), [-0.3], generator)
    assert row["eval_m worse"] == 1


@pytest.mark.parametrize("name", ["spearman", "average precision", "balanced accuracy"])
def test_measures_that_are_no_means_are_compared_row_by_row(name):
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 2, 120)
    good = labels + generator.normal(0, 0.3, 120)
    bad = labels + generator.normal(0, 2, 120)
    estimate = heldout.statistic(name, good, labels, 0)
    difference = estimate.difference(bad)
    assert difference.verdict == "better"
    assert difference.value == pytest.approx(estimate.value - heldout.statistic(name, bad, labels, 0).value)
    assert heldout.Estimate.of(estimate.as_dict_with_values()).difference(bad) == difference
    assert estimate.difference(good).verdict == "same"
    assert heldout.statistic(name, np.ones(120), labels, 0).value >= 0


def test_a_verdict_is_said_with_its_interval_and_p():
    said = Difference(-0.02, -0.03, -0.01, 0.001).sentence("ndcg@10")
    assert said == "ndcg@10 -0.0200 (95 % -0.0300 to -0.0100, p 0.001): worse"
    assert Difference(0.02, -0.01, 0.05, 0.2).verdict == "same"
