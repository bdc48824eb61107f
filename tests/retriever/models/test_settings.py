from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from binocle.core.errors import InputError
from binocle.retriever.models.load import load_encoder
from binocle.retriever.models.settings import ModelSettings, fingerprint


@pytest.fixture
def model(tiny_model, tmp_path):
    """A copy of the tiny model, to change."""
    return shutil.copytree(tiny_model, tmp_path / "model")


def print_of(folder):
    return fingerprint(folder, ModelSettings.read(folder))


def test_settings_say_what_decides_a_vector(model):
    settings = ModelSettings.read(model)
    assert (settings.modules, settings.pooling) == (("Transformer", "Pooling", "Normalize"), ("mean",))
    assert (settings.max_tokens, settings.lowercase) == (64, False)
    assert (settings.query_prompt, settings.document_prompt) == ("", "")


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, ("mean",)),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, ("cls",)),
        ({"pooling_mode_max_tokens": True}, ("max",)),
        ({"pooling_mode_mean_sqrt_len_tokens": True}, ("mean_sqrt_len_tokens",)),
        ({"pooling_mode_weightedmean_tokens": True}, ("weightedmean",)),
        ({"pooling_mode_lasttoken": True}, ("lasttoken",)),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, ("cls", "mean")),
        ({"pooling_mode": "max"}, ("max",)),
        ({"pooling_mode": ["max", "mean"]}, ("max", "mean")),
    ],
    ids=str,
)
def test_pooling_is_read_from_old_flags_and_the_new_key(config, expected, model):
    (model / "1_Pooling" / "config.json").write_text(json.dumps(config))
    assert ModelSettings.read(model).pooling == expected


def test_prompts_are_those_for_queries_and_documents(model):
    (model / "config_sentence_transformers.json").write_text(
        json.dumps({"prompts": {"query": "q: ", "document": "d: ", "other": "o: "}})
    )
    settings = ModelSettings.read(model)
    assert (settings.query_prompt, settings.document_prompt) == ("q: ", "d: ")


@pytest.mark.parametrize(
    "name", ["modules.json", "sentence_bert_config.json", "1_Pooling/config.json", "config_sentence_transformers.json"]
)
@pytest.mark.parametrize("content", [b"{", b"", b"\xff\xfe"], ids=repr)
def test_a_setting_that_is_not_json_is_named(name, content, model):
    (model / name).write_bytes(content)
    with pytest.raises(InputError, match=Path(name).name):
        ModelSettings.read(model)


# The fingerprint


def test_copies_of_a_model_have_one_fingerprint(tiny_model, model, make_model, tmp_path):
    assert print_of(model) == print_of(Path(tiny_model)) == load_encoder(str(model)).fingerprint
    assert print_of(make_model(tmp_path / "again")) == print_of(model)
    assert len(print_of(model)) == 32
    assert print_of(make_model(tmp_path / "other", seed=1)) != print_of(model)


@pytest.mark.parametrize(
    "name", ["README.md", "LICENSE", ".gitattributes", "train_script.py", "eval/results.csv", "onnx/README.md"]
)
def test_what_decides_no_vector_does_not_change_the_fingerprint(name, model):
    before = print_of(model)
    (model / name).parent.mkdir(exist_ok=True)
    (model / name).write_text("anything")
    assert print_of(model) == before


def test_library_versions_do_not_change_the_fingerprint(model):
    """Saving a model again with a newer sentence-transformers gives the same vectors."""
    versions = {
        "__version__": {"sentence_transformers": "5.0.0"},
        "prompts": {"query": "", "document": ""},
        "similarity_fn_name": "cosine",
    }
    (model / "config_sentence_transformers.json").write_text(json.dumps(versions))
    before = print_of(model)
    versions["__version__"] = {"sentence_transformers": "6.2.0"}
    (model / "config_sentence_transformers.json").write_text(json.dumps(versions))
    assert print_of(model) == before


