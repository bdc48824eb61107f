"""Inversion: what is trained on a tiny encoder reads it back, resumes, and tells text from no text."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import click
import numpy as np
import pytest

from binocle.retriever.models.load import load_encoder

torch = pytest.importorskip("torch")
pytest.importorskip("datasets")

from binocle.core.errors import EncoderMismatchError, InputError, ModelNotFoundError
from binocle.core.progress import Progress
from binocle.retriever.inversion.decoders.decoder_settings import TextDecoderSettings, TokenDecoderSettings
from binocle.retriever.inversion.decoders.text_decoder import TextDecoder
from binocle.retriever.inversion.hidden_states import HiddenStates
from binocle.retriever.inversion.inverter import EmbeddingInverter, load
from binocle.retriever.inversion.inverter_info import InverterInfo
from binocle.retriever.inversion.state_inverter import StateInverter
from binocle.retriever.models.tokens.token_ids import EncoderTokens
from binocle.training.data.tokenized import TokenRows
from binocle.training.inversion import rows as inversion_rows
from binocle.training.inversion.config import InverterConfig
from binocle.training.inversion.rows import TokenSpans
from binocle.training.inversion.text import TextInversion
from binocle.training.inversion.text_batches import TextBatches
from binocle.training.inversion.tokens import TokenInversion
from binocle.training.inversion.train import passage_length, train_inverter
from binocle.training.inversion.untrained_decoder import token_vectors
from binocle.training.pretraining.data import token_rows as pretraining_rows
from binocle.training.runs.loop import Schedule, run_loop

WORDS = "cat dog house moon tax bread cheese salt ship sea night morning year task queue oven light network".split()
CALIBRATION = ["calibration error, raw", "calibration error"]
LAYERS = {"linear": None, "lstm": 1, "transformer": 1}


@contextlib.contextmanager
def short_correction():
    """What training measures takes a fiftieth of its time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("binocle.training.inversion.evaluation._ROUNDS", 1)
        patch.setattr("binocle.training.inversion.evaluation._CONTROL_ROUNDS", (0, 1, 4))
        patch.setattr("binocle.training.inversion.evaluation._TEXTS", 24)
        patch.setattr("binocle.training.inversion.evaluation._CONTROLS", 8)
        yield


