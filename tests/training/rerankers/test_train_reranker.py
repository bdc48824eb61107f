"""Rerankers learn on the candidates of the hybrid search, and are ordinary CrossEncoder folders."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from binocle.retriever.models.load import load_reranker

pytest.importorskip("torch")
pytest.importorskip("datasets")
pytest.importorskip("accelerate")

from binocle import Retriever
from binocle.core.errors import InputError, ModelNotFoundError
from binocle.training.data import dataset as training_data
from binocle.training.rerankers import candidates, reranker_training
from binocle.training.rerankers import first_stage_weight as stage_weight
from binocle.training.rerankers import rows as reranker_rows
from binocle.training.rerankers.candidates import Positive
from binocle.training.rerankers.config import RerankerConfig
from binocle.training.rerankers.train import train_reranker
from binocle.training.runs.checkpoints import last_checkpoint

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch and transformers about themselves

THINGS = "cat dog queen king moon sun sea ship river mountain bread cheese".split()
PAIRS = [
    {"query": f"{a} {b}", "positive": f"the {a} sat on the {b} for a time", "document_id": f"{a}-{b}"}
    for a in THINGS
    for b in THINGS
]
FAST = RerankerConfig(steps=3, batch_size=4, negatives=3, depth=12, held_out=0.1, evaluations=1, max_length=48)


@pytest.fixture(scope="session")
def trained(tmp_path_factory, tiny_model):
    """The result of three steps, and their events."""
    out, events = tmp_path_factory.mktemp("trained") / "out", []
    result = train_reranker(PAIRS, out, base=tiny_model, encoder=tiny_model, config=FAST, progress=events.append)
    return result, events


@pytest.mark.thorough
def test_pairs_get_their_negatives_from_the_hybrid_search_and_the_folder_is_an_ordinary_one(trained):
    from sentence_transformers import CrossEncoder

    result, events = trained
    assert (result.objective, result.steps, [event.done for event in events if event.stage == "training"][-1]) == (
        "listwise",
        3,
        3,
    )
    pairs = [("cat dog", "the cat sat on the dog"), ("moon", "bread and cheese in the night")]
    expected = CrossEncoder(str(result.folder), device="cpu").predict(
        pairs, activation_fn=__import__("torch").nn.Identity()
    )
    reranker = load_reranker(str(result.folder))
    np.testing.assert_allclose(reranker.score_pairs(pairs), expected, atol=1e-5)
    assert result.fingerprint == reranker.fingerprint
    facts = json.loads((result.folder / "binocle.json").read_text("utf-8"))
    assert reranker.first_stage_weight == facts["first_stage_weight"]
    assert {measure["when"] for measure in facts["measures"]} == {"before", "after", "first stage alone", "reranked"}
    assert not (result.folder / "run").exists()


@pytest.mark.thorough
def test_a_reranker_may_keep_the_first_layers_of_its_base_alone(tmp_path, tiny_model):
    made = train_reranker(PAIRS, tmp_path / "out", base=tiny_model, encoder=tiny_model, config=replace(FAST, layers=1))
    assert json.loads((made.folder / "config.json").read_text("utf-8"))["num_hidden_layers"] == 1
    assert load_reranker(str(made.folder)).score("cat dog", ["the cat sat on the dog"]).shape == (1,)
    with pytest.raises(InputError, match=r"has 2 separate layers: it cannot keep the first 9"):
        train_reranker(PAIRS, tmp_path / "no", base=tiny_model, encoder=tiny_model, config=replace(FAST, layers=9))
    assert not (tmp_path / "no").exists()


def test_what_a_reranker_gives_is_measured_on_queries_that_did_not_choose_its_weight():
    table = np.array(
        [[1, 0], [0, 1], [1, 0], [0, 1]], np.float32
    )  # queries by weights: each half has a best of its own
    assert stage_weight._crossed(table).tolist() == [0, 0, 0, 0]
    assert stage_weight._crossed(np.array([[0.2, 0.7], [0.1, 0.6], [0.5, 0.4]], np.float32)).tolist() == pytest.approx(
        [0.7, 0.6, 0.4]
    )


def test_the_second_segment_begins_as_the_first_where_the_base_has_read_single_texts_only(trained, tiny_model):
    def segments(base):
        state = reranker_training.make_model(str(base), FAST).state_dict()
        return next(value for name, value in state.items() if name.endswith("token_type_embeddings.weight"))

    first, second = segments(tiny_model)
    assert first.equal(second)
    first, second = segments(trained[0].folder)  # a reranker keeps its learnt weights
    assert not first.equal(second)


def test_a_trained_reranker_serves_a_search(tmp_path, tiny_model, trained):
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add({"id": row["document_id"], "text": row["positive"]} for row in PAIRS[:30])
    hits = retriever.search("cat dog", 5, rerank=str(trained[0].folder))
    assert all(hit.scores["reranker"] is not None for hit in hits)


def test_candidates_are_passages_that_the_search_found_and_never_a_relevant_one(tmp_path, tiny_model):
    retriever = candidates.index_of(
        tmp_path, [{"id": r["document_id"], "text": r["positive"]} for r in PAIRS], tiny_model
    )
    judged = [
        ("cat dog", [Positive(PAIRS[1]["positive"], "cat-dog")]),
        ("no such", [Positive("a text that is not indexed", "nowhere")]),
    ]
    rows = list(candidates.lists(retriever, judged, negatives=4, depth=20, seed=0))
    hits = {hit.text for hit in retriever.search("cat dog", 20)}
    assert rows[0]["positive"] == "the cat sat on the dog for a time"
    negatives = [rows[0][f"negative_{n}"] for n in range(1, 5)]
    assert set(negatives) <= hits - {rows[0]["positive"]}
    assert len(set(negatives)) == 4
    assert rows[1]["positive"] == "a text that is not indexed"


def test_an_index_may_be_written_to_while_candidates_are_drawn(tmp_path, tiny_model, monkeypatch):
    documents = [{"id": r["document_id"], "title": "Of things", "text": r["positive"]} for r in PAIRS]
    retriever = candidates.index_of(tmp_path / "index", documents, tiny_model)
    search = retriever.search

    def searched(*arguments, **how):
        hits = search(*arguments, **how)
        retriever.add([{"id": hits[0].path, "text": "the sea is deep"}])  # its passages have other ids from now on
        return hits

    monkeypatch.setattr(retriever, "search", searched)
    judged = [("cat dog", [Positive(PAIRS[1]["positive"], "cat-dog")])]
    (row,) = candidates.lists(retriever, judged, negatives=4, depth=20, seed=0)
    assert row["positive"] == "Of things\nthe cat sat on the dog for a time"
    (tmp_path / "ready").mkdir()
    monkeypatch.setattr(
        stage_weight, "load_reranker", lambda name: SimpleNamespace(score=lambda query, texts: np.arange(len(texts)))
    )
    relevant = {"king queen": {"king-queen"}, "cat dog": {"cat-dog"}}
    measures = stage_weight.choose_weight(tmp_path / "ready", [(retriever, relevant)], seed=0)
    assert [row["when"] for row in measures] == ["first stage alone", "reranked"]


def mined(out, source, model, monkeypatch, **options):
    """The data of a run, and its lists before the first step."""
    with monkeypatch.context() as patch:
        patch.setattr(reranker_training.RerankerTraining, "train", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            train_reranker(source, out, base=model, config=FAST, **options)
    return training_data.load(out / "run/data"), training_data.load(out / "run/lists")


def test_the_other_answers_to_a_held_out_query_are_none_of_its_negatives(tmp_path, tiny_model):
    rows = [row | {"query": f"what of {row['query'].split()[0]}"} for row in PAIRS]  # twelve answers to each
    dataset = training_data.prepare(rows, tmp_path / "rows", held_out=0.05)
    retriever = candidates.index_of(tmp_path / "index", candidates.positives(dataset), tiny_model)
    answers = {(row["query"], row["positive"]) for row in rows}
    held_out = candidates.Judged(dataset, dataset.held_out(), apart=True)
    candidate_lists = list(candidates.lists(retriever, held_out, negatives=3, depth=50, seed=0))
    texts = dataset.table().to_pylist()
    held_out_pairs = {(texts[number]["query"], texts[number]["positive"]) for number in dataset.held_out().tolist()}
    assert {(row["query"], row["positive"]) for row in candidate_lists} == held_out_pairs
    assert not any((row["query"], row[f"negative_{n}"]) in answers for row in candidate_lists for n in (1, 2, 3))
    assert all(len(positives) == 12 for _, positives in held_out)


def test_a_positive_with_other_white_space_than_the_index_has_is_no_negative(tmp_path, tiny_model):
    texts = ("the cat sat\non the dog", "a dog ran", "the cat and the moon")
    retriever = candidates.index_of(tmp_path, [{"id": text[:9], "text": text} for text in texts], tiny_model)
    judged = [("cat dog", [Positive("the cat sat on the dog", None)])]
    (row,) = candidates.lists(retriever, judged, negatives=2, depth=5, seed=0)
    assert {row["negative_1"], row["negative_2"]} == set(texts[1:])
    assert not list(candidates.lists(retriever, judged, negatives=3, depth=5, seed=0))  # there is no third


def test_positives_of_one_document_stay_apart_and_none_is_a_negative(tmp_path, tiny_model, monkeypatch):
    data = [row | {"document_id": row["query"].split()[0]} for row in PAIRS]
    read, lists = mined(tmp_path / "out", data, tiny_model, monkeypatch, encoder=tiny_model)
    positives = {row["query"]: row["positive"] for row in data}
    rows = lists.table().to_pylist()
    assert len(rows) > len(PAIRS) / 2
    for row in rows:
        assert row["positive"] == positives[row["query"]]
        assert not any(f"the {row['query'].split()[0]} sat" in row[f"negative_{n}"] for n in (1, 2, 3))
    for part in (training_data.TRAIN, training_data.HELD_OUT):
        queries = [
            {row["query"] for row in dataset.table().filter(dataset.part == part).to_pylist()}
            for dataset in (read, lists)
        ]
        assert queries[1]
        assert queries[1] <= queries[0]


PARAGRAPHS = [" ".join(f"the {thing} sat on the {other}." for other in THINGS) for thing in THINGS]


def test_of_a_long_document_the_passage_that_was_given_is_the_positive(tmp_path, tiny_model):
    documents = [{"id": row["document_id"], "text": row["positive"]} for row in PAIRS]
    whole = {"id": "long", "text": "\n\n".join(PARAGRAPHS)}
    retriever = candidates.index_of(tmp_path, [whole, *documents], tiny_model)
    given = "the moon sat on the sun."
    judged = [
        (query, [Positive(text, "long")])
        for query, text in (
            ("cat dog", given),
            ("bread", given),
            ("bread cheese", whole["text"].replace("\n", "\r\n")),
            ("bread", "the moon sat on a text that differs"),
        )
    ]
    rows = list(candidates.lists(retriever, judged, negatives=3, depth=60, seed=0))
    assert given in rows[0]["positive"]
    assert given in rows[1]["positive"]
    assert rows[2]["positive"] == next(hit.text for hit in retriever.search("bread cheese", 60) if hit.path == "long")
    assert rows[3]["positive"] == "the moon sat on a text that differs"
    assert not any(row[f"negative_{n}"] in whole["text"] for row in rows for n in (1, 2, 3))


def test_of_a_document_that_the_search_misses_its_first_passage_is_the_positive(tmp_path, tiny_model, monkeypatch):
    documents = [{"id": row["document_id"], "text": row["positive"]} for row in PAIRS]
    retriever = candidates.index_of(tmp_path, [{"id": "it's", "text": "\n\n".join(PARAGRAPHS)}, *documents], tiny_model)
    judged = [("moon", [Positive("\n\n".join(PARAGRAPHS), "it's")])]
    monkeypatch.setattr(retriever, "search", partial(retriever.search, mode="semantic"))
    row = next(candidates.lists(retriever, judged, negatives=1, depth=3, seed=0))
    hits = {hit.path for hit in retriever.search("moon", 3)}
    assert "it's" not in hits
    assert PARAGRAPHS[0].startswith(row["positive"])


def test_a_collections_documents_are_looked_for_by_their_names(tmp_path, tiny_model, monkeypatch, write):
    lines = {
        "corpus.jsonl": [{"_id": f"d{n}", "title": THINGS[n], "text": text} for n, text in enumerate(PARAGRAPHS)],
        "queries.jsonl": [{"_id": f"q{n}", "text": f"{thing} sat"} for n, thing in enumerate(THINGS)],
    }
    write(tmp_path / "c", {name: "".join(json.dumps(row) + "\n" for row in part) for name, part in lines.items()})
    qrels = "".join(f"q{n}\td{n}\t1\n" for n in range(len(THINGS)))
    write(tmp_path / "c", {"qrels/train.tsv": "query-id\tcorpus-id\tscore\n" + qrels})
    Retriever.open(tmp_path / "c" / ".binocle", model=tiny_model).add(STORIES)  # a collection keeps its own queries
    _, lists = mined(tmp_path / "out", tmp_path / "c", tiny_model, monkeypatch, encoder=tiny_model)
    retriever = Retriever.open(tmp_path / "out/run/index", model=tiny_model)
    names = {row["text"]: f"d{n}" for n, row in enumerate(lines["queries.jsonl"])}
    contexts = {
        (hit.path, f"{hit.title}\n{hit.text}") for query in names for hit in retriever.search(query, FAST.depth)
    }
    rows = lists.table().to_pylist()
    assert rows
    for row in rows:
        assert (names[row["query"]], row["positive"]) in contexts


STORIES = [
    {
        "id": f"{thing}.md",
        "title": thing,
        "text": f"Of old the {thing} was small and grey. People liked to look at the {thing} by night and by day. "
        f"Then a {other} came along the road with bread and cheese. Both the {thing} and the {other} were glad of it.",
    }
    for thing, other in zip(THINGS, THINGS[1:] + THINGS[:1], strict=True)
]


@pytest.fixture
def stories(tmp_path, tiny_model):
    """An index of documents with sentences, as a folder's `.binocle`."""
    Retriever.open(tmp_path / "stories" / ".binocle", model=tiny_model).add(STORIES)
    return tmp_path / "stories"


