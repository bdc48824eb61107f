"""The model card, as the hub, Python and the shell read it."""

from __future__ import annotations

import ast
import json
import math
import os
import re
from dataclasses import replace

import pytest

from binocle.core.printable import printable, printable_lines, shell_word
from binocle.training.runs.model_card import Card, finish, write_card

FILES = ("binocle.json", "log.jsonl")


@pytest.fixture
def card():
    measures = [
        {"name": "ndcg@10", "value": 0.51234, "interval": [0.4, 0.6], "rows": 90, "when": when}
        for when in ("before", "after")
    ]
    return Card(
        kind="encoder",
        base="sentence-transformers/all-MiniLM-L6-v2",
        objective="ranking",
        data={"source": "owner/pairs", "datasets": ["owner/pairs"]},
        config={},
        measures=measures,
        seconds=1.0,
        steps=3,
        texts_per_second=2.0,
        fingerprint="f",
        device="cpu",
        bf16=False,
        notes=("ndcg@10 -0.1000 (95 % -0.2000 to -0.0500, p 0.001): worse than its base", "stopped early"),
        verdict={"value": -0.1, "verdict": "worse"},
    )


def test_the_hub_reads_the_card(card, tmp_path):
    hub = pytest.importorskip("huggingface_hub")
    write_card(tmp_path, card, "my-encoder")
    text = (tmp_path / "README.md").read_text("utf-8")
    data = hub.ModelCard(text).data
    assert (data.base_model, data.license, data.datasets) == (card.base, "apache-2.0", ["owner/pairs"])
    (result,) = data.eval_results
    assert (result.metric_type, result.metric_value, data.model_name) == ("ndcg@10", 0.5123, "my-encoder")
    assert 'SentenceTransformer("my-encoder")' in text
    assert "Ndcg@10 -0.1000" in text and "worse than its base." in text
    assert json.loads((tmp_path / "binocle.json").read_text("utf-8"))["verdict"]["verdict"] == "worse"
    write_card(tmp_path, replace(card, base=f"{card.base}@int8@16"), "my-encoder")
    assert (tmp_path / "README.md").read_text("utf-8") == text


@pytest.mark.parametrize("name", ["my encoder", "a{word}{name}", "a\x7f\nb: c", os.fsdecode(b"caf\xe9")])
def test_a_card_has_any_name_in_its_python_and_in_its_command(name, card, tmp_path):
    hub = pytest.importorskip("huggingface_hub")
    write_card(tmp_path, replace(card, data={"source": name}, notes=(name,)), name)
    text = (tmp_path / "README.md").read_text("utf-8")
    assert printable_lines(text) == text
    (literal,) = re.findall(r"SentenceTransformer\((.*)\)", text)
    assert ast.literal_eval(literal) == name
    assert f"`binocle index FOLDER --model {shell_word(name)}`" in text
    assert f"- source: {printable(name)}\n" in text
    assert hub.ModelCard(text).data.model_name == printable(name)


def test_the_files_beside_a_model_have_null_for_what_is_no_number(card, tmp_path):
    ready, out = tmp_path / "ready", tmp_path / "out"
    ready.mkdir()
    out.mkdir()
    measure = {"name": "spearman", "value": 0.5, "interval": [math.nan, math.nan], "rows": 1}
    finish(ready, out, replace(card, measures=[measure]), [{"step": 1, "loss": 0.1, "grad_norm": math.inf}], None)
    facts, row = (json.loads((out / name).read_text("utf-8"), parse_constant=pytest.fail) for name in FILES)
    assert facts["measures"] == [{**measure, "interval": [None, None]}]
    assert row == {"step": 1, "loss": 0.1, "grad_norm": None}