@pytest.fixture(autouse=True)
def _short_correction():
    with short_correction():
        yield


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Short documents of words that the tiny vocabulary holds."""
    random = np.random.default_rng(0)
    rows = [" ".join(random.choice(WORDS, random.integers(4, 9))) for _ in range(600)]
    file = tmp_path_factory.mktemp("texts") / "texts.txt"
    file.write_text("\n".join(rows) + "\n", "utf-8")
    return file


def config(**options: object) -> InverterConfig:
    settings = {"steps": 60, "max_length": 8, "batch_size": 16, "held_out": 0.1, "bf16": False, "evaluations": 2}
    return InverterConfig(**settings | options)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def embedding(texts: Path, tiny_model: str, made_once) -> Path:
    def train(out: Path) -> None:
        with short_correction():
            train_inverter(texts, out, encoder=tiny_model, config=config(steps=300, learning_rate=2e-3))

    return made_once("embedding-inverter", train)


@pytest.mark.thorough
@pytest.mark.parametrize("decoder", ["linear", "lstm", "transformer"])
def test_hidden_states_are_read_back(decoder: str, texts: Path, tiny_model: str, tmp_path: Path):
    settings = config(kind="hidden", decoder=decoder, layers=LAYERS[decoder])
    result = train_inverter(texts, tmp_path / "out", encoder=tiny_model, config=settings)
    assert result.measures[0]["name"] == "token accuracy"
    assert result.measures[0]["value"] > 0.9
    read = load(tmp_path / "out").read("moon cheese ship night")
    assert [guess.token for guess in read.named] == list(read.tokens)
    assert read.accuracy == 1


@pytest.fixture
def narrow(tiny_model: str, tmp_path: Path) -> str:
    """An ALBERT of the tiny vocabulary, with word embeddings half as wide as its states."""
    from transformers import AlbertConfig, AlbertModel

    folder = tmp_path / "albert"
    shutil.copytree(tiny_model, folder)
    vocabulary = len((folder / "vocab.txt").read_text("utf-8").splitlines())
    sizes = {"embedding_size": 16, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    torch.manual_seed(0)
    AlbertModel(AlbertConfig(vocab_size=vocabulary, intermediate_size=64, **sizes)).save_pretrained(folder)
    return str(folder)


@pytest.mark.thorough
@pytest.mark.parametrize(("decoder", "layer"), [("linear", 0), ("lstm", 2), ("transformer", 1)])
def test_states_wider_than_the_word_embeddings_are_read_back(
    decoder: str, layer: int, narrow: str, texts: Path, tmp_path: Path
):
    settings = config(kind="hidden", decoder=decoder, layer=layer, layers=LAYERS[decoder], masked=0.2, steps=4)
    train_inverter(texts, tmp_path / "out", encoder=narrow, config=settings)
    inverter = load(tmp_path / "out")
    facts = inverter.info.decoder
    assert (inverter.info.dim, facts["width"], facts["target_width"]) == (32, 32, 16)
    assert inverter.read("moon cheese ship night").accuracy >= 0.5
    assert len(inverter.read("moon cheese ship night", masked=0.9).named) > 0


@pytest.mark.thorough
def test_the_probabilities_of_tokens_are_calibrated_and_the_tokens_stay(texts: Path, tiny_model: str, tmp_path: Path):
    folder = tmp_path / "out"
    result = train_inverter(texts, folder, encoder=tiny_model, config=config(kind="hidden", layers=1, masked=0.3))
    measures = {row["name"]: row for row in result.measures}
    card = json.loads((folder / "binocle.json").read_text("utf-8"))["measures"]
    for states in ("", ", masked states"):
        raw, calibrated = measures[f"calibration error{states}, raw"], measures[f"calibration error{states}"]
        assert calibrated["value"] < raw["value"] and raw in card and calibrated in card
    facts = json.loads((folder / "inverter.json").read_text("utf-8"))
    temperatures = {name: facts.pop(name) for name in ("temperature", "masked_temperature")}
    assert all(value > 0 and value != 1 for value in temperatures.values())
    readings = load(folder)
    (folder / "inverter.json").write_text(json.dumps(facts), "utf-8")  # as an earlier version wrote it
    earlier = load(folder)
    assert (earlier.info.temperature, earlier.info.masked_temperature) == (1, 1)
    for masked, temperature in ((0.0, temperatures["temperature"]), (0.6, temperatures["masked_temperature"])):
        now, before = (each.read("moon cheese ship night", masked=masked).named for each in (readings, earlier))
        assert [guess.token for guess in now] == [guess.token for guess in before]
        for guess, raw in zip(now, before, strict=True):
            assert guess.probability >= raw.probability if temperature < 1 else guess.probability <= raw.probability
        assert now != before


def test_no_more_tokens_are_read_than_a_transformer_has_places_for(tiny_model: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("binocle.retriever.inversion.hidden_states.POSITIONS", 8)
    assert HiddenStates.load(tiny_model).room == 6


@pytest.mark.thorough
def test_a_state_left_out_is_told_from_its_neighbours_at_best(texts: Path, tiny_model: str, tmp_path: Path):
    result = train_inverter(texts, tmp_path / "out", encoder=tiny_model, config=config(kind="hidden", masked=0.2))
    measures = {row["name"]: row["value"] for row in result.measures}
    assert 0 <= measures["token accuracy, masked states"] < measures["token accuracy"]


@pytest.mark.thorough
def test_where_no_held_out_state_is_masked_the_others_are_measured(texts: Path, tiny_model: str, tmp_path: Path):
    result = train_inverter(
        texts, tmp_path / "out", encoder=tiny_model, config=config(kind="hidden", masked=1e-6, steps=2)
    )
    assert [row["name"] for row in result.measures] == ["token accuracy", *CALIBRATION]
    assert InverterInfo.read(tmp_path / "out").masked_temperature == 1
    log = [json.loads(line) for line in (tmp_path / "out" / "log.jsonl").read_text("utf-8").splitlines()]
    assert all(np.isfinite(row["loss"]) for row in log)


def test_states_of_which_none_is_masked_are_learned_from(tiny_model: str, tmp_path: Path):
    states = HiddenStates.load(tiny_model)
    pretraining_rows.prepare([("moon cheese", False)], tmp_path, states.tokenizer, room=6)
    settings = TokenDecoderSettings("linear", states.width, len(states.words), states.words.shape[1])
    rows = TokenRows(tmp_path / "train.arrow")
    inversion = TokenInversion(states, settings, rows, layer=states.layers, batch_size=1, masked=0.01)
    assert all(torch.isfinite(inversion.loss(step)) for step in range(20))


def test_the_whole_vocabulary_costs_what_a_sample_of_all_of_it_does(tiny_model: str, tmp_path: Path):
    states = HiddenStates.load(tiny_model)
    texts = [("moon cheese and bread on the river", False), ("the cat sat on the mountain", False)]
    pretraining_rows.prepare(texts, tmp_path, states.tokenizer, room=9)
    settings = TokenDecoderSettings("linear", states.width, len(states.words), states.words.shape[1])
    losses = []
    for sampled in (True, False):
        rows = TokenRows(tmp_path / "train.arrow")
        inversion = TokenInversion(states, settings, rows, layer=states.layers, batch_size=2)
        unused = [number for number in range(len(states.words)) if number not in inversion.vocabulary.tolist()]
        with torch.no_grad():
            inversion.decoder.bias[unused] = -1e4  # only the whole vocabulary has special tokens
        torch.manual_seed(1)
        inversion.sampled = sampled
        losses.append(inversion.loss(0).item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_a_batch_of_which_no_token_is_drawn_has_one_masked():
    torch.manual_seed(0)
    decoder = TextDecoder(TextDecoderSettings(8, 60, 8, width=16, layers=1, heads=4, inner=16, wide=16))
    texts = TextBatches([np.array([10, 11, 12])], np.array([3]), np.ones((1, 8), np.float32), 8)
    inversion = TextInversion(decoder, texts, (0, 1, 2, 3), batch_size=1)
    assert all(inversion.loss(step) > 0 for step in range(40))


def test_vectors_are_learned_from_at_the_length_that_they_are_read_at(make_model, tmp_path: Path):
    model = make_model(tmp_path / "dot", normalize=False)
    (model / "config_sentence_transformers.json").write_text('{"similarity_fn_name": "dot"}', "utf-8")
    encoder = load_encoder(str(model))
    text = "moon cheese ship night"
    raw, tokens = encoder.encode([text])[0], EncoderTokens.of(encoder)
    assert np.linalg.norm(raw) > 2
    texts = [(text, is_held_out) for is_held_out in (False, True)]
    inversion_rows.prepare(texts, tmp_path / "rows", encoder, tokens, longest=8, limit=20)
    for name in ("train", "held_out"):
        result = TokenSpans.read(tmp_path / "rows", name, encoder.dim).vectors
        np.testing.assert_allclose(result, [raw / np.linalg.norm(raw)], atol=1e-6)
    moon = tokens(["moon"])[0][0]
    words = token_vectors(encoder, tokens, moon + 1)
    np.testing.assert_allclose(np.linalg.norm(words[moon]), 1, atol=1e-6)
    assert np.argmax(words @ words[moon]) == moon


@pytest.mark.thorough
def test_a_vector_gives_back_the_words_of_its_text(embedding: Path):
    inverter = EmbeddingInverter.load(embedding)
    text = "moon cheese ship night"
    result = inverter.invert(inverter.encoder.encode([text]), seconds=1)[0]
    assert result.recovered
    assert result.cosine > 0.9
    assert len(set(result.text.split()) & set(text.split())) >= 2
    assert all(0 <= guess.probability <= 1 for guess in result.tokens)


def test_the_tokens_that_an_encoded_bag_lacks_become_likelier(embedding: Path, monkeypatch: pytest.MonkeyPatch):
    inverter = EmbeddingInverter.load(embedding)
    vectors = inverter.check(inverter.encoder.encode(["moon cheese ship night", "the king and salt", "bread cat"]))

    def cosine() -> float:
        return float((inverter.embed(inverter.bags(vectors).tokens) * vectors).sum(1).mean())

    checked = cosine()
    monkeypatch.setattr("binocle.retriever.inversion.proposals._CHECKS", 0)
    assert checked > cosine()


def test_texts_and_changes_follow_the_bag(embedding: Path):
    inverter = EmbeddingInverter.load(embedding)
    proposer, vectors = inverter.proposer, inverter.check(inverter.encoder.encode(["moon cheese ship night"]))
    bag, ((moon, bread),) = inverter.bags(vectors), inverter.tokens(["moon bread"])
    bag.logits[:, bread] += 30.0
    assert all(bread in text for text in proposer.texts(vectors, bag)[0])
    one = proposer.for_vector(vectors[0], bag)
    assert one.likelihood((moon, bread)) > one.likelihood((moon, moon)) + 1
    changes = one.changes((moon, moon), inverter.embed([(moon, moon)])[0])
    assert next(change.token for _, change in changes if change.kind == "replace") == bread


def test_vectors_of_no_text_give_no_text(embedding: Path):
    inverter = EmbeddingInverter.load(embedding)
    random = np.random.default_rng(1).standard_normal((4, inverter.info.dim))
    for result in inverter.invert(random, seconds=0.2):
        assert (result.recovered, result.text, result.tokens) == (False, "", ())


def test_a_vector_that_no_text_comes_near_still_gives_words_if_it_has_the_shape_of_a_text(embedding: Path):
    inverter = EmbeddingInverter.load(embedding)
    inverter.info = replace(inverter.info, threshold=0.999, no_texts=())
    text = "moon cheese ship night"
    vector = inverter.encoder.encode([text])
    noisy = vector + 0.5 / vector.shape[1] ** 0.5 * np.random.default_rng(2).standard_normal(vector.shape)
    (result,) = inverter.invert(noisy.astype(np.float32), seconds=0)
    assert (result.recovered, result.text) == (False, "")
    assert {guess.token for guess in result.tokens} & set(text.split())
    inverter.shape = None
    (result,) = inverter.invert(noisy.astype(np.float32), seconds=0)
    assert (result.recovered, result.tokens) == (False, ())


def test_a_zero_vector_gives_neither_text_nor_words(embedding: Path, tmp_path: Path):
    inverter = EmbeddingInverter.load(embedding)
    vector = inverter.encoder.encode(["moon cheese ship night"])
    rows = np.concatenate([np.zeros_like(vector), vector])
    zero, text = inverter.invert(rows, seconds=0)
    assert (zero.recovered, zero.text, zero.tokens) == (False, "", ())
    assert text.tokens
    np.save(tmp_path / "zeros.npy", rows[:1])
    code, shown = invert("--vectors", tmp_path / "zeros.npy", "--inverter", embedding, "--seconds", 0, "--json")
    assert (code, json.loads(shown)["tokens"]) == (1, [])


def test_a_vector_with_the_shape_of_a_text_needs_less_of_a_cosine(embedding: Path):
    inverter = EmbeddingInverter.load(embedding)
    vector = inverter.encoder.encode(["moon cheese ship night"])
    inverter.info = replace(inverter.info, no_texts=((0, 1.1, 0.2), (1, 1.1, 0.2)))
    assert inverter.info.minimum_cosine(1) == 1.1 and inverter.info.minimum_cosine(1, of_text=True) == 0.2
    assert inverter.invert(vector, seconds=0)[0].recovered
    random = np.random.default_rng(1).standard_normal((4, inverter.info.dim))
    assert not any(result.recovered for result in inverter.invert(random, seconds=0))


def test_the_threshold_rises_with_the_rounds_of_correction():
    measured = ((0, 0.2, 0.1), (1, 0.4, 0.2), (4, 0.5, 0.25))
    info = InverterInfo("embedding", "a", "b", 8, {}, threshold=0.4, no_texts=measured)
    cosines = [info.minimum_cosine(rounds) for rounds in (0, 1, 2, 4, 10, 60)]
    assert cosines == sorted(cosines) and cosines[:2] == [0.2, 0.4] and cosines[3] == 0.5
    assert 0.5 < cosines[4] < 0.65 and info.minimum_cosine(10**9) == 0.75  # halfway to 1
    assert [info.minimum_cosine(rounds, of_text=True) for rounds in (0, 1, 4)] == [0.1, 0.2, 0.25]
    assert replace(info, control={"texts, 5th percentile": 0.9}).minimum_cosine(10**9) == pytest.approx(0.7)
    assert replace(info, no_texts=()).minimum_cosine(60) == 0.4  # an inverter of an earlier version


def test_an_inverter_of_an_earlier_version_is_read_with_its_highest_threshold(tmp_path: Path):
    facts = {"kind": "embedding", "encoder": "a", "fingerprint": "b", "dim": 8, "decoder": {}, "threshold": 0.55}
    for chance, threshold in (([[0, 0.4], [1, 0.55], [4, 0.62]], 0.62), ([[0, 0.4]], 0.55), ([], 0.55)):
        (tmp_path / "inverter.json").write_text(json.dumps(facts | {"chance": chance}), "utf-8")
        info = InverterInfo.read(tmp_path)
        assert info.minimum_cosine(0) == info.minimum_cosine(40) == info.minimum_cosine(40, of_text=True) == threshold


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({"no_texts": [[0, 0.2], [1, 0.4]]}, "expected rows of three finite numbers in no_texts"),
        ({"no_texts": [0, 0.2, 0.1]}, "expected rows of three finite numbers in no_texts"),
        ({"no_texts": [["0", "0.2", "0.1"], ["1", "0.4", "0.2"]]}, "expected rows of three finite numbers in no_texts"),
        ({"no_texts": [[0, 0.2, 0.1], [1, float("nan"), 0.2]]}, "expected rows of three finite numbers in no_texts"),
        ({"no_texts": [[], []]}, "expected rows of three finite numbers in no_texts"),
        ({"no_texts": None}, "expected rows of three finite numbers in no_texts"),
        ({"no_texts": [[0, 0.2, 0.1], [1, 0.4]]}, "damaged"),
        ({"no_texts": [[1, 0.2, 0.1], [1, 0.4, 0.2]]}, "expected rows of no_texts by ascending rounds, from 0"),
        ({"no_texts": [[-2, 0.2, 0.1], [1, 0.4, 0.2]]}, "expected rows of no_texts by ascending rounds, from 0"),
        ({"threshold": float("nan")}, "threshold is nan, expected a number"),
        ({"threshold": "high"}, "threshold is 'high', expected a number"),
        ({"threshold": 10**400}, "threshold is 10+…, expected a number"),
        ({"chance": [[0, 0.4, 0.2]]}, "damaged"),
        ({"chance": [[0, "a"]]}, "expected rows of two finite numbers in chance"),
        ({"chance": [[0, float("nan")]]}, "expected rows of two finite numbers in chance"),
        ({"control": 0.9}, "control is 0.9, expected cosines by name, or null"),
        ({"control": [["texts, 5th percentile", 0.9]]}, "expected cosines by name, or null"),
        ({"control": {"texts, 5th percentile": "0.9"}}, "expected cosines by name, or null"),
        ({"control": {"texts, 5th percentile": None}}, "expected cosines by name, or null"),
        ({"control": {"no texts, highest": float("inf")}}, "expected cosines by name, or null"),
        ({"kind": ["embedding"]}, r"kind is \['embedding'\], expected one of embedding, hidden"),
        ({"kind": "bag"}, "kind is 'bag', expected one of embedding, hidden"),
        ({"encoder": 3}, "encoder is 3, expected a name or a folder"),
        ({"encoder": ""}, "encoder is '', expected a name or a folder"),
        ({"fingerprint": None}, "fingerprint is None, expected the encoder's fingerprint"),
        ({"dim": "8"}, "dim is '8', expected a whole number from 1"),
        ({"dim": 0}, "dim is 0, expected a whole number from 1"),
        ({"dim": True}, "dim is True, expected a whole number from 1"),
        ({"decoder": []}, r"decoder is \[\], expected settings by name"),
        ({"layer": 1.5}, "layer is 1.5, expected a whole number from 0, or null"),
        ({"layer": -1}, "layer is -1, expected a whole number from 0, or null"),
        ({"temperature": 0}, "temperature is 0, expected a number above 0"),
        ({"temperature": -0.5}, "temperature is -0.5, expected a number above 0"),
        ({"temperature": float("nan")}, "temperature is nan, expected a number above 0"),
        ({"temperature": "warm"}, "temperature is 'warm', expected a number above 0"),
        ({"temperature": True}, "temperature is True, expected a number above 0"),
        ({"masked_temperature": float("inf")}, "masked_temperature is inf, expected a number above 0"),
        ({"masked_temperature": None}, "masked_temperature is None, expected a number above 0"),
        ({"format": "1"}, "format is '1', expected 1"),
        ({"words": 3}, "damaged"),
    ],
)
def test_facts_of_wrong_types_are_told_in_one_line(tmp_path: Path, facts: dict[str, object], says: str):
    settings = {"kind": "embedding", "encoder": "a", "fingerprint": "b", "dim": 8, "decoder": {}, "threshold": 0.4}
    (tmp_path / "inverter.json").write_text(json.dumps(settings | facts), "utf-8")
    with pytest.raises(InputError, match=f"{says}.*: copy the inverter's folder again$") as refused:
        InverterInfo.read(tmp_path)
    assert "\n" not in str(refused.value)


def test_an_inverter_of_a_later_format_is_told_before_its_unknown_facts(tmp_path: Path):
    (tmp_path / "inverter.json").write_text('{"format": 2, "words": 3}', "utf-8")
    with pytest.raises(InputError, match="has format 2, this version reads 1$"):
        InverterInfo.read(tmp_path)


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        ({"layers": "4"}, "layers of a decoder is a whole number from 1, not '4'"),
        ({"width": -1}, "width of a decoder is a whole number from 1, not -1"),
        ({"layers": 10**9}, "a decoder has 1 to 1000 layers, not 1000000000"),
        ({"heads": 0}, "heads of a decoder is a whole number from 1, not 0"),
        ({"heads": 5}, r"5 heads do not divide a width of \d+"),
        ({"longest": None}, "longest of a decoder is a whole number from 1, not None"),
        ({"dim": 7}, r"dim is \d+, but the decoder reads 7 numbers"),
        ({"colour": 1}, "unexpected keyword argument 'colour'"),
    ],
)
def test_wrong_sizes_of_a_decoder_are_told_before_it_is_built(
    sizes: dict[str, object], says: str, embedding: Path, tmp_path: Path
):
    folder = shutil.copytree(embedding, tmp_path / "inverter")
    info = InverterInfo.read(folder)
    replace(info, decoder=info.decoder | sizes).write(folder)
    with pytest.raises(InputError, match=f"is damaged \\(.*{says}.*: copy the inverter's folder again$"):
        load(folder)


@pytest.mark.parametrize("sizes", [{"vocabulary": 10**13}, {"wide": 10**30}, {"longest": 10**9}])
def test_a_decoder_that_claims_more_than_its_weights_is_not_built(
    sizes: dict[str, object], embedding: Path, tmp_path: Path
):
    folder = shutil.copytree(embedding, tmp_path / "inverter")
    info = InverterInfo.read(folder)
    replace(info, decoder=info.decoder | sizes).write(folder)
    with pytest.raises(InputError, match="does not hold the weights of this inverter"):
        load(folder)


def test_wrong_settings_of_a_decoder_of_states_are_told(texts: Path, tiny_model: str, tmp_path: Path):
    folder = tmp_path / "out"
    train_inverter(texts, folder, encoder=tiny_model, config=config(kind="hidden", decoder="linear", steps=1))
    info = InverterInfo.read(folder)
    for decoder, layer, says in (
        ({"kind": ["linear"]}, None, r"there is no decoder \['linear'\]"),
        ({"layers": 0}, None, "a decoder has 1 to 1000 layers, not 0"),
        ({"bidirectional": 1}, None, "bidirectional is true or false, not 1"),
        ({"inner": -1}, None, "inner of a decoder is a whole number from 0, not -1"),
        ({"width": 7}, None, r"dim is \d+, but the decoder reads 7 numbers"),
        ({}, 99, r"the encoder has layers 0 \(its embeddings\) to \d+, not 99"),
    ):
        replace(info, decoder=info.decoder | decoder, layer=layer).write(folder)
        with pytest.raises(InputError, match=f"is damaged \\({says}.*: copy the inverter's folder again$"):
            load(folder)


@pytest.mark.thorough
def test_invert_warns_of_a_vector_further_from_its_text_than_the_learned_ones(embedding: Path, tmp_path: Path):
    always = ((0, 0, 0), (1, 0, 0))  # every text counts as recovered
    text, stolen = "moon cheese ship night", tmp_path / "stolen.npy"
    np.save(stolen, EmbeddingInverter.load(embedding).encoder.encode([text]))
    for usual, count in ((-1.0, 0), (1.1, 1)):
        control = {"texts, 5th percentile": usual}
        info = replace(InverterInfo.read(embedding), no_texts=always, control=control)
        assert [info.usual_cosine(rounds) for rounds in (0, 1, 60)] == [0, usual, usual]
        assert replace(info, no_texts=()).usual_cosine(60) == 0  # an inverter of an earlier version
        folder = tmp_path / str(usual)
        shutil.copytree(embedding, folder)
        info.write(folder)
        for words, warnings in ((["--vectors", stolen], count), ([text], 0)):  # the length of a given text is known
            _, shown = invert(*words, "--inverter", folder, "--seconds", 0.5)
            assert shown.count("95 % of texts of at most 8 tokens come nearer than this") == warnings


def test_a_text_that_noise_takes_away_from_its_vector_is_still_recovered(embedding: Path):
    inverter = EmbeddingInverter.load(embedding)
    text = "moon cheese ship night"
    vector = inverter.encoder.encode([text])[0]
    noise = np.random.default_rng(3).standard_normal(vector.shape)
    stolen = vector + 0.5 * noise / np.linalg.norm(noise)
    (result,) = inverter.invert(stolen[None].astype(np.float32), seconds=0.2)
    assert result.recovered and set(result.text.split()) & set(text.split())


def test_many_vectors_are_inverted_a_few_at_a_time(embedding: Path, monkeypatch: pytest.MonkeyPatch):
    inverter = EmbeddingInverter.load(embedding)
    vectors = inverter.encoder.encode(["moon cheese", "ship night", "cat", "the king", "bread and salt"])
    expected, bags, batches = inverter.invert(vectors, seconds=0), inverter.bags, []
    monkeypatch.setattr("binocle.retriever.inversion.inverter._BATCH", 2)
    monkeypatch.setattr(inverter, "bags", lambda batch: [batches.append(len(batch)), bags(batch)][1])
    assert [result.text for result in inverter.invert(vectors, seconds=0)] == [result.text for result in expected]
    assert batches == [2, 2, 1]
    assert inverter.invert(vectors[:0]) == []


def test_another_encoders_vectors_are_refused(embedding: Path, make_model, tmp_path: Path):
    from binocle.retriever.models.load import load_encoder

    inverter, another = EmbeddingInverter.load(embedding), load_encoder(str(make_model(tmp_path / "other", seed=7)))
    with pytest.raises(EncoderMismatchError, match="train one for that encoder"):
        inverter.invert(another.encode(["cat"]), fingerprint=another.fingerprint)
    with pytest.raises(EncoderMismatchError, match="train an inverter for that one"):
        EmbeddingInverter.load(embedding, encoder=another)


@pytest.mark.parametrize(
    "vectors",
    [np.zeros((2, 3)), np.full((1, 32), np.nan), np.full((1, 32), 1e300), np.array([["a"] * 32]), np.zeros((1, 2, 32))],
    ids=["dim", "nan", "huge", "text", "shape"],
)
def test_what_are_no_vectors_is_told(embedding: Path, vectors: np.ndarray):
    with pytest.raises(InputError, match="expected"):
        EmbeddingInverter.load(embedding).invert(vectors)


def test_a_folder_that_is_no_inverter_or_a_damaged_one_is_told(embedding: Path, tmp_path: Path):
    with pytest.raises(InputError, match="is no inverter"):
        load(tmp_path)
    for name in ("inverter.json", "inverter.safetensors"):
        copy = tmp_path / name.split(".")[1]
        shutil.copytree(embedding, copy)
        content = (copy / name).read_bytes()
        (copy / name).write_bytes(content[: len(content) // 2])
        with pytest.raises(InputError, match="copy"):
            load(copy)


TRAIN = """
import json, os, sys
from binocle.retriever.inversion.decoders.decoder_settings import TextDecoderSettings
from binocle.training.inversion.config import InverterConfig
from binocle.training.inversion.train import passage_length, train_inverter

