from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest

from binocle.core.errors import InputError, MissingExtraError
from binocle.training.runs import plots
from binocle.training.runs.plots import Bar, comparison, curves, score_distributions

matplotlib = pytest.importorskip("matplotlib")

LOG = [{"step": step, "loss": 2 / step, "epoch": step / 50} for step in range(10, 110, 10)]
LOG += [{"step": step, "eval_spearman": 0.8 + step / 1_000, "eval_loss": 9} for step in (50, 100)]
BARS = [
    Bar("scifact nDCG@10", "base", 0.66, 0.62, 0.70, "baseline"),
    Bar("scifact nDCG@10", "tuned", 0.73, 0.69, 0.77, "better"),
    Bar("scifact nDCG@10", "lexical", 0.60, 0.56, 0.65, "worse"),
    Bar("sts Spearman", "base", 0.82, 0.80, 0.84, "baseline"),
    Bar("sts Spearman", "tuned", 0.83, 0.81, 0.85, "same"),
]
SCORES = np.random.default_rng(0).normal(0.7, 0.1, 90), np.random.default_rng(1).normal(0.3, 0.1, 60)
DRAWN = {
    "curves": lambda file: curves(LOG, file, metric="spearman", title="A run"),
    "distributions": lambda file: score_distributions(*SCORES, file, threshold=0.5, title="Pairs"),
    "comparison": lambda file: comparison(BARS, file, title="Models"),
}


def size(file):
    """Width and height of an SVG, in points."""
    root = ET.parse(file).getroot()
    return float(root.get("width").removesuffix("pt")), float(root.get("height").removesuffix("pt"))


@pytest.mark.parametrize("name", DRAWN)
def test_a_picture_is_the_same_each_time_and_as_wide_as_a_readme(name, tmp_path):
    first, second = tmp_path / "a.svg", tmp_path / "b.svg"
    assert DRAWN[name](first) == first
    DRAWN[name](second)
    assert first.read_bytes() == second.read_bytes()
    width, height = size(first)
    assert 480 < width <= 600
    assert 150 < height < 400
    assert not re.search(rb"<dc:date>|20\d\d-\d\d-\d\d", first.read_bytes())


@pytest.mark.thorough
def test_another_process_draws_the_same_and_leaves_pyplot_alone(tmp_path):
    script = (
        "import sys; from binocle.training.runs.plots import *\n"
        "curves([{'step': 1, 'loss': 2.0}, {'step': 2, 'loss': 1.0}], sys.argv[1])\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", script, str(tmp_path / "a.svg")], check=True)
    curves([{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0}], tmp_path / "b.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


@pytest.mark.parametrize("name", DRAWN)
def test_png_is_drawn_where_the_name_says_so(name, tmp_path):
    data = DRAWN[name](tmp_path / "a.png").read_bytes()
    assert data.startswith(b"\x89PNG")
    assert int.from_bytes(data[16:20]) > 1_000


def test_the_users_own_settings_change_nothing_and_stay_as_they_were(tmp_path):
    DRAWN["comparison"](tmp_path / "a.svg")
    with matplotlib.rc_context({"figure.facecolor": "red", "font.size": 30, "text.usetex": False}):
        DRAWN["comparison"](tmp_path / "b.svg")
        assert matplotlib.rcParams["font.size"] == 30
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_names_of_any_alphabet_and_with_signs_of_formulas_are_drawn(tmp_path):
    names = ("東京 $x_1$", "a_b^c {", "\\frac", "a" * 300, "<&>")
    bars = [Bar("sts $\\alpha$ Spearman", name, 0.5, 0.4, 0.6) for name in names]
    comparison(bars, tmp_path / "a.svg", title="$100 & more")
    assert size(tmp_path / "a.svg")[0] <= 600


# The curves: read back from the figure's own artists


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    """`drawn(function, *arguments)`: the axes that it draws."""
    from matplotlib.figure import Figure

    kept = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *words, **more: (kept.append(self), save(self, *words, **more)))

    def drawing(function, *words, **more):
        function(*words, tmp_path / "x.svg", **more)
        return kept[-1].axes

    return drawing


def test_losses_and_metrics_are_at_their_steps(drawn):
    loss, metric = drawn(curves, LOG, metric="spearman")
    assert loss.lines[0].get_xydata().tolist() == [[step, 2 / step] for step in range(10, 110, 10)]
    assert metric.lines[0].get_xydata() == pytest.approx(np.array([[50, 0.85], [100, 0.9]]))
    assert metric.lines[1].get_xydata().tolist() == [[100, 0.9]]
    assert [text.get_text() for text in metric.texts] == ["kept 0.9000"]
    assert (loss.get_ylabel(), metric.get_ylabel()) == ("loss", "spearman")
    assert loss.get_xlabel() == "training step (2 epochs in all)"