def test_the_documents_of_an_index_give_queries_without_the_sentence_that_is_asked_for(
    tmp_path, tiny_model, monkeypatch, stories
):
    read, lists = mined(tmp_path / "out", stories, tiny_model, monkeypatch)
    texts = {story["id"]: story["text"] for story in STORIES}
    read_rows = {row["query"]: row for row in read.table().to_pylist()}
    rows = lists.table().to_pylist()
    assert sum(row["query"] not in row["positive"] for row in rows) > len(rows) / 2  # cloze leaves one in ten in place
    for row in rows:
        story = texts[read_rows[row["query"]]["group"]]
        assert row["query"] in story
        assert row["positive"] == read_rows[row["query"]]["positive"]
        assert not any(row[f"negative_{n}"].endswith(story) for n in (1, 2, 3))
    assert not (tmp_path / "out/run/index").exists()  # its own index is searched


def test_several_data_sets_are_learned_together_each_with_candidates_of_its_own(
    tmp_path, tiny_model, monkeypatch, stories
):
    both = {"pairs": PAIRS, "stories": stories}
    _, lists = mined(tmp_path / "out", both, tiny_model, monkeypatch, encoder=tiny_model)
    ours = {row["positive"] for row in PAIRS}
    rows = lists.table().to_pylist()
    from_pairs = [row["positive"] in ours for row in rows]
    assert 0 < sum(from_pairs) < len(rows)
    for row, is_pair in zip(rows, from_pairs, strict=True):
        assert all((row[f"negative_{n}"] in ours) == is_pair for n in (1, 2, 3))
    for part in (training_data.TRAIN, training_data.HELD_OUT):
        assert {True, False} == {kind for kind, one in zip(from_pairs, lists.part, strict=True) if one == part}


