from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import load_file, save_file

from binocle import Retriever, evaluate
from binocle.cli import cli
from binocle.core.errors import BinocleError, InputError, MissingExtraError, ModelNotFoundError
from binocle.retriever.models import cache
from binocle.retriever.models import reranker as rerankers
from binocle.retriever.models.bert.bert_reranker import BertReranker
from binocle.retriever.models.load import load_reranker
from binocle.retriever.models.reranker import Reranker
from binocle.retriever.search.mode import MODES

QUERY = "how to cancel a task?"
PASSAGES = [
    "The cat sat on the mat.",
    "",
    "Call cancel() on the task. A cancelled task raises an error in the worker. " * 9,
    "größe & ёлка 天気 ☃ 👩‍🚀 xyzzy",
    "bread",
    "income tax, due every year!",
    " ",
    "x" * 300,
    "dog " * 500,
    "\u200b\u0301 שלום עולם \x00 NUL",
]


def change(file: Path, **values: object) -> None:
    file.write_text(json.dumps({**(json.loads(file.read_text()) if file.exists() else {}), **values}))


@pytest.fixture(scope="session")
def cross_encoder(make_reranker, tmp_path_factory):
    """Not to be changed."""
    return make_reranker(tmp_path_factory.mktemp("rerankers") / "tiny")


@pytest.fixture
def copy(cross_encoder, tmp_path):
    return shutil.copytree(cross_encoder, tmp_path / "copy")


@pytest.fixture(scope="session")
def tiny_reranker(cross_encoder):
    return load_reranker(cross_encoder)


