"""How often a run evaluates."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from binocle.training.runs.trainers import callbacks
from binocle.training.runs.trainers.callbacks import EvaluateSome
from binocle.training.runs.trainers.trainer import affordable, count_steps

from ..test_loop import Clock


@pytest.mark.parametrize(
    ("configured", "trained", "evaluated", "count"),
    [(None, 1e6, 1e4, 8), (None, 1e6, 1e5, 3), (None, 1e5, 1e5, 0), (None, 6e5, 1e5, 0), (5, 1, 1e6, 5)],
)
def test_evaluations_take_a_tenth_of_a_run_unless_a_number_is_given(configured, trained, evaluated, count):
    assert affordable(SimpleNamespace(evaluations=configured), trained, evaluated) == count


@pytest.mark.parametrize(
    ("batches", "accumulate", "epochs", "steps"),
    [(9, 1, 3, 27), (9, 8, 3, 6), (9, 16, 3, 3), (9, 8, 0.5, 1), (0, 8, 2, 2)],
)
def test_an_epoch_of_accumulated_batches_has_a_last_step_for_the_rest(batches, accumulate, epochs, steps):
    config = SimpleNamespace(steps=None, accumulate=accumulate, epochs=epochs)
    assert count_steps(config, range(batches)) == steps


@pytest.mark.parametrize(
    ("count", "steps", "chosen"), [(8, 80, [*range(10, 81, 10)]), (3, 80, [30, 60, 80]), (2, 15, [8, 15])]
)
def test_a_few_evaluations_are_spread_over_the_run_and_the_last_checkpoint_is_one(count, steps, chosen, tmp_path):
    interval = max(1, steps // 8)
    evaluated = []
    for step in range(interval, steps + 1, interval):
        control = SimpleNamespace(should_evaluate=True)
        state = SimpleNamespace(global_step=step, max_steps=steps)
        EvaluateSome(count, tmp_path / "evaluations.json").on_step_end(
            SimpleNamespace(eval_steps=interval), state, control
        )
        if control.should_evaluate:
            evaluated.append(step)
    assert evaluated == chosen


@pytest.mark.parametrize("killed", [None, 5, 10, 40, 79])
@pytest.mark.parametrize(
    ("cost", "evaluated"),
    [
        (1, [10, 20, 30, 40, 50, 60, 70, 80]),
        (2, [20, 40, 60, 80]),
        (4, [40, 80]),
        (5, []),
        (None, [*range(10, 81, 10)]),
    ],
)
def test_evaluations_that_cost_more_than_a_tenth_of_the_run_are_left_out(
    monkeypatch, tmp_path, cost, evaluated, killed
):
    """Steps take a second, and four after a run was killed: it evaluates at the steps that it had decided."""
    clock, steps = Clock(), []
    monkeypatch.setattr(callbacks, "time", clock)

    def train(first, last, seconds):
        callback = EvaluateSome(8, tmp_path / "evaluations.json", share=0.1, cost=lambda: cost)
        state = SimpleNamespace(global_step=first, max_steps=80)
        callback.on_train_begin(None, state, None)
        for state.global_step in range(first + 1, last + 1):
            clock.now += seconds
            control = SimpleNamespace(should_evaluate=state.global_step % 10 == 0)
            callback.on_step_end(SimpleNamespace(eval_steps=10), state, control)
            if control.should_evaluate:
                clock.now += cost or 5
                steps.append(state.global_step)

    if killed is None:
        train(0, 80, 1)
    else:
        train(0, killed, 1)
        train(killed // 10 * 10, 80, 4 if killed >= 10 else 1)
    assert steps == evaluated
