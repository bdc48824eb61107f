"""A masked language model that another one teaches: its losses by hand, its start, its runs."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from safetensors.torch import load_file
from torch.nn.functional import cosine_similarity

from binocle.core.errors import InputError
from binocle.training.encoders.base_model import keep_spread_layers, set_dropout
from binocle.training.pretraining.config import PretrainingConfig
from binocle.training.pretraining.data.masking import IGNORED
from binocle.training.pretraining.learner import MaskedLearner
from binocle.training.pretraining.masked_model import MaskedModel, load
from binocle.training.pretraining.pretrain import pretrain
from binocle.training.pretraining.teacher import MaskedTeacher, combined, distances, divergences

QUICK = PretrainingConfig(
    steps=6, batch_size=8, max_length=32, learning_rate=3e-3, evaluations=3, bf16=False, held_out=0.2
)


@pytest.fixture(scope="session")
def texts(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("taught") / "texts.txt"
    file.write_text("".join(f"The cat sat on mat {n}. The dog ran to city {n % 7}.\n" for n in range(40)), "utf-8")
    return file


@pytest.fixture(scope="session")
def deep(tmp_path_factory, masked_models) -> str:
    """A teacher of four layers with the tokens of `masked_models`."""
    folder = tmp_path_factory.mktemp("deep") / "model"
    first = load(str(masked_models["bert"]))
    torch.manual_seed(5)
    config = first.model.config
    config.num_hidden_layers = 4
    transformers.BertForMaskedLM(config).save_pretrained(folder)
    first.tokenizer.save_pretrained(folder)
    return str(folder)


def test_losses_are_those_computed_by_hand():
    def soft(*logits: float) -> list[float]:  # at a temperature of 2
        powers = [math.exp(logit / 2) for logit in logits]
        return [power / sum(powers) for power in powers]

    ours, theirs = soft(1, 3), soft(2, 0)
    expected = 4 * sum(p * math.log(p / q) for p, q in zip(theirs, ours, strict=True))
    student, teacher = torch.tensor([[1.0, 3.0], [2.0, 0.0]]), torch.tensor([[2.0, 0.0], [4.0, 2.0]])
    torch.testing.assert_close(divergences(student, teacher), torch.tensor([expected, 0.0]))
    states = torch.tensor([[3.0, 4.0], [1.0, 0.0]]), torch.tensor([[4.0, 3.0], [-2.0, 0.0]])
    torch.testing.assert_close(distances(*states), torch.tensor([1 - 24 / 25, 2.0]))
    tokens, guesses, angles = torch.tensor(3.0), torch.tensor(0.5), torch.tensor(0.25)
    assert combined(tokens, guesses, angles).item() == pytest.approx((5 * 0.5 + 2 * 3 + 0.25) / 8)
    assert combined(tokens, guesses, None).item() == pytest.approx((5 * 0.5 + 2 * 3) / 7)


def batch() -> dict:
    torch.manual_seed(0)
    ids = torch.randint(5, 200, (3, 20))
    attention = torch.ones_like(ids)
    attention[1, 15:] = 0
    labels = torch.where((torch.rand(3, 20) < 0.2) & (attention > 0), ids, IGNORED)
    return {"input_ids": ids, "attention_mask": attention, "labels": labels}


def test_a_student_is_compared_with_its_teachers_own_logits_and_states(masked_models, deep):
    student, teacher = load(str(masked_models["bert"])), load(deep)
    set_dropout(student.model, 0.0)
    inputs = batch()
    learner = MaskedLearner(student.model, pairs=False, teacher=MaskedTeacher(teacher)).train()
    outputs = learner(**inputs)
    hidden, text = inputs["labels"] != IGNORED, inputs["attention_mask"].bool()
    plain = {name: tensor for name, tensor in inputs.items() if name != "labels"}
    with torch.no_grad():
        ours, theirs = (masked.model(**plain, output_hidden_states=True) for masked in (student, teacher))
    torch.testing.assert_close(outputs["guesses"], divergences(ours.logits[hidden], theirs.logits[hidden]))
    cosines = cosine_similarity(ours.hidden_states[-1][text], theirs.hidden_states[-1][text], dim=1)
    torch.testing.assert_close(outputs["states"], 1 - cosines)
    combined(outputs["tokens"].mean(), outputs["guesses"].mean(), outputs["states"].mean()).backward()
    assert student.model.get_input_embeddings().weight.grad.abs().sum() > 0
    assert all(parameter.grad is None for parameter in teacher.model.parameters())
    assert not any(parameter is own for parameter in learner.parameters() for own in teacher.model.parameters())
    assert set(learner.eval()(**inputs)) == {"tokens", "pairs"}


def test_a_student_like_its_teacher_has_nothing_to_learn_from_it(deep):
    student, teacher = load(deep), load(deep)
    set_dropout(student.model, 0.0)
    outputs = MaskedLearner(student.model, pairs=False, teacher=MaskedTeacher(teacher)).train()(**batch())
    torch.testing.assert_close(outputs["guesses"], torch.zeros_like(outputs["guesses"]), atol=1e-5, rtol=0)
    torch.testing.assert_close(outputs["states"], torch.zeros_like(outputs["states"]), atol=1e-5, rtol=0)


@pytest.mark.parametrize(("layers", "kept"), [(1, [3]), (2, [0, 3]), (3, [0, 2, 3])])
def test_a_student_starts_with_layers_of_the_teacher(layers, kept, deep):
    student, teacher = load(deep).model, load(deep).model
    keep_spread_layers("deep", student, layers)
    assert student.config.num_hidden_layers == layers
    for ours, number in zip(student.bert.encoder.layer, kept, strict=True):
        theirs = teacher.bert.encoder.layer[number].state_dict()
        assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.state_dict().items())


def test_six_of_twelve_layers_are_those_of_distilbert():
    config = transformers.BertConfig(
        vocab_size=9, hidden_size=8, num_hidden_layers=12, num_attention_heads=1, intermediate_size=8
    )
    model = transformers.BertModel(config)
    layers = list(model.encoder.layer)
    keep_spread_layers("bert", model, 6)
    assert [layers.index(layer) for layer in model.encoder.layer] == [0, 2, 4, 7, 9, 11]


@pytest.fixture(scope="session")
def taught(texts, deep, tmp_path_factory):
    return pretrain(texts, tmp_path_factory.mktemp("taught") / "model", teacher=deep, layers=2, config=QUICK)


def weights(result) -> dict:
    return load_file(f"{result.folder}/model.safetensors")


def test_a_taught_model_learns_and_is_an_ordinary_folder(taught, deep):
    assert taught.after.value < taught.before.value
    assert (taught.base, taught.new_head) == (deep, False)
    model = transformers.AutoModelForMaskedLM.from_pretrained(taught.folder)
    assert model.config.num_hidden_layers == 2
    card = json.loads(Path(taught.folder, "binocle.json").read_text("utf-8"))
    assert card["objective"].endswith(f", taught by {deep} (arXiv:1910.01108)")
    assert [measure["when"] for measure in card["measures"]] == ["before", "after"]


class Killed(Exception):  # noqa: N818
    pass


def test_a_taught_run_that_was_stopped_ends_as_if_it_never_was(taught, texts, deep, tmp_path):
    def stop(event) -> None:
        if event.stage == "training" and event.done == 5:
            raise Killed

    with pytest.raises(Killed):
        pretrain(texts, tmp_path / "model", teacher=deep, layers=2, config=QUICK, progress=stop)
    with pytest.raises(InputError, match="holds an unfinished run with other settings"):
        pretrain(texts, tmp_path / "model", teacher=deep, layers=1, config=QUICK)
    again = pretrain(texts, tmp_path / "model", teacher=deep, layers=2, config=QUICK)
    assert again.resumed_from == 4
    assert all(torch.equal(tensor, weights(taught)[name]) for name, tensor in weights(again).items())
    assert (again.before, again.after) == (taught.before, taught.after)


def test_the_teacher_changes_the_weights_whatever_the_start(texts, deep, masked_models, tmp_path):
    base, config = str(masked_models["bert"]), dataclasses.replace(QUICK, steps=2)
    alone = pretrain(texts, tmp_path / "alone", base=base, config=config)
    with_teacher = pretrain(texts, tmp_path / "taught", base=base, teacher=deep, config=config)
    assert any(not torch.equal(tensor, weights(alone)[name]) for name, tensor in weights(with_teacher).items())


def test_batches_of_a_taught_step_weigh_as_one_batch(texts, deep, tmp_path):
    config = dataclasses.replace(QUICK, steps=1, batch_size=64, weight_decay=0.0, warmup=0.0, held_out=0.0)
    parts = dataclasses.replace(config, batch_size=20, accumulate=2)
    first, second = (
        weights(pretrain(texts, tmp_path / name, teacher=deep, layers=2, config=way))
        for name, way in (("one", config), ("two", parts))
    )
    # Adam's first step is the sign of the gradient: where that is all but zero it may differ.
    agree = [float(((first[name] - second[name]).abs() < 1e-4).float().mean()) for name in first]
    assert sum(agree) / len(agree) > 0.95


def test_a_student_from_scratch_has_the_teachers_tokens_and_another_width(texts, deep, tmp_path):
    result = pretrain(texts, tmp_path / "model", teacher=deep, from_scratch="tiny", config=QUICK)
    student, teacher = load(result.folder), load(deep)
    assert student.model.config.hidden_size == 128 != teacher.model.config.hidden_size
    assert student.tokenizer.get_vocab() == teacher.tokenizer.get_vocab()
    assert result.after.value < result.before.value


def test_a_teacher_that_will_not_do_is_told(texts, deep, masked_models, tiny_model, tmp_path):
    def message(**options) -> str:
        with pytest.raises(InputError) as caught:
            pretrain(texts, tmp_path / "model", config=options.pop("config", QUICK), **options)
        assert not (tmp_path / "model").exists()
        return str(caught.value)

    assert "has no student: give the number of its layers to keep, a base, or a size" in message(teacher=deep)
    assert "layers are those of a teacher to start with: name the teacher" in message(layers=2)
    assert "are one start and tiny is another" in message(teacher=deep, layers=2, from_scratch="tiny")
    assert "layers are a whole number from 1, not 0" in message(teacher=deep, layers=0)
    assert "has 4 layers: a student of 4 would not be smaller" in message(teacher=deep, layers=4)
    assert "has no head for masked words" in message(teacher=tiny_model, layers=1)
    roberta = str(masked_models["roberta"])
    assert f"the teacher {roberta} has another vocabulary than {deep}" in message(teacher=roberta, base=deep)
    longer = dataclasses.replace(QUICK, max_length=65)
    assert "max length is 65 tokens, but" in message(teacher=deep, layers=2, config=longer)


def test_a_teacher_without_token_types_gets_none(deep, masked_models):
    config = transformers.DistilBertConfig(vocab_size=800, dim=32, n_layers=2, n_heads=4, hidden_dim=64)
    teacher = MaskedTeacher(MaskedModel(transformers.DistilBertForMaskedLM(config), load(deep).tokenizer))
    student = load(str(masked_models["bert"])).model
    inputs = batch() | {"token_type_ids": torch.zeros(3, 20, dtype=torch.long)}
    outputs = MaskedLearner(student, pairs=True, teacher=teacher).train()(**inputs)
    assert outputs["guesses"].shape == outputs["tokens"].shape
    assert outputs["pairs"].shape == (3, 2)
