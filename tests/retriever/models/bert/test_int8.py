from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from binocle.core.errors import InputError, ModelNotFoundError
from binocle.retriever.models.bert import int8, openvino, openvino_graph
from binocle.retriever.models.bert.int8 import calibration_ids, quantize
from binocle.retriever.models.bert.numpy import BertNumpy
from binocle.retriever.models.bert.weight_names import LayerNames
from binocle.retriever.models.encoder import encode_finite
from binocle.retriever.models.load import load_encoder, load_reranker
from binocle.retriever.models.model_files import INT8, find
from binocle.retriever.retriever import Retriever

TEXTS = [
    "The cat sat on the mat.",
    "bread",
    "A cancelled task raises an error in the worker; the client retries it. " * 8,
    "income tax, due every year!",
    "",
]


class Rounded(BertNumpy):
    """The layers as an `Int8Dense` describes them, in numpy."""

    def __init__(self, config, weights, layers) -> None:
        super().__init__(config, weights)
        self.layers_int8 = layers

    def _dense(self, x, name):
        layer = self.layers_int8[name]
        size = (layer.high - layer.low) / 255
        levels = np.clip(np.round((x * layer.scale - layer.low) / size), 0, 255)
        weight = layer.weight.astype(np.float64) * layer.step[:, None]
        return ((levels * size + layer.low) @ weight.T + layer.bias).astype(np.float32)


@pytest.fixture(scope="module")
def model(tiny_model) -> Any:
    encoder: Any = load_encoder(tiny_model)
    return encoder._model


@pytest.fixture(scope="module")
def layers(model):
    return quantize(model._config, model._weights, calibration_ids(model.tokenizer(truncated=False), model.limit))


@pytest.fixture(params=[True, False], ids=["int8 products", "float32 products"])
def products(request, monkeypatch):
    """A processor with int8 products, or without."""
    if request.param and not int8.has_int8_products():
        pytest.skip("this processor has no exact products of int8")
    monkeypatch.setattr(openvino_graph, "has_int8_products", lambda: request.param)


def test_the_graph_computes_what_the_layers_say(model, layers, products):
    graph = openvino.BertOpenVINO(model._config, model._weights, precision="f32", int8=layers)
    ids = np.array([model.tokenizer(truncated=True).encode(TEXTS[2]).ids[:48]])
    (hidden,) = (output.copy() for output in graph.map([(ids, np.ones_like(ids))]))
    expected = Rounded(model._config, model._weights, layers).forward(ids, np.ones_like(ids))
    np.testing.assert_allclose(hidden, expected, atol=0.02)  # a value at the edge of a step may go the other way
    assert np.abs(hidden - expected).mean() < 1e-3


def test_each_layer_keeps_its_outputs(model, layers):
    batches = calibration_ids(model.tokenizer(truncated=False), model.limit)
    rounded = Rounded(model._config, model._weights, layers)
    exact = BertNumpy(model._config, model._weights)
    for number, inputs in enumerate(int8._Recorder(model._config, model._weights).of_layers(batches)):
        names = LayerNames(number)
        channels, _ = int8._split(inputs[names.output])
        assert set(inputs) == set(vars(names).values()) - {names.attention_norm, names.output_norm, names.gate}
        for name, x in inputs.items():
            outputs = exact._dense(x, name)
            copies = channels if name == names.intermediate else np.arange(outputs.shape[1])
            error = rounded._dense(x[:, channels] if name == names.output else x, name) - outputs[:, copies]
            assert np.square(error).mean() < 1e-3 * outputs.var(0).mean()
            assert np.abs(error.mean(0)).max() < 1e-4  # the bias has the mean error


def test_a_wide_channel_is_computed_in_parts(model):
    """One token with one large value leaves the steps of all other values small."""
    x = np.random.default_rng(0).normal(size=(200, 64)).astype(np.float32)
    x[7, 5] = 60
    channels, parts = int8._split(x)
    assert len(channels) == 64 + 16
    assert (channels == 5).sum() > 10
    assert np.abs(x[:, channels] * parts).max() < 6
    weight = {"layer.weight": np.eye(64, dtype=np.float32), "layer.bias": np.zeros(64, np.float32)}
    layer = int8._layer(x[:, channels], weight, "layer", parts, channels)
    whole = int8._layer(x, weight, "layer", np.ones(64, np.float32))
    assert layer.high - layer.low < (whole.high - whole.low) / 5
    names = LayerNames(0)
    made = quantize(model._config, model._weights, [np.arange(5, 40)[None]])
    assert made[names.intermediate].weight.shape[0] == made[names.output].weight.shape[1]
    assert made[names.output].weight.shape[1] == model._weights[names.output + ".weight"].shape[1] + 16


