"""Dense layers behind the pooling: vectors equal those of sentence-transformers, and each text has one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from binocle.core.errors import InputError
from binocle.retriever.models.bert import bert_encoder
from binocle.retriever.models.bert.bert_encoder import BertEncoder, use_gpus
from binocle.retriever.models.encoders.torch_encoder import TorchEncoder
from binocle.retriever.models.load import load_encoder

TEXTS = ["the cat sat on the mat.", "", "bread", "a dog ran to the house; " * 20, "größe", "a task"]
TANH, IDENTITY, RELU, SIGMOID = (
    f"torch.nn.modules.{name}"
    for name in ("activation.Tanh", "linear.Identity", "activation.ReLU", "activation.Sigmoid")
)


def add(folder: Path, *layers: dict, last: str = "Normalize") -> Path:
    """Put dense layers behind the pooling, each with its `size`, and a config.json of the other values."""
    random = np.random.default_rng(5)
    modules = json.loads((folder / "modules.json").read_text())[:2]
    width = json.loads((folder / modules[1]["path"] / "config.json").read_text())
    width = 32 * len(width.get("pooling_mode", [0]))
    for number, layer in enumerate(layers, 2):
        path, size = f"{number}_Dense", layer.pop("size", 16)
        (folder / path).mkdir()
        weights = {"linear.weight": random.standard_normal((size, width)).astype(np.float32) / 4}
        if layer.get("bias", True):
            weights["linear.bias"] = random.standard_normal(size).astype(np.float32)
        save_file(weights, folder / path / "model.safetensors")
        (folder / path / "config.json").write_text(
            json.dumps({"in_features": width, "out_features": size, "bias": True, **layer})
        )
        modules.append({"idx": number, "name": str(number), "path": path, "type": "sentence_transformers.models.Dense"})
        width = size
    if last:
        number = len(modules)
        modules.append({"idx": number, "name": str(number), "path": "", "type": f"sentence_transformers.models.{last}"})
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


def reference(folder: Path):
    pytest.importorskip("torch").set_num_threads(1)
    return pytest.importorskip("sentence_transformers").SentenceTransformer(str(folder), device="cpu")


MODELS = {
    "LaBSE": (["cls"], [{"activation_function": TANH, "size": 32}], "Normalize"),
    "distiluse": (["mean"], [{"activation_function": TANH}], ""),
    "gtr": (["mean"], [{"activation_function": IDENTITY, "bias": False}], "Normalize"),
    "several": (["cls", "max"], [{"activation_function": RELU, "size": 48}, {"activation_function": SIGMOID}], ""),
    "no activation named": (["mean"], [{}], "Normalize"),
}


@pytest.mark.parametrize("name", MODELS)
def test_vectors_behind_dense_layers_equal_sentence_transformers(name, make_model, tmp_path):
    pooling, layers, last = MODELS[name]
    folder = make_model(tmp_path / "model", pooling={"pooling_mode": pooling})
    add(folder, *map(dict, layers), last=last)
    encoder = load_encoder(folder)
    assert isinstance(encoder, BertEncoder)
    assert encoder.dim == layers[-1].get("size", 16)
    expected = reference(folder).encode(TEXTS, normalize_embeddings=True)
    for kind in ("document", "query"):
        np.testing.assert_allclose(encoder.encode(TEXTS, kind=kind), expected, atol=1e-5)
    assert encoder.encode([]).shape == (0, encoder.dim)


def test_a_dense_model_for_dot_products_keeps_its_lengths(make_model, tmp_path):
    folder = add(make_model(tmp_path / "model"), {}, last="")
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"similarity_fn_name": "dot"}))
    np.testing.assert_allclose(load_encoder(folder).encode(TEXTS), reference(folder).encode(TEXTS), atol=1e-5)


def test_a_vector_behind_a_dense_layer_does_not_depend_on_the_texts_beside_it(make_model, tmp_path):
    encoder = load_encoder(add(make_model(tmp_path / "model"), {"size": 24}))
    together = encoder.encode(TEXTS * 9)
    np.testing.assert_array_equal(np.concatenate([encoder.encode([text]) for text in TEXTS] * 9), together)


@pytest.mark.parametrize(
    "config",
    [
        {"activation_function": "torch.nn.modules.activation.GELU"},
        {"use_residual": True, "size": 32},
    ],
    ids=json.dumps,
)
def test_a_layer_that_numpy_lacks_goes_through_torch(config, make_model, tmp_path):
    folder = add(make_model(tmp_path / "model"), config)
    encoder = load_encoder(folder)
    assert isinstance(encoder, TorchEncoder)
    np.testing.assert_allclose(encoder.encode(TEXTS), reference(folder).encode(TEXTS), atol=1e-5)


def test_a_dense_layer_of_another_size_is_refused(make_model, tmp_path):
    folder = add(make_model(tmp_path / "model"), {})
    other = add(make_model(tmp_path / "other", pooling={"pooling_mode": ["cls", "max"]}), {})
    shutil.copy(other / "2_Dense/model.safetensors", folder / "2_Dense")
    with pytest.raises(InputError, match=r"2_Dense/model\.safetensors holds no dense layer for 32 dimensions: copy"):
        load_encoder(folder)
    save_file({"linear.weight": np.ones((16, 32), np.float32)}, folder / "2_Dense/model.safetensors")
    with pytest.raises(InputError, match="holds no dense layer for 32 dimensions"):
        load_encoder(folder)


def test_documents_of_a_gpu_pass_the_dense_layer_too(make_model, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    encoder = load_encoder(add(make_model(tmp_path / "model"), {"size": 24}))
    expected = encoder.encode(TEXTS)
    monkeypatch.setattr(bert_encoder, "gpus", lambda: (["cpu"], "1 GPU"))
    assert use_gpus(encoder) == "1 GPU"
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, atol=1e-5)
    assert encoder.encode([]).shape == (0, 24)
