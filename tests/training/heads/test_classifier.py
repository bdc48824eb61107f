"""Classifiers learn classes, labels and numbers, of texts and pairs; the probe needs no torch."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from binocle.core.errors import EncoderMismatchError, InputError, ModelNotFoundError
from binocle.retriever.models.heads.bag_of_words import BagOfWords
from binocle.retriever.models.heads.classifier import (
    TUNED_ENCODER,
    WORDS,
    Classifier,
    ClassifierSettings,
    load_classifier,
)
from binocle.retriever.models.heads.kernel import KernelWeights
from binocle.retriever.models.model_files import PROBE
from binocle.training.data.heads.examples import read_examples, read_passages
from binocle.training.evaluation.heads import label_metrics
from binocle.training.heads.classifiers import kernel_ridge
from binocle.training.heads.classifiers.contrastive import class_pairs
from binocle.training.heads.config import ClassifierConfig
from binocle.training.heads.train import train_classifier

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch and transformers about themselves

PETS, FOOD = "cat dog queen king".split(), "bread cheese salt butter".split()
FAST = ClassifierConfig(held_out=0.2)


def rows(task: str = "classes", *, pairs: bool = False) -> list[dict]:
    random = np.random.default_rng(0)
    examples = []
    for number in range(240):
        pet, food = PETS[random.integers(4)], FOOD[random.integers(4)]
        texts = [(f"the {pet} ran {number}", ["pet"]), (f"{food} in the oven {number}", ["food"])]
        if task == "labels":
            texts += [(f"{pet} and {food} {number}", ["food", "pet"]), (f"sun and moon {number}", [])]
        text, labels = texts[number % len(texts)]
        if pairs:
            other, second = texts[random.integers(2)]
            examples.append({"sentence1": text, "sentence2": other, "label": "same" if labels == second else "other"})
        elif task == "number":
            examples.append({"text": text, "score": 3.0 * (labels == ["pet"])})
        else:
            examples.append({"text": text, "label": labels if task == "labels" else labels[0]})
    return examples


@pytest.mark.parametrize("name", ["document_id", "Doc_ID", "group", "source_id"])
def test_rows_of_a_document_with_a_number_are_in_one_part(name):
    made = [row | {name: number // 12} for number, row in enumerate(rows())]
    examples = read_examples(made, "train", 0.2, 1_000, 0)
    learned, held_out = ({row.document for row in part} for part in (examples.learned, examples.held_out))
    assert learned | held_out == set(map(str, range(20))) and held_out and learned.isdisjoint(held_out)
    made[0][name] = float("nan")  # an empty cell of a column of numbers
    assert read_examples(made, "train", 0.0, 1_000, 0).learned[0].document == made[0]["text"]
    with pytest.raises(InputError, match=f"expected the name of a document in '{name}', but"):
        read_examples([made[1] | {name: {"id": 1}}], "train", 0.2, 1_000, 0)


def test_a_text_of_several_documents_is_not_in_both_parts():
    made = [{"text": f"Text {number % 30}", "label": "ab"[number % 2], "document_id": number} for number in range(60)]
    examples = read_examples(made, "train", 0.2, 1_000, 0)
    learned, held_out = ({row.text for row in part} for part in (examples.learned, examples.held_out))
    assert held_out and learned.isdisjoint(held_out)
    assert examples.left_out == 60 - len(examples.learned) - len(examples.held_out) > 0
    with pytest.raises(InputError, match="every row to learn from has the text of a held-out row"):
        read_examples([row | {"text": "one"} for row in made], "train", 0.2, 1_000, 0)


def test_pairs_with_the_same_first_text_are_in_one_part():
    made = [
        {"sentence1": f"premise {number}", "sentence2": f"hypothesis {number} {label}", "label": label}
        for number in range(30)
        for label in "abc"
    ]
    examples = read_examples(made, "train", 0.2, 1_000, 0)
    learned, held_out = ({row.text[0] for row in part} for part in (examples.learned, examples.held_out))
    assert (len(examples.held_out), len(held_out), examples.left_out) == (18, 6, 0) and learned.isdisjoint(held_out)


NAMES = [
    ({"text": "text", "label": "category"}, False),
    ({"text": "Content", "label": "class"}, False),
    ({"sentence1": "premise", "sentence2": "hypothesis", "label": "gold_label"}, True),
    ({"sentence1": "question1", "sentence2": "question2", "label": "is_duplicate"}, True),
]


@pytest.mark.parametrize(("names", "pairs"), NAMES)
def test_columns_of_rows_have_any_usual_name(names, pairs, tmp_path, tiny_model, run):
    made = rows(pairs=pairs)
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps({names[key]: value for key, value in row.items()}) + "\n" for row in made))
    assert read_examples(data, "train", 0.2, 1_000, 0) == read_examples(made, "train", 0.2, 1_000, 0)
    out = tmp_path / "out"
    assert run("train", "classifier", data, "--base", tiny_model, "--out", out).code == 0
    lines = run("classify", data, "--model", out).out.splitlines()
    assert len(lines) == len(made)
    if not pairs:
        assert f"{len(made)} rows, classes" in run("evaluate", data, "--model", out).out
    with data.open("a") as file:
        file.write(json.dumps(dict.fromkeys(names.values(), "-")) + "\n")
    shown = run("train", "classifier", data, "--base", tiny_model, "--out", tmp_path / "other")
    assert (shown.code, f"data.jsonl:{len(made) + 1}: label is '-': expected a name" in shown.err) == (2, True)


def test_rows_that_are_left_out_are_counted(tmp_path, tiny_model, run):
    data = tmp_path / "data.jsonl"
    made = [row | {"document_id": f"{number}-{copy}"} for number, row in enumerate(rows()) for copy in (0, 1)]
    data.write_text("".join(json.dumps(row) + "\n" for row in made), "utf-8")
    _, out, _ = run("train", "classifier", data, "--base", tiny_model, "--out", tmp_path / "out")
    assert re.search(r" held out, \d+ left out because they have the text of a held-out row", out)


def test_a_probe_learns_classes_and_says_how_sure_it_is(tmp_path, tiny_model):
    result = train_classifier(rows(), tmp_path / "out", base=tiny_model, config=FAST)
    measures = {measure.name: measure.value for measure in result.measures}
    assert measures["macro-F1"] > 0.9 and measures["accuracy"] > 0.9 and measures["calibration error"] < 0.2
    classifier = load_classifier(tmp_path / "out")
    pet, food = classifier.classify(["the dog ran 7", "cheese in the oven 7"])
    assert (pet.labels, food.labels) == (("pet",), ("food",))
    assert sum(pet.scores.values()) == pytest.approx(1) and list(pet.scores) == ["pet", "food"]
    assert pet.score == pet.scores["pet"] > 0.5
    assert classifier.fingerprint == result.fingerprint
    assert "# Classifier trained from" in (tmp_path / "out" / "README.md").read_text("utf-8")
    (kept,) = classifier.classify(["the dog ran 7"], precision=0.5)
    assert kept.labels == ("pet",)
    with pytest.raises(InputError, match="does not promise a precision of 1.5: the highest on held-out rows is"):
        classifier.settings.threshold(1.5)


@pytest.mark.parametrize(("task", "pairs"), [("labels", False), ("number", False), ("classes", True)])
def test_a_probe_learns_labels_numbers_and_pairs(tmp_path, tiny_model, task, pairs):
    result = train_classifier(rows(task, pairs=pairs), tmp_path / "out", base=tiny_model, config=FAST)
    assert result.measures[0].name == {"labels": "micro-F1", "number": "spearman", "classes": "macro-F1"}[task]
    assert result.measures[0].value > 0.7
    classifier = load_classifier(tmp_path / "out")
    if pairs:
        (both,) = classifier.classify([("the dog ran 7", "the dog ran 7")])
        assert both.labels == ("same",)
        with pytest.raises(InputError, match="reads pairs"):
            classifier.classify(["a text"])
        return
    pet, none = classifier.classify(["the dog ran 7", "sun and moon 7"])
    assert pet.labels == (("pet",) if task == "labels" else ())
    assert none.labels == () and (task == "labels" or pet.scores["score"] > 1.5)
    with pytest.raises(InputError, match="reads single texts"):
        classifier.classify([("a", "b")])
    with pytest.raises(InputError, match="one of several classes"):
        classifier.classify(["a"], precision=0.9)


def build_classifier(*, pairs: bool = False) -> Classifier:
    """A classifier that says the first of two classes for every text."""

    class Scorer:
        name = fingerprint = "stub"

        def logits(self, texts):
            return np.array([[1.0, 0.0]] * len(texts), np.float32).reshape(-1, 2)

    return Classifier(Scorer(), ClassifierSettings("classes", ("a", "b"), pairs=pairs, sure=((0.1, 0.9),)))


@pytest.mark.parametrize(
    ("texts", "pairs", "message"),
    [
        ("abc", False, "expected a list of texts, not 'abc'"),
        (None, False, "expected a list of texts, not None"),
        ([b"abc"], False, "this classifier reads single texts, but one of type bytes came"),
        ("ab", True, "expected a list of pairs of texts, not 'ab'"),
        (["ab"], True, "this classifier reads pairs of texts, but 'ab' is none"),
        ([(None, "a")], True, "this classifier reads pairs of texts, but \"(None, 'a')\" is none"),
    ],
)
def test_what_is_no_list_of_texts_is_refused(texts, pairs, message):
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        build_classifier(pairs=pairs).classify(texts)


@pytest.mark.parametrize("precision", [0, 1, -1, 1.5, "0.5", True, float("nan"), np.float32(1)])
def test_a_precision_that_is_no_share_is_refused(precision):
    message = f"precision is the promised share of right labels, above 0 and below 1, not {precision!r}"
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        build_classifier().classify(["a text"], precision=precision)
    assert build_classifier().classify(["a text"], precision=np.float32(0.5))[0].labels == ("a",)


def test_the_fit_of_a_probe_is_that_of_kernel_ridge_regression_and_its_penalty_the_best_left_out(monkeypatch):
    random = np.random.default_rng(0)
    vectors = random.normal(size=(30, 5)).astype(np.float32)
    numbers = (np.sin(vectors[:, :1]) + 0.1 * random.normal(size=(30, 1))).astype(np.float32)
    head = kernel_ridge.fit(vectors, numbers, "number")
    kernel_model = pytest.importorskip("sklearn.kernel_ridge")
    errors = {}
    for penalty in kernel_ridge._PENALTIES:
        model = kernel_model.KernelRidge(alpha=penalty, kernel="rbf", gamma=head.precision)
        centred = numbers - numbers.mean()
        left_out = [np.delete(np.arange(30), row) for row in range(30)]
        predictions = [
            model.fit(vectors[rest], centred[rest]).predict(vectors[[row]]) for row, rest in enumerate(left_out)
        ]
        errors[penalty] = np.square(np.ravel(predictions) - centred[:, 0]).sum()
    best = kernel_model.KernelRidge(alpha=min(errors, key=errors.get), kernel="rbf", gamma=head.precision)
    expected = best.fit(vectors, numbers - numbers.mean()).predict(vectors) + numbers.mean()
    np.testing.assert_allclose(head.logits(vectors), expected, atol=0.01)
    monkeypatch.setattr(kernel_ridge, "_LANDMARKS", 15)
    monkeypatch.setattr(kernel_ridge, "_BLOCK", 7)
    few = kernel_ridge.fit(vectors, numbers, "number")
    assert few.landmarks.shape == (15, 5) and np.square(few.logits(vectors) - expected).mean() < numbers.var() / 2


def test_numbers_of_numpy_are_settings_and_labels(tmp_path, tiny_model):
    config = ClassifierConfig(seed=np.int64(3), held_out=np.float32(0.25), steps=np.int32(7))
    train_classifier(rows(), tmp_path / "out", base=tiny_model, config=config)
    written = json.loads((tmp_path / "out" / "binocle.json").read_text("utf-8"))["config"]
    assert (written["seed"], written["held_out"], written["steps"]) == (3, 0.25, 7)
    for values in ((np.int64(0), np.int64(1)), (np.bool_(False), np.bool_(True))):
        made = [{"text": f"text {number}", "label": values[number % 2]} for number in range(4)]
        assert read_examples(made, "train", 0.0, 1, 0).labels == tuple(str(value).lower() for value in values)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"held_out": "0.1"}, "held out is a share from 0 to below 1, not '0.1'"),
        ({"epochs": "2"}, "epochs is a number above 0, not '2'"),
        ({"batch_size": True}, "batch size is a whole number above 0, not True"),
        ({"seed": "3"}, "seed is a whole number from 0, not '3'"),
        ({"seed": 1.5}, "seed is a whole number from 0, not 1.5"),
        ({"max_length": "64"}, "max length is in tokens, special ones included: at least 16, not '64'"),
    ],
)
def test_a_setting_that_is_no_number_is_refused(wrong, message):
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        ClassifierConfig(**wrong).check()


def test_the_largest_scores_give_finite_numbers():
    random = np.random.default_rng(0)
    vectors = random.normal(size=(60, 8)).astype(np.float32)
    numbers = np.float32(1e30) * np.array([[-1], [1]] * 30, np.float32)
    assert read_examples([{"text": "a", "score": 1e30}], "train", 0.0, 1, 0).learned[0].number == 1e30
    assert np.isfinite(kernel_ridge.fit(vectors, numbers, "number").logits(vectors)).all()


def test_a_fit_without_finite_weights_is_refused(tmp_path, tiny_model, monkeypatch):
    nothing = KernelWeights(np.full((2, 32), np.nan, np.float32), np.zeros(2, np.float32))
    monkeypatch.setattr("binocle.training.heads.classifiers.probe.fit", lambda *_: nothing)
    with pytest.raises(InputError, match="the fit gave no finite weights: expected finite vectors of"):
        train_classifier(rows(), tmp_path / "out", base=tiny_model, config=FAST)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_classifier_never_says_nan(number):
    message = "stub gives scores that are no finite numbers: train it again, or copy it again"
    with pytest.raises(InputError, match=message):
        build_classifier().predict(np.array([[0.0, number]], np.float32))


def test_a_probe_adds_the_words_of_a_text_where_the_vectors_do_not_tell():
    vectors = np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32)
    texts = [f"{'red' if row % 2 else 'blue'} and {row % 7}" for row in range(60)]
    targets = np.eye(2, dtype=np.float32)[np.arange(60) % 2]
    head = kernel_ridge.fit(vectors[:40], targets[:40], "classes", texts=texts[:40])
    assert (head.logits(vectors[40:], texts[40:]).argmax(1) == targets[40:].argmax(1)).all()
    alone = kernel_ridge.fit(vectors[:40], targets[:40], "classes")
    assert (alone.logits(vectors[40:]).argmax(1) == targets[40:].argmax(1)).mean() < 0.9
    assert np.isfinite(head.logits(vectors[:1], ["nothing known"])).all()


def test_few_examples_learn_shares_and_words_of_rows_without_labels():
    random = np.random.default_rng(0)
    classes = random.permutation(np.repeat([0, 1], [900, 100]))
    vectors = (random.normal(size=(1_000, 6)) + 0.8 * classes[:, None]).astype(np.float32)
    texts = [f"{random.choice(PETS if label else FOOD)} {random.integers(900)}" for label in classes]
    few = np.concatenate([np.flatnonzero(classes == label)[:8] for label in (0, 1)])
    rest = np.setdiff1d(np.arange(1_000), few)
    others, judged = rest[:500], rest[500:]
    targets, some = np.eye(2, dtype=np.float32)[classes[few]], [texts[row] for row in few]

    def right(**options):
        head = kernel_ridge.fit(vectors[few], targets, "classes", texts=some, **options)
        return (head.logits(vectors[judged], [texts[row] for row in judged]).argmax(1) == classes[judged]).mean()

    with_others = right(unlabelled=(vectors[others], [texts[row] for row in others]))
    assert with_others > max(right() + 0.02, 0.9)
    assert right(unlabelled=(vectors[:0], [])) == right()


def unreadable():
    raise PermissionError("more.jsonl")
    yield


def test_a_probe_reads_texts_without_labels(tmp_path, tiny_model):
    file = tmp_path / "more.jsonl"
    file.write_text("".join(json.dumps({"text": f"the {pet} ran {pet}"}) + "\n" for pet in PETS))
    result = train_classifier(rows()[:40], tmp_path / "out", base=tiny_model, config=FAST, unlabelled=file)
    assert result.rows["unlabelled"] == len(PETS) and result.measures[0].value > 0.7
    assert json.loads((tmp_path / "out" / "binocle.json").read_text())["data"]["unlabelled"] == len(PETS)
    with pytest.raises(InputError, match=r"row 1: text is '': expected a text|row 1: text is 'None'"):
        train_classifier(rows()[:40], tmp_path / "other", base=tiny_model, config=FAST, unlabelled=[{"label": "pet"}])
    with pytest.raises(InputError, match="the data without labels are empty: expected texts"):
        train_classifier(rows()[:40], tmp_path / "other", base=tiny_model, config=FAST, unlabelled=[])
    with pytest.raises(PermissionError):
        train_classifier(rows()[:40], tmp_path / "other", base=tiny_model, config=FAST, unlabelled=unreadable())
    assert not (tmp_path / "other").exists()
    with pytest.raises(InputError, match="an index has texts without labels itself"):
        train_classifier(tmp_path, tmp_path / "other", label="kind", unlabelled=file)
    for data, config in ((rows()[:40], replace(FAST, fine_tune=True)), (rows("number"), FAST)):
        with pytest.raises(InputError, match="texts without labels help a probe of classes alone: leave them out"):
            train_classifier(data, tmp_path / "other", base=tiny_model, config=config, unlabelled=file)


def test_shares_of_classes_are_found_in_rows_of_other_shares():
    random = np.random.default_rng(0)
    classes = np.repeat([0, 1], [1_800, 200])
    likelihood_ratio = 2 * random.normal(size=2_000) + np.where(classes == 0, 2, -2)  # of two Gaussians, in logits
    logits = np.stack([likelihood_ratio, np.zeros(2_000)], 1).astype(np.float32)
    logits = np.append(logits, np.full((2_000, 1), 1.0, np.float32), 1)  # a class without rows
    likely = kernel_ridge._soft_labels(logits, np.array([0.5, 0.5, 0], np.float32))
    assert not likely[:, 2].any()
    np.testing.assert_allclose(likely.sum(1), 1, atol=1e-5)
    assert 0.75 < likely[:, 0].mean() < 0.9  # between those of the fit and their own
    assert (likely.argmax(1) == classes).mean() > (logits[:, :2].argmax(1) == classes).mean()


def test_the_words_of_a_probe_weigh_as_scikit_learn_weighs_them():
    extraction = pytest.importorskip("sklearn.feature_extraction.text")
    texts = ["the cat and the dog", "a cat", "the dog and a king", "bread"]
    reference = extraction.TfidfVectorizer(sublinear_tf=True, min_df=2, token_pattern=r"\w+")
    expected = reference.fit_transform(texts).toarray()
    bag = BagOfWords.of(texts)
    assert sorted(bag.columns) == reference.get_feature_names_out().tolist() and "bread" not in bag.columns
    columns = [bag.columns[name] for name in reference.get_feature_names_out()]
    np.testing.assert_allclose(bag.rows(texts)[:, columns], expected, atol=1e-6)


@pytest.mark.parametrize("names", [["a", "\ud800"], ["a", "a"], ["a", 1], {"a": 1}, [str(n) for n in range(8_001)]])
def test_words_of_a_probe_that_cannot_be_its_own_are_refused(names, tmp_path):
    (tmp_path / "words.json").write_text(json.dumps(names))
    with pytest.raises(InputError, match="has other words than the probe: copy the folder again"):
        BagOfWords.read(tmp_path / "words.json", np.ones(len(names), np.float32))


def test_a_probe_survives_rows_that_are_there_twice_and_finds_rare_classes():
    random = np.random.default_rng(0)
    centres = random.normal(size=(3, 8))
    classes = np.repeat([0, 1, 2], [300, 90, 10])
    vectors = (centres[classes] + 0.9 * random.normal(size=(400, 8))).astype(np.float32)
    vectors, classes = np.concatenate([vectors, vectors[:50]]), np.concatenate([classes, classes[:50]])
    targets = np.eye(3, dtype=np.float32)[classes]
    predicted = kernel_ridge.fit(vectors, targets, "classes").logits(vectors).argmax(1)
    assert (predicted == classes).mean() > 0.9 and (predicted[classes == 2] == 2).mean() >= 0.5
    one = kernel_ridge.fit(vectors[:1].repeat(4, 0), targets[:4], "classes")
    assert np.isfinite(one.logits(vectors)).all()


def test_a_probe_tells_classes_apart_whose_texts_are_all_alike():
    """In float32 the rounding of the sums outweighed their differences: 84 % of these rows were right."""
    random = np.random.default_rng(0)
    classes = random.integers(0, 60, 1_000)
    vectors = 2 + random.normal(size=(60, 8))[classes] + 0.1 * random.normal(size=(1_000, 8))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    head = kernel_ridge.fit(vectors[:500], np.eye(60, dtype=np.float32)[classes[:500]], "classes")
    assert (head.logits(vectors[500:]).argmax(1) == classes[500:]).mean() > 0.98


def test_measures_are_those_of_scikit_learn_on_random_predictions():
    metrics = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(0)
    for _ in range(100):
        count, size = random.integers(1, 30), random.integers(2, 6)
        predicted, true = random.integers(0, size, (2, count))
        assert label_metrics.macro_f1(predicted, true) == pytest.approx(
            metrics.f1_score(true, predicted, average="macro", zero_division=0), abs=1e-9
        )
        sets = random.random((2, count, size)) < 0.4
        sets[:, 0, 0] = True
        assert label_metrics.micro_f1(*sets) == pytest.approx(
            metrics.f1_score(sets[1], sets[0], average="micro"), abs=1e-9
        )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([{"text": "a", "topic": "b"}], "row 1 has the columns text, topic: expected text"),
        ([{"text": "a", "label": "b"}, {"text": "c", "label": None}], "row 2: label is 'None': expected a name"),
        ([{"text": "a", "label": "b"}, {"text": " ", "label": "c"}], "row 2: text is ' ': expected a text"),
        ([{"text": "a", "label": "b"}, {"text": "b", "label": "b"}], "have 1 different label: expected 2"),
        ([{"text": "a", "score": "x"}], "row 1: score is 'x': expected a finite number"),
        ([{"text": "a", "score": -3e38}], "row 1: score is '-3e.38': expected a finite number, up to 1e.30 in size"),
        ([{"text": "a", "label": ["x"]}, {"text": "a", "label": [3.5]}], "row 2: label is '3.5'"),
    ],
)
def test_wrong_rows_are_named_and_leave_nothing(tmp_path, tiny_model, data, message):
    with pytest.raises(InputError, match=message):
        train_classifier(data, tmp_path / "out", base=tiny_model)
    assert not (tmp_path / "out").exists()


def test_a_damaged_probe_or_another_encoder_is_refused(tmp_path, tiny_model, make_model):
    train_classifier(rows(), tmp_path / "out", base=tiny_model, config=FAST)
    file = tmp_path / "out" / "binocle.json"
    good = json.loads(file.read_text("utf-8"))
    other = str(make_model(tmp_path / "other", seed=5))
    for change, error, message in (
        ({"encoder": other}, EncoderMismatchError, ""),
        ({"labels": ["a"]}, InputError, ""),
        ({"labels": [3]}, InputError, r"in 'classifier': labels is \(3,\), expected a list of names; copy"),
        ({"task": "magic"}, InputError, "task is 'magic', expected one of classes, labels, number; copy"),
        ({"temperature": 0}, InputError, "temperature is 0, expected a number above 0; copy"),
        ({"length": 7.5}, InputError, "length is 7.5, expected a whole number of tokens from 3; copy"),
        ({"encoder": 3}, InputError, "encoder is 3, expected a text; copy"),
        ({"sure": [1]}, InputError, "does not describe a classifier"),
    ):
        file.write_text(json.dumps({"classifier": good["classifier"] | change}), "utf-8")
        with pytest.raises(error, match=message):
            load_classifier(tmp_path / "out")
    file.write_text(json.dumps(good), "utf-8")
    words = tmp_path / "out" / WORDS
    kept = json.loads(words.read_text("utf-8"))
    for wrong in (kept[:-1], [*kept[:-1], 3], [*kept[:-1], kept[0]], {}):
        words.write_text(json.dumps(wrong), "utf-8")
        with pytest.raises(InputError, match="has other words than the probe"):
            load_classifier(tmp_path / "out")
    words.unlink()
    with pytest.raises(InputError, match="has other words than the probe"):
        load_classifier(tmp_path / "out")
    with pytest.raises(InputError, match="no classifier"):
        load_classifier(tiny_model)


def test_the_probe_and_classify_import_no_torch(tmp_path, tiny_model):
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows()), "utf-8")
    program = f"""
