"""Taggers learn names and are served without torch."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from binocle.core.errors import InputError
from binocle.retriever.models.heads.tagger import Tagger, load_tagger

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch and transformers about themselves


def test_the_scores_of_steps_are_frequencies():
    pytest.importorskip("torch")
    from binocle.training.heads.crf import log_transitions

    table = np.exp(
        log_transitions([([0, 1, 1], np.array([0, 0, 1])), ([0], np.array([0])), ([], np.array([], int))], 2)
    )
    np.testing.assert_allclose(table[0], [[0.5 / 2, 1.5 / 2], [0.5, 0.5], [2.5 / 3, 0.5 / 3]], atol=1e-6)
    np.testing.assert_allclose(table[1], [[0.5, 0.5], [0.5 / 2, 1.5 / 2], [0.5, 0.5]], atol=1e-6)


@pytest.fixture(scope="session")
def trained(made_once, tiny_model):
    """A tagger of pets, which are two words: a colour and an animal."""
    pytest.importorskip("torch")
    pytest.importorskip("accelerate")
    from binocle.training.heads.config import HeadConfig
    from binocle.training.heads.train import train_tagger

    random = np.random.default_rng(0)
    rows = []
    for number in range(160):
        pet = f"{'red blue'.split()[number % 2]} {'cat dog'.split()[random.integers(2)]}"
        before = " ".join(
            ["bread", "salt", "the", "house"][pick] for pick in random.integers(0, 4, random.integers(1, 4))
        )
        start = len(before) + 1
        span = {"label": "PET", "start": start, "end": start + len(pet)}
        rows.append({"text": f"{before} {pet} ran {number}", "entities": [span]})
    config = HeadConfig(steps=25, max_length=16, learning_rate=5e-3, held_out=0.1, evaluations=1, bf16=False)
    return made_once("tagger", lambda folder: train_tagger(rows, folder, base=tiny_model, config=config))


def test_a_tagger_learns_and_is_served_without_torch(trained):
    import torch
    from transformers import AutoModelForTokenClassification

    from binocle.retriever.models.heads.bert_head import BertHead
    from binocle.retriever.models.heads.torch_head import inputs
    from binocle.retriever.models.heads.windows import text_windows

    measure = json.loads((trained / "binocle.json").read_text("utf-8"))["measures"][0]
    assert measure["name"] == "span F1" and measure["value"] > 0.9
    tagger = load_tagger(trained)
    assert isinstance(tagger.head, BertHead)
    text = "bread and salt red cat ran"
    ((entity,), none) = tagger.tag([text, ""])
    assert (entity.label, entity.text, text[entity.start : entity.end]) == ("PET", "red cat", "red cat")
    assert none == [] and 0 < entity.probability <= 1
    parts = text_windows(tagger.head.tokenizer(), text, 16)
    model = AutoModelForTokenClassification.from_pretrained(trained).eval()
    with torch.no_grad():
        expected = model(**inputs(model, parts)).logits[0]
    np.testing.assert_allclose(tagger.head.logits(parts)[0], expected, atol=1e-4)
    many = tagger.head.logits(parts * 200)  # by the compiled graph
    np.testing.assert_allclose(many, [expected.numpy()] * 200, atol=1e-4)


def test_a_tagger_of_the_first_layer_has_its_weights_and_no_more(tiny_model, tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("accelerate")
    from safetensors.numpy import load_file

    from binocle.training.heads.config import HeadConfig
    from binocle.training.heads.train import train_tagger

    rows = [{"tokens": ["the", "cat", f"{n}"], "tags": ["O", "B-PET", "O"]} for n in range(4)]
    config = HeadConfig(steps=1, learning_rate=1e-9, held_out=0.0, bf16=False, max_length=16)
    train_tagger(rows, tmp_path / "out", base=tiny_model, config=replace(config, layers=1))
    base, short = (load_file(f"{folder}/model.safetensors") for folder in (tiny_model, tmp_path / "out"))
    name = "encoder.layer.{}.attention.self.query.weight"
    np.testing.assert_allclose(short[f"bert.{name.format(0)}"], base[name.format(0)], atol=1e-6)
    assert f"bert.{name.format(1)}" not in short and name.format(1) in base
    load_tagger(tmp_path / "out").tag(["the cat 3"])
    with pytest.raises(InputError, match="cannot keep the first 9"):
        train_tagger(rows, tmp_path / "long", base=tiny_model, config=replace(config, layers=9))


@pytest.mark.thorough
def test_capital_letters_are_seen_by_an_encoder_that_ignores_them(tiny_model, tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("accelerate")
    from binocle.retriever.models.heads.windows import text_windows
    from binocle.training.heads.config import HeadConfig
    from binocle.training.heads.train import train_tagger

    rows = [
        {"tokens": ["the", pet, "ran", f"{n}"], "tags": ["O", tag, "O", "O"]}
        for n in range(40)
        for pet, tag in (("Cat", "B-NAME"), ("cat", "O"), ("Dog", "B-NAME"), ("dog", "O"))
    ]
    config = HeadConfig(steps=120, max_length=16, learning_rate=5e-3, held_out=0.1, evaluations=1, bf16=False)
    train_tagger(rows, tmp_path / "out", base=tiny_model, config=config)
    tagger = load_tagger(tmp_path / "out")
    names = tagger.tag(["the Cat ran 3", "the cat ran 3", "the dog ran and the Dog"])
    assert [[(entity.text, entity.start) for entity in of_text] for of_text in names] == [
        [("Cat", 4)],
        [],
        [("Dog", 20)],
    ]
    (window,) = text_windows(tagger.head.tokenizer(), "the Cat ran", 16, capitals=True)
    assert window.type_ids == [0, 0, 1, 0, 0]


def test_scores_of_steps_decide_where_words_are_undecided(tmp_path, make_head):
    folder = make_head(tmp_path / "tagger", "TokenClassification", ["O", "B-A", "I-A"])
    tagger = load_tagger(folder)
    assert tagger.settings.transitions is None  # of an earlier version, or from the hub
    never = -30.0
    apart = [[0.0, never, never]] * 4  # always outside
    together = [[never, never, 0.0]] * 4  # always continue the name
    first = [*apart[:3], [never, 0.0, never]]
    settings = replace(tagger.settings, transitions=[first, together])
    (names,) = Tagger(tagger.head, settings).tag(["cat-dog red cow"])
    assert [(name.label, name.text) for name in names] == [("A", "cat-dog")]
    assert names[0].probability > 0.99


def test_a_long_text_is_read_in_windows(trained):
    tagger = load_tagger(trained)
    text = "bread salt " * 30 + "red cat ran " + "bread salt " * 30
    spans = [(entity.start, entity.end) for entity in tagger.tag([text])[0]]
    assert (330, 337) in spans


def test_tag_prints_names_with_their_places(trained, tmp_path, run):
    model = ("--model", trained)
    shown = run("tag", "-", *model, stdin=b"bread\nthe house red cat ran\n")
    assert shown.out.split()[0] == "2:10" and shown.out.split()[2:] == ["PET", "red", "cat"]
    (tmp_path / "a.jsonl").write_text('{"text": "the house red cat ran"}\n', "utf-8")
    (row,) = run("tag", tmp_path / "a.jsonl", *model, "--json").rows
    assert [(e["label"], e["text"], e["start"], e["end"]) for e in row["entities"]] == [("PET", "red cat", 10, 17)]


def test_names_that_are_not_sure_enough_for_a_promised_precision_are_left_out(trained, tmp_path, run):
    tagger, text = load_tagger(trained), "the house red cat ran"
    ((entity,),) = tagger.tag([text])
    sure = tagger.settings.sure
    assert 0 < len(sure) <= 40 and all(0 <= number <= 1 for pair in sure for number in pair)
    for least, names in ((entity.probability, ["red cat"]), (min(1.0, entity.probability + 1e-9), [])):
        stricter = Tagger(tagger.head, replace(tagger.settings, sure=((least, 0.9), (0.0, 0.5))))
        assert [found.text for found in stricter.tag([text], precision=0.9)[0]] == names
        assert [found.text for found in stricter.tag([text], precision=0.5)[0]] == ["red cat"]
        with pytest.raises(InputError, match="this tagger does not promise a precision of 0.99: the highest"):
            stricter.tag([text], precision=0.99)
    folder = shutil.copytree(trained, tmp_path / "model")
    facts = json.loads((folder / "binocle.json").read_text("utf-8"))
    facts["tagger"]["sure"] = [[1.0, 0.95], [0.0, 0.5]]
    (folder / "binocle.json").write_text(json.dumps(facts), "utf-8")
    assert run("tag", "-", "--model", folder, "--precision", 0.9, stdin=text.encode()).out == ""
    assert "red cat" in run("tag", "-", "--model", folder, "--precision", 0.5, stdin=text.encode()).out
    facts["tagger"]["sure"] = [[1.0]]
    (folder / "binocle.json").write_text(json.dumps(facts), "utf-8")
    with pytest.raises(InputError, match="sure is .*, expected pairs of a probability and a precision"):
        load_tagger(folder)


def names_of(folder, text, *, go_on):
    """The names that a tagger marks; its steps make each word begin a name, or continue the first one."""
    tagger, never = load_tagger(folder), -17.0
    begin, follow = [never, 0.0, never], [never, never, 0.0]
    steps = [*[follow if go_on else begin] * 3, begin]
    (names,) = Tagger(tagger.head, replace(tagger.settings, transitions=[steps, steps])).tag([text])
    return [(name.text, name.start, name.end) for name in names]


def test_a_sign_without_a_token_does_not_end_a_name(tmp_path, make_head):
    folder = make_head(tmp_path / "tagger", "TokenClassification", ["O", "B-A", "I-A"])
    for text in ("re\u0301d cat", "re\u00add cat", "red \ue000 cat", "red\ue000cat"):
        assert names_of(folder, text, go_on=True) == [(text, 0, len(text))]
    assert names_of(folder, "\ue000 cat \ue000", go_on=True) == [("cat", 2, 5)]
    assert names_of(folder, "\ue000", go_on=True) == names_of(folder, "", go_on=True) == []


def test_a_name_has_all_words_of_its_last_token(tmp_path, make_head):
    from tokenizers import Tokenizer
    from tokenizers.pre_tokenizers import WhitespaceSplit

    folder = make_head(tmp_path / "tagger", "TokenClassification", ["O", "B-A", "I-A"])
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    names = names_of(folder, "the king§s u§s§ cat", go_on=False)  # two unknown tokens of several words
    assert names == [("the", 0, 3), ("king§s", 4, 10), ("u§s§", 11, 15), ("cat", 16, 19)]


def test_another_model_is_no_tagger(trained, tiny_model, tmp_path, make_head):
    with pytest.raises(InputError, match="no tagger"):
        load_tagger(tiny_model)
    damaged = make_head(tmp_path / "tagger", "TokenClassification", ["O", "B-A"], settings={"tagger": {"length": "x"}})
    with pytest.raises(InputError, match="in 'tagger': length is 'x', expected a whole number of tokens from 8; copy"):
        load_tagger(damaged)
    for table in (
        [[0.0, 0.0]],
        [[[0.0, 0.0]] * 3, [[0.0, 1.0]] * 3],
        [[[0.0, "x"]] * 3] * 2,
        [[[0.0, 0.0]] * 3, [[0.0]]],
    ):
        (damaged / "binocle.json").write_text(json.dumps({"tagger": {"transitions": table}}), "utf-8")
        with pytest.raises(InputError, match="expected two tables of 3 rows with 2 numbers up to 0"):
            load_tagger(damaged)
    config = json.loads((damaged / "config.json").read_text("utf-8"))
    (damaged / "config.json").write_text(json.dumps(config | {"id2label": {"0": "O", "1": "B-A", "2": "I-A"}}), "utf-8")
    (damaged / "binocle.json").unlink()
    with pytest.raises(InputError, match=r"has classifier.weight of shape \(2, 32\): expected \(3, 32\)"):
        load_tagger(damaged)