def test_no_data_set_trains_on_a_text_that_another_holds_out(tmp_path, tiny_model, monkeypatch):
    without_ids = [{name: row[name] for name in ("query", "positive")} for row in PAIRS]  # holds out other rows
    read, lists = mined(tmp_path / "out", {"a": PAIRS, "b": without_ids}, tiny_model, monkeypatch, encoder=tiny_model)
    queries = [
        {row["query"] for row in lists.table().filter(lists.part == part).to_pylist()}
        for part in (training_data.TRAIN, training_data.HELD_OUT)
    ]
    assert all(queries)
    assert queries[0].isdisjoint(queries[1])
    held_out = [without_ids[number] for number in read.held_out().tolist()]
    with pytest.raises(InputError, match="every row of a data set shares a text with a held-out row of another"):
        train_reranker({"a": PAIRS, "b": held_out}, tmp_path / "none", base=tiny_model, config=FAST)


def test_the_weight_of_the_first_stage_is_chosen_on_the_queries_of_all_data_sets(tmp_path, tiny_model, monkeypatch):
    retriever = candidates.index_of(tmp_path / "index", STORIES, tiny_model)
    monkeypatch.setattr(
        stage_weight, "load_reranker", lambda name: SimpleNamespace(score=lambda query, texts: np.zeros(len(texts)))
    )
    stages = [(retriever, {thing: {f"{thing}.md"}}) for thing in THINGS[:3]]
    first, reranked = stage_weight.choose_weight(tmp_path, stages, seed=0)
    assert (first["rows"], reranked["rows"]) == (3, 3)


