"""An adapter maps the vectors of queries alone: an index changes to it and back, and embeds nothing."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import save_file

from binocle import Retriever, load_encoder
from binocle.core.errors import BinocleError, EncoderMismatchError, InputError
from binocle.retriever.models.defences import Int8
from binocle.retriever.models.encoders.adapted_encoder import AdaptedEncoder, mapped, save_adapted_encoder
from binocle.retriever.models.encoders.defended_encoder import save_defended_encoder
from binocle.retriever.models.identity import EncoderId

TEXTS = ["The cat sat on the mat.", "Income tax is due every year.", "Cancel a task and the worker is told."]


@pytest.fixture(scope="session")
def base(tiny_model):
    return load_encoder(tiny_model)


@pytest.fixture
def adapter(base, tmp_path):
    """A folder with a map that mirrors the vectors of queries, so that the farthest passage comes first."""
    save_adapted_encoder(tmp_path / "adapter", base, -np.eye(base.dim, dtype=np.float32))
    return tmp_path / "adapter"


@pytest.fixture
def index(tmp_path, tiny_model):
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add({"id": str(number), "text": text} for number, text in enumerate(TEXTS))
    return retriever


def scores(retriever):
    return {hit.path: round(hit.score, 4) for hit in retriever.search("the cat", mode="semantic")}


def test_documents_keep_their_vectors_and_queries_are_mapped_at_their_length(base, tmp_path):
    matrix = np.random.default_rng(0).normal(size=(base.dim, base.dim)).astype(np.float32)
    save_adapted_encoder(tmp_path / "adapter", base, matrix)
    encoder = load_encoder(str(tmp_path / "adapter"))
    assert encoder.encode(TEXTS).tobytes() == base.encode(TEXTS).tobytes()
    queries, plain = encoder.encode(TEXTS, kind="query"), base.encode(TEXTS, kind="query")
    assert queries.dtype == np.float32 and queries.flags.c_contiguous
    np.testing.assert_allclose(np.linalg.norm(queries, axis=1), np.linalg.norm(plain, axis=1), rtol=1e-5)
    expected = plain @ matrix
    np.testing.assert_allclose(queries, expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=1e-5)
    assert encoder.offsets(TEXTS) == base.offsets(TEXTS)
    assert encoder.fingerprint not in (base.fingerprint, AdaptedEncoder("", base, 2 * matrix).fingerprint)


def test_a_vector_without_an_image_stays_finite():
    assert mapped(np.ones((1, 2), np.float32), np.zeros((2, 2), np.float32)).tolist() == [[0, 0]]


def test_an_index_changes_to_an_adapter_and_back_and_embeds_nothing(index, adapter, base):
    before, plain = scores(index), index.snapshot()
    report = index.switch(adapter)
    assert (report.switched, report.embedded, report.chunks) == (True, 0, 3)
    state = index.snapshot()
    assert (state.head.chunks, state.head.vectors) == (plain.head.chunks, plain.head.vectors)
    assert state.head.encoder.document_fingerprint == base.fingerprint
    again = Retriever.open(index.path)
    assert scores(again) == {path: -score for path, score in before.items()}
    assert again.verify(deep=True).faults == []
    again.add([{"id": "new", "text": "Bread and cheese."}])
    again.delete("new")
    status = again.status()
    assert (status.base, status.previous["model"], status.previous["bytes"]) == (base.name, base.name, 0)
    assert again.rollback().embedded == 0
    assert scores(Retriever.open(index.path)) == before
    assert index.status().base is None
    with pytest.raises(BinocleError, match="nothing to roll back"):
        index.rollback()


def test_an_adapter_is_rolled_back_before_the_encoder_that_it_adapts(index, make_model, tmp_path):
    first, before = index.encoder.name, scores(index)
    index.switch(make_model(tmp_path / "other", seed=1))
    other, between = index.encoder.name, scores(index)
    save_adapted_encoder(tmp_path / "adapter", index.encoder, -np.eye(index.encoder.dim, dtype=np.float32))
    index.switch(tmp_path / "adapter")
    assert index.rollback().model == other and scores(index) == between
    assert index.rollback().model == first and scores(index) == before


def test_an_index_leaves_an_adapter_for_another_encoder_and_comes_back(index, adapter, make_model, tmp_path):
    index.switch(adapter)
    mirrored = scores(index)
    index.switch(make_model(tmp_path / "other", seed=1))
    assert index.snapshot().head.encoder.without_adapter is None
    index.rollback()
    assert scores(index) == mirrored


def test_an_adapter_whose_folder_is_gone_is_rolled_back_all_the_same(index, adapter):
    before = scores(index)
    index.switch(adapter)
    for file in adapter.iterdir():
        file.unlink()
    adapter.rmdir()
    again = Retriever.open(index.path)
    again.rollback()
    assert scores(again) == before


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("adapter.json", "[]", "expected an object with format, model, fingerprint"),
        ("adapter.json", "{", "copy the folder of the encoder again"),
        ("adapter.json", '{"format": 9, "model": "m", "fingerprint": "f"}', "has format 9"),
        ("adapter.safetensors", "x", "cannot be read .*: copy its folder again"),
    ],
)
def test_a_damaged_adapter_says_which_file(file, content, message, adapter):
    (adapter / file).write_text(content)
    with pytest.raises(InputError, match=message):
        load_encoder(str(adapter))


@pytest.mark.parametrize(
    "arrays",
    [
        {"matrix": np.eye(3, dtype=np.float32)},
        {"matrix": np.full((32, 32), np.nan, np.float32)},
        {"matrix": np.eye(32)},
        {"other": np.eye(32, dtype=np.float32)},
    ],
)
def test_a_wrong_matrix_is_refused(arrays, adapter):
    save_file(arrays, adapter / "adapter.safetensors")
    with pytest.raises(InputError, match="adapter"):
        load_encoder(str(adapter))


def test_an_adapter_of_another_encoder_or_of_an_adapter_is_refused(adapter, make_model, tmp_path, base):
    settings = json.loads((adapter / "adapter.json").read_text())
    (adapter / "adapter.json").write_text(json.dumps(settings | {"model": str(make_model(tmp_path / "other", seed=1))}))
    with pytest.raises(EncoderMismatchError, match="rollback"):
        load_encoder(str(adapter))
    (adapter / "adapter.json").write_text(json.dumps(settings | {"model": str(adapter)}))
    with pytest.raises(InputError, match="has an adapter or a defence itself"):
        load_encoder(str(adapter))
    bounds = np.ones(base.dim, np.float32)
    save_defended_encoder(tmp_path / "defended", base, Int8(-bounds, bounds))
    (adapter / "adapter.json").write_text(json.dumps(settings | {"model": str(tmp_path / "defended")}))
    with pytest.raises(InputError, match="has an adapter or a defence itself"):
        load_encoder(str(adapter))


def test_an_index_names_the_base_of_its_adapter(adapter, base):
    identity = EncoderId.of_encoder(load_encoder(str(adapter)))
    assert identity.without_adapter == EncoderId.of_encoder(base)
    assert replace(identity, passage_tokens=9).without_adapter == replace(EncoderId.of_encoder(base), passage_tokens=9)
    assert EncoderId.of_encoder(base).without_adapter is None
    for wrong in ({"base": 3}, {"passage_tokens": -1}, {"passage_tokens": "9"}, {"passage_tokens": 2**40}):
        with pytest.raises(InputError):
            EncoderId.of({"model": "m", "fingerprint": "f", "dim": 3, **wrong})


def test_an_index_without_an_adapter_is_written_as_earlier_versions_read_it(index, adapter):
    def names():
        return set(json.loads((index.path / "HEAD.json").read_text())["encoder"])

    assert names() == {"model", "fingerprint", "dim", "cut"}
    index.switch(adapter)
    assert names() == {"model", "fingerprint", "dim", "cut", "base", "base_fingerprint"}
