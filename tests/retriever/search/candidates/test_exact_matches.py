"""Exact parts among candidates: an index of words spares most of their texts, and changes no hit."""

from __future__ import annotations

import random

import numpy as np
import pytest

from binocle import Retriever
from binocle.core import terms
from binocle.retriever.search.candidates.exact_matches import ExactMatches
from binocle.retriever.search.candidates.word_search import WordSearch
from binocle.retriever.search.words import exact

TEXTS = [
    "max_len is the longest line.",
    "def max_len(text):\n    return 3.14",
    "The borrowed value does not live long enough: E0382.",
    "A value is borrowed here.",
    "See src/main.rs, Cargo.toml and std::vec::Vec.",
    "The Vec of the main file, and a len of max 14.",
    "Versions 1.2.3 and v2 of Node.js; --verbose says more.",
    "JavaScript, IL-10 and #2809 für Größe 猫が好き",
]
QUERIES = [
    "max_len",
    '"borrowed value"',
    "value +borrowed",
    "value -borrowed",
    "max_len -text",
    "how long is the max_len of a line",
    "Cargo.toml",
    "std::vec::Vec main",
    "1.2.3",
    "Node.js --verbose",
    "#2809",
    '"Größe"',
    "E0382 +value -enough",
    '"猫"',
    "Vec",
]


@pytest.fixture(scope="module")
def retriever(tmp_path_factory, tiny_model):
    retriever = Retriever.open(tmp_path_factory.mktemp("exact") / "index", model=tiny_model)
    chosen = random.Random(0)
    documents = [" ".join(chosen.sample(TEXTS, 1 + number % 3)) for number in range(60)]
    retriever.add([{"id": f"d{number}", "text": f"{text} d{number}"} for number, text in enumerate(documents)])
    return retriever


@pytest.mark.parametrize("mode", ["hybrid", "lexical", "semantic"])
def test_hits_are_those_of_a_search_that_reads_every_candidate(mode, retriever, monkeypatch):
    hits = [retriever.search(query, mode=mode, k=20) for query in QUERIES]
    monkeypatch.setattr(ExactMatches, "can_hold", lambda _, ids: np.ones(len(ids), bool))
    for query, chosen in zip(QUERIES, hits, strict=True):
        every = retriever.search(query, mode=mode, k=20)
        assert [(hit.passage, hit.score, hit.relevance) for hit in chosen] == [
            (hit.passage, hit.score, hit.relevance) for hit in every
        ]


@pytest.mark.parametrize("query", [query for query in QUERIES if query.isascii()])
def test_a_passage_with_a_literal_has_its_tokens(query):
    parts = exact.parse(query)
    assert parts.have_tokens or not parts.literals
    for text in TEXTS:
        have = {term for token in terms.tokens(text) for term in terms.whole(token)}
        for literal in parts.literals:
            if exact.grade(literal, text):
                assert have.issuperset(terms.query_whole(literal))


def test_only_passages_with_the_tokens_are_read(retriever, monkeypatch):
    snapshot = retriever.snapshot()
    ids = snapshot.sorted_ids
    matches = ExactMatches(snapshot, exact.parse("max_len"), WordSearch(snapshot, "max_len"))
    found = matches.look_up(None)
    read, of = [], snapshot.passages.of
    monkeypatch.setattr(snapshot.passages, "of", lambda numbers: read.extend(numbers) or of(numbers))
    assert ids[matches.contain_parts(ids)].tolist() == found.tolist()
    assert 0 < len(found) < len(ids) and read == []
    assert ids[matches.can_hold(ids)].tolist() == snapshot.lexical.whole("max_len").tolist()


def test_without_an_index_of_words_every_passage_is_read(retriever, monkeypatch):
    snapshot = retriever.snapshot()
    monkeypatch.setattr(type(snapshot), "lexical_indexes", lambda _: iter(()))
    matches = ExactMatches(snapshot, exact.parse("max_len"), WordSearch(snapshot, "max_len"))
    matches.look_up(None)
    assert matches.can_hold(snapshot.sorted_ids).all()
    texts = snapshot.passages.of(snapshot.sorted_ids.tolist())
    expected = ["max_len" in row["text"] for row in texts.values()]
    assert matches.contain_parts(snapshot.sorted_ids).tolist() == expected