def test_several_data_sets_are_pairs_without_an_index_beside_them(tmp_path, tiny_model, stories):
    for data, options, message in (
        ({"pairs": PAIRS, "lists": SHAPES["listwise"]}, {}, "of several data sets each consists of pairs"),
        ({"pairs": PAIRS, "stories": stories}, {"index": stories}, "an index finds the negatives of one data set"),
        (stories, {"index": tmp_path / "other"}, "is searched in its own index"),
        ({}, {}, "there are no data to train on"),
    ):
        with pytest.raises(InputError, match=message):
            train_reranker(data, tmp_path / "out", base=tiny_model, config=FAST, **options)
        assert not (tmp_path / "out").exists()


GRADED = [row | {"negative": "bread and cheese", "scores": [4.0, 1.0]} for row in PAIRS]
SHAPES = {
    "binary": [{"sentence1": r["query"], "sentence2": r["positive"], "label": n % 2} for n, r in enumerate(PAIRS)],
    "mse": [{"sentence1": r["query"], "sentence2": r["positive"], "score": n % 5 / 4} for n, r in enumerate(PAIRS, 3)],
    "listwise": [row | {"negative": "bread and cheese"} for row in PAIRS],
    "pairwise": GRADED,
    "lambda": GRADED,
}


@pytest.mark.thorough
@pytest.mark.parametrize("objective", SHAPES)
def test_every_objective_trains(objective, tmp_path, tiny_model):
    config = RerankerConfig(objective=objective, steps=2, batch_size=4, evaluations=1, max_length=48)
    result = train_reranker(SHAPES[objective], tmp_path / "out", base=tiny_model, config=config)
    assert result.objective == objective
    assert load_reranker(str(result.folder)).score("cat", ["the cat sat"]).shape == (1,)


