"""Hits that differ, hits of different documents, and searches that end in time."""

from __future__ import annotations

import asyncio
import threading
import time

import numpy as np
import pytest

from binocle import BinocleError, DeadlineError, InputError, Retriever, load_reranker
from binocle.retriever.asynchronous import CallPool
from binocle.retriever.search.deadline import Deadline
from binocle.retriever.search.results.diversity import mmr

WORDS = ["cat", "dog", "ship", "bread", "moon"]


@pytest.fixture(scope="session")
def points(tmp_path_factory):
    """200 passages with vectors of three dimensions."""
    random = np.random.default_rng(0)
    retriever = Retriever.open(tmp_path_factory.mktemp("points") / "index", encoder=None, dim=3)
    rows = enumerate(random.standard_normal((200, 3)))
    retriever.add(
        {"id": f"{n}", "text": f"{WORDS[n % 5]} number{n}", "embedding": vector, "metadata": {"n": n}}
        for n, vector in rows
    )
    return retriever


@pytest.fixture(scope="session")
def books(tmp_path_factory, tiny_model):
    """A book of 300 passages, each better than every passage of the twelve short documents."""
    retriever = Retriever.open(tmp_path_factory.mktemp("books") / "index", model=tiny_model)
    chapters = "\n\n".join(f"The cat sat. Number {n} of the cat and the cat. " + "word " * 8 for n in range(300))
    short = ({"id": f"s{n}", "text": f"A {WORDS[n % 5]} and a cat of the year {n}."} for n in range(12))
    retriever.add([{"id": "book", "text": chapters}, *short])
    assert retriever.get("book").passages > 200
    return retriever


def paths(hits):
    return [hit.path for hit in hits]


# Hits


def test_hits_say_how_long_they_took_and_of_what_state_they_are(points):
    hits = points.search("cat", vector=[1, 0, 0], offset=2, min_relevance=0.0)
    assert {"lexical", "semantic"} <= hits.seconds.keys()
    assert all(seconds >= 0 for seconds in hits.seconds.values())
    assert hits.version == points.snapshot().head.commits > 0
    assert points.search("cat", where="n=-1").version == hits.version


# Maximal marginal relevance


def slow_mmr(scores, vectors, weight, k, blocks=None):
    chosen = []
    while len(chosen) < min(k, len(scores)):
        remaining = [d for d in range(len(scores)) if d not in chosen]
        gains = {
            d: weight * scores[d] - (1 - weight) * max([float(vectors[d] @ vectors[c]) for c in chosen], default=0)
            for d in remaining
            if blocks is None or blocks[d] == blocks[remaining[0]]
        }
        chosen.append(max(gains, key=lambda d: (gains[d], -d)))
    return chosen


@pytest.mark.parametrize("weight", [0, 0.3, 0.5, 0.8, 1])
def test_mmr_is_that_of_the_paper(weight):
    random = np.random.default_rng(3)
    vectors = random.standard_normal((40, 5)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    scores = np.sort(vectors @ vectors[7])[::-1].astype(np.float32)
    assert mmr(scores, vectors, weight, 12).tolist() == slow_mmr(scores, vectors, weight, 12)
    assert len(mmr(scores, vectors, weight, 100)) == 40
    blocks = np.repeat([0, 1, 4, 6], [3, 12, 20, 5])
    for k in (2, 20, 100):
        assert mmr(scores, vectors, weight, k, blocks).tolist() == slow_mmr(scores, vectors, weight, k, blocks)


def test_hits_are_chosen_by_mmr_among_the_fifty_best(points):
    query = [1, 0, 0]
    pool = points.search(vector=query, k=50, with_vectors=True)
    scores, vectors = np.array([hit.score for hit in pool]), np.array([hit.vector for hit in pool])
    for weight in (0, 0.4, 0.9):
        expected = [pool[row].path for row in slow_mmr(scores, vectors, weight, 20)]
        hits = points.search(vector=query, k=20, mmr=weight)
        assert paths(hits) == expected
        assert [hit.rank for hit in hits] == list(range(1, 21))
        assert paths(points.search(vector=query, k=5, offset=10, mmr=weight)) == expected[10:15]


def test_pages_of_hits_that_differ_have_each_once(books):
    whole = [hit.passage for hit in books.search("cat number", 30, mmr=0.5)]
    pages = [books.search("cat number", 10, mmr=0.5, offset=offset) for offset in (0, 10, 20)]
    assert [hit.passage for page in pages for hit in page] == whole


# Pages


@pytest.fixture(scope="session")
def orchard(tmp_path_factory, tiny_model):
    """2,000 documents about apples and the same banana; the words alone find the rest last."""
    retriever = Retriever.open(tmp_path_factory.mktemp("orchard") / "index", model=tiny_model)
    fruit = [{"id": f"b{n}", "text": f"Apple and banana, order {n} of {WORDS[n % 5]}."} for n in range(2_000)]
    alone = [{"id": f"a{n}", "text": f"In the year {n} the apple trees gave more than {WORDS[n]}."} for n in range(5)]
    long = "\n\n".join(f"An apple of the garden, number {n}. " + "word " * 9 for n in range(40))
    retriever.add([*fruit, *alone, {"id": "garden", "text": long}])
    return retriever


@pytest.mark.parametrize("mode", ["hybrid", "lexical", "semantic"])
def test_hits_without_an_excluded_word_are_found_however_low_they_rank(orchard, mode):
    hits = orchard.search("apple -banana", 100, mode=mode, per_document=0)
    assert len(hits) == 5 + orchard.get("garden").passages
    assert {f"a{n}" for n in range(5)} | {"garden"} == set(paths(hits))


PAGED = ["apple", "apple order", "order_7 apple", "apple -garden", "apple +banana -trees"]


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["hybrid", "lexical", "semantic"])
@pytest.mark.parametrize("query", PAGED)
def test_pages_have_each_hit_once_and_deeper_ones_follow(orchard, mode, query):
    pages = {}
    for k in (35, 70):
        offsets = [*range(0, 70, k), *range(140, 280, k)]
        pages[k] = [hit for offset in offsets for hit in orchard.search(query, k, mode=mode, offset=offset)]
        assert len({hit.passage for hit in pages[k]}) == len(pages[k]) == 210
    assert {hit.passage for hit in pages[35]} == {hit.passage for hit in pages[70]}
    whole = orchard.search(query, 700, mode=mode, collapse=False)
    assert paths(whole[:30]) == paths(orchard.search(query, 30, mode=mode, collapse=False))
    assert len({hit.passage for hit in whole}) == 700
    scores = [hit.score for hit in whole]
    assert scores == sorted(scores, reverse=True)


