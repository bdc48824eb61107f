"""A look inside an encoder agrees with transformers, and shares of tokens add up to the cosine."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import unicodedata
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from binocle import InputError
from binocle.retriever.inspection.contributions import contributions, pooled_terms, word_pairs
from binocle.retriever.inspection.heat_map import Matrix, heat_map
from binocle.retriever.inspection.matrix_page import page
from binocle.retriever.inspection.rollout import rollout
from binocle.retriever.inspection.token_states import Inspector
from binocle.retriever.inspection.views import attention_matrices, attention_matrix, layer_rows
from binocle.retriever.inspection.word_contexts import word_contexts
from binocle.retriever.models.load import load_encoder

QUERY, PASSAGE = "cancel a running task", "Call cancel() on the task. A cancelled task raises an error in the worker."
HOSTILE = "</script><img src=//x>"


@pytest.fixture(scope="session")
def inspector(tiny_model) -> Inspector:
    return Inspector.load(tiny_model)


def test_states_and_attention_are_those_of_transformers(tiny_model, inspector):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model = transformers.BertModel.from_pretrained(tiny_model, attn_implementation="eager").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_model)
    for texts in ([PASSAGE], [QUERY, PASSAGE]):
        inputs = tokenizer(*texts, return_tensors="pt")
        with torch.no_grad():
            expected = model(**inputs, output_hidden_states=True, output_attentions=True)
        seen = inspector.read(*texts)
        assert list(seen.ids) == inputs["input_ids"][0].tolist()
        assert list(seen.pieces) == tokenizer.convert_ids_to_tokens(seen.ids)
        np.testing.assert_allclose(seen.states, torch.cat(expected.hidden_states).numpy(), atol=2e-5)
        np.testing.assert_allclose(seen.attention, torch.cat(expected.attentions).numpy(), atol=2e-6)


@pytest.mark.parametrize("mode", ["mean_tokens", "max_tokens", "cls_token", "mean_sqrt_len_tokens"])
def test_shares_of_tokens_add_up_to_the_cosine(mode, make_model, tmp_path):
    folder = make_model(tmp_path / "model", pooling={f"pooling_mode_{mode}": True})
    encoder, inspector = load_encoder(str(folder)), Inspector.load(folder)
    query, passage = inspector.read(QUERY, kind="query"), inspector.read(PASSAGE)
    shares = contributions(query, passage)
    vectors = encoder.encode([QUERY, PASSAGE], kind="query")
    assert shares.shape == (len(query.ids), len(passage.ids))
    assert shares.sum() == pytest.approx(float(vectors[0] @ vectors[1]), abs=1e-5)
    if mode == "cls_token":
        assert np.flatnonzero(shares).tolist() == [0]
    special = shares.sum() - sum(pair.share for pair in word_pairs(query, passage, shares))
    rows = [query.pieces.index("[CLS]"), query.pieces.index("[SEP]")]
    columns = [passage.pieces.index("[CLS]"), passage.pieces.index("[SEP]")]
    expected = shares[rows].sum() + shares[:, columns].sum() - shares[np.ix_(rows, columns)].sum()
    assert special == pytest.approx(expected, abs=1e-6)


def test_several_poolings_in_one_vector_add_up_too(make_model, tmp_path):
    pooling = {"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True, "pooling_mode_cls_token": True}
    folder = make_model(tmp_path / "model", pooling=pooling)
    vectors = load_encoder(str(folder)).encode([QUERY, PASSAGE], kind="query")
    inspector = Inspector.load(folder)
    shares = contributions(inspector.read(QUERY), inspector.read(PASSAGE))
    assert shares.sum() == pytest.approx(float(vectors[0] @ vectors[1]), abs=1e-5)


def test_a_word_is_the_sum_of_its_pieces(inspector):
    text = inspector.read("zebra cat")
    words = text.words()
    assert [word for word, _ in words] == ["zebra", "cat"]
    assert len(words[0][1]) > 1
    pair = inspector.read("zebra", "zebra cat")
    assert [word for word, _ in pair.words()] == ["zebra", "zebra", "cat"]


def test_a_long_text_is_truncated_like_its_vector(inspector, tiny):
    long = "cat dog " * 200
    text = inspector.read(long)
    assert text.truncated
    assert len(text.ids) == tiny.max_tokens + 2
    vector = pooled_terms(text).sum(0)
    np.testing.assert_allclose(vector / np.linalg.norm(vector), tiny.encode([long], kind="query")[0], atol=1e-5)


def test_rollout_is_the_product_of_half_attention_and_half_identity():
    random = np.random.default_rng(0)
    attention = random.random((3, 2, 4, 4)).astype(np.float32)
    attention /= attention.sum(-1, keepdims=True)
    expected = np.eye(4)
    for layer in attention:
        expected = (layer.mean(0) / 2 + np.eye(4) / 2) @ expected
    np.testing.assert_allclose(rollout(attention), expected, atol=1e-6)
    np.testing.assert_allclose(rollout(attention).sum(1), 1, atol=1e-6)


def test_a_head_a_layer_or_all_of_them(inspector):
    text = inspector.read(QUERY)
    matrices = attention_matrices(text)
    assert len(matrices) == 1 + 2 + 2 * 4
    np.testing.assert_array_equal(attention_matrix(text, 2, 3).values, text.attention[1, 2])
    np.testing.assert_allclose(attention_matrix(text, 2).values, text.attention[1].mean(0))
    for layer, head in ((3, None), (0, None), (1, 5), (None, 1)):
        with pytest.raises(InputError):
            attention_matrix(text, layer, head)


def test_one_word_in_several_contexts(inspector):
    texts = [inspector.read(text) for text in ("the cat sat", "a Cat ran. The cat sat", "cat")]
    contexts = word_contexts(texts, "cat", 0)
    assert contexts.labels == ["1 the cat sat", "2 a Cat ran .", "2 . The cat sat", "3 cat"]
    cosines = contexts.cosines()
    assert cosines.shape == (4, 4)
    np.testing.assert_allclose(np.diag(cosines), 1, atol=1e-6)
    distances = np.linalg.norm(contexts.vectors[0] - contexts.vectors[1])
    plane = contexts.plane()
    assert plane.shape == (4, 2)
    assert np.linalg.norm(plane[0] - plane[1]) <= distances + 1e-4
    with pytest.raises(InputError, match="text 1 does not have the word 'dog'"):
        word_contexts(texts, "dog")
    assert word_contexts(texts[2:], "cat").plane().tolist() == [[0, 0]]


def test_a_word_is_found_in_both_unicode_forms(inspector):
    texts = [inspector.read(unicodedata.normalize(form, "the café cat")) for form in ("NFC", "NFD")]
    for form in ("NFC", "NFD"):
        assert len(word_contexts(texts, unicodedata.normalize(form, "Café")).labels) == 2


@pytest.mark.parametrize(
    "words",
    [
        ["{}"],
        ["{}", "cat"],
        ["cat", "{}"],
        ["{}", "--show", "layers"],
        ["{}", "--show", "masked"],
        ["--word", "cat", "{}"],
    ],
)
def test_every_view_says_that_a_text_is_truncated(words, run, tiny_model):
    done = run("look", *(word.format("cat " * 400) for word in words), "--model", tiny_model)
    assert done.code == 0
    assert "the text 'cat cat cat" in done.err
    assert "is longer than the encoder reads: only its first" in done.err


def test_a_word_behind_the_end_of_a_truncated_text_is_not_denied(inspector):
    with pytest.raises(InputError, match="does not have the word 'zebra' among the .* tokens that the encoder reads"):
        word_contexts([inspector.read("cat " * 400 + "zebra")], "zebra")


def test_layers_end_at_the_cosine_of_the_vectors(inspector, tiny):
    query, passage = inspector.read(QUERY), inspector.read(PASSAGE)
    vectors = tiny.encode([QUERY, PASSAGE], kind="query")
    rows = layer_rows(query, passage)
    assert [row.layer for row in rows] == [0, 1, 2]
    assert rows[-1].values["mean"] == pytest.approx(float(vectors[0] @ vectors[1]), abs=1e-5)
    assert rows[0].values["CLS"] == pytest.approx(1, abs=1e-6)  # the same token at the same position
    assert set(layer_rows(query)[0].values) == {"CLS to mean", "between tokens"}


def test_a_picture_is_xml_and_shows_any_text_as_text():
    matrix = Matrix("a & b", (HOSTILE, "\x1b[31m"), ("<b>", "c"), np.array([[1, -0.5], [0, 0.001]]))
    picture = ET.fromstring(heat_map(matrix))
    names = {element.tag.rsplit("}", 1)[-1] for element in picture.iter()}
    assert names == {"svg", "rect", "text", "title"}
    assert HOSTILE in [element.text for element in picture.iter()]
    assert [element.text for element in picture.iter() if element.tag.endswith("title")] == [
        f"{HOSTILE} → <b>: 1.0000",
        f"{HOSTILE} → c: -0.5000",
    ]


def test_a_page_is_self_contained_and_shows_any_text_as_text(inspector):
    text = inspector.read(f"cat {HOSTILE} dog")
    matrices = [*attention_matrices(text), Matrix(HOSTILE, text.pieces, text.pieces, -rollout(text.attention))]
    written = page(HOSTILE, "note", matrices)
    assert HOSTILE not in written
    assert "src=" not in re.sub(r"<title>.*?</title>|<h1>.*?</h1>|<script type.*?</script>", "", written)
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', written)[1])
    script = re.search(r"<script>(.*?)</script>", written, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    assert "//" not in script
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', written, re.DOTALL)[1])
    assert data["rows"] == list(text.pieces)
    assert data["matrices"][-1]["title"] == HOSTILE
    for shown, matrix in zip(data["matrices"], matrices, strict=True):
        values = np.frombuffer(base64.b64decode(shown["values"]), "<i2") / 32_767 * shown["largest"]
        np.testing.assert_allclose(values, matrix.values.ravel(), atol=1e-4)


def test_a_masked_language_model_and_a_reranker_can_be_looked_into(make_reranker, tmp_path):
    reranker = Inspector.load(make_reranker(tmp_path / "reranker"))
    pair = reranker.read("cat", "dog")
    assert pair.segments == (0, 0, 0, 1, 0) or pair.pieces.count("[SEP]") == 2


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_other_families_are_computed_by_torch(family, masked_models):
    pytest.importorskip("torch")
    inspector = Inspector.load(masked_models[family])
    text = inspector.read(QUERY, PASSAGE)
    np.testing.assert_allclose(text.attention.sum(-1), 1, atol=1e-5)
    assert len(text.states) == len(text.attention) + 1 == 3
    assert {"cancel", "task"} <= {word.strip() for word, _ in text.words()}


def test_a_model_without_layers_is_refused(make_model, tmp_path):
    folder = make_model(tmp_path / "static")
    module = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.StaticEmbedding"}
    (folder / "modules.json").write_text(json.dumps([module]))
    with pytest.raises(InputError, match="no layers to look into"):
        Inspector.load(folder)


def test_a_module_behind_the_pooling_has_no_shares(make_model, tmp_path):
    folder = make_model(tmp_path / "model", pooling={"pooling_mode_lasttoken": True})
    inspector = Inspector.load(folder)
    with pytest.raises(InputError, match="not sums over tokens"):
        contributions(inspector.read("cat"), inspector.read("dog"))


def test_look_prints_and_draws(run, tiny_model, tmp_path):
    tokens = run("look", "the zebra", "--model", tiny_model, "--json")
    assert tokens.rows[0] == {"position": 0, "token": "[CLS]", "id": 2, "start": 0, "end": 0, "word": None}
    assert {row["word"] for row in tokens.rows[1:-1]} == {0, 1}
    assert run("look", "-", "--model", tiny_model, "--json", stdin=b"the zebra") == tokens
    similar = run("look", QUERY, PASSAGE, "--model", tiny_model, "--json").rows[0]
    assert np.sum(similar["values"]) == pytest.approx(similar["cosine"], abs=1e-5)
    picture, written = tmp_path / "a.svg", tmp_path / "a.html"
    drawn = run("look", QUERY, "--layer", 1, "--head", 2, "--model", tiny_model, "--out", picture)
    assert drawn.code == 0
    assert drawn.out.splitlines()[0] == "layer 1, head 2"
    assert len(drawn.out.splitlines()) == len(run("look", QUERY, "--model", tiny_model).out.splitlines()) + 1
    assert "layer 1, head 2" in picture.read_text("utf-8")
    assert run("look", QUERY, PASSAGE, "--model", tiny_model, "--out", written).code == 0
    assert "<script>" in written.read_text("utf-8")
    words = run("look", "--word", "cat", "the cat", "a cat ran", "--model", tiny_model, "--out", picture)
    drawn_labels = [element.text for element in ET.parse(picture).iter() if element.tag.endswith("text")][1:]
    assert drawn_labels == ["1 the cat", "2 a cat ran"]
    assert [line.split("  ")[0] for line in words.out.splitlines()] == ["1 the cat", "2 a cat ran"]
    assert run("look", QUERY, PASSAGE, "--show", "layers", "--model", tiny_model).out.startswith("layer  mean  CLS\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a", "b", "c"], "similarity takes 2 TEXTs, but 3 came"),
        (["a", "b", "--show", "masked"], "masked takes 1 TEXT, but 2 came"),
        (["a", "--out", "a.svg"], "not tokens as a.svg"),
        (["a", "--show", "attention", "--out", "a.png"], "not attention as a.png"),
        (["a", "--show", "attention", "--out", "no/a.svg"], "there is no folder no"),
        (["a", "--layer", "9"], "there is no layer 9: the model has 2, from 1"),
        (["a", "--head", "1"], "a head belongs to a layer"),
        (["a", "--word", "b"], "text 1 does not have the word 'b'"),
        (["a", "--word", "a", "--layer", "7"], "there is no layer 7"),
        (["a", "b", "--layer", "1", "--show", "similarity"], "--layer goes with attention or --word"),
        (["a", "--head", "1", "--word", "a"], "--head goes with attention, not with word"),
        (["a", "--word", "a", "--show", "layers"], "--word is a view of its own"),
    ],
)
def test_bad_input_to_look_is_one_line(words, message, run, tiny_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run("look", *words, "--model", tiny_model)
    assert done.code == 2
    assert message in done.err
    assert done.err.count("\n") == 1
