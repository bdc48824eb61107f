from __future__ import annotations

import random

import numpy as np
import pytest

from binocle import Retriever
from binocle.core.errors import InputError
from binocle.retriever.search.mode import MODES
from binocle.retriever.search.results.duplicates import RankedPassage, distinct, in_deviations, select
from binocle.retriever.search.results.snippet import blocks

LONG = " ".join(f"word{number}" for number in range(60))


def passages(*texts, documents=None, levels=None):
    return [
        RankedPassage(
            number, (documents or texts)[number] if documents else number, text, (levels or [0] * len(texts))[number]
        )
        for number, text in enumerate(texts)
    ]


def grouped(*texts):
    return [[group.first.passage, *(copy.passage for copy in group.copies)] for group in distinct(passages(*texts))]


@pytest.mark.parametrize(
    ("text", "other", "alike"),
    [
        ("the same words", "The  same\nWORDS", True),
        ("", " \n", False),  # they have nothing but their vectors
        ("the same words", "the same word", False),
        ("fee: 30 EUR a month", "fee: 40 EUR a month", False),
        (LONG, LONG.replace("word30", "other"), True),
        (LONG, f"A line before. {LONG}", True),
        (LONG, LONG.replace("word9", "x").replace("word29", "x").replace("word49", "x"), False),
        (LONG, " ".join(LONG.split()[:40]), False),
        (LONG, " ".join(sorted(LONG.split())), False),
    ],
)
def test_copies_have_the_same_words_or_all_but_one_of_many(text, other, alike):
    assert grouped(text, other) == ([[0, 1]] if alike else [[0], [1]])
    assert grouped(other, text) == ([[0, 1]] if alike else [[0], [1]])


def test_a_copy_with_exactly_nine_tenths_of_the_shingles_is_found_whichever_shingle_it_lacks():
    words = [f"word{number}" for number in range(12)]  # ten shingles
    for seed in range(20):
        text = " ".join(f"{word}x{seed}" for word in words)
        assert grouped(" ".join(text.split()[:-1]), text) == [[0, 1]]
        assert grouped(" ".join(text.split()[1:]), text) == [[0, 1]]


def test_near_copies_are_found_as_comparing_all_finds_them():
    draw = random.Random(1)
    base = [[draw.choice("abcdefghijklmnop") * 3 for _ in range(80)] for _ in range(6)]
    texts = []
    for _ in range(120):
        words = draw.choice(base).copy()
        for _ in range(draw.randrange(5)):
            words[draw.randrange(len(words))] = draw.choice("xyz")
        texts.append(" ".join(words))

    def shingles(text):
        words = text.split()
        return {tuple(words[start : start + 3]) for start in range(len(words) - 2)}

    firsts, expected = [], []
    for number, text in enumerate(texts):
        marks = shingles(text)
        near = (
            row
            for row, first in enumerate(firsts)
            if len(marks & shingles(texts[first])) >= 0.9 * len(marks | shingles(texts[first]))
        )
        row = next(near, None)
        if row is None:
            firsts.append(number)
            expected.append([number])
        else:
            expected[row].append(number)
    assert [sorted(group) for group in grouped(*texts)] == expected
    assert 6 < len(expected) < 110


def selected(documents, k, per_document, levels=None, *, all_read=True):
    texts = [f"text {number}" for number in range(len(documents))]
    groups = select(distinct(passages(*texts, documents=documents, levels=levels)), k, per_document, all_read=all_read)
    return groups if groups is None else [group.first.passage for group in groups]


@pytest.mark.parametrize(
    ("documents", "k", "per_document", "expected"),
    [
        ("aaaaab", 4, 0, [0, 1, 2, 3]),
        ("aaaaab", 4, 1, [0, 5]),
        ("aaaaab", 4, 2, [0, 1, 5]),
        ("aaaaab", 4, None, [0, 1, 2, 5]),
        ("aaaaab", 5, None, [0, 1, 2, 3, 5]),
        ("aaaaaa", 5, None, [0, 1, 2, 3, 4]),
    ],
)
def test_a_document_gives_few_passages_by_default_more_where_others_have_none(documents, k, per_document, expected):
    assert selected(list(documents), k, per_document) == expected


