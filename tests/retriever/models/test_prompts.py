"""Prompts that a model's folder does not name, and that are known of its name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from binocle import Retriever, load_encoder
from binocle.retriever.models.load import note_on_prompts, prompts_here
from binocle.retriever.models.prompts import known_prompts

BGE = "Represent this sentence for searching relevant passages: "
TEXTS = ["the cat sat on the mat.", "bread"]


@pytest.mark.parametrize(
    ("name", "prompts"),
    [
        ("e5-small-v2", ("query: ", "passage: ")),
        ("multilingual-e5-large", ("query: ", "passage: ")),
        ("hub/models--intfloat--e5-base/snapshots/0f1", ("query: ", "passage: ")),
        ("hub/models--BAAI--bge-small-en-v1.5/snapshots/0f1", (BGE, "")),
        ("bge-large-zh-v1.5", ("为这个句子生成表示以用于检索相关文章：", "")),
        ("mxbai-embed-large-v1", (BGE, "")),
        ("nomic-embed-text-v1.5", ("search_query: ", "search_document: ")),
        ("hub/models--somebody--e5-base/snapshots/0f1", ("", "")),
        ("my-e5-small-v2", ("", "")),
        ("e5-small-v2-tuned", ("", "")),
        ("bge-m3", ("", "")),
        ("gte-small", ("", "")),
        ("multilingual-e5-large-instruct", ("", "")),
    ],
)
def test_prompts_are_known_of_the_exact_name_of_a_model(name, prompts):
    assert known_prompts(Path("/models") / name) == prompts


def test_a_model_of_a_known_name_gets_its_prompts_unless_its_folder_names_some(tiny_model, tmp_path):
    plain = load_encoder(tiny_model)
    folder = Path(shutil.copytree(tiny_model, tmp_path / "e5-small-v2"))
    whole = folder / "config_sentence_transformers.json"
    known = [plain.encode([f"{prompt}{text}" for text in TEXTS]) for prompt in ("query: ", "passage: ")]
    for named in (None, {}, {"prompts": None}, {"prompts": {"query": "", "document": ""}}):
        if named is not None:
            whole.write_text(json.dumps(named))
        encoder = load_encoder(folder)
        np.testing.assert_allclose(encoder.encode(TEXTS, kind="query"), known[0], atol=1e-6)
        np.testing.assert_allclose(encoder.encode(TEXTS), known[1], atol=1e-6)
        assert encoder.fingerprint != plain.fingerprint
        assert encoder.max_tokens < plain.max_tokens
    whole.write_text(json.dumps({"prompts": {"query": "the "}}))
    encoder = load_encoder(folder)
    np.testing.assert_allclose(encoder.encode(TEXTS), plain.encode(TEXTS), atol=1e-6)
    assert encoder.encode(TEXTS, kind="query") == pytest.approx(plain.encode([f"the {t}" for t in TEXTS]), abs=1e-6)
    assert note_on_prompts(str(folder)) == ""
    assert prompts_here(str(folder)) == {"query": "the ", "document": ""}


def test_the_first_run_and_the_status_name_the_prompts(folder, tiny_model, tmp_path, run):
    model = shutil.copytree(tiny_model, tmp_path / "multilingual-e5-small")
    shown = run("index", folder, "--model", f"{model}@16")
    assert shown.code == 0
    assert shown.err.endswith(
        f"the folder of {model}@16 names no prompts, so it gets the prompts of its training: 'query: ' before "
        "queries and 'passage: ' before passages; \"prompts\" in config_sentence_transformers.json replace them\n"
    )
    assert (
        "\nprompts    'query: ' before each query and 'passage: ' before each document\n" in run("status", folder).out
    )
    assert run("status", folder, "--json").rows[0]["prompts"] == {"query": "query: ", "document": "passage: "}
    assert run("index", folder).err == ""
    (model / "modules.json").write_text("[")
    assert Retriever.open(folder).status().prompts is None


def test_a_model_without_prompts_has_no_line_on_them(folder, tiny_model, run):
    assert run("index", folder, "--model", tiny_model).err == ""
    assert "\nprompts " not in run("status", folder).out
    assert Retriever.open(folder).status().prompts == {"query": "", "document": ""}
    assert prompts_here("nobody/has-this") is None


@pytest.mark.thorough
def test_training_starts_with_the_known_prompts_and_writes_them(tiny_model, tmp_path):
    pytest.importorskip("sentence_transformers")
    from binocle.training.encoders.base_model import make_model, save_model
    from binocle.training.encoders.config import EncoderConfig

    base = shutil.copytree(tiny_model, tmp_path / "e5-small")
    save_model(make_model(str(base), EncoderConfig()), tmp_path / "mine")
    np.testing.assert_allclose(
        load_encoder(tmp_path / "mine").encode(TEXTS, kind="query"),
        load_encoder(base).encode(TEXTS, kind="query"),
        atol=1e-5,
    )
    assert prompts_here(str(tmp_path / "mine")) == {"query": "query: ", "document": "passage: "}
