"""How often a run evaluates, what decays, and what its card says to the hub."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from binocle.training.encoders.config import EncoderConfig, with_rate
from binocle.training.runs import callbacks, loop
from binocle.training.runs.callbacks import EvaluateSome
from binocle.training.runs.loop import Schedule, run_loop
from binocle.training.runs.model_card import Card, write_card
from binocle.training.runs.trainer import affordable
from binocle.training.runs.training_run import TrainingRun


@pytest.mark.parametrize(
    ("configured", "trained", "evaluated", "count"),
    [(None, 1e6, 1e4, 8), (None, 1e6, 1e5, 3), (None, 1e5, 1e5, 0), (None, 6e5, 1e5, 0), (5, 1, 1e6, 5)],
)
def test_evaluations_take_a_tenth_of_a_run_unless_a_number_is_given(configured, trained, evaluated, count):
    assert affordable(SimpleNamespace(evaluations=configured), trained, evaluated) == count


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


def test_the_time_of_measuring_the_base_is_known_to_a_resumed_run(tmp_path):
    def start():
        run = TrainingRun(tmp_path / "out", "base", EncoderConfig())
        run.open({})
        return run

    first, second = start(), start()
    assert first.measuring_seconds is None
    assert first.measure_once(lambda: 0.5) == second.measure_once(lambda: 0.7) == 0.5
    assert first.measuring_seconds == second.measuring_seconds > 0


def test_one_process_at_a_time_trains_in_a_folder(tmp_path, monkeypatch):
    run = TrainingRun(tmp_path / "out", "base", EncoderConfig())
    program = (
        "import sys\nfrom binocle.core.errors import LockedError\n"
        "from binocle.training.encoders.config import EncoderConfig\n"
        "from binocle.training.runs.training_run import TrainingRun\n"
        "try:\n    TrainingRun(sys.argv[1], 'base', EncoderConfig()).open({})\n"
        "except LockedError as error:\n    print(error)"
    )

    def other() -> str:
        command = [sys.executable, "-c", program, str(tmp_path / "out")]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    run.open({})
    message = f"another process trains in {tmp_path / 'out'}: wait until it has finished, or give another folder"
    assert other() == message
    again = TrainingRun(tmp_path / "out", "base", EncoderConfig())
    again.open({})  # this process goes on after an interruption
    again._release_process()
    with monkeypatch.context() as patch:
        patch.setenv("RANK", "1")  # beside the main process
        assert other() == ""
    with pytest.raises(KeyboardInterrupt), run.release_on_error():
        raise KeyboardInterrupt
    assert other() == ""
    run.open({})
    assert other() == message
    run.discard()
    assert not (tmp_path / "out").exists() and other() == ""


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


def test_low_rank_training_has_a_rate_of_its_own():
    rates = [with_rate(EncoderConfig(**options)).learning_rate for options in ({}, {"lora": 8}, {"learning_rate": 1.0})]
    assert rates == [2e-5, 2e-4, 1.0]


def test_the_hub_reads_the_card(tmp_path):
    hub = pytest.importorskip("huggingface_hub")
    measures = [
        {"name": "ndcg@10", "value": 0.51234, "interval": [0.4, 0.6], "rows": 90, "when": when}
        for when in ("before", "after")
    ]
    card = Card(
        kind="encoder",
        base="sentence-transformers/all-MiniLM-L6-v2",
        objective="ranking",
        data={"source": "owner/pairs", "datasets": ["owner/pairs"]},
        config={},
        measures=measures,
        seconds=1.0,
        steps=3,
        texts_per_second=2.0,
        fingerprint="f",
        device="cpu",
        bf16=False,
        notes=("ndcg@10 -0.1000 (95 % -0.2000 to -0.0500, p 0.001): worse than its base", "stopped early"),
        verdict={"value": -0.1, "verdict": "worse"},
    )
    write_card(tmp_path, card, "my-encoder")
    text = (tmp_path / "README.md").read_text("utf-8")
    data = hub.ModelCard(text).data
    assert (data.base_model, data.license, data.datasets) == (card.base, "apache-2.0", ["owner/pairs"])
    (result,) = data.eval_results
    assert (result.metric_type, result.metric_value, data.model_name) == ("ndcg@10", 0.5123, "my-encoder")
    assert 'SentenceTransformer("my-encoder")' in text
    assert "Ndcg@10 -0.1000" in text and "worse than its base." in text
    assert json.loads((tmp_path / "binocle.json").read_text("utf-8"))["verdict"]["verdict"] == "worse"
    write_card(tmp_path, replace(card, base=f"{card.base}@int8"), "my-encoder")
    assert (tmp_path / "README.md").read_text("utf-8") == text