@pytest.mark.parametrize("objective", ["binary", "mse"])
def test_a_teachers_lists_are_learned_pair_by_pair_too(objective, tmp_path, tiny_model):
    rows = [row | {"scores": [0.9, 0.2]} for row in GRADED]
    config = RerankerConfig(objective=objective, steps=2, batch_size=4, evaluations=1, max_length=48)
    assert train_reranker(rows, tmp_path / "out", base=tiny_model, config=config).objective == objective


def test_scores_that_are_no_probabilities_are_not_learned_as_such(tmp_path, tiny_model):
    rows = [row | {"scores": [9.5, -7.5]} for row in GRADED]
    with pytest.raises(InputError) as raised:
        train_reranker(rows, tmp_path / "out", base=tiny_model, config=RerankerConfig(objective="binary"))
    assert str(raised.value) == (
        "the objective binary takes scores from 0 to 1, which are probabilities, but they are -7.5 to 9.5: take mse or "
        "listwise"
    )


@pytest.mark.parametrize("scores", [[9.5, -7.5, 1.0], [-1.0, -18.0, -9.5], [1.0, 0.0, 0.5]])
def test_lambda_learns_the_order_of_scores_wherever_they_lie(scores):
    batch = {"query": ["a"], "positive": ["b"], "negative_1": ["c"], "negative_2": ["d"], "label": [scores]}
    made = reranker_rows.as_lists(batch, ("query", "positive", "negative_1", "negative_2"), 1.0, spread=True)
    assert made == {"query": ["a"], "passages": [["b", "c", "d"]], "label": [[1.0, 0.0, 0.5]]}


