"""The loop: what decays, and how a run of some minutes ends."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from binocle.training.runs import loop
from binocle.training.runs.loop import Schedule, run_loop


def test_biases_and_norms_do_not_decay():
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.LayerNorm(3))
    before = {name: value.clone() for name, value in module.state_dict().items()}

    def loss(_step):
        return 0.0 * sum(parameter.sum() for parameter in module.parameters())

    run_loop(module, loss, Schedule(learning_rate=1.0, batch_size=1, steps=3, warmup=1))
    after = module.state_dict()
    assert (after["0.weight"].abs() < before["0.weight"].abs()).all()
    for name in ("0.bias", "1.weight", "1.bias"):
        torch.testing.assert_close(after[name], before[name])


class Clock:
    """Seconds that pass as steps do: the first fifty take one each, later ones four."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now


def test_a_run_of_a_number_of_minutes_ends_on_time_with_a_low_rate_where_steps_become_slower(monkeypatch, tmp_path):
    clock, weights, evaluated = Clock(), [], []
    monkeypatch.setattr(loop, "time", clock)
    module = torch.nn.Linear(1, 1)

    def loss(step):
        weights.append(module.weight.item())
        clock.now += 1 if step < 50 else 4
        return module.weight.sum()

    plan = Schedule(learning_rate=0.01, batch_size=1, seconds=200, rows=10, warmup=5, evaluations=4)
    result = run_loop(module, loss, plan, folder=tmp_path, measure=lambda: evaluated.append(len(weights)) or 0.5)
    assert 200 <= clock.now < 204 and result.steps == result.planned == len(weights) == 88
    moves = -np.diff(weights)  # of Adam under a constant gradient: the learning rate
    assert 0.007 < moves[10] < 0.011 and moves[-1] < 0.001 and (np.diff(moves[10:]) < 1e-6).all()
    assert evaluated == [50, 63, 75, 88]
    again = run_loop(module, loss, plan, folder=tmp_path)
    assert (again.steps, again.resumed_from) == (88, 88)


@pytest.mark.parametrize(
    ("step", "share", "warmup", "expected"),
    [
        (0, 0.0, 50, 0.02),
        (49, 0.0, 50, 1.0),
        (24, 0.5, 50, 0.25),
        (200, 0.25, 50, 0.75),
        (0, 0.0, 0, 1.0),
        (9, 1.2, 5, 0),
    ],
)
def test_the_learning_rate_rises_in_the_warm_up_and_falls_to_0(step, share, warmup, expected):
    assert loop.rate(step, share, warmup) == pytest.approx(expected)


def test_a_run_of_a_number_of_minutes_ends_after_all_passes():
    module = torch.nn.Linear(1, 1)
    plan = Schedule(learning_rate=0.01, batch_size=4, seconds=1_000_000, rows=10, passes=2)
    result = run_loop(module, lambda _: module.weight.sum(), plan)
    assert result.steps == result.planned == 5  # 20 rows, 4 a step


def test_gradients_are_cut_to_length_1():
    module, lengths = torch.nn.Linear(2, 1, bias=False), []

    def loss(_step):
        if module.weight.grad is not None:  # of the step before
            lengths.append(float(module.weight.grad.norm()))
        return 1_000 * module.weight.sum()

    run_loop(module, loss, Schedule(learning_rate=0.01, batch_size=1, steps=3))
    assert lengths == pytest.approx([1.0, 1.0], rel=1e-4)