def test_the_circle_is_around_the_weights_that_were_kept_in_a_band_of_the_interval(drawn):
    log = [*LOG, {"step": 50, "eval_spearman": 0.85, "eval_spearman margin": 0.1}]
    note = "stopped early, after step 100 of 200: its last 3 evaluations were worse than the best by more than chance"
    _, metric = drawn(curves, log, metric="spearman", kept_step=50, note=note)
    assert metric.lines[1].get_xydata().tolist() == [[50, 0.85]]
    assert [text.get_text() for text in metric.texts] == ["kept 0.8500"]
    (band,) = metric.collections
    assert {0.75, 0.95} <= {round(float(y), 6) for y in band.get_paths()[0].vertices[:, 1]}
    assert metric.figure.get_supxlabel() == note


def test_a_metric_may_be_called_so_and_a_step_taken_again_counts_once(drawn):
    rows = [{"step": 1, "metric": 0.1}, {"step": 2, "metric": 0.2}, {"step": 1, "metric": 0.3}]
    (metric,) = drawn(curves, rows)
    assert metric.lines[0].get_xydata().tolist() == [[1, 0.3], [2, 0.2]]
    assert metric.get_xlabel() == "training step"


def test_a_long_noisy_loss_is_smoothed_over_neighbours(drawn):
    noise = np.random.default_rng(0).normal(size=200)
    (axes,) = drawn(curves, [{"step": step, "loss": 5 + value} for step, value in enumerate(noise)])
    each, smooth = (line.get_ydata() for line in axes.lines)
    assert each == pytest.approx(5 + noise)
    assert smooth[100] == pytest.approx(5 + noise[90:111].mean())
    assert smooth[0] == pytest.approx(5 + noise[:11].mean())


def test_shares_of_each_class_add_up_to_all_of_it(drawn):
    (axes,) = drawn(score_distributions, *SCORES, threshold=0.5)
    outlines = [patch for patch in axes.patches if patch.get_label() and not patch.get_label().startswith("_")]
    assert [patch.get_label() for patch in outlines] == ["positive (90)", "negative (60)"]
    assert [patch.get_data().values.sum() for patch in outlines] == pytest.approx([100, 100])
    assert axes.lines[0].get_xdata() == [0.5, 0.5]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("cosine similarity", "share of the class (%)")


def test_bars_stand_in_panels_with_their_intervals(drawn):
    scifact, sts = drawn(comparison, BARS)
    assert [bar.get_width() for bar in scifact.patches] == [0.66, 0.73, 0.60]
    assert [tick.get_text() for tick in scifact.get_yticklabels()] == ["base", "tuned", "lexical"]
    assert [text.get_text() for text in sts.texts] == [" 0.820", " 0.830"]
    reach = [tuple(segment[:, 0]) for lines in scifact.collections for segment in lines.get_segments()]
    assert reach == [pytest.approx((bar.low, bar.high)) for bar in BARS[:3]]


def test_better_and_worse_are_told_apart_without_colour(drawn):
    better, worse, same = (
        drawn(comparison, [replace(BARS[0], verdict=verdict)])[0].patches[0] for verdict in ("better", "worse", "same")
    )
    assert worse.get_hatch() and not better.get_hatch()
    assert same.get_facecolor()[:3] == (1, 1, 1)


# Input


@pytest.mark.parametrize(
    ("call", "naming"),
    [
        (lambda at: curves([], at / "a.svg"), "nothing to draw"),
        (lambda at: curves([{"step": 1}, {"loss": 1}, {"step": 2, "loss": float("nan")}], at / "a.svg"), "nothing to draw"),
        (lambda at: curves(LOG, at / "a.jpg"), ".svg or .png"),
        (lambda at: curves(LOG, at / "none" / "a.svg"), "no folder"),
        (lambda at: score_distributions([], [1], at / "a.svg"), "positives and of negatives"),
        (lambda at: score_distributions([float("inf")], [1], at / "a.svg"), "all of them numbers"),
        (lambda at: comparison([], at / "a.svg"), "at least one"),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_told(call, naming, tmp_path):
    with pytest.raises(InputError, match=re.escape(naming)):
        call(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_has_no_interval_is_drawn_without_one(drawn):
    (axes,) = drawn(comparison, [Bar("a", "b", 0.5, float("nan"), float("nan"))])
    assert not axes.collections


def test_all_scores_the_same_are_still_drawn(drawn):
    (axes,) = drawn(score_distributions, [0.5, 0.5], [0.5])
    assert axes.patches


def test_without_matplotlib_the_pip_line_is_told(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"binocle\[train\]"):
        plots.check(tmp_path / "a.svg")