def predict(folder: Path, pairs: list[tuple[str, str]]) -> np.ndarray:
    """What sentence-transformers makes of a folder."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    model = pytest.importorskip("sentence_transformers").CrossEncoder(str(folder), device="cpu", local_files_only=True)
    return model.predict(pairs, activation_fn=torch.nn.Identity(), show_progress_bar=False)


# The scores


@pytest.mark.parametrize("modules", [True, False], ids=["sentence-transformers", "transformers"])
def test_scores_are_the_logits_of_a_cross_encoder(modules, make_reranker, tmp_path):
    folder = make_reranker(tmp_path / "model", seed=3, modules=modules)
    reranker = load_reranker(str(folder))
    assert isinstance(reranker, BertReranker)
    queries = [QUERY, "", "tax", "the moon is full of cheese and bread " * 20]
    pairs = [(query, passage) for query in queries for passage in PASSAGES]
    scores = reranker.score_pairs(pairs)
    assert (scores.dtype, scores.shape) == (np.float32, (40,))
    assert scores.std() > 0.1
    np.testing.assert_allclose(scores, predict(folder, pairs), atol=1e-5)


def test_a_folder_that_cross_encoder_saves_needs_no_torch(tiny_model, tmp_path):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    model = pytest.importorskip("sentence_transformers").CrossEncoder(
        tiny_model, num_labels=1, max_length=40, device="cpu", local_files_only=True
    )
    model.save_pretrained(str(tmp_path / "saved"))
    reranker = load_reranker(tmp_path / "saved")
    assert isinstance(reranker, BertReranker)
    assert reranker.max_tokens == 37
    pairs = [(QUERY, passage) for passage in PASSAGES]
    expected = model.predict(pairs, activation_fn=torch.nn.Identity(), show_progress_bar=False)
    np.testing.assert_allclose(reranker.score_pairs(pairs), expected, atol=1e-5)


@pytest.mark.parametrize("suffix", ["", "@int8"])
def test_a_reranker_goes_to_another_process_after_its_use_too(suffix, make_reranker, tmp_path):
    reranker = load_reranker(f"{make_reranker(tmp_path / 'reranker')}{suffix}")
    scores = reranker.score("cat", ["The cat sat.", "bread"])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(reranker)).score("cat", ["The cat sat.", "bread"]), scores)


def test_what_the_tokenizers_settings_say_otherwise_than_its_file_is_obeyed(copy, tiny_reranker):
    change(copy / "tokenizer_config.json", do_lower_case=False)
    pairs = [("The CAT", "The DOG sat"), ("the cat", "the dog sat")]
    reranker = load_reranker(copy)
    assert reranker.fingerprint != tiny_reranker.fingerprint
    np.testing.assert_allclose(reranker.score_pairs(pairs), predict(copy, pairs), atol=1e-5)


def test_the_processors_own_precision_gives_two_digits(tiny_reranker, cross_encoder, native_precision):
    """bf16 has a relative error of 2^-9 in every step."""
    expected = tiny_reranker.score(QUERY, PASSAGES)
    np.testing.assert_allclose(load_reranker(cross_encoder).score(QUERY, PASSAGES), expected, rtol=0.02, atol=0.1)


@pytest.mark.parametrize("precision", ["", "float32"])
def test_a_pairs_score_is_the_same_alone_and_among_fifty(cross_encoder, precision, monkeypatch):
    monkeypatch.setenv("BINOCLE_PRECISION", precision)
    reranker = load_reranker(cross_encoder)
    passages = [f"{passage} {number * 'sea '}" for number in range(5) for passage in PASSAGES]
    assert len(passages) == 50
    together = reranker.score(QUERY, passages)
    alone = [reranker.score(QUERY, [passage])[0] for passage in passages]
    np.testing.assert_allclose(alone, together, atol=1e-6, rtol=0)


def test_query_and_passage_are_told_apart(tiny_reranker):
    first, second = tiny_reranker.score_pairs([("cat mat", "dog house"), ("dog house", "cat mat")])
    assert abs(first - second) > 1e-3


def test_a_score_does_not_depend_on_company_or_order(tiny_reranker, monkeypatch):
    together = tiny_reranker.score(QUERY, PASSAGES)
    order = np.random.default_rng(0).permutation(len(PASSAGES))
    shuffled = tiny_reranker.score(QUERY, [PASSAGES[index] for index in order])
    np.testing.assert_allclose(shuffled, together[order], atol=1e-5)
    alone = [tiny_reranker.score(QUERY, [passage])[0] for passage in PASSAGES]
    np.testing.assert_allclose(alone, together, atol=1e-6)
    monkeypatch.setattr(rerankers, "_PIECE", 3)
    np.testing.assert_allclose(tiny_reranker.score(QUERY, PASSAGES), together, atol=1e-5)


def test_nothing_to_score_gives_no_scores(tiny_reranker):
    for scores in (
        tiny_reranker.score(QUERY, []),
        tiny_reranker.score_pairs([]),
        tiny_reranker.score_within(1, QUERY, []),
    ):
        assert (scores.dtype, scores.shape) == (np.float32, (0,))


def test_pairs_are_cut_at_the_models_length_the_longer_text_first(tiny_reranker):
    assert tiny_reranker.max_tokens == 45  # of 48, without [CLS] and two [SEP]
    encodings = tiny_reranker._model.tokenizer(truncated=True).encode_batch(
        [("cat", "dog " * 99), ("cat " * 99, "dog")]
    )
    assert [len(encoding.ids) for encoding in encodings] == [48, 48]
    np.testing.assert_allclose(
        tiny_reranker.score("cat", ["dog " * 44, "dog " * 45, "dog " * 90])[1:],
        tiny_reranker.score("cat", ["dog " * 44, "dog " * 45, "dog " * 90])[:2],
        atol=1e-6,
    )


def test_threads_share_a_reranker(tiny_reranker):
    expected, actual = tiny_reranker.score(QUERY, PASSAGES), []
    threads = [threading.Thread(target=lambda: actual.append(tiny_reranker.score(QUERY, PASSAGES))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(actual) == 6
    for scores in actual:
        np.testing.assert_allclose(scores, expected, atol=1e-6)


# Models that need torch


@pytest.fixture(scope="session")
def electra(make_reranker, tmp_path_factory):
    """A random ELECTRA with one label: torch computes it."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = make_reranker(tmp_path_factory.mktemp("electra") / "model", modules=False)
    sizes = json.loads((folder / "config.json").read_text())
    names = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    torch.manual_seed(1)
    config = transformers.ElectraConfig(
        **{name: sizes[name] for name in names},
        embedding_size=32,
        max_position_embeddings=64,
        num_labels=1,
        initializer_range=0.5,
    )
    transformers.ElectraForSequenceClassification(config).save_pretrained(folder)
    return folder


