"""Pretraining from end to end on tiny models: it learns, it resumes, it keeps the best, it says what is wrong."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("datasets")
pytest.importorskip("accelerate")

from safetensors.torch import load_file

from binocle.core.errors import InputError
from binocle.training.pretraining import masked_training
from binocle.training.pretraining.config import PretrainingConfig
from binocle.training.pretraining.data.token_rows import split_held_out
from binocle.training.pretraining.fill_mask import Filler
from binocle.training.pretraining.pretrain import pretrain
from binocle.training.pretraining.result import PretrainingResult
from binocle.training.runs import model_card as card
from binocle.training.runs.checkpoints import last_checkpoint
from binocle.training.runs.plots import curves

WHO, DID, WHERE = "cat dog king queen".split(), "sat ran".split(), "mat house city river".split()
QUICK = PretrainingConfig(
    steps=12, batch_size=8, max_length=32, learning_rate=3e-3, evaluations=3, bf16=False, held_out=0.2
)


def text(seed: int) -> str:
    """Sentences: each word leaves little choice for the next."""
    random = np.random.default_rng(seed)
    said = [f"The {WHO[w]} {DID[w % 2]} to the {WHERE[w]} at night." for w in random.integers(0, 4, 6)]
    return " ".join(said)


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    file = tmp_path_factory.mktemp("texts") / "texts.txt"
    file.write_text("".join(text(seed) + "\n" for seed in range(40)), "utf-8")
    return file


@pytest.fixture(scope="session")
def bert(masked_models):
    return str(masked_models["bert"])


@pytest.fixture(scope="session")
def uninterrupted(texts, bert, tmp_path_factory) -> PretrainingResult:
    return pretrain(texts, tmp_path_factory.mktemp("whole") / "model", base=bert, config=QUICK)


def weights(result: PretrainingResult) -> dict:
    return load_file(f"{result.folder}/model.safetensors")


def same(result: PretrainingResult, expected: PretrainingResult) -> bool:
    first, second = weights(result), weights(expected)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.thorough
@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_a_model_learns_and_loads_in_plain_transformers(family, masked_models, texts, tmp_path, monkeypatch):
    monkeypatch.setattr(card, "curves", curves)
    events = []
    config = dataclasses.replace(QUICK, steps=30, whole_words=True)
    result = pretrain(texts, tmp_path / "model", base=str(masked_models[family]), config=config, progress=events.append)
    assert result.after.value < result.before.value / 3
    assert result.after.interval[0] < result.after.value < result.after.interval[1]
    assert (result.steps, result.new_head, result.resumed_from) == (30, False, None)
    steps = [event for event in events if event.stage == "training"]
    assert [event.done for event in steps if ", loss " in event.message] == list(range(1, 31))
    assert ", perplexity " in steps[-1].message
    losses = [row["loss"] for row in result.history if "loss" in row]
    assert np.mean(losses[-5:]) < np.mean(losses[:5]) - 1
    model = transformers.AutoModelForMaskedLM.from_pretrained(result.folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(result.folder)
    encoded = tokenizer(f"The dog ran to the {tokenizer.mask_token} at night.", return_tensors="pt")
    logits = model(**encoded).logits.detach()[0, (encoded["input_ids"][0] == tokenizer.mask_token_id).nonzero()[0, 0]]
    ((first, *_),) = Filler.load(result.folder).fill("The dog ran to the [MASK] at night.")
    assert first.probability == pytest.approx(float(logits.softmax(0).max()), abs=1e-6)
    assert sorted(path.name for path in (tmp_path / "model").iterdir() if "token" not in path.name) == [
        "README.md",
        "binocle.json",
        "config.json",
        *["curves.svg"] * bool(find_spec("matplotlib")),
        "log.jsonl",
        "model.safetensors",
    ]


def test_the_model_is_a_base_for_an_encoder(uninterrupted):
    from sentence_transformers import SentenceTransformer

    vectors = SentenceTransformer(uninterrupted.folder).encode(["The cat sat.", "The dog ran."])
    assert vectors.shape == (2, 32)


def test_a_base_without_a_head_gets_one(tiny_model, texts, tmp_path):
    result = pretrain(texts, tmp_path / "model", base=tiny_model, config=QUICK)
    assert result.new_head
    assert result.after.value < result.before.value
    assert Filler.load(result.folder).fill("The [MASK] sat.", 3)


def test_from_scratch_learns_a_vocabulary_and_is_the_same_each_time(texts, tmp_path):
    config = dataclasses.replace(QUICK, steps=3, vocabulary=200)
    first, second = (pretrain(texts, tmp_path / name, from_scratch="tiny", config=config) for name in "ab")
    assert (first.new_head, first.base) == (False, "random weights (tiny)")
    assert first.after.value < first.before.value
    assert same(first, second)
    assert (tmp_path / "a/tokenizer.json").read_bytes() == (tmp_path / "b/tokenizer.json").read_bytes()


@pytest.mark.parametrize("objective", ["mlm+nsp", "mlm+sop"])
def test_pairs_are_learned_beside_words_and_measured(objective, texts, bert, tmp_path):
    result = pretrain(texts, tmp_path / "model", base=bert, config=dataclasses.replace(QUICK, objective=objective))
    assert result.after.value < result.before.value
    assert 0 <= result.after.pair_accuracy <= 1
    assert set(weights(result)) == set(
        load_file(f"{bert}/model.safetensors")
    )  # the head for pairs is not the encoder's
    rows = [json.loads(line) for line in (tmp_path / "model/log.jsonl").read_text().splitlines()]
    assert any("eval_pair_accuracy" in row for row in rows)


def test_the_same_seed_gives_the_same_model_and_another_seed_another(uninterrupted, texts, bert, tmp_path):
    again = pretrain(texts, tmp_path / "again", base=bert, config=QUICK)
    assert same(uninterrupted, again)
    assert again.fingerprint == uninterrupted.fingerprint
    reseeded = pretrain(texts, tmp_path / "other", base=bert, config=dataclasses.replace(QUICK, seed=1))
    assert not same(uninterrupted, reseeded)


class Killed(Exception):  # noqa: N818
    pass


def until(step: int):
    def progress(event) -> None:
        if event.stage == "training" and event.done == step:
            raise Killed

    return progress


@pytest.mark.thorough
@pytest.mark.parametrize("step", [2, 8, 11])
def test_a_run_that_was_stopped_ends_as_if_it_never_was(step, uninterrupted, texts, bert, tmp_path):
    with pytest.raises(Killed):
        pretrain(texts, tmp_path / "model", base=bert, config=QUICK, progress=until(step))
    result = pretrain(texts, tmp_path / "model", base=bert, config=QUICK)
    assert result.resumed_from == ((step - 1) // 4 * 4 or None)  # told before the checkpoint is written
    assert same(uninterrupted, result)
    assert (result.before, result.after) == (uninterrupted.before, uninterrupted.after)
    assert not (tmp_path / "model/run").exists()


def steps(result: PretrainingResult) -> list[dict]:
    rows = map(json.loads, Path(result.folder, "log.jsonl").read_text("utf-8").splitlines())
    return [
        {k: v for k, v in row.items() if k in ("step", "loss", "eval_perplexity")}
        for row in rows
        if "train_loss" not in row
    ]


@pytest.mark.thorough
def test_pairs_and_packed_rows_resume_as_well(texts, bert, tmp_path):
    for options in ({"objective": "mlm+nsp"}, {"pack": True, "accumulate": 2, "dropout": 0.1}):
        config = dataclasses.replace(QUICK, steps=6, epochs=9, **options)
        name = "-".join(options)
        whole = pretrain(texts, tmp_path / f"{name}-whole", base=bert, config=config)
        with pytest.raises(Killed):
            pretrain(texts, tmp_path / name, base=bert, config=config, progress=until(5))
        result = pretrain(texts, tmp_path / name, base=bert, config=config)
        assert result.resumed_from == 4
        assert same(whole, result)
        assert steps(whole) == steps(result)


def test_a_run_killed_after_its_last_step_is_finished_without_training(
    texts, bert, uninterrupted, tmp_path, monkeypatch
):
    with monkeypatch.context() as patch:
        patch.setattr(card, "write_card", lambda *_: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            pretrain(texts, tmp_path / "model", base=bert, config=QUICK)
    monkeypatch.setattr(masked_training, "MaskedTraining", None)  # no model is loaded, no step is taken
    result = pretrain(texts, tmp_path / "model", base=bert, config=QUICK)
    assert same(uninterrupted, result)
    assert result.as_dict() | {"folder": "", "seconds": 0, "texts_per_second": 0} == uninterrupted.as_dict() | {
        "folder": "",
        "seconds": 0,
        "texts_per_second": 0,
    }


@pytest.mark.thorough
def test_the_run_stops_early_keeps_the_best_and_resumes_so(texts, bert, tmp_path):
    config = dataclasses.replace(QUICK, steps=40, evaluations=40, patience=2, learning_rate=0.3, warmup=0.5)
    result = pretrain(texts, tmp_path / "model", base=bert, config=config)
    values = {row["step"]: row["eval_perplexity"] for row in steps(result) if "eval_perplexity" in row}
    assert result.steps < 40
    assert result.after.value == pytest.approx(values[result.best_step], rel=1e-4)
    assert max(values[result.best_step], min(values.values())) < min(list(values.values())[-2:])
    assert "its last 2 evaluations were worse" in result.notes[1]
    with pytest.raises(Killed):
        pretrain(texts, tmp_path / "again", base=bert, config=config, progress=until(result.steps - 1))
    again = pretrain(texts, tmp_path / "again", base=bert, config=config)
    assert again.steps == result.steps
    assert same(again, result)


def test_without_patience_left_no_step_is_taken_again(texts, bert, tmp_path, monkeypatch):
    config = dataclasses.replace(QUICK, steps=40, evaluations=40, patience=2, learning_rate=0.3, warmup=0.5)
    with monkeypatch.context() as patch:
        patch.setattr(masked_training.MaskedTraining, "_write", lambda *_: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            pretrain(texts, tmp_path / "model", base=bert, config=config)
    last = last_checkpoint(tmp_path / "model/run/checkpoints")
    result = pretrain(texts, tmp_path / "model", base=bert, config=config)
    assert result.steps == int(last.name.split("-")[1]) < 40
    values = {row["step"]: row["eval_perplexity"] for row in steps(result) if "eval_perplexity" in row}
    assert result.after.value == pytest.approx(values[result.best_step], rel=1e-4)


def test_batches_of_a_step_weigh_as_one_batch(texts, bert, tmp_path):
    file = tmp_path / "few.txt"
    file.write_text("".join(text(seed) + "\n" for seed in range(4)), "utf-8")
    config = dataclasses.replace(QUICK, steps=1, held_out=0.0, weight_decay=0.0, warmup=0.0)
    whole = pretrain(file, tmp_path / "one", base=bert, config=dataclasses.replace(config, batch_size=64))
    count = whole.counts.rows
    parts = pretrain(
        file, tmp_path / "two", base=bert, config=dataclasses.replace(config, batch_size=2, accumulate=count)
    )
    first, second = weights(whole), weights(parts)
    begin = load_file(f"{bert}/model.safetensors")
    moved = [(first[name] - begin[name]).abs().max() for name in first]
    assert max(moved) > 1e-3
    # Adam's first step is the sign of the gradient: where that is all but zero it may differ.
    agree = np.mean([float(((first[n] - second[n]).abs() < 1e-4).float().mean()) for n in first])
    assert agree > 0.98


def test_nothing_held_out_is_nothing_measured(texts, bert, tmp_path):
    result = pretrain(texts, tmp_path / "model", base=bert, config=dataclasses.replace(QUICK, steps=2, held_out=0.0))
    assert (result.before, result.after) == (None, None)
    assert result.counts.held_out_documents == 0
    assert "nothing was measured" in (tmp_path / "model/README.md").read_text("utf-8")


def test_what_was_read_is_counted_and_said_on_the_card(uninterrupted):
    counts = uninterrupted.counts
    assert (counts.documents, counts.held_out_documents) == (40, 8)
    folder = Path(uninterrupted.folder)
    card = json.loads((folder / "binocle.json").read_text("utf-8"))
    assert card["data"]["held_out_documents"] == 8
    assert [measure["when"] for measure in card["measures"]] == ["before", "after"]
    assert card["measures"][1]["value"] == pytest.approx(uninterrupted.after.value)
    assert card["fingerprint"] == uninterrupted.fingerprint
    assert "masked words (arXiv:1810.04805)" in (folder / "README.md").read_text("utf-8")


def test_a_documents_text_is_on_one_side_and_the_share_is_kept():
    documents = [f"text {number % 400}" for number in range(800)]
    sides = {}
    for document, is_held_out in split_held_out(documents, 0.1):
        assert sides.setdefault(document, is_held_out) is is_held_out
    assert sum(sides.values()) == 40
    assert {document for document, is_held_out in split_held_out(documents, 0.1, seed=1) if is_held_out} != {
        document for document, is_held_out in sides.items() if is_held_out
    }
    flags = [is_held_out for _, is_held_out in split_held_out((str(number) for number in range(20_000)), 0.1)]
    assert 0.07 < np.mean(flags) < 0.13


@pytest.mark.thorough
def test_a_run_killed_outright_ends_as_if_it_never_was(texts, bert, uninterrupted, tmp_path, quick_training):
    program = (
        "import os, sys, time\nfrom binocle.training.pretraining.config import PretrainingConfig\n"
        "from binocle.training.pretraining.pretrain import pretrain\n"
        f"config = PretrainingConfig(**{dataclasses.asdict(QUICK)!r})\n"
        "def progress(event):\n    print(event.done, flush=True)\n    time.sleep(60 * (event.done == 7))\n"
        "print(os.getpid(), flush=True)\n"
        "pretrain(sys.argv[1], sys.argv[2], base=sys.argv[3], config=config, progress=progress)"
    )
    command = [*quick_training, "-c", program, texts, tmp_path / "model", bert]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as run:
        process = int(run.stdout.readline())
        while run.stdout.readline().strip() != "7":
            assert run.poll() is None
        os.kill(process, signal.SIGKILL)
    result = pretrain(texts, tmp_path / "model", base=bert, config=QUICK)
    assert result.resumed_from == 4
    assert same(uninterrupted, result)


def wrong(name: str, value):
    return dataclasses.replace(QUICK, **{name: value})


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (wrong("objective", "nsp"), "there is no objective 'nsp': expected one of mlm, mlm"),
        (wrong("share", 0.0), "share is a number above 0, not 0.0"),
        (wrong("share", 1.0), "share is a share"),
        (wrong("held_out", -0.1), "held out is a share from 0 to below 1, not -0.1"),
        (wrong("steps", 0), "steps is a whole number above 0, not 0"),
        (wrong("epochs", float("nan")), "epochs is a number above 0"),
        (wrong("batch_size", -1), "batch size is a whole number above 0, not -1"),
        (wrong("learning_rate", 0.0), "learning rate is a number above 0"),
        (wrong("weight_decay", float("nan")), "weight decay is a number from 0, not nan"),
        (wrong("seed", 5_000_000_000), "seed is a whole number below 2.*, not 5000000000"),
        (wrong("max_length", 4), "max length is in tokens, special ones included: at least 8, not 4"),
        (wrong("max_length", 65), "max length is 65 tokens, but .* takes 64 at most"),
        (wrong("vocabulary", 5), "a vocabulary has 200 tokens at least, not 5"),
        (dataclasses.replace(QUICK, pack=True, objective="mlm+nsp"), "packed rows mix documents"),
    ],
)
def test_wrong_settings_are_told_and_leave_nothing_behind(config, message, texts, bert, tmp_path):
    with pytest.raises(InputError, match=message):
        pretrain(texts, tmp_path / "model", base=bert, config=config)
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("lines", "objective", "message"),
    [
        ([], "mlm", "there is no text to train on"),
        (["The cat sat."], "mlm", "there is 1 document: expected at least 2"),
        (["The cat sat."] * 9, "mlm", "so that some can be held out; --held-out 0 trains on all of them"),
        (["cat", "dog", "sea"], "mlm", "too few words"),
        (
            ["The cat sat on the mat"] + [f"The {word} ran to the house" for word in WHO],
            "mlm+sop",
            "no text has two sentences",
        ),
        ([text(1), text(2), text(3)], "mlm+nsp", "expected at least 4"),
    ],
)
def test_texts_that_will_not_do_are_told_and_leave_nothing_behind(lines, objective, message, bert, tmp_path):
    (tmp_path / "a.txt").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    with pytest.raises(InputError, match=message):
        pretrain(
            tmp_path / "a.txt", tmp_path / "model", base=bert, config=dataclasses.replace(QUICK, objective=objective)
        )
    assert not (tmp_path / "model").exists()


def test_the_next_sentence_of_another_document_needs_two_documents_with_words(bert, tmp_path):
    (tmp_path / "a.txt").write_text(f"{text(1)}\nx\n", "utf-8")
    config = dataclasses.replace(QUICK, objective="mlm+nsp", held_out=0)
    with pytest.raises(InputError, match="expected two documents with words at least, to learn from"):
        pretrain(tmp_path / "a.txt", tmp_path / "model", base=bert, config=config)
    assert not (tmp_path / "model").exists()


def test_places_that_will_not_do_are_told(texts, bert, tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "full").mkdir()
    shutil.copy(tmp_path / "file", tmp_path / "full/notes.txt")
    with pytest.raises(InputError, match="file is a file: expected a folder for the model"):
        pretrain(texts, tmp_path / "file", base=bert, config=QUICK)
    with pytest.raises(InputError, match="full is not empty: give another folder for the model"):
        pretrain(texts, tmp_path / "full", base=bert, config=QUICK)
    with pytest.raises(InputError, match="give a base or a size to begin with from scratch, not both"):
        pretrain(texts, tmp_path / "new", base=bert, from_scratch="tiny", config=QUICK)
    with pytest.raises(InputError, match="there is no size 'huge': expected one of tiny"):
        pretrain(texts, tmp_path / "new", from_scratch="huge", config=QUICK)
    with pytest.raises(InputError, match="there is no file or folder"):
        pretrain(tmp_path / "gone", tmp_path / "new", base=bert, config=QUICK)
    assert not (tmp_path / "new").exists()


def test_an_unfinished_run_does_not_go_on_with_texts_that_changed(texts, bert, tmp_path):
    folder = tmp_path / "documents"
    folder.mkdir()
    shutil.copy(texts, folder / "texts.md")
    options = {"out": folder / "model", "base": bert, "config": QUICK}
    with pytest.raises(Killed):
        pretrain(folder, **options, progress=until(1))
    asked = json.loads((folder / "model/run/asked.json").read_text("utf-8"))
    assert [Path(path).name for path, *_ in asked["files"]] == ["texts.md"]  # and none of the run's own
    with pytest.raises(Killed):
        pretrain(folder, **options, progress=until(1))
    with (folder / "texts.md").open("a", encoding="utf-8") as file:
        file.write("The cat sat.")
    with pytest.raises(InputError, match="model holds an unfinished run on data that changed since then: remove it"):
        pretrain(folder, **options)


def test_an_unfinished_run_is_not_mixed_with_another(texts, bert, tmp_path):
    with pytest.raises(Killed):
        pretrain(texts, tmp_path / "model", base=bert, config=QUICK, progress=until(5))
    with pytest.raises(InputError, match="holds an unfinished run with other settings"):
        pretrain(texts, tmp_path / "model", base=bert, config=dataclasses.replace(QUICK, seed=3))
    assert last_checkpoint(tmp_path / "model/run/checkpoints").name == "checkpoint-4"