def spread(documents, scores, k, offset=0, *, all_read=True):
    rows = [
        RankedPassage(number, document, f"text {number}", 0, score)
        for number, (document, score) in enumerate(zip(documents, scores, strict=True))
    ]
    groups = select(distinct(rows), k, None, all_read=all_read, pages=[offset])
    return groups if groups is None else [group.first.passage for group in groups]


def test_a_much_better_passage_stays_however_many_its_document_has():
    assert spread("aaaaab", [9, 8, 7, 6, 5, 4.9], 5) == [0, 1, 2, 3, 5]  # the fifth is little better
    assert spread("aaaaab", [9, 8, 7, 6, 5, 1], 5) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("k", [1, 2, 3, 4, 7])
def test_each_passage_is_on_one_page(k):
    draw = random.Random(k)
    documents = draw.choices("abc", k=28)
    scores = sorted((draw.gauss(0, 1) for _ in documents), reverse=True)
    pages = [spread(documents, scores, offset + k, offset)[offset:] for offset in range(0, 28, k)]
    assert sorted(number for page in pages for number in page) == list(range(28))
    assert all(page == sorted(page) for page in pages)


def test_more_candidates_are_read_while_one_of_them_may_displace_a_passage():
    assert spread("aaaab", [9, 9, 9, 9, 9], 4, all_read=False) == [0, 1, 2, 4]
    assert spread("aaaa", [9, 9, 9, 9], 4, all_read=False) is None
    assert spread("aaaab", [9, 8, 7, 6, 5], 4, all_read=False) == [0, 1, 2, 3]


def test_scores_are_compared_within_a_level():
    scores = np.array([105, 103, 101, 4, 2, 0], np.float32)
    standard = in_deviations(scores, [1, 1, 1, 0, 0, 0])
    assert np.allclose(standard, scores / np.std([2, 0, -2, 2, 0, -2]))
    assert in_deviations(scores[:0], []).shape == (0,)
    assert np.isfinite(in_deviations(scores[:1], [0])).all()


def test_passages_that_hold_what_was_asked_for_come_before_others_whatever_document_they_are_of():
    assert selected(list("aaaaab"), 5, None, [1, 1, 1, 1, 1, 0]) == [0, 1, 2, 3, 4]


def test_more_candidates_are_read_while_they_may_change_the_answer():
    assert selected(list("aaaab"), 5, None, all_read=False) is None
    assert selected(list("aaabb"), 5, None, all_read=False) == [0, 1, 2, 3, 4]


@pytest.fixture(scope="session")
def library(tmp_path_factory, tiny_model):
    """Five hundred documents with one text, and two with other words."""
    retriever = Retriever.open(tmp_path_factory.mktemp("copies") / "index", model=tiny_model)
    rows = [{"id": f"{number:03}", "text": "The cat sat on the mat."} for number in range(500)]
    rows += [{"id": "river", "text": "The cat swam in the river."}, {"id": "moon", "text": "A cat under the moon"}]
    retriever.add(rows)
    return retriever


@pytest.mark.parametrize("mode", MODES)
def test_copies_are_one_hit_and_leave_room_for_others(mode, library):
    hits = library.search("the cat on the mat", 3, mode=mode)
    assert {hit.path for hit in hits[1:]} == {"river", "moon"}
    assert [hit.rank for hit in hits] == [1, 2, 3]
    assert len(hits[0].copies) == 499
    assert {hits[0].path, *(copy.path for copy in hits[0].copies)} == {f"{number:03}" for number in range(500)}


def test_copies_are_counted_beside_the_place_and_listed_on_request(library):
    hits = library.search("the cat on the mat", 1)
    (block,) = blocks(hits, "cat", colour=False, width=80)
    assert block.splitlines()[0].startswith(f" 1  {hits[0].path}:1  (+")
    (block,) = blocks(hits, "cat", colour=False, width=80, list_copies=True)
    assert block.splitlines()[1] == f"    = {hits[0].copies[0].path}:1"


def test_a_limit_of_passages_is_a_whole_number(library):
    with pytest.raises(InputError, match="per_document is a number of passages, a whole number from 0, not -1"):
        library.search("cat", per_document=-1)


def test_what_is_measured_keeps_copies(library):
    hits = library.search("the cat on the mat", 100, collapse=False)
    assert len(hits) == 100
    assert {hit.copies for hit in hits} == {()}