def test_pages_of_hits_that_differ_have_each_once_however_many(orchard):
    pages = [orchard.search("apple", 30, mmr=0.5, offset=offset) for offset in range(0, 150, 30)]
    whole = [hit.passage for hit in orchard.search("apple", 150, mmr=0.5)]
    assert [hit.passage for page in pages for hit in page] == whole
    assert len(set(whole)) == 150


@pytest.mark.parametrize("mmr", [None, 0.5])
def test_pages_with_a_least_relevance_have_each_relevant_hit_once(points, make_reranker, tmp_path, monkeypatch, mmr):
    # Relevance rises where a document gave way to others on the page before; here it rises anywhere.
    monkeypatch.setattr("binocle.retriever.search.ranking.relevance._falling", lambda values: values)
    order = {"mmr": mmr, "rerank": str(make_reranker(tmp_path / "reranker")), "rerank_depth": 200}

    def search(k, offset=0, least=None):
        hits = points.search("cat", vector=[0, 1, 0], k=k, offset=offset, min_relevance=least, mode="semantic", **order)
        return [hit.passage for hit in hits if hit.relevance >= 0.5]

    passages = [passage for offset in range(0, 200, 10) for passage in search(10, offset, 0.5)]
    assert passages == search(200, least=0.5)
    assert sorted(passages) == sorted(search(200))
    assert 10 < len(passages) < 190


@pytest.mark.parametrize("mode", ["hybrid", "lexical", "semantic"])
def test_all_weight_on_relevance_keeps_the_order(points, mode):
    vector = None if mode == "lexical" else [0, 1, 0]
    for query in ("cat", "the number7 dog"):
        plain = points.search(query, vector=vector, k=60, mode=mode)
        assert points.search(query, vector=vector, k=60, mode=mode, mmr=1) == plain
        some = points.search(query, vector=vector, k=5, mode=mode, mmr=0.3)
        assert paths(some)[0] == paths(plain)[0]
        assert paths(some) != paths(plain)[:5]


def test_what_is_not_relevant_does_not_come_for_its_novelty(points):
    plain = points.search(vector=[1, 0, 0], k=50)
    minimum = plain[9].relevance
    hits = points.search(vector=[1, 0, 0], k=50, mmr=0.1, min_relevance=minimum)
    assert sorted(paths(hits)) == sorted(hit.path for hit in plain if hit.relevance >= minimum)


@pytest.mark.parametrize("weight", [-0.1, 1.1, float("nan"), "1", True])
def test_a_weight_that_is_none_is_refused(points, weight):
    with pytest.raises(InputError, match="mmr is the weight of relevance"):
        points.search("cat", mmr=weight)


# One hit a document