@pytest.mark.parametrize(
    ("scores", "objective", "label"),
    [
        (None, "listwise", [20.0, 0.0]),
        ([0.75, 0.5], "listwise", [15.0, 10.0]),
        ([7.5, -2.5], "listwise", [7.5, -2.5]),
        ([0.75, 0.5], "pairwise", [0.75, 0.5]),
    ],
)
def test_a_teacher_with_cosines_is_as_sure_as_one_with_logits(
    scores, objective, label, tmp_path, tiny_model, monkeypatch
):
    made = []
    real = reranker_rows.as_lists
    monkeypatch.setattr(reranker_rows, "as_lists", lambda *a, **b: made.append(real(*a, **b)) or made[-1])
    taught = {"scores": scores} if scores else {}
    rows = [{**row, "negative": "bread and cheese", **taught} for row in PAIRS]
    config = RerankerConfig(objective=objective, steps=1, batch_size=2, held_out=0.0, max_length=48)
    train_reranker(rows, tmp_path / "out", base=tiny_model, config=config)
    assert made[0]["label"][0] == label


def test_pairs_of_lists_are_those_of_the_rows_without_a_copy_of_their_texts(tmp_path):
    import pyarrow as pa

    rows = [row | {"negative_1": "bread " * 300, "negative_2": "cheese " * 300} for row in PAIRS]
    for scores in ({}, {"scores": [4.0, 1.5, -1.0]}):
        made = training_data.prepare([row | scores for row in rows], tmp_path / str(len(scores)), held_out=0)
        table, before = made.table(), pa.total_allocated_bytes()
        pairs = reranker_rows.pairs(table, made.texts)
        assert pa.total_allocated_bytes() - before < 64 * len(pairs)
        labels = scores.get("scores", [1.0, 0.0, 0.0])
        expected = [
            (row["query"], row[name], label)
            for name, label in zip(("positive", "negative_1", "negative_2"), labels, strict=True)
            for row in rows
        ]
        assert [tuple(pair.values()) for pair in pairs.to_pylist()] == expected


def test_of_lists_that_are_learned_pair_by_pair_every_pair_of_the_training_rows_is(tmp_path, tiny_model, monkeypatch):
    sessions = []
    with monkeypatch.context() as patch:
        patch.setattr(
            reranker_training.RerankerTraining, "train", lambda session: sessions.append(session) or SimpleNamespace()
        )
        config = RerankerConfig(objective="binary", batch_size=4, held_out=0.2)
        rows = [row | {"negative": f"no {row['query']}"} for row in PAIRS]
        train_reranker(rows, tmp_path / "out", base=tiny_model, config=config)
    dataset, batches, texts = sessions[0]._dataset()
    assert texts == batches.batch_size == 8
    got = [tuple(pair.values()) for batch in batches for pair in (dataset[number] for number in batch)]
    held_out = {row["query"] for row in sessions[0].table.take(sessions[0].data.held_out()).to_pylist()}
    expected = {(row["query"], row["positive"], 1.0) for row in rows} | {
        (row["query"], row["negative"], 0.0) for row in rows
    }
    assert held_out
    assert len(got) == len(set(got)) == len(batches) * 8
    assert set(got) <= {pair for pair in expected if pair[0] not in held_out}


@pytest.mark.thorough
@pytest.mark.parametrize("rows", [PAIRS, *(SHAPES[name] for name in ("binary", "mse", "listwise", "lambda"))])
def test_at_most_so_many_queries_are_learned_from(rows, tmp_path, tiny_model):
    from dataclasses import replace

    encoder = tiny_model if rows is PAIRS else None
    mined = {} if rows is PAIRS else {"negatives": 7, "depth": 50}  # the defaults, since other data have their own
    config = replace(FAST, queries=20, steps=1, **mined)
    result = train_reranker([*rows, *rows[:50]], tmp_path / "out", base=tiny_model, encoder=encoder, config=config)
    facts = json.loads((result.folder / "binocle.json").read_text("utf-8"))["data"]
    assert 15 <= facts["training"] <= 40
    assert facts["held_out"] >= 5