def change_json(name, **changes):
    def change(folder):
        file = folder / name
        value = json.loads(file.read_text()) if file.exists() else {}
        file.write_text(json.dumps({**value, **changes}))

    return change


def flip(name, place):
    def change(folder):
        data = bytearray((folder / name).read_bytes())
        data[place] ^= 1
        (folder / name).write_bytes(data)

    return change


def without_normalize(folder):
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps(modules[:-1]))


CHANGES = {
    "one bit of the weights": flip("model.safetensors", -1),
    "vocabulary": lambda folder: (folder / "tokenizer.json").write_text(
        (folder / "tokenizer.json").read_text().replace('"cat"', '"cut"')
    ),
    "pooling": change_json("1_Pooling/config.json", pooling_mode="max"),
    "normalization": without_normalize,
    "length": change_json("sentence_bert_config.json", max_seq_length=32),
    "query prompt": change_json("config_sentence_transformers.json", prompts={"query": "find "}),
    "document prompt": change_json("config_sentence_transformers.json", prompts={"document": "text "}),
    "number of heads": change_json("config.json", num_attention_heads=2),
    "case": change_json("sentence_bert_config.json", do_lower_case=True),
    "length of the tokenizer": lambda folder: [
        change_json("sentence_bert_config.json", max_seq_length=None)(folder),
        change_json("tokenizer_config.json", model_max_length=17)(folder),
    ],
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_decides_a_vector_changes_the_fingerprint(name, model):
    before = print_of(model)
    CHANGES[name](model)
    assert print_of(model) != before


def test_the_length_in_the_tokenizers_settings_alone_changes_the_fingerprint(model):
    """It decides where texts are cut when the model itself does not say."""
    change_json("sentence_bert_config.json", max_seq_length=None)(model)
    change_json("tokenizer_config.json", model_max_length=30)(model)
    before = print_of(model)
    change_json("tokenizer_config.json", model_max_length=17)(model)
    assert print_of(model) != before


@pytest.mark.parametrize(
    "name",
    [
        "2_Dense/model.safetensors",
        "2_Dense/config.json",
        "vocab.json",
        "merges.txt",
        "tokenizer.model",
        "added_tokens.json",
    ],
)
def test_files_that_only_models_on_torch_have_change_the_fingerprint(name, model):
    """Vectors of a RoBERTa without tokenizer.json follow from vocab.json and merges.txt."""
    (model / "tokenizer.json").unlink()
    (model / name).parent.mkdir(exist_ok=True)
    (model / name).write_text("{}")
    before = print_of(model)
    (model / name).write_text('{"a": 1}')
    assert print_of(model) != before


@pytest.mark.parametrize("modules", [True, False])
@pytest.mark.parametrize("end", ["", "@int8"])
def test_a_reranker_is_no_encoder(modules, end, tmp_path, make_reranker):
    folder = make_reranker(tmp_path / "reranker", modules=modules)
    with pytest.raises(InputError, match=f"^{folder} is a reranker and no encoder: "):
        load_encoder(f"{folder}{end}")


@pytest.mark.parametrize("problem", ["single_label_classification", "regression"])
def test_the_states_of_a_fine_tuned_classifier_can_be_vectors(problem, tmp_path, make_reranker):
    folder = make_reranker(tmp_path / "tuned", modules=False)
    config = json.loads((folder / "config.json").read_text("utf-8")) | {"problem_type": problem}
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    assert load_encoder(str(folder)).dim == 32


@pytest.mark.parametrize(("task", "noun"), [("QuestionAnswering", "a reader"), ("TokenClassification", "a tagger")])
def test_a_model_with_a_head_for_tokens_is_no_encoder(task, noun, tmp_path, make_head):
    folder = make_head(tmp_path / "head", task, ["a", "b"])
    with pytest.raises(InputError, match=f"is {noun} and no encoder: expected a sentence-transformers folder"):
        load_encoder(str(folder))
