"""Mining against brute force, its rules by hand-computed values, and what becomes of the file."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from filelock import FileLock

from binocle import Retriever, evaluate
from binocle.cli import main
from binocle.core.errors import EncoderMismatchError, InputError, LockedError, ModelNotFoundError
from binocle.retriever.store.derived.live_index import LiveIndex
from binocle.training.encoders.teacher_scores import score
from binocle.training.evaluation.evaluate_file import evaluate_file
from binocle.training.mining import candidate_search, negatives
from binocle.training.mining import corpus as mining_corpus
from binocle.training.mining import mine as mining
from binocle.training.mining import text_db as collection
from binocle.training.mining.config import MiningConfig
from binocle.training.mining.mine import mine
from binocle.training.mining.row_writer import row_writer
from binocle.training.mining.text_db import join_words, text_key


class Random:
    """A vector for every text, the same each time, from nothing but a seed made of its letters."""

    name, dim, max_tokens, fingerprint = "random", 16, 100, "r"

    def encode(self, texts, *, kind="document"):
        assert kind in ("query", "document")
        vectors = [np.random.default_rng(zlib.crc32(f"{kind}{text}".encode())).standard_normal(16) for text in texts]
        vectors = np.array(vectors, np.float32).reshape(-1, 16)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def offsets(self, texts):
        raise NotImplementedError


class Angles(Random):
    """A text ends with its angle in degrees: scores are cosines that can be computed by hand."""

    name, dim = "angles", 2

    def encode(self, texts, *, kind="document"):
        angles = np.radians([float(text.split()[-1]) for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float32)


def mined(tmp_path, pairs, corpus=(), **options):
    """The rows and the report of mining with a hand-written encoder."""
    options = {"model": Angles(), "form": "list"} | options
    rows = [{"query": query, "positive": positive} for query, positive in pairs]
    report = mine(rows, tmp_path / "out.jsonl", corpus=list(corpus), **options)
    return [json.loads(line) for line in (tmp_path / "out.jsonl").read_text("utf-8").splitlines()], report


def texts(count, kind="text"):
    return [f"{kind} number {number}" for number in range(count)]


def brute_force(
    pairs, corpus, *, negatives=5, depth=100, skip_top=0, margin=None, relative=None, most=None, least=None
):
    """{query: (negatives, scores)} by the definition, one query at a time."""
    encoder = Random()
    documents = list(dict.fromkeys([positive for _, positive in pairs] + list(corpus)))
    vectors = encoder.encode(documents)
    mined = {}
    for query in dict.fromkeys(query for query, _ in pairs):
        answers = {positive for pair_query, positive in pairs if pair_query == query}
        scores = vectors @ encoder.encode([query], kind="query")[0]
        floor = min(scores[documents.index(answer)] for answer in answers)
        order = np.argsort(-scores, kind="stable")[:depth]
        left = [index for index in order if documents[index] not in answers][skip_top:]
        left = [index for index in left if margin is None or scores[index] <= floor - margin]
        left = [index for index in left if relative is None or scores[index] <= floor - abs(floor) * relative]
        left = [index for index in left if most is None or scores[index] <= most]
        left = [index for index in left if least is None or scores[index] >= least][:negatives]
        mined[query] = [documents[index] for index in left], [float(scores[index]) for index in left]
    return mined


PAIRS = [(f"query {number % 50}", f"answer {number % 70}") for number in range(90)]  # some queries have two answers
CORPUS = texts(200)


@pytest.mark.parametrize(
    ("rules", "oracle"),
    [
        ({}, {}),
        ({"negatives": 3, "depth": 10}, {"negatives": 3, "depth": 10}),
        ({"skip_top": 4, "negatives": 40, "depth": 1000}, {"skip_top": 4, "negatives": 40, "depth": 1000}),
        ({"margin": 0.1}, {"margin": 0.1}),
        ({"margin": 0.0, "skip_top": 2}, {"margin": 0.0, "skip_top": 2}),
        ({"relative_margin": 0.05}, {"relative": 0.05}),
        ({"max_score": 0.4, "min_score": 0.2}, {"most": 0.4, "least": 0.2}),
        ({"margin": 0.05, "relative_margin": 0.2, "max_score": 0.3}, {"margin": 0.05, "relative": 0.2, "most": 0.3}),
    ],
)
def test_negatives_are_those_of_brute_force(tmp_path, rules, oracle):
    rows, report = mined(tmp_path, PAIRS, CORPUS, model=Random(), scores=True, **rules)
    expected = brute_force(PAIRS, CORPUS, **oracle)
    assert {row["query"] for row in rows} == {query for query, (negatives, _) in expected.items() if negatives}
    for row in rows:
        negatives, scores = expected[row["query"]]
        assert row["negatives"] == negatives
        np.testing.assert_allclose(row["scores"][1:], scores, atol=1e-6)
    count = rules.get("negatives", 5)
    assert report.queries == 50
    assert report.pairs == len(set(PAIRS))
    assert report.documents == 270
    assert report.short == sum(len(negatives) < count for negatives, _ in expected.values())
    assert report.none == sum(not negatives for negatives, _ in expected.values())
    assert report.negatives == sum(len(negatives) for negatives, _ in expected.values())
    assert report.rows == len(rows) == sum(bool(expected[query][0]) for query, _ in dict.fromkeys(PAIRS))


@pytest.mark.parametrize("strategy", ["top", "random"])
def test_blocks_of_any_size_give_the_same(tmp_path, monkeypatch, strategy):
    rules = {"model": Random(), "strategy": strategy, "margin": 0.1, "scores": True}
    whole, report = mined(tmp_path, PAIRS, CORPUS, **rules)
    monkeypatch.setattr(mining, "_QUERIES", 7)
    monkeypatch.setattr(negatives, "_GROUP", 3)
    monkeypatch.setattr(collection, "_BLOCK_TEXTS", 11)
    pieces, again = mined(tmp_path, PAIRS, CORPUS, **rules)
    assert [row["negatives"] for row in pieces] == [row["negatives"] for row in whole]
    assert [row["query"] for row in pieces] == [row["query"] for row in whole]
    np.testing.assert_allclose([row["scores"][0] for row in pieces], [row["scores"][0] for row in whole], atol=1e-6)
    assert report.dropped == again.dropped


def test_long_texts_are_encoded_a_few_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(collection, "_BLOCK_CHARACTERS", 100)
    database = collection.TextDatabase.create(tmp_path / "texts.db")
    given = ["a" * 300, "b" * 60, "c" * 60, "d" * 30, "e" * 10]
    for text in given:
        database.add_document(text)
    blocks = [(ids.tolist(), texts) for ids, texts in database.document_blocks()]
    database.close()
    assert blocks == [([0], given[:1]), ([1], given[1:2]), ([2, 3, 4], given[2:])]


# Filters, by value: the query stands at 0 degrees, so that the score of a text is the cosine of its angle.

ONE = [("query 0", "answer 30")]  # .8660
AROUND = ["t 10", "t 25", "t 29", "t 31", "t 40", "t 45", "t 60", "t 90", "t 120"]


@pytest.mark.parametrize(
    ("rules", "remaining", "dropped"),
    [
        ({"negatives": 9}, AROUND, {"positive": 1}),
        ({"skip_top": 2}, ["t 29", "t 31", "t 40", "t 45", "t 60"], {"positive": 1, "skipped": 2}),
        ({"margin": 0.0}, ["t 31", "t 40", "t 45", "t 60", "t 90"], {"positive": 1, "margin": 3}),
        # 40 degrees are .76604, and .86603 - .1 is .76603
        ({"margin": 0.1}, ["t 45", "t 60", "t 90", "t 120"], {"positive": 1, "margin": 5}),
        ({"margin": 0.0999}, ["t 40", "t 45", "t 60", "t 90", "t 120"], {"positive": 1, "margin": 4}),
        # at most .8227: 31 degrees are .8572, 40 are .7660
        ({"relative_margin": 0.05}, ["t 40", "t 45", "t 60", "t 90", "t 120"], {"positive": 1, "relative margin": 4}),
        ({"max_score": 0.71}, ["t 45", "t 60", "t 90", "t 120"], {"positive": 1, "highest score": 5}),
        ({"min_score": 0.9}, ["t 10", "t 25"], {"positive": 1, "lowest score": 7}),
        ({"depth": 6}, ["t 10", "t 25", "t 29", "t 31", "t 40"], {"positive": 1}),
        # what one rule dropped the next does not count again, and skipping comes first
        (
            {"skip_top": 1, "margin": 0.0, "max_score": 0.8, "min_score": 0.1},
            ["t 40", "t 45", "t 60"],
            {"positive": 1, "skipped": 1, "margin": 2, "highest score": 1, "lowest score": 2},
        ),
    ],
)
def test_each_rule_drops_what_it_says(tmp_path, rules, remaining, dropped):
    (row,), report = mined(tmp_path, ONE, AROUND, **rules)
    assert row == {"query": "query 0", "positive": "answer 30", "negatives": remaining}
    assert report.dropped == dropped
    assert report.short == (len(remaining) < rules.get("negatives", 5))
    assert report.candidates == rules.get("depth", 10)


def test_a_relative_margin_lowers_the_bound_of_negative_scores_too(tmp_path):
    pairs = [("query 0", "answer 100")]  # -.1736: half of that below it is -.2605, which 104 degrees (-.2419) are above
    (row,), _ = mined(tmp_path, pairs, ["t 104", "t 106"], relative_margin=0.5)
    assert row["negatives"] == ["t 106"]


def test_of_several_positives_none_is_a_negative_and_the_lowest_score_counts(tmp_path):
    pairs = [("query 0", "near 10"), ("other 90", "far 80"), ("query 0", "far 60")]
    rows, report = mined(tmp_path, pairs, ["t 20", "t 70"], margin=0.01, scores=True)
    assert [(row["query"], row["positive"], row["negatives"]) for row in rows] == [
        ("query 0", "near 10", ["t 70", "far 80"]),
        ("query 0", "far 60", ["t 70", "far 80"]),
        ("other 90", "far 80", ["t 70", "far 60", "t 20", "near 10"]),
    ]
    assert rows[1]["scores"] == pytest.approx([0.5, math.cos(math.radians(70)), math.cos(math.radians(80))], abs=1e-6)
    assert (report.pairs, report.queries, report.dropped["margin"]) == (3, 2, 1)


# The same text


def test_the_same_text_is_one_text_and_a_repeated_pair_one_pair(tmp_path):
    rows, report = mined(tmp_path, ONE * 3, ["t 40", "t 40", "t 50", "answer 30", "t 40"])
    assert [row["negatives"] for row in rows] == [["t 40", "t 50"]]
    assert (report.pairs, report.queries, report.documents) == (1, 1, 3)


def test_a_positive_in_another_form_is_no_negative_nor_is_the_query(tmp_path):
    corpus = ["ANSWER  30", "Answer: 30", "ａｎｓｗｅｒ 30", "Query 0", "«t» 40", "T  40", "t 50"]
    (row,), report = mined(tmp_path, ONE, corpus)
    assert row["negatives"] in (["«t» 40", "t 50"], ["T  40", "t 50"])  # of equal scores either may come first
    assert report.dropped == {"positive": 5, "duplicate": 1}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Cat,\nsat!", "the cat sat"),
        ("STRASSE Straße", "strasse strasse"),
        ("ﬁne ①", "fine 1"),
        ("+ - *", "+-*"),
        ("天気 東京", "天気 東京"),
        ("snake_case x1", "snake_case x1"),
        ("काला किला।", "काला किला"),
        ("C++ (and C#), 1+1", "c++ and c# 1 1"),
        ("☃\ufe0f", "☃\ufe0f"),
    ],
)
def test_words_are_what_is_left_of_a_text(text, expected):
    assert join_words(text) == expected
    assert text_key(text) == text_key(expected)
    assert text_key(text) != text_key(text + " more")


@pytest.mark.parametrize(("first", "second"), [("काला", "किला"), ("what is C++?", "what is C#?"), ("C", "C++")])
def test_words_that_differ_by_a_vowel_sign_or_by_the_signs_of_a_name_are_others(first, second):
    assert text_key(first) != text_key(second)


def test_another_text_of_the_positives_document_is_no_negative(tmp_path):
    rows = [{"query": "query 0", "positive": "answer 30", "document_id": "a"}]
    corpus = [("a", "other part of it 20"), ("b", "t 40"), ("", "t 50"), "t 60"]
    report = mine(rows, tmp_path / "out.jsonl", corpus=corpus, model=Angles(), form="list")
    assert json.loads((tmp_path / "out.jsonl").read_text())["negatives"] == ["t 40", "t 50", "t 60"]
    assert report.dropped == {"positive": 1, "positive's document": 1}


def test_a_positive_that_the_corpus_names_is_of_that_document(tmp_path):
    rows = [{"query": "query 0", "positive": "answer 30"}, {"query": "query 90", "positive": "answer 100"}]
    corpus = [("a", "other part of it 20"), ("a", "answer 30"), ("b", "t 40")]
    report = mine(rows, tmp_path / "out.jsonl", corpus=corpus, model=Angles(), form="list")
    first, second = map(json.loads, (tmp_path / "out.jsonl").read_text("utf-8").splitlines())
    assert first["negatives"] == ["t 40", "answer 100"]
    assert report.dropped["positive's document"] == 1
    assert "document_id" not in first | second  # or training would ask for it in every row


# Random choice


def test_random_negatives_come_from_what_the_rules_leave_in_order_of_rank(tmp_path):
    rules = {"model": Random(), "margin": 0.1, "depth": 40}
    allowed, _ = mined(tmp_path, PAIRS, CORPUS, negatives=40, **rules)
    chosen, _ = mined(tmp_path, PAIRS, CORPUS, strategy="random", seed=1, **rules)
    again, _ = mined(tmp_path, PAIRS, CORPUS, strategy="random", seed=1, **rules)
    second_seed, _ = mined(tmp_path, PAIRS, CORPUS, strategy="random", seed=2, **rules)
    assert chosen == again != second_seed
    for chosen_row, every in zip(chosen, allowed, strict=True):
        positions = [every["negatives"].index(text) for text in chosen_row["negatives"]]
        assert positions == sorted(set(positions))
        assert len(positions) == min(5, len(every["negatives"]))


def test_every_candidate_is_as_likely_as_any_other(tmp_path):
    pairs = [(f"query {number} 0", "answer 1") for number in range(2_000)]
    rows, _ = mined(tmp_path, pairs, [f"t {angle}" for angle in range(10, 20)], strategy="random", negatives=3)
    counts = np.unique([text for row in rows for text in row["negatives"]], return_counts=True)[1]
    assert len(counts) == 10
    assert abs(counts - 600).max() < 5 * math.sqrt(2_000 * 0.3 * 0.7)


# A judge


class Judge:
    """Scores a text by its angle and records the requests."""

    def __init__(self):
        self.asked = []

    def score_pairs(self, pairs):
        self.asked += [text for _, text in pairs]
        return np.array([int(text.split()[-1]) / 10 for _, text in pairs], np.float32)


def test_a_judge_drops_what_it_finds_as_good_as_the_positive_and_is_asked_no_more_than_it_must(tmp_path):
    judge = Judge()  # the positive gets 3.0
    corpus = ["t 10", "t 40", "t 12", "t 29", "t 50", "t 60", "t 11", "t 20"]
    (row,), report = mined(tmp_path, ONE, corpus, negatives=4, judge=judge, judge_margin=1.0, scores=True)
    assert row["negatives"] == ["t 10", "t 11", "t 12", "t 20"]
    assert row["scores"] == pytest.approx([3.0, 1.0, 1.1, 1.2, 2.0])
    assert report.dropped == {"positive": 1}
    assert judge.asked == ["answer 30", "t 10", "t 11", "t 12", "t 20"]
    judge = Judge()
    (row,), report = mined(tmp_path, [("query 0", "answer 15")], corpus, negatives=4, judge=judge)
    assert row["negatives"] == ["t 10", "t 11", "t 12"]
    assert (report.dropped["judge"], report.short) == (5, 1)
    assert sorted(judge.asked) == sorted(["answer 15", *corpus])


def test_the_judges_lowest_score_of_a_positive_counts(tmp_path):
    pairs = [("query 0", "answer 30"), ("query 0", "answer 15")]
    rows, _ = mined(tmp_path, pairs, ["t 14", "t 20", "t 16"], judge=Judge(), scores=True)
    assert [row["negatives"] for row in rows] == [["t 14"], ["t 14"]]
    assert [row["scores"][0] for row in rows] == pytest.approx([3.0, 1.5])


def test_an_object_that_scores_nothing_is_no_judge():
    with pytest.raises(InputError, match="score_pairs"):
        MiningConfig(judge="a name")


# The written file


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_the_forms_of_a_row(tmp_path, suffix):
    pairs = [{"query": "query 0", "positive": "answer 30"}, {"query": "query 180", "positive": "answer 150"}]
    corpus = ["t 40", "t 50", "t 149"]
    rules = {"corpus": corpus, "model": Angles(), "negatives": 3, "max_score": 0.99}

    def rows(form, scores):
        out = tmp_path / f"{form}.{suffix}"
        mine(pairs, out, form=form, scores=scores, **rules)
        if suffix == "parquet":
            return pq.read_table(out).to_pylist()
        return [json.loads(line) for line in out.read_text("utf-8").splitlines()]

    near, far = (math.cos(math.radians(angle)) for angle in (40, 50))
    first = {"query": "query 0", "positive": "answer 30"}
    answer = math.cos(math.radians(30))
    assert rows("tuple", False)[0] == first | {"negative_1": "t 40", "negative_2": "t 50", "negative_3": "t 149"}
    assert rows("list", False)[0] == first | {"negatives": ["t 40", "t 50", "t 149"]}
    assert rows("triplet", False)[:2] == [first | {"negative": "t 40"}, first | {"negative": "t 50"}]
    assert rows("tuple", True)[0]["scores"][:3] == pytest.approx([answer, near, far], abs=1e-6)
    assert rows("list", True)[0]["scores"][:3] == pytest.approx([answer, near, far], abs=1e-6)
    assert rows("triplet", True)[1]["scores"] == pytest.approx([answer, far], abs=1e-6)
    assert len(rows("triplet", True)) == 6


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize("form", ["tuple", "list", "triplet"])
def test_rows_keep_the_name_of_the_positives_document(tmp_path, form, suffix):
    pairs = [
        {"query": f"query {number}", "positive": f"answer {number}", "doc_id": number // 10} for number in range(90)
    ]
    out = tmp_path / f"out.{suffix}"
    mine(pairs, out, corpus=CORPUS, model=Random(), form=form, negatives=1)
    whole = suffix == "parquet"
    rows = pq.read_table(out).to_pylist() if whole else list(map(json.loads, out.read_text("utf-8").splitlines()))
    assert [list(row)[:3] for row in rows] == [["query", "positive", "document_id"]] * 90
    assert [row["document_id"] for row in rows] == [str(number // 10) for number in range(90)]


def test_documents_held_out_of_what_was_mined_are_whole(tmp_path):
    from binocle.training.data.dataset import prepare

    pairs = [{"query": f"query {n}", "positive": f"answer {n}", "document_id": f"d{n % 9}"} for n in range(90)]
    mine(pairs, tmp_path / "out.jsonl", corpus=CORPUS, model=Random(), negatives=1)
    dataset = prepare(tmp_path / "out.jsonl", tmp_path / "made", held_out=0.3)
    documents = np.array([int(text.split()[1]) % 9 for text in dataset.table()["positive"].to_pylist()])
    held_out, trained = set(documents[dataset.held_out()]), set(documents[dataset.training()])
    assert held_out and trained and not held_out & trained


def test_tuples_leave_out_queries_with_too_few_and_lists_have_as_many_as_there_are(tmp_path):
    pairs = [("query 0", "answer 30"), ("query 90", "answer 60")]
    rows, report = mined(tmp_path, pairs, ["t 20", "t 10"], margin=0.1, negatives=2, form="tuple")
    assert [row["query"] for row in rows] == ["query 90"]
    assert (report.rows, report.short, report.none) == (1, 1, 0)
    rows, _ = mined(tmp_path, pairs, ["t 20", "t 10"], margin=0.1, negatives=2, form="list")
    assert [row["negatives"] for row in rows] == [["answer 60"], ["answer 30", "t 20"]]


def test_what_is_mined_is_training_data(tmp_path):
    from binocle.training.data.dataset import Shape, prepare

    for form in ("tuple", "list", "triplet"):
        mined(tmp_path, PAIRS, CORPUS, model=Random(), form=form, negatives=2)
        assert prepare(tmp_path / "out.jsonl", tmp_path / form).shape is Shape.TRIPLETS
        mined(tmp_path, PAIRS, CORPUS, model=Random(), form=form, negatives=2, scores=True)
        assert prepare(tmp_path / "out.jsonl", tmp_path / f"{form}-scores").shape is Shape.GRADED


# An index, and the corpus of a test collection


LONG = (
    "The ship sails the sea by the light of the moon. A cancelled task raises an error in the worker. Bake the bread "
    "in a hot oven. Income tax is due every year. The king and the queen cross the river. "
) * 3
DOCUMENTS = [
    {"id": "tasks", "text": "Cancel a task by its name. A cancelled task raises an error in the worker."},
    {"id": "bread", "title": "Bread", "text": "Bake the bread in a hot oven with butter and salt."},
    {"id": "ship", "text": "The ship sails the sea by the light of the moon and the sun."},
    {"id": "long", "text": LONG},
    {"id": "tax", "text": "Income tax is due every year. File the return before the moon is full."},
]
ASKED = [
    {"query": "cancel the task", "positive": DOCUMENTS[0]["text"], "document_id": "tasks"},
    {"query": "hot bread", "positive": LONG, "document_id": "elsewhere"},
]


@pytest.fixture(scope="session")
def index(tmp_path_factory, tiny_model):
    retriever = Retriever.open(tmp_path_factory.mktemp("mining") / "index", model=tiny_model)
    retriever.add(DOCUMENTS)
    return retriever


@pytest.mark.parametrize("mode", ["semantic", "hybrid"])
def test_an_index_gives_its_passages_in_the_order_in_which_it_finds_them(index, tmp_path, mode):
    report = mine(ASKED, tmp_path / "out.jsonl", corpus=index, mode=mode, form="list", negatives=50, scores=True)
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text("utf-8").splitlines()]
    total = index.snapshot().chunks.count_rows()
    assert total == 8
    assert (report.model, report.mode, report.documents) == (index.encoder.name, mode, total)
    assert [row["document_id"] for row in rows] == ["tasks", "elsewhere"]
    for row, without in zip(rows, ("tasks", "long"), strict=True):
        hits = [hit for hit in index.search(row["query"], 50, mode=mode) if hit.path != without]
        titled = ["Bread\n" + hit.text if hit.path == "bread" else hit.text for hit in hits]
        once = list(dict.fromkeys(titled))
        assert row["negatives"] == once
        cosines = [hits[titled.index(text)].scores["semantic"] for text in once]
        np.testing.assert_allclose(row["scores"][1:], cosines, atol=1e-5)
    encoder = index.encoder
    vectors = encoder.encode([LONG, "hot bread"])
    assert rows[1]["scores"][0] == pytest.approx(float(vectors[0] @ vectors[1]), abs=1e-5)
    assert report.dropped["positive"] == 1  # by its text
    assert report.dropped["part of a positive"] >= 1  # that document is known by another name


def test_many_hybrid_queries_are_compared_together_and_find_what_each_finds_alone(index, monkeypatch):
    blocks, search_each = [], LiveIndex.search_each

    def noted(self, vectors, k):
        blocks.append(len(vectors))
        return search_each(self, vectors, k)

    monkeypatch.setattr(candidate_search, "_TOGETHER", 2)
    monkeypatch.setattr(LiveIndex, "search_each", noted)
    queries = ["cancel the task", "hot bread", "the sea"]
    vectors = index.encoder.encode(queries, kind="query")
    together = candidate_search.PassageCandidates.read(index.snapshot(), "hybrid").search(queries, vectors, 5)
    assert blocks == [2, 1]
    monkeypatch.setattr(LiveIndex, "search_each", lambda *_: None)
    alone = candidate_search.PassageCandidates.read(index.snapshot(), "hybrid").search(queries, vectors, 5)
    assert all(np.array_equal(*pair) for pair in zip(together, alone, strict=True))


def test_a_piece_of_a_positive_is_known_without_the_title_that_search_sets_above_it(tmp_path, tiny_model):
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add(
        [{"id": "a", "title": "A guide", "text": LONG}, {"id": "b", "title": "Another", "text": "Sail the ship."}]
    )
    pairs = [{"query": "the sea", "positive": LONG}, {"query": "a boat", "positive": "So they sail the ship at night."}]
    report = mine(pairs, tmp_path / "out.jsonl", corpus=retriever, form="list")
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text("utf-8").splitlines()]
    assert rows[0]["negatives"] == ["Another\nSail the ship."]
    assert rows[1]["negatives"] and all(text.startswith("A guide\n") for text in rows[1]["negatives"])
    assert report.dropped["part of a positive"] == report.documents  # every passage for one of the two


def test_a_word_within_a_word_is_no_part_of_a_positive():
    answer = negatives._Answer("", "the category of cats", 0.0, "")
    assert not negatives._is_part("cat", [answer])
    assert negatives._is_part("category of", [answer])
    assert negatives._is_part("all the category of cats here", [answer])


def test_a_path_of_an_index_or_of_a_folder_that_has_one_is_that_index(retriever, tmp_path):
    counts = []
    for corpus in (str(retriever.path), retriever.folder, retriever):
        report = mine(ASKED, tmp_path / "out.jsonl", corpus=corpus, form="list")
        counts.append(report.documents)
    assert counts == [retriever.snapshot().chunks.count_rows()] * 3


def test_every_part_of_mining_is_told_to_its_end(tmp_path, tiny_model):
    ends = {}
    mine(
        ASKED,
        tmp_path / "out.jsonl",
        corpus=[(document["id"], document["text"]) for document in DOCUMENTS],
        model=tiny_model,
        mode="hybrid",
        form="list",
        progress=lambda event: ends.update({event.stage: event.total - event.done}),
    )
    assert ends == {"encoding texts": 0, "indexing": 0, "mining": 0}


def test_hybrid_candidates_of_texts_are_those_of_an_index_made_of_them(index, tmp_path, tiny_model):
    corpus = [(document["id"], document["text"]) for document in DOCUMENTS if "title" not in document]
    report = mine(ASKED[:1], tmp_path / "out.jsonl", corpus=corpus, model=tiny_model, mode="hybrid", form="list")
    row = json.loads((tmp_path / "out.jsonl").read_text("utf-8"))
    second = Retriever.open(tmp_path / "other", model=tiny_model)
    second.add({"id": name, "text": text} for name, text in corpus)
    hits = second.search("cancel the task", 50)
    assert row["negatives"] == [hit.text for hit in hits if hit.path != "tasks"][:5]
    assert report.documents == len(hits)


def test_hybrid_mining_searches_every_text_of_a_document(tmp_path, tiny_model):
    pairs = [
        {"query": f"task {n}", "positive": f"A worker number {n} ran.", "document_id": f"d{n % 4}"} for n in range(40)
    ]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, pairs)), "utf-8")
    rows = {}
    for mode in ("semantic", "hybrid"):
        out = tmp_path / f"{mode}.jsonl"
        report = mine(tmp_path / "pairs.jsonl", out, model=tiny_model, mode=mode, negatives=1, depth=40)
        assert report.documents == 40
        rows[mode] = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    document = {row["positive"]: row["document_id"] for row in pairs}
    for row in rows["hybrid"]:  # a positive's document gives no negatives
        assert document[row["positive"]] != document[row["negative_1"]]
    assert len(rows["hybrid"]) == len(rows["semantic"]) > 20
    assert len({row["negative_1"] for row in rows["hybrid"]}) > 4


def test_an_index_refuses_another_encoder(index, tmp_path, make_model):
    model = str(make_model(tmp_path / "other", seed=9))
    with pytest.raises(EncoderMismatchError, match="leave the model out"):
        mine(ASKED, tmp_path / "out.jsonl", corpus=index, model=model)


def beir(folder, *, train="q1\td1\t1\nq2\td2\t2\n"):
    (folder / "qrels").mkdir(parents=True)
    corpus = {"d1": "A 30", "d2": "B 40", "d3": "C 50", "d4": "", "d5": "D 60"}
    rows = [{"_id": name, "title": "T" if name == "d3" else "", "text": text} for name, text in corpus.items()]
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, rows)))
    queries = [{"_id": "q1", "text": "ask 0"}, {"_id": "q2", "text": "ask 90"}]
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)))
    (folder / "qrels/train.tsv").write_text("query-id\tcorpus-id\tscore\n" + train)
    return folder


def test_a_collection_is_mined_from_its_own_corpus_unless_told_otherwise(tmp_path):
    folder = beir(tmp_path / "beir")
    for corpus in (None, folder, folder / "corpus.jsonl"):
        report = mine(folder, tmp_path / "out.jsonl", corpus=corpus, model=Angles(), form="list")
        rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
        assert [row["negatives"] for row in rows] == [["B 40", "T\nC 50", "D 60"], ["D 60", "T\nC 50", "A 30"]]
        assert report.documents == 4
    rows = [{"query": "ask 0", "positive": "A 30"}]
    mine(rows, tmp_path / "out.jsonl", corpus=folder, model=Angles(), form="list")
    assert json.loads((tmp_path / "out.jsonl").read_text())["negatives"] == ["B 40", "T\nC 50", "D 60"]


@pytest.mark.parametrize("name", ["texts.csv", "texts.tsv", "texts.jsonl", "texts.txt"])
def test_a_corpus_is_any_file_with_a_column_of_texts(tmp_path, name):
    file, column = tmp_path / name, None if name.endswith("txt") else "body"
    if file.suffix == ".jsonl":
        file.write_text('{"body": "t 40"}\n{"body": "t 50"}\n')
    elif file.suffix == ".txt":
        file.write_text("t 40\nt 50\n")
    else:
        stream = io.StringIO()
        csv.writer(stream, delimiter="\t" if file.suffix == ".tsv" else ",").writerows(
            [["id", "body"], [1, "t 40"], [2, "t 50"]]
        )
        file.write_text(stream.getvalue())
    mine(
        [{"query": "query 0", "positive": "answer 30"}],
        tmp_path / "out.jsonl",
        corpus=file,
        column=column,
        model=Angles(),
        form="list",
    )
    assert json.loads((tmp_path / "out.jsonl").read_text())["negatives"] == ["t 40", "t 50"]


def test_a_real_encoder_in_bulk_mines_as_sentence_transformers_does(tmp_path, tiny_model):
    """Its own miner as the oracle, on texts with scores further apart than the steps of bf16."""
    pytest.importorskip("torch").set_num_threads(1)
    util = pytest.importorskip("sentence_transformers.util")
    datasets = pytest.importorskip("datasets")
    from sentence_transformers import SentenceTransformer

    from binocle.retriever.models.load import load_encoder

    encoder = load_encoder(tiny_model)
    random = np.random.default_rng(0)
    vocabulary = (
        "cat dog house tax income year file task cancel timeout retry queue worker server client moon sun".split()
    )
    corpus = [" ".join(random.choice(vocabulary, 6)) for _ in range(60)]
    pairs = [(" ".join(random.choice(vocabulary, 3)), corpus[number]) for number in range(20)]
    mine(
        [{"query": query, "positive": positive} for query, positive in pairs],
        tmp_path / "out.jsonl",
        corpus=corpus,
        model=encoder,
        form="tuple",
        negatives=3,
        relative_margin=0.02,
        depth=60,
        scores=True,
    )
    ours = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    theirs = util.mine_hard_negatives(
        datasets.Dataset.from_dict({"query": [q for q, _ in pairs], "positive": [p for _, p in pairs]}),
        SentenceTransformer(tiny_model, device="cpu", local_files_only=True),
        corpus=corpus,
        range_max=59,
        num_negatives=3,
        relative_margin=0.02,
        output_format="n-tuple",
        output_scores=True,
        verbose=False,
    )
    assert len(ours) == len(theirs) > 10
    for our, their in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(our.pop("scores"), their.pop("scores"), atol=2e-2)
        assert our == their


# What cannot be mined


NONSENSE = [
    ({"negatives": 0}, "negatives is a whole number of at least 1, not 0"),
    ({"negatives": 2.5}, "negatives is a whole number"),
    ({"negatives": True}, "negatives is a whole number"),
    ({"skip_top": -1}, "skip_top is a whole number of at least 0"),
    ({"depth": 4}, "raise depth"),
    ({"skip_top": 96}, "5 negatives after 96 skipped cannot come from 100 candidates: raise depth"),
    ({"margin": -0.1}, "margin is a number of at least 0, not -0.1"),
    ({"margin": float("nan")}, "margin is a number of at least 0, not nan"),
    ({"margin": "wide"}, "margin is a number of at least 0, not 'wide'"),
    ({"relative_margin": 1}, "relative_margin is a share, from 0 to below 1"),
    ({"max_score": float("inf")}, "max_score is a number, not inf"),
    ({"min_score": 0.8, "max_score": 0.2}, "no score is at least min_score 0.8 and at most max_score 0.2"),
    ({"judge_margin": None}, "judge_margin is a number"),
    ({"strategy": "best"}, "there is no strategy 'best': expected one of top, random"),
    ({"seed": -1}, "seed is a whole number"),
    ({"mode": "lexical"}, "there is no mode 'lexical'"),
    ({"form": "rows"}, "there is no form 'rows': expected one of tuple, list, triplet"),
    ({"margins": 0.1}, "there is no rule 'margins'"),
    ({"corpus": ""}, "the corpus is ''"),
    ({"corpus": [3]}, "text 1 of the corpus: expected a text, or a name and a text, not 3"),
    ({"corpus": [("a", "t"), ("a", "b", "c")]}, "text 2 of the corpus"),
    ({"corpus": "/nowhere/texts.jsonl"}, "there is no file or folder /nowhere/texts.jsonl"),
]


@pytest.mark.parametrize(("options", "message"), NONSENSE)
def test_nonsense_is_told_in_a_line(tmp_path, options, message):
    options = {"model": Angles()} | options
    with pytest.raises(InputError, match=re.escape(message)) as error:
        mine([{"query": "query 0", "positive": "answer 30"}], tmp_path / "out.jsonl", **options)
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.jsonl", "", "holds no rows"),
        ("columns.csv", "one,two\na,b\n", r"columns\.csv:2"),
        ("scored.jsonl", '{"sentence1": "a", "sentence2": "b", "score": 0.3}\n', "negatives are mined for pairs"),
        ("half.jsonl", '{"query": "a 1", "positive": "b 2"}\n{"query": "c 3"}\n', r"half\.jsonl:2"),
        ("blank.tsv", "query\tpositive\na 1\t  \n", r"blank\.tsv:2"),
        ("broken.jsonl", '{"query": \n', r"broken\.jsonl:1"),
        ("pairs.doc", "x", "no known kind"),
    ],
)
def test_data_that_is_not_pairs_is_told_with_its_line(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        mine(tmp_path / name, tmp_path / "out.jsonl", model=Angles())
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["corpus.txt", "folder", "beir"])
def test_a_corpus_without_texts_is_refused(name, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "corpus.txt").write_text("\n \n", "utf-8")
    (tmp_path / "beir").mkdir()
    for file in ("corpus.jsonl", "queries.jsonl"):
        (tmp_path / "beir" / file).write_text('{"_id": "a", "text": " "}\n', "utf-8")
    pairs = [{"query": f"query {number}", "positive": f"answer {number}"} for number in range(9)]
    with pytest.raises(InputError, match=f"{tmp_path / name} holds no texts: expected some to take negatives from"):
        mine(pairs, tmp_path / "out.jsonl", corpus=tmp_path / name, model=Angles(), negatives=1)
    assert not (tmp_path / "out.jsonl").exists()


def test_pairs_without_a_negative_to_be_had_are_an_error_that_says_why(tmp_path):
    with pytest.raises(InputError, match=r"no query has 5 negatives among 3 texts \(dropped: positive 1\)"):
        mined(tmp_path, ONE, ["t 40", "t 50"], form="tuple")
    with pytest.raises(InputError, match=r"no query has 1 negative among 3 texts \(dropped: positive 1, margin 2\)"):
        mined(tmp_path, ONE, ["t 40", "t 50"], margin=0.9)
    with pytest.raises(InputError, match="no query has 1 negative among 1 text "):
        mined(tmp_path, ONE)


def test_a_model_that_is_not_there_is_told_before_anything_is_read(tmp_path):
    with pytest.raises(ModelNotFoundError):
        mine(iter(()), tmp_path / "out.jsonl", model="/nowhere/model")


# The file


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_full_disk_is_told_with_the_name_of_the_file(form, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "Error writing bytes to file. Detail: [errno 28] No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    out = tmp_path / f"mined.{form}"
    said = rf"^{out} cannot be written: No space left on device$"
    with pytest.raises(InputError, match=said), row_writer(out) as (write, _):
        write([{"query": "q", "positive": "p"}])
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_read_is_never_replaced(tmp_path):
    pairs, corpus = tmp_path / "pairs.jsonl", tmp_path / "texts.jsonl"
    pairs.write_text('{"query": "q", "positive": "p"}\n', "utf-8")
    corpus.write_text('{"text": "another"}\n', "utf-8")
    (tmp_path / "same.jsonl").symlink_to(pairs)
    (tmp_path / "beir").mkdir()
    (tmp_path / "beir" / "corpus.jsonl").write_text("{}\n", "utf-8")
    for out, sources in [
        (pairs, (pairs, None)),
        (tmp_path / "same.jsonl", (str(pairs), None)),
        (corpus, (pairs, corpus)),
        (tmp_path / "beir" / "corpus.jsonl", (tmp_path / "beir", None)),
    ]:
        with pytest.raises(InputError, match=f"{out.name} is read, and would be replaced: give another file to write"):
            mine(sources[0], out, corpus=sources[1], model=Angles())
    with pytest.raises(InputError, match=r"pairs.jsonl is read, and would be replaced"):
        score(pairs, pairs, models=["none"])
    with pytest.raises(InputError, match=r"pairs.jsonl is read, and would be replaced"):
        evaluate_file(pairs, run_file=pairs)
    with pytest.raises(InputError, match=r"corpus.jsonl is read, and would be replaced"):
        evaluate(tmp_path / "beir", run_file=tmp_path / "beir" / "corpus.jsonl")


def test_a_file_that_cannot_be_written_is_told_before_anything_is_encoded(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.jsonl").mkdir()
    for out, message in [
        (tmp_path / "out.csv", "no known kind: expected a name that ends in .jsonl or .parquet"),
        (tmp_path / "nowhere" / "out.jsonl", "cannot be written: No such file or directory"),
        (tmp_path / "file" / "out.jsonl", "cannot be written: Not a directory"),
        (tmp_path / "folder.jsonl", "is a folder"),
        ("/proc/out.jsonl", "cannot be written"),
    ]:
        with pytest.raises(InputError, match=re.escape(message)):
            mine([], out, model=None)


class Failing(Angles):
    def encode(self, texts, *, kind="document"):
        if kind == "query":
            raise KeyboardInterrupt
        return super().encode(texts)


def test_an_interrupted_run_leaves_the_file_that_was_there(tmp_path):
    (tmp_path / "out.jsonl").write_text("before\n")
    with pytest.raises(KeyboardInterrupt):
        mined(tmp_path, ONE, AROUND, model=Failing())
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]
    assert (tmp_path / "out.jsonl").read_text() == "before\n"
    mined(tmp_path, ONE, AROUND)
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]


def test_what_a_killed_run_left_is_cleared_and_no_half_file_ever_stands(tmp_path):
    code = (
        "import os, signal, sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from test_mine import Angles, mine\n"
        "class Killed(Angles):\n"
        "    def encode(self, texts, *, kind='document'):\n"
        "        if kind == 'query': os.kill(os.getpid(), signal.SIGKILL)\n"
        "        return super().encode(texts)\n"
        "mine([{'query': 'q 0', 'positive': 'a 3'}], sys.argv[1], corpus=['t 4'], model=Killed())\n"
    )
    out = tmp_path / "out.jsonl"
    done = subprocess.run([sys.executable, "-c", code, str(out)], capture_output=True, text=True, check=False)
    assert done.returncode == -9, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == [".out.jsonl.mining"]
    mined(tmp_path, ONE, AROUND)
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]


def test_two_runs_into_one_file_are_refused(tmp_path):
    (tmp_path / ".out.jsonl.mining").mkdir()
    with FileLock(tmp_path / ".out.jsonl.mining/lock"), pytest.raises(LockedError, match="another process is writing"):
        mined(tmp_path, ONE, AROUND)
    assert (tmp_path / ".out.jsonl.mining/lock").exists()


def test_half_characters_and_nulls_are_texts_like_others(tmp_path):
    rows, _ = mined(tmp_path, [("\ud83d 0", "a\x00b 30")], ["\ud800 40", "x\x00y 50", "  "])
    assert rows == [{"query": "\ufffd 0", "positive": "a\x00b 30", "negatives": ["\ufffd 40", "x\x00y 50"]}]


# The command line


@pytest.fixture
def run(monkeypatch, capfd):
    def running(*arguments):
        monkeypatch.setattr(sys, "argv", ["binocle", "mine", *map(str, arguments)])
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        sys.stdout.flush()
        return ended.value.code or 0, *capfd.readouterr()

    return running


def test_the_command_says_what_it_made(tmp_path, run, tiny_model, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pairs = [{"query": f"the {word}", "positive": f"a {word} and a {word}"} for word in ("cat", "dog", "ship", "king")]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    code, out, err = run("pairs.jsonl", "--out", "mined.jsonl", "--model", tiny_model, "--negatives", 2, "--scores")
    assert (code, err) == (0, "")
    assert re.fullmatch(
        r"mined\.jsonl: 4 rows, 8 negatives for 4 queries from 4 texts, in \d+\.\d s\n"
        r"dropped of 16 candidates: positive 4\n",
        out,
    )
    rows = [json.loads(line) for line in (tmp_path / "mined.jsonl").read_text().splitlines()]
    assert [list(row) for row in rows] == [["query", "positive", "negative_1", "negative_2", "scores"]] * 4
    code, out, err = run(
        "pairs.jsonl", "--out", "mined.parquet", "--model", tiny_model, "--margin", 0.01, "--format", "list", "--json"
    )
    report = json.loads(out)
    assert (code, err, report["queries"]) == (0, "", 4)
    assert report["rows"] == pq.read_table(tmp_path / "mined.parquet").num_rows


def test_the_command_mines_a_collection_by_name_and_proposes_nothing_that_is_refused(
    tmp_path, run, tiny_model, monkeypatch
):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    Retriever.open(tmp_path / "data" / "binocle" / "collections" / "all", model=tiny_model).add(DOCUMENTS)
    pairs = [{"query": "cancel a task", "positive": "You cannot."}]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    arguments = (tmp_path / "pairs.jsonl", "--out", tmp_path / "mined.jsonl")
    code, said, err = run(*arguments, "--name", "all")
    assert (code, err) == (0, "") and "from 8 texts" in said
    (tmp_path / "empty").mkdir()
    code, said, err = run(*arguments, "--index", tmp_path / "empty")
    expected = f"no index at {tmp_path / 'empty'}: make one with 'binocle index FOLDER'"
    assert (code, said, err) == (2, "", f"binocle: {expected}\n")


def test_the_command_mines_an_index(tmp_path, run, retriever):
    pairs = [{"query": "cancel a task", "positive": "You cannot."}]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    out = tmp_path / "mined.jsonl"
    code, said, err = run(tmp_path / "pairs.jsonl", "--out", out, "--index", retriever.folder, "--mode", "hybrid")
    assert (code, err) == (0, "")
    assert "from 9 texts" in said
    passages_found = [hit.passage for hit in retriever.search("cancel a task", 5)]
    passages = retriever.snapshot().chunks_by_id(passages_found, ["context"])
    row = json.loads(out.read_text())
    assert [row[f"negative_{place}"] for place in range(1, 6)] == [
        passages[number]["context"] for number in passages_found
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.jsonl", "--out", "x.jsonl"], "there is no file or folder nowhere.jsonl"),
        (["pairs.jsonl", "--out", "x.txt"], "x.txt has no known kind"),
        (["pairs.jsonl"], "Missing option '--out'"),
        (["pairs.jsonl", "--out", "x.jsonl", "--margin", "-1"], "margin is a number of at least 0, not -1.0"),
        (["pairs.jsonl", "--out", "x.jsonl", "--margin", "wide"], "'wide' is not a valid float"),
        (["pairs.jsonl", "--out", "x.jsonl", "--corpus", "a", "--index", "b"], "give --corpus or --index, not both"),
        (["pairs.jsonl", "--out", "x.jsonl", "--index", "nowhere"], "nowhere"),
        (["pairs.jsonl", "--out", "x.jsonl", "--judge", "/nowhere/judge"], "/nowhere/judge"),
        (["pairs.jsonl", "--out", "x.jsonl", "--model", "/nowhere/model"], "/nowhere/model"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line_and_leaves_nothing(
    tmp_path, run, arguments, message, monkeypatch, tiny_model
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(mining_corpus, "DEFAULT_MODEL", tiny_model)
    (tmp_path / "pairs.jsonl").write_text('{"query": "a", "positive": "b"}\n')
    code, out, err = run(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert os.listdir(tmp_path) == ["pairs.jsonl"]
