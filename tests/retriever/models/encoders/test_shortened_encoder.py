"""NAME@16 is NAME with the first 16 dimensions of its vectors, in an index as anywhere else."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from binocle import EncoderMismatchError, InputError, Retriever, load_encoder, load_reranker
from binocle.core.errors import ModelNotFoundError
from binocle.retriever.models.encoders.adapted_encoder import save_adapted_encoder
from binocle.retriever.models.encoders.defended_encoder import DefendedEncoder, save_defended_encoder
from binocle.training.evaluation.comparison.compare import compare
from binocle.training.evaluation.comparison.contenders import parse

TEXTS = ["The cat sat on the mat.", "Income tax is due every year.", "Cancel a task and the worker is told."]


@pytest.mark.parametrize("kind", ["query", "document"])
def test_a_shortened_encoder_has_the_first_dimensions_at_length_1(tiny_model, kind):
    base, encoder = load_encoder(tiny_model), load_encoder(f"{tiny_model}@16")
    first = base.encode(TEXTS, kind=kind)[:, :16]
    expected = first / np.linalg.norm(first, axis=1, keepdims=True)
    np.testing.assert_allclose(encoder.encode(TEXTS, kind=kind), expected, atol=1e-6)
    assert (encoder.dim, encoder.name, encoder.max_tokens) == (16, f"{base.name}@16", base.max_tokens)
    assert len({base.fingerprint, encoder.fingerprint, load_encoder(f"{tiny_model}@8").fingerprint}) == 3


def test_an_index_keeps_the_length_and_is_switched_to_another(folder, tiny_model, run):
    assert run("index", folder, "--model", f"{tiny_model}@16").code == 0
    index = Retriever.open(folder)
    assert (index.encoder.dim, index.snapshot().head.encoder.dim) == (16, 16)
    assert index.search("cat", mode="semantic")
    assert index.sync().embedded == 0
    assert f"{tiny_model}@16, 16 dimensions" in run("status", folder).out
    assert run("search", "cat", folder, "--explain").code == 0
    with pytest.raises(EncoderMismatchError):
        Retriever.open(folder, model=tiny_model).search("cat")
    assert run("switch", tiny_model, folder).code == 0
    assert Retriever.open(folder).encoder.dim == load_encoder(tiny_model).dim
    assert run("rollback", folder).code == 0
    assert Retriever.open(folder).encoder.name == f"{tiny_model}@16"


def test_it_goes_with_int8(tiny_model, folder, run):
    encoder = load_encoder(f"{tiny_model}@int8@16")
    assert (encoder.name, encoder.dim) == (f"{tiny_model}@int8@16", 16)
    assert encoder.fingerprint != load_encoder(f"{tiny_model}@16").fingerprint
    shown = run("index", folder, "--model", f"{tiny_model}@16", "--precision", "int8")
    assert shown.code == 2
    assert shown.err.endswith(f"expected {tiny_model}@int8@16 as --model, not --precision\n")
    assert run("index", folder, "--model", f"{tiny_model}@int8@16", "--precision", "auto").code == 0


def test_lengths_of_an_encoder_are_compared(tiny_model, tmp_path, write):
    rows = [("corpus", "the cat"), ("corpus", "income tax")]
    text = "".join(f'{{"_id": "{number}", "text": "{row[1]}"}}\n' for number, row in enumerate(rows))
    judged = {"corpus.jsonl": text, "queries.jsonl": text, "qrels/test.tsv": "q\td\tscore\n0\t0\t1\n1\t1\t1\n"}
    write(tmp_path / "small", judged)
    contenders = [tiny_model, f"{tiny_model}@16", f"{tiny_model}@8@hybrid"]
    comparison = compare(contenders, [tmp_path / "small"], indexes=tmp_path / "indexes")
    assert len(list((tmp_path / "indexes").iterdir())) == 3
    assert comparison.contenders[1:] == ("tiny@16@semantic", "tiny@8@hybrid")
    assert [part.model for part in parse(["a@128", "b"])] == ["a@128", "b"]


def test_what_cannot_be_shortened_is_told(tiny_model, make_reranker, tmp_path):
    for length in (0, load_encoder(tiny_model).dim, 99_999):
        with pytest.raises(InputError, match=rf"@{length} does not exist: vectors of .* are cut to fewer"):
            load_encoder(f"{tiny_model}@{length}")
    with pytest.raises(ModelNotFoundError):
        load_encoder(f"{tiny_model}@16@int8")
    with pytest.raises(ModelNotFoundError):
        load_reranker(f"{make_reranker(tmp_path / 'reranker')}@16")
    base = load_encoder(f"{tiny_model}@16")
    assert isinstance(base, DefendedEncoder)
    with pytest.raises(InputError, match="is a defended encoder already"):
        save_defended_encoder(tmp_path / "defended", base, base.defence)
    save_defended_encoder(tmp_path / "cut", load_encoder(tiny_model), base.defence)
    with pytest.raises(InputError, match="has defended or shortened vectors already"):
        load_encoder(f"{tmp_path / 'cut'}@8")


def test_a_folder_of_such_a_name_is_itself(tiny_model, tmp_path):
    folder = shutil.copytree(tiny_model, tmp_path / "model@16")
    assert load_encoder(folder).dim == load_encoder(tiny_model).dim
    assert load_encoder(f"{folder}@8").dim == 8


def test_many_queries_are_announced_to_the_encoder_behind_an_adapter(tiny_model, tmp_path, monkeypatch):
    calls = []
    encoder = "binocle.retriever.models.bert.bert_encoder.BertEncoder"
    monkeypatch.setattr(f"{encoder}.expect_queries", lambda self: calls.append(self.name))
    base = load_encoder(tiny_model)
    save_adapted_encoder(tmp_path / "adapter", base, np.eye(base.dim, dtype=np.float32))
    for model in (tmp_path / "adapter", f"{tiny_model}@16"):
        retriever = Retriever.open(tmp_path / f"index-{len(calls)}", model=model)
        retriever.add([{"id": "a", "text": TEXTS[0]}])
        retriever.warm_up()
    assert calls == [base.name, base.name]


@pytest.mark.parametrize("pooling", ["mean", "weightedmean"])  # by numpy, and through torch
def test_a_model_that_says_so_itself_is_shortened_as_by_sentence_transformers(pooling, make_model, tmp_path):
    folder = make_model(tmp_path / "model", pooling={"pooling_mode": pooling})
    whole = load_encoder(folder)
    (folder / "config_sentence_transformers.json").write_text('{"truncate_dim": 16}')
    model = pytest.importorskip("sentence_transformers").SentenceTransformer(str(folder), device="cpu")
    encoder = load_encoder(folder)
    assert (encoder.name, encoder.dim) == (f"{folder}@16", 16)
    assert encoder.fingerprint not in {whole.fingerprint, load_encoder(f"{folder}@8").fingerprint}
    np.testing.assert_allclose(encoder.encode(TEXTS), model.encode(TEXTS, normalize_embeddings=True), atol=1e-5)
    np.testing.assert_array_equal(load_encoder(encoder.name).encode(TEXTS), encoder.encode(TEXTS))
    for length in (None, 32, 99):
        (folder / "config_sentence_transformers.json").write_text(json.dumps({"truncate_dim": length}))
        assert load_encoder(folder).fingerprint == whole.fingerprint
    for length in (0, -1, "16", True, 1.5):
        (folder / "config_sentence_transformers.json").write_text(json.dumps({"truncate_dim": length}))
        with pytest.raises(InputError, match=r"has truncate_dim .*: expected a positive number"):
            load_encoder(folder)


def test_an_index_remembers_the_length_that_a_model_says_itself(folder, make_model, tmp_path, run):
    model = make_model(tmp_path / "model")
    (model / "config_sentence_transformers.json").write_text('{"truncate_dim": 16}')
    assert run("index", folder, "--model", model).code == 0
    assert f"{model}@16, 16 dimensions" in run("status", folder).out
    assert run("index", folder, "--model", model).code == 0
    assert run("search", "cat", folder).code == 0
