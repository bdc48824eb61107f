"""A run is reported to a tracker where one is asked for, and to none otherwise."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch")

from binocle.core.errors import InputError, MissingExtraError
from binocle.training.encoders.config import EncoderConfig
from binocle.training.encoders.train import train_encoder
from binocle.training.heads.config import HeadConfig
from binocle.training.inversion.config import InverterConfig
from binocle.training.pretraining.config import PretrainingConfig
from binocle.training.runs.trainers import trackers
from binocle.training.runs.training_config import check_training

WORDS = "cat dog queen king moon sun sea ship".split()
FAST = {"steps": 3, "batch_size": 8, "evaluations": 1, "held_out": 0.2}


@pytest.fixture
def data(tmp_path):
    file = tmp_path / "pairs.jsonl"
    rows = [{"query": f"the {a}", "positive": f"a {a} and a {b} ran"} for a in WORDS for b in WORDS[:4]]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return file


@pytest.mark.filterwarnings("ignore")  # of torch and transformers about themselves
def test_tensorboard_reads_the_losses_of_the_log(data, tmp_path, tiny_model):
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    out = tmp_path / "out"
    result = train_encoder(data, out, base=tiny_model, config=EncoderConfig(**FAST, report_to="tensorboard"))
    events = reader.EventAccumulator(str(out / "tensorboard"))
    events.Reload()
    reported = {event.step: event.value for event in events.Scalars("train/loss")}
    logged = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    assert result.steps == 3
    assert reported == pytest.approx({row["step"]: row["loss"] for row in logged if "loss" in row}, abs=1e-4)
    assert len(reported) == 3
    measured = {name.removeprefix("eval_") for row in logged for name in row if name.startswith("eval_")}
    tags = {tag.removeprefix("eval/") for tag in events.Tags()["scalars"] if tag.startswith("eval/")}
    assert tags == measured


@pytest.mark.filterwarnings("ignore")
def test_a_run_that_fails_before_its_first_checkpoint_leaves_nothing(data, tmp_path, tiny_model):
    pytest.importorskip("tensorboard")
    settings = {**FAST, "steps": 40, "learning_rate": 1e30, "bf16": False, "report_to": "tensorboard"}
    with pytest.raises(InputError, match="the loss is no number"):
        train_encoder(data, tmp_path / "out", base=tiny_model, config=EncoderConfig(**settings))
    assert not (tmp_path / "out").exists()


@pytest.mark.filterwarnings("ignore")
def test_pretraining_is_followed_from_the_command_too(data, tmp_path, tiny_model, run):
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    out = tmp_path / "out"
    options = ("--column", "positive", "--steps", "3", "--batch-size", "8", "--evaluations", "1", "--held-out", "0.2")
    code, _, err = run("pretrain", data, "--base", tiny_model, "--out", out, *options, "--report-to", "tensorboard")
    assert code in (0, 1), err
    events = reader.EventAccumulator(str(out / "tensorboard"))
    events.Reload()
    logged = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    losses = {row["step"]: row["loss"] for row in logged if "loss" in row}
    assert {event.step: event.value for event in events.Scalars("train/loss")} == pytest.approx(losses, abs=1e-4)
    assert len(losses) == 3


@pytest.mark.filterwarnings("ignore")
def test_a_head_is_followed_too(tmp_path, tiny_model, run):
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    rows = [{"tokens": ["the", word, f"{n}"], "tags": ["O", "B-IT", "O"]} for n, word in enumerate(WORDS * 4)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    out, options = tmp_path / "out", ("--steps", 3, "--max-length", 16, "--report-to", "tensorboard")
    shown = run("train", "tagger", tmp_path / "rows.jsonl", "--base", tiny_model, "--out", out, *options)
    assert shown.code == 0, shown.err
    events = reader.EventAccumulator(str(out / "tensorboard"))
    events.Reload()
    logged = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    losses = {row["step"]: row["loss"] for row in logged if "loss" in row}
    assert {event.step: event.value for event in events.Scalars("train/loss")} == pytest.approx(losses, abs=1e-4)
    assert "eval/span F1" in events.Tags()["scalars"] and losses
    with pytest.raises(InputError, match="expected one of tensorboard, wandb, trackio"):
        HeadConfig(report_to="mlflow").check()


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["embedding", "hidden"])
def test_an_inverter_is_followed_through_all_its_steps(kind, tmp_path, tiny_model, run):
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    lines = [f"the {a} and the {b} with a {a} and {b}" for a in WORDS for b in WORDS]
    (tmp_path / "texts.txt").write_text("\n".join(lines), "utf-8")
    out, options = tmp_path / "out", ("--from", kind, "--steps", 4, "--batch-size", 8, "--max-length", 8)
    options = (*options, "--held-out", 0.2, "--encoder", tiny_model, "--report-to", "tensorboard")
    shown = run("train", "inverter", tmp_path / "texts.txt", "--out", out, *options)
    assert shown.code == 0, shown.err
    events = reader.EventAccumulator(str(out / "tensorboard"))
    events.Reload()
    losses = {event.step: event.value for event in events.Scalars("train/loss")}
    bag = [event.step for event in events.Scalars("train/bag_loss")] if kind == "embedding" else []
    assert [*bag, *losses] == [1, 2, 3, 4]
    logged = [json.loads(line)["loss"] for line in (out / "log.jsonl").read_text().splitlines()]
    assert [*losses.values()] == pytest.approx(logged, abs=1e-4)
    with pytest.raises(InputError, match="expected one of tensorboard, wandb, trackio"):
        InverterConfig(report_to="mlflow").check()


@pytest.mark.filterwarnings("ignore")
def test_a_run_reports_to_nothing_unless_asked(data, tmp_path, tiny_model):
    train_encoder(data, tmp_path / "out", base=tiny_model, config=EncoderConfig(**FAST))
    assert not [file for file in tmp_path.rglob("*") if "tfevents" in file.name or "tensorboard" in file.name]


def test_a_tracker_that_is_unknown_or_not_installed_says_what_to_do(monkeypatch):
    with pytest.raises(InputError, match="expected one of tensorboard, wandb, trackio"):
        check_training(EncoderConfig(report_to="mlflow"))
    with pytest.raises(InputError, match="expected one of tensorboard, wandb, trackio"):
        PretrainingConfig(report_to="mlflow").check()
    monkeypatch.setattr(trackers, "find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'binocle\[wandb\]'"):
        check_training(EncoderConfig(report_to="wandb"))