def test_options_of_mining_are_refused_for_data_that_are_not_mined(tmp_path, tiny_model):
    config = RerankerConfig(negatives=3, steps=1)
    with pytest.raises(InputError, match="negatives is for pairs"):
        train_reranker(SHAPES["listwise"], tmp_path / "out", base=tiny_model, config=config)
    assert not (tmp_path / "out").exists()


# Each positive is a negative of two others, so that only a reranker that compares query and text puts it first.
EVEN = [
    row | {"negative_1": PAIRS[n - 5]["positive"], "negative_2": PAIRS[n - 31]["positive"]}
    for n, row in enumerate(PAIRS)
]


@pytest.fixture(scope="session")
def improved(tmp_path_factory, tiny_model):
    """The result of three epochs on `EVEN`."""
    config = RerankerConfig(
        epochs=3, batch_size=8, evaluations=1, learning_rate=3e-3, held_out=0.2, max_length=48, patience=None
    )
    return train_reranker(EVEN, tmp_path_factory.mktemp("improved") / "out", base=tiny_model, config=config)


def test_training_raises_the_positive(improved):
    assert improved.after.value > improved.before.value


def test_without_patience_left_no_step_is_taken_again_nor_the_base_measured(tmp_path, improved, monkeypatch):
    """Killed when it had stopped early and not yet written the model: so high a rate soon undoes the knowledge of the base."""
    config = RerankerConfig(
        steps=12, batch_size=4, evaluations=12, patience=1, learning_rate=0.1, warmup=0.5, held_out=0.2, max_length=48
    )
    with monkeypatch.context() as patch:
        patch.setattr(
            reranker_training.RerankerTraining, "_finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        with pytest.raises(KeyboardInterrupt):
            train_reranker(EVEN, tmp_path / "out", base=str(improved.folder), config=config)
    last = last_checkpoint(tmp_path / "out/run/checkpoints")
    measure, measured = reranker_training.RerankerTraining._measure, []
    monkeypatch.setattr(
        reranker_training.RerankerTraining, "_measure", lambda self: measured.append(measure(self)) or measured[-1]
    )
    result = train_reranker(EVEN, tmp_path / "out", base=str(improved.folder), config=config)
    assert measured == [result.after]  # the base was measured when the run began
    assert result.before.rows == result.after.rows
    assert result.steps == result.resumed_from == int(last.name.split("-")[1]) < 12 == result.planned
    reason = "its last evaluation was worse than the best by more than chance"
    assert result.notes[1] == f"stopped early, after step {result.steps} of 12: {reason}"
    values = {row["step"]: row["eval_ndcg@10"] for row in result.history if "eval_ndcg@10" in row}
    assert values[result.best_step] > values[result.steps]
    assert f"the weights come from step {result.best_step}" in result.notes[2]
    assert result.is_worse == (result.difference.value < 0 and result.difference.p < 0.05)


def test_what_cannot_be_is_told(tmp_path, tiny_model):
    for config, message in (
        (RerankerConfig(objective="magic"), "there is no objective 'magic' for rerankers"),
        (RerankerConfig(objective="binary", negatives=60), "depth is more than the number of negatives"),
        (RerankerConfig(epochs=-1), "epochs is a number above 0"),
        (RerankerConfig(seed=-1), "seed is a whole number from 0"),
        (RerankerConfig(queries=0), "queries is a whole number above 0"),
    ):
        with pytest.raises(InputError, match=message):
            train_reranker(SHAPES["listwise"], tmp_path / message[:5], base=tiny_model, config=config)
    for options in ({"encoder": tiny_model}, {"index": tmp_path}):
        with pytest.raises(
            InputError, match=r"find negatives for pairs .*, but the data are triplets .*leave them out"
        ):
            train_reranker(SHAPES["listwise"], tmp_path / "index", base=tiny_model, config=FAST, **options)
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
    result = train_reranker(scored, tmp_path / "out", base=tiny_model, config=RerankerConfig(steps=1, held_out=0))
    assert result.objective == "mse"


def test_after_too_few_rows_the_file_is_read_again(tmp_path, tiny_model):
    rows = [{"query": a, "positive": f"the {a} sat", "negative": f"{b} bread"} for a in THINGS for b in THINGS]
    file, config = tmp_path / "rows.jsonl", RerankerConfig(steps=1, evaluations=1)
    file.write_text(json.dumps(rows[0]), "utf-8")
    with pytest.raises(InputError, match="the data have 1 row to train on"):
        train_reranker(file, tmp_path / "out", base=tiny_model, config=config)
    assert not (tmp_path / "out").exists()
    file.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    assert train_reranker(file, tmp_path / "out", base=tiny_model, config=config).steps == 1


def test_what_cannot_be_is_told_before_an_index_is_made(tmp_path, tiny_model, monkeypatch):
    monkeypatch.setattr(candidates, "index_of", lambda *_: pytest.fail("an index was made"))
    for wrong, message in (
        ({"config": RerankerConfig(objective="mse")}, "the objective mse takes"),
        ({"base": str(tmp_path / "nowhere")}, "nowhere"),
        ({"encoder": str(tmp_path / "nowhere")}, "nowhere"),
    ):
        with pytest.raises((InputError, ModelNotFoundError), match=message):
            train_reranker(
                PAIRS, tmp_path / "out", **{"base": tiny_model, "encoder": tiny_model, "config": FAST} | wrong
            )
        assert not (tmp_path / "out").exists()


def test_an_unfinished_run_is_not_gone_on_with_by_another_encoder(tmp_path, tiny_model, make_model, monkeypatch):
    mined(tmp_path / "out", PAIRS, tiny_model, monkeypatch, encoder=tiny_model)
    other = str(make_model(tmp_path / "other", seed=1))
    with pytest.raises(InputError, match="holds an unfinished run with other settings"):
        train_reranker(PAIRS, tmp_path / "out", base=tiny_model, encoder=other, config=FAST)


def test_an_unfinished_run_does_not_go_on_with_an_index_that_changed(tmp_path, tiny_model, monkeypatch):
    index = Retriever.open(tmp_path / "documents/.binocle", model=tiny_model)
    index.add([{"id": positive, "text": positive} for positive in (pair["positive"] for pair in PAIRS)])
    mined(tmp_path / "out", PAIRS, tiny_model, monkeypatch, index=tmp_path / "documents")
    index.add([{"id": "new", "text": "a text that is new"}])
    with pytest.raises(InputError, match="holds an unfinished run on data that changed since then"):
        train_reranker(PAIRS, tmp_path / "out", base=tiny_model, index=tmp_path / "documents", config=FAST)


def test_scores_and_gradients_in_groups_of_like_length_are_those_of_the_whole_batch(tiny_model, monkeypatch):
    import torch

    from binocle.training.rerankers import length_sorting

    monkeypatch.setattr(length_sorting, "_TOKENS", 40)  # three groups and more
    pairs = [(row["query"], " ".join([row["positive"]] * (n % 5 + 1))) for n, row in enumerate(PAIRS[:12])]
    model = reranker_training.make_model(tiny_model, FAST).train()
    features = model.preprocess(pairs)
    widths, inner = [], model[0].forward
    monkeypatch.setattr(
        model[0], "forward", lambda rows, **how: widths.append(rows["input_ids"].shape) or inner(rows, **how)
    )

    def computed(forward):
        model.zero_grad()
        scores = forward(dict(features))["scores"].view(-1)
        scores.square().sum().backward()
        return scores.detach(), [value.grad.clone() for value in model.parameters() if value.grad is not None]

    scores, gradients = computed(model)
    assert sum(rows for rows, _ in widths) == len(pairs)
    assert len({width for _, width in widths}) > 2
    whole, expected = computed(partial(type(model).forward, model))
    np.testing.assert_allclose(scores, whole, atol=1e-6)
    for ours, theirs in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    model.eval()
    widths.clear()
    with torch.no_grad():
        model(dict(features))
    assert len(widths) == 1  # `predict` sorts its pairs before