def test_another_model_goes_through_torch_with_the_same_scores(electra):
    reranker = load_reranker(electra)
    assert not isinstance(reranker, BertReranker)
    pairs = [(QUERY, passage) for passage in PASSAGES]
    scores = reranker.score_pairs(pairs)
    assert (scores.dtype, scores.shape, reranker.max_tokens) == (np.float32, (10,), 45)
    np.testing.assert_allclose(scores, predict(electra, pairs), atol=1e-5)
    np.testing.assert_allclose(reranker.score_within(60, QUERY, PASSAGES), scores, atol=1e-5)
    assert reranker.score(QUERY, []).shape == (0,)


def test_a_bert_with_a_prompt_goes_through_torch(copy):
    pytest.importorskip("sentence_transformers")
    change(copy / "config_sentence_transformers.json", prompts={"web": "the king "}, default_prompt_name="web")
    pairs = [(QUERY, passage) for passage in PASSAGES]
    reranker = load_reranker(copy)
    assert not isinstance(reranker, BertReranker)
    np.testing.assert_allclose(reranker.score_pairs(pairs), predict(copy, pairs), atol=1e-5)


def test_without_sentence_transformers_the_message_says_the_pip_line(electra, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'binocle\[torch\]'"):
        load_reranker(electra)


def test_a_head_that_is_missing_is_not_made_up(electra, tmp_path):
    broken = shutil.copytree(electra, tmp_path / "broken")
    weights = load_file(broken / "model.safetensors")
    save_file(
        {name: array for name, array in weights.items() if not name.startswith("classifier.out")},
        broken / "model.safetensors",
        metadata={"format": "pt"},
    )
    with pytest.raises(InputError, match="lack classifier.out_proj"):
        load_reranker(broken)


# The model's folder


def test_a_bare_name_is_one_of_the_cross_encoders_in_the_hub_cache(cross_encoder, tmp_path, monkeypatch):
    repository = tmp_path / "hub" / "models--cross-encoder--tiny-bert"
    shutil.copytree(cross_encoder, repository / "snapshots" / "abc")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    loaded = load_reranker("tiny-bert")
    assert (loaded.name, loaded.fingerprint) == ("tiny-bert", load_reranker(cross_encoder).fingerprint)
    assert load_reranker("cross-encoder/tiny-bert").fingerprint == loaded.fingerprint


def test_a_reranker_found_by_a_relative_path_is_remembered_by_an_absolute_one(cross_encoder, monkeypatch):
    monkeypatch.chdir(cross_encoder.parent)
    assert load_reranker("tiny").name == str(cross_encoder.resolve())


def test_a_reranker_that_is_loaded_is_itself(tiny_reranker):
    assert load_reranker(tiny_reranker) is tiny_reranker


def flip(name):
    def changed(folder):
        data = bytearray((folder / name).read_bytes())
        data[-1] ^= 1
        (folder / name).write_bytes(data)

    return changed


CHANGES = {
    "one bit of the weights": flip("model.safetensors"),
    "length": lambda folder: change(folder / "tokenizer_config.json", model_max_length=17),
    "heads": lambda folder: change(folder / "config.json", num_attention_heads=2),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_decides_a_score_changes_the_fingerprint(name, cross_encoder, copy):
    assert load_reranker(copy).fingerprint == load_reranker(cross_encoder).fingerprint
    CHANGES[name](copy)
    assert load_reranker(copy).fingerprint != load_reranker(cross_encoder).fingerprint


def test_the_weight_of_the_first_stage_is_read_and_changes_no_score(cross_encoder, copy):
    (copy / "binocle.json").write_text('{"first_stage_weight": 0.3}')
    loaded = load_reranker(copy)
    assert (loaded.first_stage_weight, load_reranker(cross_encoder).first_stage_weight) == (0.3, 0.0)
    assert loaded.fingerprint == load_reranker(cross_encoder).fingerprint


def with_weights(**changes):
    """Weights by their names with dots as underscores; None takes one out."""

    def changed(folder):
        weights = load_file(folder / "model.safetensors")
        for name, value in changes.items():
            (key,) = [key for key in weights if key.replace(".", "_") == name]
            if value is None:
                del weights[key]
            else:
                weights[key] = value
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    return changed


def three_labels(folder):
    change(folder / "config.json", id2label={str(label): "x" for label in range(3)})


def without(name):
    return lambda folder: (folder / name).unlink()


def of_text(name, text):
    return lambda folder: (folder / name).write_text(text)


DAMAGE = {
    "three labels": (three_labels, "gives 3 scores a pair"),
    "three labels by number": (lambda folder: change(folder / "config.json", num_labels=3), "gives 3 scores"),
    "two labels, left out": (
        lambda folder: of_text(
            "config.json",
            json.dumps({**json.loads((folder / "config.json").read_text()), "id2label": {"0": 1, "1": 2}}),
        )(folder),
        "gives 2 scores",
    ),
    "labels that are none": (lambda folder: change(folder / "config.json", id2label=7), "not a cross-encoder"),
    "no classifier": (with_weights(classifier_weight=None), "classifier.weight is missing"),
    "no pooler": (with_weights(bert_pooler_dense_bias=None), "pooler.dense.bias is missing"),
    "a classifier of another size": (with_weights(classifier_weight=np.zeros((1, 31), np.float32)), r"\(1, 31\)"),
    "one type of token": (
        with_weights(bert_embeddings_token_type_embeddings_weight=np.zeros((1, 32), np.float32)),
        "token_type_embeddings",
    ),
    "weights cut short": (
        lambda folder: (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:5000]),
        "not a safetensors file",
    ),
    "weights that are text": (of_text("model.safetensors", "what?"), "not a safetensors file"),
    "no weights": (without("model.safetensors"), "no .safetensors weights"),
    "no config": (lambda folder: [without("config.json")(folder), without("modules.json")(folder)], "not a model"),
    "a config that is not JSON": (of_text("config.json", "{"), "config.json is not JSON"),
    "a tokenizer that is none": (of_text("tokenizer.json", "{}"), "is not a tokenizer"),
    "no tokenizer": (
        lambda folder: [without("tokenizer.json")(folder), without("vocab.txt")(folder)],
        "5 tokens in its tokenizer and",
    ),
    "modules of another kind": (of_text("modules.json", "[3]"), "not a cross-encoder"),
    "a length that is none": (
        lambda folder: change(folder / "tokenizer_config.json", model_max_length="long"),
        "not a cross-encoder",
    ),
    "another model": (
        lambda folder: change(folder / "config_sentence_transformers.json", model_type="SparseEncoder"),
        "is SparseEncoder and no cross-encoder",
    ),
    "a weight that is none": (of_text("binocle.json", '{"first_stage_weight": "much"}'), "'much': expected a number"),
    "a weight beyond one": (of_text("binocle.json", '{"first_stage_weight": 1.5}'), "from 0 to 1"),
    "a weight that is not a number": (of_text("binocle.json", '{"first_stage_weight": NaN}'), "from 0 to 1"),
    "settings that are a list": (of_text("binocle.json", "[]"), "an object"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_folder_is_refused_in_one_line(case, copy):
    if case == "no tokenizer":  # transformers makes one up
        pytest.importorskip("sentence_transformers")
    spoil, expected = DAMAGE[case]
    spoil(copy)
    with pytest.raises(BinocleError, match=expected) as caught:
        load_reranker(copy)
    assert "\n" not in str(caught.value)
    assert str(copy) in str(caught.value)


@pytest.mark.parametrize("kind", ["sentence-transformers", "transformers"])
def test_an_encoder_is_refused_as_one(kind, tiny_model, tmp_path):
    model = shutil.copytree(tiny_model, tmp_path / "encoder")
    if kind == "transformers":
        (model / "modules.json").unlink()
    with pytest.raises(
        InputError, match="is an encoder and no cross-encoder: expected a folder that CrossEncoder saved"
    ):
        load_reranker(model)


def test_weights_that_give_no_numbers_are_found_at_the_first_score(copy):
    with_weights(classifier_bias=np.array([np.nan], np.float32))(copy)
    with pytest.raises(InputError, match="no numbers"):
        load_reranker(copy).score(QUERY, PASSAGES)


@pytest.mark.parametrize("name", ["/no/such/folder", "", "a b", "nobody/nothing", "nothing"])
def test_a_reranker_that_is_nowhere_is_named_in_one_line(name):
    with pytest.raises(ModelNotFoundError) as caught:
        load_reranker(name)
    assert "\n" not in str(caught.value)
    assert "encoder " not in str(caught.value).replace("cross-encoder/nothing", "")
    if name.startswith("no"):
        assert "give the path of a folder instead" in str(caught.value)


@pytest.mark.parametrize("name", [3, None, b"x", ["a"]])
def test_what_is_no_name_is_refused(name):
    with pytest.raises(InputError, match="is not a reranker"):
        load_reranker(name)


def test_what_is_no_text_is_refused(tiny_reranker):
    for bad in (None, 3, b"cat"):
        with pytest.raises(InputError, match=type(bad).__name__):
            tiny_reranker.score(bad, ["cat"])
        with pytest.raises(InputError, match=type(bad).__name__):
            tiny_reranker.score("cat", ["dog", bad])
        with pytest.raises(InputError, match="pair 2"):
            tiny_reranker.score_pairs([("a", "b"), bad])
    with pytest.raises(InputError, match="put it in a list"):
        tiny_reranker.score("cat", "dog")
    with pytest.raises(InputError, match="^expected a list of texts, not None$"):
        tiny_reranker.score("cat", None)
    with pytest.raises(InputError, match="pair 1"):
        tiny_reranker.score_pairs([("a", "b", "c")])
    assert tiny_reranker.score("half \ud800", ["\udfff of a pair"]).shape == (1,)


# The time budget


class Timed(Reranker):
    """Scores by length, and takes a second a passage by a clock of its own."""

    def __init__(self, monkeypatch):
        self.now, self.calls, self.slower_after = 100.0, [], None
        monkeypatch.setattr(rerankers.time, "perf_counter", lambda: self.now)

    def _batch_scorer(self, pairs):
        self.now += 1_000  # work that is done once does not count

        def scores(start, stop):
            self.calls.append(stop - start)
            self.now += (stop - start) * (1 if self.slower_after is None or start < self.slower_after else 10)
            return np.array([len(passage) for _, passage in pairs[start:stop]], np.float32)

        return scores


@pytest.mark.parametrize(
    ("seconds", "reached"), [(0, 0), (0.1, 4), (4, 4), (5, 5), (7.5, 7), (8, 8), (20, 20), (33, 33), (1e6, 50)]
)
def test_as_many_are_scored_as_fit_into_the_time_the_first_four_at_least(seconds, reached, monkeypatch):
    timed = Timed(monkeypatch)
    passages = ["x" * length for length in range(50, 0, -1)]
    scores = timed.score_within(seconds, "q", passages)
    np.testing.assert_array_equal(scores, [len(passage) for passage in passages[:reached]])
    assert timed.calls[:1] == [4] * (reached > 0)
    assert sum(timed.calls) == reached
    assert len(timed.calls) <= 8


def test_a_machine_that_becomes_slower_is_noticed(monkeypatch):
    timed = Timed(monkeypatch)
    timed.slower_after = 4
    scores = timed.score_within(20, "q", ["x"] * 50)
    assert len(scores) < 20
    assert timed.now - 1_100 < 20 + 10 * 8


# In a search


class ByTable(Reranker):
    """Scores passages by a function, and records its inputs."""

    name = "table"

    def __init__(self, of, weight=0.0):
        self.of, self.first_stage_weight, self.given = of, weight, []

    def _batch_scorer(self, pairs):
        self.given.append(pairs)
        return lambda start, stop: np.array([self.of(passage) for _, passage in pairs[start:stop]], np.float32)


def test_the_best_passages_have_a_relevance_from_0_to_1_whatever_the_logits():
    logits = {"a": -1_000, "b": 0, "c": 1_000, "d": 0}
    assert rerankers.best(ByTable(logits.get), "query", list(logits)) == [
        (2, 1.0),
        (1, 0.5),
        (3, 0.5),
        (0, pytest.approx(0)),
    ]
    assert rerankers.best(ByTable(logits.get), "query", list(logits), 1) == [(2, 1.0)]


@pytest.fixture(scope="session")
def library(tmp_path_factory, tiny_model):
    """90 passages, each with a heading."""
    words = "cat dog mat house tax file task queue worker network search vector text python water sea ship".split()
    random = np.random.default_rng(5)
    retriever = Retriever.open(tmp_path_factory.mktemp("library") / "index", model=tiny_model)
    rows = [
        {
            "id": f"{number:02}",
            "title": f"Note {number}",
            "text": " ".join(random.choice(words, 12)),
            "metadata": {"odd": number % 2},
        }
        for number in range(90)
    ]
    retriever.add(rows)
    return retriever


def by_hash(passage):
    return float(np.random.default_rng(len(passage) + sum(map(ord, passage))).standard_normal())


def standard(values):
    return (np.array(values) - np.mean(values)) / np.std(values)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("k", [1, 5, 40, 1000])
def test_the_reranker_orders_the_first_passages_and_the_rest_follow_as_they_were(mode, k, library):
    reranker = ByTable(by_hash)
    first = library.search("cat task", 1000, mode=mode)
    hits = library.search("cat task", k, mode=mode, rerank=reranker, rerank_depth=20)
    contexts = [passage for _, passage in reranker.given[0]]
    assert len(contexts) == 20
    expected = sorted(range(20), key=lambda index: -by_hash(contexts[index]))
    assert [hit.passage for hit in hits] == [first[index].passage for index in [*expected, *range(20, len(first))]][:k]
    assert [hit.rank for hit in hits] == list(range(1, len(hits) + 1))
    assert all(better.score >= worse.score for better, worse in pairwise(hits))
    for hit in hits[:20]:
        assert hit.scores["reranker"] == pytest.approx(
            by_hash(contexts[[better.passage for better in first].index(hit.passage)])
        )
        assert hit.explanation["ranks"]["reranker"] == hit.rank
    for hit in hits[20:]:
        assert hit.scores["reranker"] is None
        assert hit.explanation["ranks"]["reranker"] is None
    for hit in hits:
        assert hit.explanation["reranked"] == 20
        assert hit.explanation["milliseconds"]["reranker"] >= 0


def test_the_reranker_reads_the_query_and_the_passages_with_their_headings(library):
    reranker = ByTable(by_hash)
    library.search("  cat task \n", rerank=reranker, rerank_depth=7)
    (pairs,) = reranker.given
    assert {query for query, _ in pairs} == {"cat task"}
    contexts_stored = library.snapshot().read("chunks", ["context"])["context"].to_pylist()
    assert len(pairs) == 7
    assert all(passage in contexts_stored and passage.startswith("Note ") for _, passage in pairs)


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_the_final_score_is_a_weighted_mean_of_standard_scores(weight, library):
    reranker = ByTable(by_hash, weight)
    first = library.search("cat task worker", 20)
    hits = library.search("cat task worker", 20, rerank=reranker, rerank_depth=20)
    contexts = [passage for _, passage in reranker.given[0]]
    final = (1 - weight) * standard([by_hash(text) for text in contexts]) + weight * standard(
        [hit.score for hit in first]
    )
    order = np.argsort(-final, kind="stable")
    assert [hit.passage for hit in hits] == [first[index].passage for index in order]
    np.testing.assert_allclose([hit.score for hit in hits], final[order], atol=1e-5)
    if weight == 1:
        assert [hit.passage for hit in hits] == [hit.passage for hit in first]


def test_a_reranker_decides_whether_passages_need_both_words_of_a_query(library):
    first = library.search("cat dog", 60)
    reranker = ByTable(by_hash, 0.0)
    hits = library.search("cat dog", 60, rerank=reranker, rerank_depth=30)
    scores = [by_hash(text) for _, text in reranker.given[0]]
    order = np.argsort(-np.float32(scores), kind="stable")
    assert [hit.passage for hit in hits[:30]] == [first[position].passage for position in order]
    assert [hit.passage for hit in hits[30:]] == [hit.passage for hit in first[30:]]
    has_both = ["cat" in hit.text and "dog" in hit.text for hit in hits]
    assert has_both != sorted(has_both, reverse=True)
    assert all(one.score >= other.score for one, other in pairwise(hits))


def test_equal_scores_leave_the_order_of_the_first_stage(library):
    first = library.search("cat task", 30)
    hits = library.search("cat task", 30, rerank=ByTable(lambda _: 3.0), rerank_depth=12)
    assert [hit.passage for hit in hits] == [hit.passage for hit in first]


def test_what_the_time_does_not_reach_follows_as_it_was(library, monkeypatch):
    first = library.search("cat task", 30)
    hits = library.search("cat task", 30, rerank=Timed(monkeypatch), rerank_depth=20, rerank_seconds=6)
    assert hits[0].explanation["reranked"] == 6
    assert {hit.passage for hit in hits[:6]} == {hit.passage for hit in first[:6]}
    assert [hit.passage for hit in hits[6:]] == [hit.passage for hit in first[6:]]
    assert [hit.scores["reranker"] is None for hit in hits] == [False] * 6 + [True] * 24
    assert all(better.score >= worse.score for better, worse in pairwise(hits))


def test_no_time_at_all_changes_nothing(library):
    first = library.search("cat task", 30)
    hits = library.search("cat task", 30, rerank=ByTable(by_hash), rerank_seconds=0)
    assert [(hit.passage, hit.score) for hit in hits] == [(hit.passage, hit.score) for hit in first]
    assert {hit.explanation["reranked"] for hit in hits} == {0}


def test_filters_come_before_the_reranker(library):
    reranker = ByTable(by_hash)
    hits = library.search("cat task", 100, where="odd=1", rerank=reranker, rerank_depth=500)
    assert len(hits) == len(reranker.given[0]) == 45
    assert library.search("cat", 10, where="odd=7", rerank=reranker) == []
    assert library.search("cat", 0, rerank=reranker) == []
    assert len(reranker.given) == 1


def test_a_search_without_one_says_nothing_of_a_reranker(library):
    (hit,) = library.search("cat task", 1)
    assert hit.scores.keys() == hit.explanation["ranks"].keys() == {"lexical", "semantic"}
    assert "reranked" not in hit.explanation


def test_a_reranker_given_by_folder_is_loaded_once(library, cross_encoder, monkeypatch):
    reranker = load_reranker(cross_encoder)
    expected = library.search("cat task", 8, rerank=reranker)
    assert [hit.passage for hit in library.search("cat task", 8, rerank=str(cross_encoder))] == [
        hit.passage for hit in expected
    ]
    monkeypatch.setattr(cache, "load_reranker", lambda _: pytest.fail("loaded again"))
    assert [hit.passage for hit in library.search("cat task", 8, rerank=cross_encoder)] == [
        hit.passage for hit in expected
    ]


@pytest.mark.parametrize("depth", [0, -1, 1.5, "3", None, True])
def test_a_bad_depth_is_refused(depth, library):
    with pytest.raises(InputError, match="rerank_depth is"):
        library.search("cat", rerank=ByTable(by_hash), rerank_depth=depth)


@pytest.mark.parametrize("seconds", [-0.1, float("nan"), float("inf"), "1", True])
def test_a_bad_budget_is_refused(seconds, library):
    with pytest.raises(InputError, match="rerank_seconds is"):
        library.search("cat", rerank=ByTable(by_hash), rerank_seconds=seconds)


@pytest.mark.parametrize("reranker", [3, "/no/such/folder", "", object()])
def test_a_bad_reranker_is_refused(reranker, library):
    with pytest.raises(BinocleError) as caught:
        library.search("cat", rerank=reranker)
    assert "\n" not in str(caught.value)


# On a test collection, and from the command line


def test_a_collection_is_measured_with_a_reranker(tmp_path, tiny_model, cross_encoder):
    texts = {f"d{number}": f"the {word} of the king" for number, word in enumerate(["cat", "dog", "ship", "moon"])}
    (tmp_path / "qrels").mkdir()
    (tmp_path / "corpus.jsonl").write_text(
        "".join(json.dumps({"_id": key, "text": texts[key]}) + "\n" for key in texts)
    )
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "king of the ship"}\n')
    (tmp_path / "qrels" / "test.tsv").write_text("q\td1\t1\n")
    plain = evaluate(tmp_path, model=tiny_model, index=tmp_path / "index", mode="lexical")
    best = ByTable(lambda passage: float("dog" in passage))
    result = evaluate(tmp_path, index=tmp_path / "index", mode="lexical", rerank=best, rerank_depth=4)
    assert (plain.reranker, result.reranker) == (None, "table")
    assert plain.measures["MRR@10"] < 1 == result.measures["MRR@10"]
    assert result.as_dict()["reranker"] == "table"
    said = CliRunner().invoke(
        cli, ["evaluate", str(tmp_path), "--index", str(tmp_path / "index"), "--rerank", str(cross_encoder), "--json"]
    )
    assert json.loads(said.stdout)["reranker"] == str(cross_encoder)
    with pytest.raises(InputError, match="rerank_depth"):
        evaluate(tmp_path, model=tiny_model, rerank=best, rerank_depth=0)


def test_the_command_line_reranks_and_explains(retriever, cross_encoder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    folder = str(retriever.path.parent)
    shown = CliRunner().invoke(cli, ["search", "cancel a task", folder, "--rerank", str(cross_encoder), "--explain"])
    count = retriever.snapshot().chunks.count_rows()
    expected = retriever.search("cancel a task", rerank=cross_encoder)
    assert shown.exit_code == 0
    assert f"reranker {expected[0].scores['reranker']:.3f} (rank 1 of {count}); encoding " in shown.output
    assert shown.output.splitlines()[0].split()[1].endswith(f"{expected[0].path}:{expected[0].line_start}")
    rows = CliRunner().invoke(
        cli,
        [
            "search",
            "cancel a task",
            folder,
            "--rerank",
            str(cross_encoder),
            "--rerank-depth",
            "3",
            "--json",
            "--explain",
        ],
    )
    hits = [json.loads(line) for line in rows.output.splitlines()]
    assert [hit["scores"]["reranker"] is None for hit in hits] == [False] * 3 + [True] * (len(hits) - 3)
    assert hits[0]["explanation"]["reranked"] == 3
    none = CliRunner().invoke(
        cli, ["search", "cancel a task", folder, "--rerank", str(cross_encoder), "--rerank-seconds", "0", "--explain"]
    )
    assert "reranker –; encoding" in none.output


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--rerank", "/no/such/folder"], "no model folder at '/no/such/folder'"),
        (["--rerank", "unread", "--rerank-depth", "0"], "rerank_depth is the number of"),
        (["--rerank", "unread", "--rerank-seconds", "-1"], "rerank_seconds is the time"),
    ],
)
def test_the_command_line_refuses_bad_options_in_one_line(options, said, retriever):
    done = CliRunner().invoke(cli, ["search", "cat", str(retriever.path.parent), *options])
    assert isinstance(done.exception, BinocleError)
    assert said in str(done.exception)
    assert "\n" not in str(done.exception)


def test_neither_a_search_nor_one_that_reranks_imports_what_it_does_not_need(retriever, cross_encoder):
    code = (
        "import sys\nfrom binocle.cli import main\ntry:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "print(*[name for name in ('torch', 'transformers', 'openvino') if name in sys.modules], file=sys.stderr)"
    )
    for options, expected in (([], ""), (["--rerank", str(cross_encoder)], "openvino")):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code, "search", "bread", str(retriever.path.parent), *options],
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stderr.strip()) == (0, expected)