def test_documents_are_near_those_of_the_encoder_and_queries_equal(tiny, tiny_model, products):
    encoder = load_encoder(tiny_model + INT8)
    assert encoder.name == tiny.name + INT8
    assert encoder.fingerprint != tiny.fingerprint
    assert encoder.fingerprint == load_encoder(tiny_model + INT8).fingerprint
    cosine = (encoder.encode(TEXTS) * tiny.encode(TEXTS)).sum(1)
    assert cosine.min() > 0.99
    assert cosine.max() < 1 - 1e-7
    np.testing.assert_array_equal(encoder.encode(TEXTS, kind="query"), tiny.encode(TEXTS, kind="query"))
    alone = np.concatenate([encoder.encode([text]) for text in TEXTS])
    np.testing.assert_allclose(alone, encoder.encode(TEXTS), atol=1e-6)


def test_a_folder_that_ends_like_that_is_itself(make_model, tmp_path):
    folder = str(make_model(tmp_path / "model@int8"))
    assert load_encoder(folder).name == folder
    assert load_encoder(folder + INT8).name == folder + INT8
    assert find(folder + INT8) == Path(folder)
    with pytest.raises(ModelNotFoundError):
        load_encoder(folder + INT8 + INT8)
    for name in ("a" * 5_000 + INT8, "~nobody-of-that-name/model" + INT8, INT8):
        with pytest.raises(ModelNotFoundError):
            load_encoder(name)


def test_a_reranker_in_int8_scores_nearly_the_same(make_reranker, tmp_path, products):
    folder = str(make_reranker(tmp_path / "reranker"))
    own, reranker = load_reranker(folder), load_reranker(folder + INT8)
    assert reranker.name == own.name + INT8
    assert reranker.fingerprint != own.fingerprint
    expected, scores = own.score("a cancelled task", TEXTS), reranker.score("a cancelled task", TEXTS)
    assert 1e-7 < np.abs(scores - expected).max() < 0.2 * np.std(expected)
    alone = [reranker.score("a cancelled task", [text])[0] for text in TEXTS]
    np.testing.assert_allclose(alone, scores, atol=1e-5)


@pytest.mark.parametrize("suffix", ["", INT8])
def test_damaged_weights_are_an_error_of_one_line(suffix, make_model, make_reranker, tmp_path):
    folders = make_model(tmp_path / "encoder"), make_reranker(tmp_path / "reranker")
    for folder in folders:
        file = folder / "model.safetensors"
        weights = {name: weight * np.float32(3e37) for name, weight in load_file(file).items()}
        save_file(weights, file, metadata={"format": "pt"})
    encoder, reranker = load_encoder(f"{folders[0]}{suffix}"), load_reranker(f"{folders[1]}{suffix}")
    for call in (
        lambda: encode_finite(encoder, TEXTS),
        lambda: encode_finite(encoder, TEXTS[:1], kind="query"),
        lambda: reranker.score(TEXTS[0], TEXTS),
        lambda: reranker.score_within(60, TEXTS[0], TEXTS),
    ):
        with pytest.raises(InputError, match="weights (of the model )?are damaged"):
            call()


def test_other_rerankers_are_refused_in_int8(make_reranker, tmp_path):
    folder = make_reranker(tmp_path / "relu")
    config = folder / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text("utf-8")), "hidden_act": "relu"}), "utf-8")
    with pytest.raises(InputError, match="relu is no reranker of a family that is computed in int8"):
        load_reranker(f"{folder}{INT8}")


def test_other_models_are_refused_in_int8(make_model, tmp_path):
    folder = make_model(tmp_path / "relu")
    config = folder / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text("utf-8")), "hidden_act": "relu"}), "utf-8")
    with pytest.raises(InputError, match="relu is no encoder of a family that is computed in int8"):
        load_encoder(f"{folder}{INT8}")


def clean(retriever: Retriever) -> bool:
    result = retriever.verify(deep=True)
    assert result.vectors is not None
    return not result.faults and not result.vectors.wrong


def test_an_index_changes_to_int8_and_back(folder, tiny_model):
    with Retriever.open(folder, model=tiny_model) as retriever:
        retriever.sync()
        report = retriever.switch(tiny_model + INT8)
        assert report.switched
        assert report.embedded == report.chunks > 0
        assert retriever.status().model == tiny_model + INT8
        assert clean(retriever)
    with Retriever.open(folder) as retriever:
        (folder / "new.md").write_text("A new page about bread and butter.\n", "utf-8")
        retriever.sync()
        assert retriever.search("bread and butter")[0].path == "new.md"
        assert clean(retriever)
        retriever.rollback()
        assert retriever.status().model == tiny_model
        assert clean(retriever)
