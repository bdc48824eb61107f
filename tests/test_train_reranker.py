"""Rerankers learn on what the hybrid search puts before them, and are ordinary CrossEncoder folders."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("datasets")
pytest.importorskip("accelerate")

from binocle import Retriever
from binocle.indexes.errors import InputError
from binocle.retriever.reranker import Reranker
from binocle.training import candidates, loop
from binocle.training import reranker as reranker_training
from binocle.training.reranker import RerankerConfig, train_reranker

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch and transformers about themselves

THINGS = "cat dog queen king moon sun sea ship river mountain bread cheese".split()
PAIRS = [
    {"query": f"{a} {b}", "positive": f"the {a} sat on the {b} for a time", "document_id": f"{a}-{b}"}
    for a in THINGS
    for b in THINGS
]
FAST = RerankerConfig(steps=3, batch_size=4, negatives=3, depth=12, held_out=0.1, evaluations=1, max_length=48)


def test_pairs_get_their_negatives_from_the_hybrid_search_and_the_folder_is_an_ordinary_one(tmp_path, tiny_model):
    from sentence_transformers import CrossEncoder

    told = []
    made = train_reranker(
        PAIRS, tmp_path / "out", base=tiny_model, encoder=tiny_model, config=FAST, progress=told.append
    )
    assert (made.objective, made.steps, told[-1].step) == ("listwise", 3, 3)
    pairs = [("cat dog", "the cat sat on the dog"), ("moon", "bread and cheese in the night")]
    expected = CrossEncoder(str(made.folder), device="cpu").predict(
        pairs, activation_fn=__import__("torch").nn.Identity()
    )
    reranker = Reranker.load(str(made.folder))
    np.testing.assert_allclose(reranker.score_pairs(pairs), expected, atol=1e-5)
    assert made.fingerprint == reranker.fingerprint
    facts = json.loads((made.folder / "binocle.json").read_text("utf-8"))
    assert reranker.first_stage_weight == facts["first_stage_weight"]
    assert {one["when"] for one in facts["measures"]} == {"before", "after", "first stage alone", "reranked"}
    assert not (made.folder / "run").exists()


def test_the_second_segment_begins_as_the_first_where_the_base_has_read_single_texts_only(tmp_path, tiny_model):
    def segments(base):
        state = reranker_training.make_model(str(base), FAST).state_dict()
        return next(value for name, value in state.items() if name.endswith("token_type_embeddings.weight"))

    first, second = segments(tiny_model)
    assert first.equal(second)
    made = train_reranker(PAIRS, tmp_path / "out", base=tiny_model, encoder=tiny_model, config=FAST)
    first, second = segments(made.folder)  # a reranker keeps what it has learnt
    assert not first.equal(second)


def test_a_trained_reranker_serves_a_search(tmp_path, tiny_model):
    made = train_reranker(PAIRS, tmp_path / "out", base=tiny_model, encoder=tiny_model, config=FAST)
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add({"id": row["document_id"], "text": row["positive"]} for row in PAIRS[:30])
    hits = retriever.search("cat dog", 5, rerank=str(made.folder))
    assert all(hit.scores["reranker"] is not None for hit in hits)


def test_candidates_are_passages_that_the_search_found_and_never_a_relevant_one(tmp_path, tiny_model):
    retriever = candidates.index_of(
        tmp_path, [{"id": r["document_id"], "text": r["positive"]} for r in PAIRS], tiny_model
    )
    judged = {"cat dog": {"cat-dog": PAIRS[1]["positive"]}, "no such": {"nowhere": "a text that is not indexed"}}
    rows = list(candidates.lists(retriever, judged, negatives=4, depth=20, seed=0))
    found = {hit.text for hit in retriever.search("cat dog", 20)}
    assert rows[0]["positive"] == "the cat sat on the dog for a time"
    negatives = [rows[0][f"negative_{n}"] for n in range(1, 5)]
    assert set(negatives) <= found - {rows[0]["positive"]}
    assert len(set(negatives)) == 4
    assert rows[1]["positive"] == "a text that is not indexed"


GRADED = [row | {"negative": "bread and cheese", "scores": [4.0, 1.0]} for row in PAIRS]
SHAPES = {
    "binary": [{"sentence1": r["query"], "sentence2": r["positive"], "label": n % 2} for n, r in enumerate(PAIRS)],
    "mse": [{"sentence1": r["query"], "sentence2": r["positive"], "score": n % 5 / 4} for n, r in enumerate(PAIRS, 3)],
    "listwise": [row | {"negative": "bread and cheese"} for row in PAIRS],
    "pairwise": GRADED,
    "lambda": GRADED,
}


@pytest.mark.parametrize("objective", SHAPES)
def test_every_objective_trains(objective, tmp_path, tiny_model):
    config = RerankerConfig(objective=objective, steps=2, batch_size=4, evaluations=1, max_length=48)
    made = train_reranker(SHAPES[objective], tmp_path / "out", base=tiny_model, config=config)
    assert made.objective == objective
    assert Reranker.load(str(made.folder)).score("cat", ["the cat sat"]).shape == (1,)


@pytest.mark.parametrize("objective", ["binary", "mse"])
def test_a_teachers_lists_are_learned_pair_by_pair_too(objective, tmp_path, tiny_model):
    config = RerankerConfig(objective=objective, steps=2, batch_size=4, evaluations=1, max_length=48)
    assert train_reranker(GRADED, tmp_path / "out", base=tiny_model, config=config).objective == objective


def test_training_raises_the_positive(tmp_path, tiny_model):
    rows = [
        row | {"negative_1": PAIRS[n - 5]["positive"], "negative_2": PAIRS[n - 31]["positive"]}
        for n, row in enumerate(PAIRS)
    ]
    config = RerankerConfig(
        epochs=8, batch_size=8, evaluations=2, learning_rate=3e-3, held_out=0.2, max_length=48, patience=None
    )
    made = train_reranker(rows, tmp_path / "out", base=tiny_model, config=config)
    assert made.after.value > made.before.value


def test_without_patience_left_no_step_is_taken_again(tmp_path, tiny_model, monkeypatch):
    """Killed when it had stopped early and not yet written the model."""
    config = RerankerConfig(
        steps=12, batch_size=4, evaluations=12, patience=1, learning_rate=0.1, warmup=0.5, held_out=0.2, max_length=48
    )
    with monkeypatch.context() as patch:
        patch.setattr(reranker_training._Session, "_finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            train_reranker(SHAPES["listwise"], tmp_path / "out", base=tiny_model, config=config)
    last = loop.last_checkpoint(tmp_path / "out/run/checkpoints")
    made = train_reranker(SHAPES["listwise"], tmp_path / "out", base=tiny_model, config=config)
    assert made.steps == made.resumed_from == int(last.name.split("-")[1]) < 12


def test_what_cannot_be_is_told(tmp_path, tiny_model):
    for config, message in (
        (RerankerConfig(objective="magic"), "there is no objective 'magic' for rerankers"),
        (RerankerConfig(objective="binary", negatives=60), "depth is more than the number of negatives"),
        (RerankerConfig(epochs=-1), "epochs is a number above 0"),
        (RerankerConfig(seed=-1), "seed is a number from 0"),
    ):
        with pytest.raises(InputError, match=message):
            train_reranker(SHAPES["listwise"], tmp_path / message[:5], base=tiny_model, config=config)
    with pytest.raises(InputError, match="no query finds 3 other passages"):
        train_reranker([PAIRS[0], PAIRS[1]], tmp_path / "few", base=tiny_model, encoder=tiny_model, config=FAST)
    assert not list(Path(tmp_path).rglob("*.safetensors"))


def test_after_a_mistake_the_corrected_command_is_taken(tmp_path, tiny_model):
    scored = [{"sentence1": a, "sentence2": b, "score": 0.5 + len(a) / 20} for a in THINGS for b in THINGS]
    with pytest.raises(InputError, match="the objective listwise takes"):
        train_reranker(
            scored,
            tmp_path / "out",
            base=tiny_model,
            config=RerankerConfig(objective="listwise", held_out=0),
        )
    made = train_reranker(scored, tmp_path / "out", base=tiny_model, config=RerankerConfig(steps=1, held_out=0))
    assert made.objective == "mse"
