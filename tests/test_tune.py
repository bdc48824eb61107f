"""An index's encoder is fitted to its documents and changes only if documents that it has not seen gain."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("datasets")
pytest.importorskip("accelerate")

from binocle import Retriever
from binocle.indexes.errors import InputError
from binocle.retriever import encoder as encoders
from binocle.training import significance, tune
from binocle.training.distillation import distill
from binocle.training.pairs import Pair

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch and transformers about themselves

THINGS = "cat dog queen king moon sun sea ship river mountain bread cheese oven salt task server".split()


def documents():
    for a in THINGS:
        for b in THINGS[:8]:
            text = (
                f"The {a} and the {b} sat in the house by the water. A {b} ran over the mountain at night with the {a}."
            )
            more = f" Salt and bread are in the oven of the {a}. The price of a {b} is not in the table of the {a}."
            yield {"id": f"{a}-{b}", "title": f"{a} {b}", "text": text + more}


@pytest.fixture
def index(tmp_path, tiny_model):
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add(documents())
    return retriever


FAST = tune.Recipe(pairs=40, candidates=3, depth=12, queries=40, held_out=0.3, learning_rate=1e-3, batch_size=8)


@pytest.mark.parametrize("p", [0.001, 0.2])
def test_only_a_significant_gain_changes_the_index_and_rollback_undoes_it(p, index, monkeypatch):
    monkeypatch.setattr(significance, "difference", lambda *_, **__: significance.Difference(0.1, 0.05, 0.15, p))
    before = index.encoder.fingerprint
    found = index.search("the cat ran", 5, mode="semantic")
    made = tune.tune(index, recipe=FAST)
    assert made.published == (p < 0.05)
    assert (index.encoder.fingerprint != before) == made.published
    assert index.verify() == []
    if made.published:
        assert index.encoder.fingerprint == encoders.load(str(made.folder)).fingerprint
        index.rollback()
    assert [(hit.path, hit.score) for hit in index.search("the cat ran", 5, mode="semantic")] == [
        (hit.path, pytest.approx(hit.score)) for hit in found
    ]


def test_a_loss_is_never_published_however_significant(index, monkeypatch):
    monkeypatch.setattr(significance, "difference", lambda *_, **__: significance.Difference(-0.1, -0.2, -0.05, 0.001))
    assert not tune.tune(index, recipe=FAST).published


@pytest.mark.parametrize("teacher", ["none", "encoder"])
def test_other_teachers(teacher, index, tiny_model, tmp_path):
    from dataclasses import replace

    recipe = replace(FAST, teacher=tiny_model if teacher == "encoder" else teacher)
    made = tune.tune(index, recipe=recipe, out=tmp_path / "out", publish=False)
    assert not made.published
    assert made.folder.parent == tmp_path / "out"
    facts = json.loads((made.folder / "binocle.json").read_text("utf-8"))
    assert facts["tuning"]["difference"]["p"] == pytest.approx(made.difference.p, abs=1e-4)
    assert encoders.load(str(made.folder)).max_tokens == encoders.load(tiny_model).max_tokens


def test_the_judging_queries_are_of_documents_that_were_not_learned_from(index, monkeypatch):
    seen = {}
    judge = tune._judge
    taught = tune._taught
    monkeypatch.setattr(tune, "_judge", lambda a, b, asked, pool: seen.update(asked=asked) or judge(a, b, asked, pool))
    monkeypatch.setattr(
        tune, "_taught", lambda r, chosen, *rest: seen.update(chosen=chosen) or taught(r, chosen, *rest)
    )
    tune.tune(index, recipe=FAST, publish=False)
    assert seen["chosen"]
    assert not {pair.document for pair in seen["chosen"]} & {pair.document for pair in seen["asked"]}


def test_judging_is_ndcg_over_the_pool():
    class Fake:
        def encode(self, texts, kind="document"):
            table = {"q": (1, 0), "own": (0.5, 0.5), "near": (1, 0), "far": (0, 1)}
            return np.array([table[text] for text in texts], np.float32)

    asked = [Pair("q", "own", "title", "d", 1.0)]
    before, after = tune._judge(Fake(), Fake(), asked, ["own", "near", "far"])
    np.testing.assert_allclose(before, [1 / np.log2(3)], atol=1e-6)
    np.testing.assert_array_equal(before, after)


def test_too_few_documents_are_told(tmp_path, tiny_model):
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add([{"id": "a", "text": "the cat sat"}])
    with pytest.raises(InputError, match="holds too little to learn from"):
        tune.tune(retriever, recipe=FAST)


# Distillation


def texts(tmp_path):
    file = tmp_path / "texts.jsonl"
    file.write_text("".join(json.dumps({"text": row["text"]}) + "\n" for row in documents()), "utf-8")
    return file


def test_a_student_of_fewer_layers_comes_nearer_to_its_teacher(tmp_path, tiny_model):
    from binocle.training.encoder import Config

    config = Config(epochs=3, batch_size=16, learning_rate=1e-3, patience=None, evaluations=1)
    made = distill(tiny_model, tmp_path / "out", texts=texts(tmp_path), layers=1, config=config)
    layers = json.loads((tmp_path / "out" / "config.json").read_text("utf-8"))["num_hidden_layers"]
    assert (layers, made.layers) == (1, 1)
    assert made.measures["cosine to the teacher"][1] > 0.5
    (measured,) = json.loads((tmp_path / "out" / "binocle.json").read_text("utf-8"))["measures"]
    low, high = measured["interval"]
    assert low < measured["value"] < high
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_table_of_words_encodes_as_sentence_transformers_does(tmp_path, tiny_model):
    from sentence_transformers import SentenceTransformer

    from binocle.training.encoder import Config

    config = Config(epochs=1, batch_size=32, patience=None, evaluations=1)
    made = distill(tiny_model, tmp_path / "out", texts=texts(tmp_path), layers=0, config=config)
    encoder = encoders.load(str(made.folder))
    assert type(encoder).__name__ == "StaticEncoder"
    some = ["The cat sat", "a ship, at night", ""]
    expected = SentenceTransformer(str(made.folder), device="cpu").encode(some)
    np.testing.assert_allclose(encoder.encode(some), expected, atol=1e-6)
    assert encoder.offsets(["The cat"])[0][0] == (0, 3)


def test_a_student_as_large_as_its_teacher_is_refused(tmp_path, tiny_model):
    with pytest.raises(InputError, match="would not be smaller"):
        distill(tiny_model, tmp_path / "out", texts=["a b", "c d"], layers=12)