@pytest.mark.parametrize("mode", ["hybrid", "lexical", "semantic"])
@pytest.mark.parametrize("collapse", [True, False])
def test_each_hit_is_the_best_passage_of_another_document(books, mode, collapse):
    hits = books.search("cat number", 13, mode=mode, group_by="document", collapse=collapse)
    assert len(set(paths(hits))) == len(hits) == 13
    assert [hit.rank for hit in hits] == list(range(1, 14))
    every = books.search("cat number", 400, mode=mode, collapse=False)
    best = {hit.path: hit for hit in reversed(every)}
    assert {hit.path: hit.text for hit in hits} == {path: hit.text for path, hit in best.items()}
    for offset in (1, 5, 12, 13):
        page = books.search("cat number", 3, mode=mode, group_by="document", collapse=collapse, offset=offset)
        assert paths(page) == paths(hits)[offset : offset + 3]


def test_documents_can_differ_and_pass_filters(points):
    hits = points.search(vector=[1, 0, 0], k=5, mmr=0.5, group_by="document", where="n<100")
    assert len(set(paths(hits))) == 5
    assert all(hit.metadata["n"] < 100 for hit in hits)


def test_passages_are_reranked_once_however_deep_the_documents_lie(books, make_reranker, tmp_path, monkeypatch):
    folder = str(make_reranker(tmp_path / "reranker"))
    model, scored = type(load_reranker(folder)), []
    score = model.score
    monkeypatch.setattr(model, "score", lambda own, query, texts: scored.append(len(texts)) or score(own, query, texts))
    hits = books.search("cat number", 13, group_by="document", rerank=folder)
    assert (len(set(paths(hits))), scored) == (13, [50])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"group_by": "file"}, "group_by is one of passage, document, not 'file'"),
        ({"group_by": "document", "per_document": 2}, "leave per_document=2 out"),
        ({"group_by": "document", "join": True}, "leave join=True out"),
        ({"collapse": False, "per_document": 1}, "leave per_document=1 out"),
        ({"mode": "lexical", "vector": [1, 0, 0]}, "searches by words alone: leave the vector out"),
        ({"rerank_depth": 20}, "rerank_depth limits a reranker, and there is none"),
        ({"rerank_seconds": 2.0}, "rerank_seconds limits a reranker, and there is none"),
    ],
)
def test_options_that_would_have_no_effect_are_refused(points, options, says):
    with pytest.raises(InputError, match=says):
        points.search("cat", **options)
    if "rerank" in says:
        with pytest.raises(InputError, match=says):
            points.context("cat", **options)


def test_defaults_and_no_limit_go_with_everything(points):
    expected = points.search("cat", collapse=False)
    assert points.search("cat", collapse=False, per_document=0, rerank_depth=50, rerank_seconds=None) == expected


# In time


class Over(Deadline):
    """A deadline that ends when the first stage is done."""

    remaining = 0.0

    def check(self, stage):
        del stage


def test_a_search_past_its_deadline_says_so(points, books):
    for call in (
        lambda: points.search("cat", deadline=1e-9),
        lambda: books.search("cat", mode="semantic", deadline=1e-9),
        lambda: books.search_many(["cat", "dog"], deadline=1e-9),
    ):
        with pytest.raises(DeadlineError, match="not done after 1e-09 seconds, before the stage") as raised:
            call()
        assert isinstance(raised.value, (BinocleError, TimeoutError))
    assert paths(points.search("cat", deadline=600)) == paths(points.search("cat"))
    assert points.search_many(["cat"], deadline=600) == points.search_many(["cat"])


def test_the_reranker_is_cut_at_the_deadline(books, make_reranker, tmp_path):
    folder = str(make_reranker(tmp_path / "reranker"))
    plain, reranked = books.search("a cat of the year"), books.search("a cat of the year", rerank=folder)
    assert paths(plain) != paths(reranked)
    assert books.search("a cat of the year", rerank=folder, deadline=600) == reranked
    over = books.search("a cat of the year", rerank=folder, deadline=Over(1.0, 0.0))
    assert paths(over) == paths(plain)
    assert over[0].explanation["reranked"] == 0


def test_the_wait_for_a_thread_counts(points):
    reader, release = Retriever.open(points.path), threading.Event()
    reader._calls = CallPool(1)

    async def calls():
        blocked = asyncio.create_task(reader._calls.run(release.wait, 60))
        late = [asyncio.create_task(call("cat", deadline=0.01)) for call in (reader.asearch, reader.acontext)]
        await asyncio.sleep(0.03)
        release.set()
        await blocked
        for call in late:
            with pytest.raises(DeadlineError, match="after 0.01 seconds"):
                await call
        return await reader.asearch("cat", deadline=600)

    assert paths(asyncio.run(calls())) == paths(points.search("cat"))
    reader.close()


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), "1", True])
def test_a_deadline_that_is_no_time_is_refused(points, seconds):
    with pytest.raises(InputError, match="deadline is the time for a search"):
        points.search("cat", deadline=seconds)


def test_a_deadline_is_in_the_future():
    deadline = Deadline.after(600)
    assert 0 < deadline.remaining <= 600
    assert Deadline.after(deadline) is deadline
    assert Deadline(1, time.monotonic() - 1).remaining < 0