import sys
sys.modules["torch"] = sys.modules["transformers"] = None
sys.argv = ["binocle", "train", "classifier", {str(data)!r}, "--base", {tiny_model!r}, "--out", {str(tmp_path / "out")!r}]
from binocle.cli import main
main()
"""
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    assert (tmp_path / "out" / PROBE).is_file()


def test_classify_prints_labels_for_lines_and_rows(tmp_path, tiny_model, run):
    train_classifier(rows(), tmp_path / "out", base=tiny_model, config=FAST)
    model = ("--model", tmp_path / "out")
    shown = run("classify", "-", *model, stdin=b"the dog ran 7\n\ncheese in the oven 7\n")
    assert [line.split()[1] for line in shown.out.splitlines()] == ["pet", "food"]
    (tmp_path / "new.jsonl").write_text('{"text": "the king ran"}\n', "utf-8")
    (row,) = run("classify", tmp_path / "new.jsonl", *model, "--json").rows
    assert (row["text"], row["labels"], set(row["scores"])) == ("the king ran", ["pet"], {"pet", "food"})
    (tmp_path / "bad.jsonl").write_text('{"words": "the king ran"}\n', "utf-8")
    assert "has no text: expected a column text" in run("classify", tmp_path / "bad.jsonl", *model).err
    assert "--steps goes with --fine-tune" in run("train", "classifier", "x.csv", "--out", "y", "--steps", "3").err


def test_standard_input_is_read_as_the_same_file(tmp_path, tiny_model, run):
    train_classifier(rows(), tmp_path / "out", base=tiny_model, config=FAST)
    file, model = tmp_path / "new.txt", ("--model", tmp_path / "out", "--json")
    data = "\ufeffthe dog\u2028ran\x857\r\n \ncheese in the oven\r\n".encode()
    file.write_bytes(data)
    piped = run("classify", "-", *model, stdin=data)
    assert [row["text"] for row in piped.rows] == ["the dog\u2028ran\x857", "cheese in the oven"]
    assert piped.out == run("classify", file, *model).out
    file.write_bytes(b"dog\n\xff\n")
    refused = run("classify", "-", *model, stdin=file.read_bytes())
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == "binocle: standard input:2 is not UTF-8 (invalid start byte): save it as UTF-8\n"
    assert run("classify", file, *model).err == refused.err.replace("standard input", str(file))
    refused = run("classify", tmp_path, *model)
    assert refused.code == 2 and refused.err.startswith(f"binocle: {tmp_path} is a folder: expected a file with one")


def test_an_index_gives_its_vectors_and_the_metadata_of_its_documents(tmp_path, tiny_model, monkeypatch):
    from binocle import Retriever
    from binocle.training.heads.classifiers import probe

    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    documents = [
        {"id": f"{n}", "text": row["text"], "metadata": {"kind": row["label"]}} for n, row in enumerate(rows())
    ]
    retriever.add([*documents, {"id": "none", "text": "the moon"}])
    monkeypatch.setattr(probe, "features", None)  # nothing is encoded
    result = train_classifier(tmp_path / "index", tmp_path / "out", label="kind", config=FAST)
    monkeypatch.undo()
    assert result.rows.pop("unlabelled") == 1  # the moon
    assert sum(result.rows.values()) == 240 and result.measures[0].value > 0.9
    assert load_classifier(tmp_path / "out").classify(["the dog ran 7"])[0].labels == ("pet",)
    with pytest.raises(InputError, match="no document of .* has the key 'colour'"):
        train_classifier(tmp_path / "index", tmp_path / "other", label="colour")
    with pytest.raises(InputError, match="expected the folder of one as data"):
        train_classifier([], tmp_path / "other", label="kind")


@pytest.mark.parametrize("first", [True, False])
def test_a_document_whose_list_of_labels_is_empty_has_none_where_others_have_a_class(first, tmp_path, tiny_model):
    from binocle import Retriever

    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    documents = [{"id": f"{n}", "text": f"the cat {n}", "metadata": {"kind": "ab"[n % 2]}} for n in range(6)]
    empty = [{"id": "empty", "text": "the moon", "metadata": {"kind": []}}]
    retriever.add(empty + documents if first else documents + empty)
    examples = read_passages(retriever, "kind", 0.1, 100, 0)
    assert (examples.task, examples.labels) == ("classes", ("a", "b"))
    assert [one.text for one in examples.unlabelled] == ["the moon"]
    retriever.add([{"id": f"{n}", "text": f"the cat {n}", "metadata": {"kind": ["a", "b"][: n % 3]}} for n in range(6)])
    examples = read_passages(retriever, "kind", 0.1, 100, 0)
    assert examples.task == "labels" and len(examples.learned + examples.held_out) == 7
    retriever.add([{"id": "9", "text": "the dog", "metadata": {"kind": "a"}}])
    with pytest.raises(InputError, match="label is .*: expected a name or a whole number as before"):
        read_passages(retriever, "kind", 0.1, 100, 0)


FINE_TUNE = ClassifierConfig(
    fine_tune=True, steps=30, learning_rate=3e-3, held_out=0.2, evaluations=1, max_length=32, bf16=False
)


def test_fine_tuning_keeps_a_probe_on_the_trained_encoder_and_is_compared_with_one_on_the_base(tmp_path, tiny_model):
    pytest.importorskip("accelerate")
    from binocle.retriever.models.load import load_encoder

    result = train_classifier(rows(), tmp_path / "out", base=tiny_model, config=FINE_TUNE)
    assert result.measures[0].value > 0.9
    assert re.fullmatch(
        r"kept a probe on the trained encoder, with macro-F1 [01]\.\d{4}; its own head has [01]\.\d{4}", result.notes[0]
    )
    assert "the probe is enough" in result.notes[1] or "worth it" in result.notes[1]
    (tmp_path / "out").rename(tmp_path / "moved")
    classifier = load_classifier(tmp_path / "moved")
    assert classifier.fingerprint == result.fingerprint and classifier.settings.encoder == TUNED_ENCODER
    texts = ["the dog ran 7", "cheese in the oven 7"]
    assert [one.labels for one in classifier.classify(texts)] == [("pet",), ("food",)]
    encoder = load_encoder(tmp_path / "moved" / TUNED_ENCODER)
    assert encoder.max_tokens == FINE_TUNE.max_length - 2  # without special tokens
    assert not np.allclose(encoder.encode(texts), load_encoder(tiny_model).encode(texts), atol=0.1)
    assert "then ridge regression" in (tmp_path / "moved" / "README.md").read_text("utf-8")


@pytest.mark.thorough
def test_fine_tuning_keeps_the_head_if_that_is_right_more_often(tmp_path, tiny_model, monkeypatch):
    pytest.importorskip("accelerate")
    from transformers import AutoModelForSequenceClassification

    from binocle.retriever.models.heads.bert_head import BertHead
    from binocle.training.heads.classifiers import fine_tuning

    fit = fine_tuning.Probe.fit

    def wrong(*arguments: Any, **options: Any) -> Any:
        probe = fit(*arguments, **options)
        return replace(probe, held_out_logits=-probe.held_out_logits)

    monkeypatch.setattr(fine_tuning.Probe, "fit", wrong)
    result = train_classifier(rows(), tmp_path / "out", base=tiny_model, config=FINE_TUNE)
    assert result.notes[0].startswith("kept its own head, with macro-F1 ")
    assert not (tmp_path / "out" / TUNED_ENCODER).exists()
    classifier = load_classifier(tmp_path / "out")
    assert classifier.fingerprint == result.fingerprint
    scorer: Any = classifier.scorer
    assert isinstance(scorer._head, BertHead)
    texts = ["the dog ran 7", "cheese in the oven 7"]
    assert [one.labels for one in classifier.classify(texts)] == [("pet",), ("food",)]
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").eval()
    import torch

    from binocle.retriever.models.heads.torch_head import inputs

    with torch.no_grad():
        expected = model(**inputs(model, scorer.encodings(texts))).logits
    np.testing.assert_allclose(scorer.logits(texts), expected, atol=1e-4)
    many = scorer.logits(texts * 100)  # by the compiled graph; its last layer computes the first token alone
    np.testing.assert_allclose(many, np.tile(expected, (100, 1)), atol=1e-4)


CONTRASTIVE = ClassifierConfig(contrastive=True, held_out=0.4, bf16=False)


@pytest.fixture(scope="module")
def contrastive(tmp_path_factory, tiny_model):
    """The folder and the result of a classifier with an encoder tuned on few rows."""
    pytest.importorskip("accelerate")
    folder = tmp_path_factory.mktemp("contrastive") / "out"
    return folder, train_classifier(rows()[:40], folder, base=tiny_model, config=CONTRASTIVE)


@pytest.mark.thorough
def test_contrastive_training_moves_classes_apart_and_is_compared_with_a_probe(contrastive, tiny_model):
    from binocle.retriever.models.load import load_encoder

    folder, result = contrastive
    assert result.loop.steps == 60 and result.measures[0].value > 0.9
    assert "contrastive training was worth it" in result.notes[0] or "do not tell which is better" in result.notes[0]
    texts = [f"the {pet} ran {number}" for number, pet in enumerate(PETS, 300)]
    texts += [f"{food} in the oven {number}" for number, food in enumerate(FOOD, 300)]
    contrasts = []
    for encoder in (load_encoder(tiny_model), load_encoder(folder / TUNED_ENCODER)):
        cosines = (vectors := encoder.encode(texts)) @ vectors.T
        contrasts.append(cosines[:4, :4].mean() - cosines[:4, 4:].mean())
    assert contrasts[1] > contrasts[0] + 0.1
    assert "arXiv:2209.11055" in (folder / "README.md").read_text("utf-8")


def test_a_moved_folder_of_a_classifier_keeps_its_tuned_encoder(contrastive, tmp_path):
    folder, result = contrastive
    shutil.copytree(folder, tmp_path / "moved")
    classifier = load_classifier(tmp_path / "moved")
    assert classifier.fingerprint == result.fingerprint and classifier.settings.encoder == TUNED_ENCODER
    assert [one.labels for one in classifier.classify(["the dog ran 7", "cheese in the oven 7"])] == [
        ("pet",),
        ("food",),
    ]
    shutil.rmtree(tmp_path / "moved" / TUNED_ENCODER)
    with pytest.raises(ModelNotFoundError, match="no model folder at '.*/moved/encoder'"):
        load_classifier(tmp_path / "moved")


@pytest.mark.thorough
def test_a_killed_contrastive_training_goes_on_to_the_same_classifier(contrastive, tmp_path, tiny_model, monkeypatch):
    from binocle.training.heads.classifiers import contrastive as module

    train, calls = module.train_encoder, []

    def counted(*arguments, **options):
        calls.append(train(*arguments, **options))

    def killed(*_: object, **__: object):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "train_encoder", counted)
    for _ in range(2):  # after the encoder
        with monkeypatch.context() as patch:
            patch.setattr("binocle.training.heads.classifiers.probe.Probe.write", killed)
            with pytest.raises(KeyboardInterrupt):
                train_classifier(rows()[:40], tmp_path / "out", base=tiny_model, config=CONTRASTIVE)
    result = train_classifier(rows()[:40], tmp_path / "out", base=tiny_model, config=CONTRASTIVE)
    assert len(calls) == 1 and result.fingerprint == contrastive[1].fingerprint


@pytest.mark.thorough
def test_a_base_that_cannot_be_tuned_is_refused_and_another_one_taken(contrastive, tmp_path, tiny_model, tiny):
    from binocle.retriever.models.encoders.adapted_encoder import save_adapted_encoder

    save_adapted_encoder(tmp_path / "adapted", tiny, np.eye(tiny.dim, dtype=np.float32))
    with pytest.raises(InputError, match="adapted"):
        train_classifier(rows()[:40], tmp_path / "out", base=str(tmp_path / "adapted"), config=CONTRASTIVE)
    result = train_classifier(rows()[:40], tmp_path / "out", base=tiny_model, config=CONTRASTIVE)
    assert result.fingerprint == contrastive[1].fingerprint


def test_pairs_are_of_different_texts_of_one_class_and_of_each_class_alike():
    data = [
        {"text": f"{name} {n}", "label": name} for name, count in (("a", 8), ("b", 30), ("c", 2)) for n in range(count)
    ]
    data += [{"text": "alone", "label": "d"}, {"text": "A  0", "label": "a"}]  # the same text as "a 0"
    pairs = class_pairs(read_examples(data, "train", 0.0, 0, 0), 0)
    labels = [pair["document_id"] for pair in pairs]
    assert {label: labels.count(label) for label in labels} == {"a": 60, "b": 60, "c": 60}
    assert all(pair["query"][0].lower() == pair["positive"][0].lower() == pair["document_id"] for pair in pairs)
    assert all(pair["query"] != pair["positive"] for pair in pairs)
    assert len({pair["query"] for pair in pairs}) == 8 + 30 + 2


@pytest.mark.parametrize(
    ("data", "config", "message"),
    [
        (rows("labels")[:40], CONTRASTIVE, "takes single texts, each of one class: leave it out"),
        (rows(pairs=True)[:40], CONTRASTIVE, "takes single texts, each of one class: leave it out"),
        (
            [{"text": text, "label": text[0]} for text in ("a", "ab", "b")],
            replace(CONTRASTIVE, held_out=0),
            "1 of 2 have",
        ),
        (rows()[:40], replace(CONTRASTIVE, fine_tune=True), "are two ways: choose one"),
    ],
)
def test_contrastive_training_refuses_what_it_cannot_learn_from(tmp_path, tiny_model, data, config, message):
    pytest.importorskip("accelerate")
    with pytest.raises(InputError, match=message):
        train_classifier(data, tmp_path / "out", base=tiny_model, config=config)
    assert not (tmp_path / "out").exists()