texts, encoder, out, settings, wide = sys.argv[1:]
TextDecoderSettings.__init__.__defaults__ = (*TextDecoderSettings.__init__.__defaults__[:-1], int(wide))
print(os.getpid(), flush=True)
train_inverter(texts, out, encoder=encoder, config=InverterConfig(**json.loads(settings)))
"""


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["embedding", "hidden"])
def test_a_run_that_is_killed_goes_on_to_the_same_weights(
    kind: str, texts: Path, tiny_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick_training: list[str]
):
    for name in ("_TEXTS", "_CONTROLS"):
        monkeypatch.setattr(f"binocle.training.inversion.evaluation.{name}", 2)
    settings, whole, killed = config(kind=kind, steps=20, evaluations=4), tmp_path / "whole", tmp_path / "killed"
    wide = TextDecoderSettings.__init__.__defaults__[-1]  # as conftest.py sets it
    words = texts, tiny_model, killed, json.dumps(dataclasses.asdict(settings)), wide
    command = [*quick_training, "-c", TRAIN, *map(str, words)]
    checkpoints = killed / "run" / "checkpoints" / ("" if kind == "hidden" else "text")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as run:
        process = int(run.stdout.readline())
        while run.poll() is None and not list(checkpoints.glob("checkpoint-*/whole.json")):
            time.sleep(0.005)
        os.kill(process, signal.SIGKILL)
    assert (killed / "run").is_dir()
    train_inverter(texts, whole, encoder=tiny_model, config=settings)
    result = train_inverter(texts, killed, encoder=tiny_model, config=settings)
    assert result.resumed_from
    assert (killed / "inverter.safetensors").read_bytes() == (whole / "inverter.safetensors").read_bytes()


class _Killed(BaseException):
    pass


def _killed_at(step: int, *arguments: object, **options: object) -> None:
    """A short run, which reports every step, killed at one of them."""
    left = iter(range(step - 1))

    def progress(event: Progress) -> None:
        if event.stage == "training" and next(left, None) is None:
            raise _Killed

    with pytest.raises(_Killed):
        train_inverter(*arguments, progress=progress, **options)


@pytest.fixture
def arguments(texts: Path, make_model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """The arguments of runs of 10 steps for the bag and 10 for the text, on an encoder of their own."""
    for name in ("_TEXTS", "_CONTROLS"):
        monkeypatch.setattr(f"binocle.training.inversion.evaluation.{name}", 2)
    model = str(make_model(tmp_path / "model", seed=1))
    return {"texts": texts, "out": tmp_path / "out", "encoder": model, "config": config(steps=20, evaluations=5)}


@pytest.mark.thorough
@pytest.mark.parametrize(("step", "at"), [(5, 4), (11, 10), (15, 14)], ids=["bag", "between", "text"])
def test_a_run_that_was_killed_says_where_it_went_on(step: int, at: int, arguments: dict[str, object]):
    _killed_at(step, **arguments)
    result = train_inverter(**arguments)
    assert (result.resumed_from, result.steps) == (at, 20)


@pytest.mark.thorough
def test_the_seconds_of_a_run_that_was_killed_count_too(arguments: dict[str, object]):
    _killed_at(15, **arguments)
    for state in (arguments["out"] / "run" / "checkpoints").glob("*/*/state.json"):
        facts = json.loads(state.read_text("utf-8"))
        assert 0 < facts["seconds"] < 900
        state.write_text(json.dumps(facts | {"seconds": 1_000.0}), "utf-8")
    result = train_inverter(**arguments)
    assert 2_000 < result.seconds < 2_900
    assert json.loads((arguments["out"] / "binocle.json").read_text("utf-8"))["seconds"] == round(result.seconds, 1)


@pytest.mark.thorough
def test_the_measuring_of_a_trained_inverter_is_reported(arguments: dict[str, object]):
    events: list[Progress] = []
    train_inverter(**arguments, progress=events.append)
    texts, vectors = "correcting held-out texts for 1 rounds each", "correcting vectors of no text for 5 rounds each"
    assert events[-7:] == [
        Progress("comparing held-out texts with those learned from"),
        *(Progress(stage, done, 2) for stage in (texts, vectors) for done in range(3)),
    ]


def test_a_run_goes_on_only_with_the_encoder_that_it_began_with(
    arguments: dict[str, object], make_model, tmp_path: Path
):
    _killed_at(5, **arguments)
    make_model(tmp_path / "model", seed=2)
    with pytest.raises(InputError, match="unfinished run with other settings"):
        train_inverter(**arguments)


def test_a_run_goes_on_only_with_the_texts_that_it_began_with(arguments: dict[str, object], tmp_path: Path):
    texts = shutil.copy(arguments["texts"], tmp_path / "again.txt")
    _killed_at(1, **arguments | {"texts": texts})
    with texts.open("a", encoding="utf-8") as file:
        file.write("moon cheese\n")
    with pytest.raises(InputError, match="unfinished run on data that changed since then"):
        train_inverter(**arguments | {"texts": texts})


def test_an_encoder_that_is_not_there_leaves_nothing_behind(texts: Path, tmp_path: Path):
    with pytest.raises(ModelNotFoundError):
        train_inverter(texts, tmp_path / "out", encoder=str(tmp_path / "none"), config=config())
    assert not (tmp_path / "out").exists()


def test_the_folder_says_what_it_is_of(embedding: Path, tiny_model: str):
    facts = json.loads((embedding / "inverter.json").read_text("utf-8"))
    assert (facts["kind"], facts["encoder"]) == ("embedding", tiny_model)
    (first, *_), *_, (last, highest, shaped) = facts["no_texts"]
    assert (first, last) == (0, 4) and shaped <= highest < facts["control"]["texts, 5th percentile"]
    assert set(facts["control"]) == {"texts, 5th percentile", "no texts, highest"}
    card = (embedding / "README.md").read_text("utf-8")
    assert "token F1, bag" in card
    assert {path.name for path in embedding.iterdir()} >= {"inverter.safetensors", "binocle.json", "log.jsonl"}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"kind": "words"}, "expected one of embedding, hidden"),
        ({"decoder": "gru"}, "expected one of linear, lstm, transformer"),
        ({"max_length": "x"}, "max length is in tokens, at least .*, not 'x'"),
        ({"minutes": -1}, "minutes is a number above 0"),
        ({"held_out": 0}, "held out is a number above 0, not 0"),
        ({"held_out": 1.0}, "held out is a share"),
        ({"masked": 1.0}, "masked is a share"),
        ({"max_length": 2}, "at least 4"),
        ({"seed": -1}, "from 0, not -1"),
        ({"seed": 1 << 32}, "below 2"),
        ({"learning_rate": float("nan")}, "learning rate is a number above 0, not nan"),
        ({"decoder": "lstm"}, "^decoder is of hidden states: leave it out, or give --from hidden$"),
        ({"layers": 2}, "^layers is of hidden states"),
        ({"layer": 3}, "^layer is of hidden states"),
        ({"bidirectional": False}, "^bidirectional is of hidden states"),
        ({"masked": 0.5}, "^masked is of hidden states"),
        ({"kind": "hidden", "texts": 10}, "^texts is of embeddings: leave it out, or give --from embedding$"),
        ({"kind": "hidden", "decoder": "linear", "layers": 9}, "^layers is of an LSTM or a Transformer"),
        ({"kind": "hidden", "bidirectional": False}, "^bidirectional is of an LSTM"),
    ],
)
def test_settings_that_cannot_be_are_told(options: dict, says: str, texts: Path, tiny_model: str, tmp_path: Path):
    with pytest.raises(InputError, match=says):
        train_inverter(texts, tmp_path / "out", encoder=tiny_model, config=config(**options))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["embedding", "hidden"])
def test_one_document_is_too_few(kind: str, tiny_model: str, tmp_path: Path):
    (tmp_path / "a.txt").write_text("The cat sat on the mat and the dog ran to the house.\n", "utf-8")
    with pytest.raises(InputError, match=r"^there is 1 document: expected at least 2, so that some can be held out$"):
        train_inverter(tmp_path / "a.txt", tmp_path / "out", encoder=tiny_model, config=config(kind=kind))
    assert not (tmp_path / "out").exists()


def test_a_layer_that_is_not_there_is_told(texts: Path, tiny_model: str, tmp_path: Path):
    with pytest.raises(InputError, match="layers 0"):
        train_inverter(texts, tmp_path / "out", encoder=tiny_model, config=config(kind="hidden", layer=9))


def test_kinds_are_not_mistaken_for_each_other(embedding: Path):
    with pytest.raises(InputError, match="inverts embeddings"):
        StateInverter.load(embedding)


def invert(*arguments: object) -> tuple[int, str]:
    from click.testing import CliRunner

    from binocle.cli import cli

    done = CliRunner().invoke(cli, ["invert", *map(str, arguments)], standalone_mode=False)
    if done.exception:
        raise done.exception
    return done.return_value, done.output


def test_the_command_prints_text_and_words_with_probabilities(embedding: Path):
    code, shown = invert("moon cheese ship night", "--inverter", embedding, "--seconds", 0.5)
    text, cosine, words = shown.splitlines()
    assert code == 0
    assert {"moon", "cheese"} & set(text.split())
    assert re.fullmatch(r"  cosine (0\.[5-9]\d\d|1\.000)", cosine)
    assert re.fullmatch(r"  (\S+ [01]\.\d\d(  )?)+", words)


@pytest.mark.parametrize(
    ("arguments", "option", "rule"),
    [
        (["a text", "--row", 1], "--row", "it goes with --vectors"),
        (["a text", "--column", "x"], "--column", "it goes with --vectors"),
        (["--passage", "a.txt:1", "--rows", 2], "--rows", "it goes with --vectors"),
        (["a text", "."], "FOLDER", "it goes with --passage"),
        (["a text", "--index", "."], "--index", "it goes with --passage"),
    ],
)
def test_an_option_without_an_effect_is_refused(arguments: list, option: str, rule: str, embedding: Path):
    with pytest.raises(click.UsageError, match=f"^{option} has no effect here: {rule}$"):
        invert(*arguments, "--inverter", embedding)


@pytest.mark.thorough
def test_vectors_of_a_file_come_back_row_by_row(embedding: Path, tmp_path: Path):
    inverter = EmbeddingInverter.load(embedding)
    vectors = inverter.encoder.encode(["moon cheese ship night", "cat dog house tax"])
    np.save(
        tmp_path / "v.npy", np.concatenate([vectors, np.random.default_rng(0).standard_normal((1, vectors.shape[1]))])
    )
    code, shown = invert("--vectors", tmp_path / "v.npy", "--inverter", embedding, "--seconds", 0.3, "--json")
    rows = [json.loads(line) for line in shown.splitlines()]
    assert code == 0
    assert [(row["row"], row["recovered"]) for row in rows] == [(0, True), (1, True), (2, False)]
    assert rows[2]["text"] == ""
    code, shown = invert("--vectors", tmp_path / "v.npy", "--inverter", embedding, "--row", 2, "--seconds", 0.1)
    assert (code, "no text recovered" in shown) == (1, True)


def test_no_vector_is_inverted_if_one_is_damaged(embedding: Path, tmp_path: Path, capsys):
    vectors = EmbeddingInverter.load(embedding).encoder.encode(["moon cheese ship night", "cat dog house tax"])
    vectors[1, 3] = np.nan
    np.save(tmp_path / "v.npy", vectors)
    with pytest.raises(InputError, match="but vector 2 of 2 has others"):
        invert("--vectors", tmp_path / "v.npy", "--inverter", embedding, "--seconds", 0)
    assert capsys.readouterr().out == ""


def test_the_encoder_is_compared_before_the_dimension(embedding: Path):
    with pytest.raises(EncoderMismatchError, match="train one for that encoder"):
        EmbeddingInverter.load(embedding).check(np.ones((1, 3), np.float32), fingerprint="of another encoder")


def test_a_passage_of_an_index_is_inverted_unless_another_encoder_made_it(
    embedding: Path, tiny_model: str, make_model, tmp_path: Path
):
    from binocle import Retriever

    for name, model in (("own", tiny_model), ("other", str(make_model(tmp_path / "model", seed=5)))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text("moon cheese ship night\n")
        Retriever.open(tmp_path / name, model=model).sync()
    common = ("--inverter", embedding, "--seconds", 0.3, "--json")
    code, shown = invert("--passage", "a.txt:1", tmp_path / "own", *common)
    assert code == 0
    assert json.loads(shown)["true"] == "moon cheese ship night"
    with pytest.raises(EncoderMismatchError, match="train one for that encoder"):
        invert("--passage", "a.txt:1", tmp_path / "other", *common)


def test_a_passage_longer_than_the_texts_learned_is_told(embedding: Path, tiny_model: str, tmp_path: Path):
    from binocle import Retriever

    (tmp_path / "a.txt").write_text("moon cheese ship night the cat sat on the dog at night\n")
    retriever = Retriever.open(tmp_path, model=tiny_model)
    retriever.sync()
    _, shown = invert("--passage", "a.txt:1", tmp_path, "--inverter", embedding, "--seconds", 0)
    told, *_ = shown.splitlines()
    assert told.startswith("the passage has 12 tokens, but the inverter learned at most 8")
    assert passage_length(retriever) == 12


def test_an_index_without_passages_has_no_length(tiny_model: str, tmp_path: Path):
    from binocle import Retriever

    (tmp_path / "a.txt").write_text("")
    retriever = Retriever.open(tmp_path, model=tiny_model)
    retriever.sync()
    with pytest.raises(InputError, match="holds no passages"):
        passage_length(retriever)


def test_a_search_names_the_facts_that_a_vector_has_lost(embedding: Path, tiny_model: str, tmp_path: Path):
    from click.testing import CliRunner

    from binocle import Retriever
    from binocle.cli import cli

    (tmp_path / "a.txt").write_text("The moon and the Ship of 1998 at night.\n")
    Retriever.open(tmp_path, model=tiny_model).sync()
    search = ["search", "moon", str(tmp_path), "--explain", "--inverter", str(embedding)]
    run = CliRunner().invoke(cli, [*search, "--json"], standalone_mode=False)
    passage = json.loads(run.output)["vector"]["passage"]
    assert sorted(passage["retained"] + passage["missing"]) == ["1998", "ship"]
    assert "its vector still says" in CliRunner().invoke(cli, search, standalone_mode=False).output


@pytest.mark.thorough
def test_hidden_states_are_shown_token_by_token(texts: Path, tiny_model: str, tmp_path: Path):
    train_inverter(texts, tmp_path / "out", encoder=tiny_model, config=config(kind="hidden", decoder="linear"))
    code, shown = invert("moon cheese", "--inverter", tmp_path / "out")
    assert code == 0
    assert shown.splitlines()[-1] == "100.0% of 2 tokens recovered"
    assert invert("", "--inverter", tmp_path / "out") == (1, "no tokens to recover: the text has none\n")
    with pytest.raises(InputError, match="give it a text"):
        invert("--vectors", texts, "--inverter", tmp_path / "out")


def test_time_buys_no_more_passes_than_there_may_be():
    module = torch.nn.Linear(1, 1)
    plan = Schedule(1e-3, batch_size=10, seconds=3_600, rows=200, passes=3)
    assert run_loop(module, lambda _: module(torch.ones(1)).sum(), plan).steps == 60
