"""The progress of runs, and the bar that shows it."""

from __future__ import annotations

import pytest

from binocle.commands import progress_bar
from binocle.commands.progress_bar import ProgressBar
from binocle.core.progress import Progress, counted
from binocle.training.runs import run_progress
from binocle.training.runs.run_progress import stepping, training_step


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass as the test says."""

    class Clock:
        now = 0.0

        def monotonic(self) -> float:
            return self.now

    clock = Clock()
    monkeypatch.setattr(run_progress, "time", clock)
    monkeypatch.setattr(progress_bar, "time", clock)
    return clock


def test_the_number_of_items_done_is_reported_after_each():
    events = []
    assert list(counted("abc", events.append, "encoding 3 texts")) == ["a", "b", "c"]
    assert events == [Progress("encoding 3 texts", done, 3) for done in range(4)]


def test_the_steps_of_a_part_are_told_in_its_words(clock):
    events = []
    event = training_step(1_200, 2_000, 75.0, epoch=1.5, loss=0.25, metric=None, texts_per_second=3_000.4)
    on_progress = stepping(events.append, "learning")
    on_progress(event)
    clock.now += 5
    on_progress(event)
    assert events == ["learning, step 1,200 of 2,000, 1 min 15 s left"]


def test_a_line_says_first_what_a_narrow_terminal_is_to_show():
    step = {"step": 1_200, "steps": 2_000, "seconds_left": 75.0, "epoch": 1.5, "texts_per_second": 3_000.4}
    first = "step 1,200 of 2,000, 1 min 15 s left, epoch 1.50"
    event = training_step(**step, loss=0.25, metric=("perplexity", 10_293_315.07))
    assert event == Progress("training", 1_200, 2_000, f"{first}, loss 0.2500, perplexity 10,293,315, 3,000 texts/s")
    event = training_step(**step, loss=None, metric=("perplexity", 7.5))
    assert event.message == f"{first}, perplexity 7.5000, 3,000 texts/s"


def test_without_a_terminal_a_line_is_printed_at_most_every_so_many_seconds(clock, capsys):
    with ProgressBar("reading the data", lines=10) as on_progress:
        on_progress(Progress("reading"))
        for done in range(1, 7):
            on_progress(Progress("training", done, 6, f"step {done} of 6"))
            clock.now += 4
        on_progress(Progress("searching", 1_000, 2_000))
    lines = ["reading …", "step 1 of 6", "step 4 of 6", "step 6 of 6"]
    assert capsys.readouterr().err.splitlines() == lines
    with ProgressBar("reading the data", lines=0) as on_progress:
        on_progress(Progress("searching", 1_000, 2_000))
    assert capsys.readouterr().err == "searching: 1,000 of 2,000\n"


def test_without_a_terminal_nothing_is_printed_unless_lines_are_asked_for(capsys):
    with ProgressBar("reading the data") as on_progress:
        on_progress(Progress("reading"))
        on_progress(Progress("training", 6, 6))
    assert capsys.readouterr().err == ""


def test_a_terminal_shows_the_present_stage_alone(monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with ProgressBar("looking through the folder") as on_progress:
        (task,) = on_progress._bar.tasks
        assert (task.description, task.total) == ("looking through the folder", None)
        on_progress(Progress("indexing", 5, 20, "1 of 4 files [a.txt]"))
        (task,) = on_progress._bar.tasks
        assert (task.description, task.completed, task.total) == ("1 of 4 files [a.txt]", 5, 20)
        on_progress(Progress("building the vector index"))
        (task,) = on_progress._bar.tasks
        assert (task.description, task.total) == ("building the vector index", None)
