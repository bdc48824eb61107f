"""Ranking with neighbours: a plain reference ranks the same, and whatever is missing or damaged, a search answers."""

from __future__ import annotations

import math
import random
from collections import Counter

import numpy as np
import pytest

from binocle import F, Retriever
from binocle.core.terms import query_stems
from binocle.retriever.search.query import Query
from binocle.retriever.search.ranking.neighbours import smoothed
from binocle.retriever.store.derived import live_neighbourhood

WORDS = ["cat", "ship", "sea", "moon", "harbour", "sail", "night", "quiet", "zebra", "lamp", "stone", "river"]


def documents(numbers):
    for number in numbers:
        chosen = random.Random(number)
        paragraphs = [" ".join(chosen.choices(WORDS, k=chosen.randrange(3, 40))) for _ in range(chosen.randrange(1, 4))]
        yield {"id": f"d{number}", "text": "\n\n".join(f"# Part {n}\n\n{text}" for n, text in enumerate(paragraphs))}


@pytest.fixture(scope="module")
def filled(tmp_path_factory, tiny_model):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live_neighbourhood, "MIN_PASSAGES", 20)
        retriever = Retriever.open(tmp_path_factory.mktemp("ranking") / "index", model=tiny_model)
        retriever.add(documents(range(60)))
        yield retriever


def reference(snapshot, text, vector):
    """The recipe over all passages, one after the other: id -> score."""
    rows = snapshot.read("chunks", ["id", "document", "key", "context", "vector"]).sort_by("id").to_pylist()
    terms = {row["id"]: Counter(query_stems(row["context"])) for row in rows}
    vectors = {row["id"]: np.array(row["vector"], np.float32) for row in rows}
    owner = {row["id"]: row["document"] for row in rows}
    first = {row["key"]: row["id"] for row in reversed(rows)}
    key = {row["id"]: row["key"] for row in rows}
    targets, average = sorted(first.values()), np.mean([sum(counts.values()) for counts in terms.values()])
    words, meaning = [], []
    for row in rows:
        number = row["id"]
        others = [t for t in targets if owner[t] != owner[number] and key[t] != key[number]]
        around = sorted(others, key=lambda t: -float(vectors[number] @ vectors[t]))[:50]
        length = sum(terms[number].values()) + 0.02 * sum(sum(terms[n].values()) for n in around)
        score = 0.0
        for term in query_stems(text):
            frequency = sum(term in counts for counts in terms.values())
            tf = terms[number][term] + 0.02 * sum(terms[n][term] for n in around)
            idf = math.log1p((len(rows) - frequency + 0.5) / (frequency + 0.5))
            score += idf * tf * 1.7 / (tf + 0.7 * (0.25 + 0.75 * length / (2 * average)))
        mean = sum(vectors[n] for n in owner if owner[n] == owner[number])
        words.append(score)
        meaning.append((vectors[number] @ vector + mean @ vector / np.linalg.norm(mean)) / 2)
    scores = [
        (w - np.mean(words)) / np.std(words) + (m - np.mean(meaning)) / np.std(meaning)
        for w, m in zip(words, meaning, strict=True)
    ]
    scores = smooth_each(np.array(scores) / 2, np.array(list(vectors.values())), list(owner.values()))
    return dict(zip(vectors, scores, strict=True))


def smooth_each(scores, vectors, owners):
    result, count = [], len(scores)
    distinct = [n for n in range(count) if not any(vectors[n] @ vectors[earlier] > 0.9999 for earlier in range(n))]
    for row, score in enumerate(scores):
        cosines = [(float(vectors[row] @ vectors[n]), n) for n in distinct if owners[n] != owners[row]]
        nearest = sorted((pair for pair in cosines if 0 < pair[0] < 0.9999), reverse=True)[:5]
        total = sum(cosine**4 for cosine, _ in nearest)
        mean = sum(cosine**4 * scores[n] for cosine, n in nearest) / total if total else score
        result.append(score + max(0.4 * (mean - score), -0.2))
    return result


@pytest.mark.parametrize("text", ["the quiet zebra at sea", "moon moon lamp sea", "stone lamp night"])
def test_the_search_ranks_as_the_plain_reference_does(filled, text):
    snapshot = filled.snapshot()
    assert snapshot.chunks.count_rows() <= 200  # all passages are candidates
    vector = filled.encoder.encode([text], kind="query")[0]
    expected = reference(snapshot, text, vector)
    hits = filled.search(text, k=len(expected))
    assert len(hits) == len(expected)
    for hit in hits:
        assert hit.score == pytest.approx(expected[hit.passage], abs=5e-3)  # means are kept in 16 bits


def test_smoothing_is_that_of_each_passage_alone():
    chosen = np.random.default_rng(2)
    vectors = chosen.standard_normal((60, 8)).astype(np.float32)
    vectors[50:] = vectors[0]  # copies, in other documents
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    owners, scores = chosen.integers(0, 30, 60), chosen.standard_normal(60).astype(np.float32)
    np.testing.assert_allclose(smoothed(scores, vectors, owners), smooth_each(scores, vectors, owners), atol=1e-5)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_candidates_are_smoothed(count):
    vectors = np.eye(2, 4, dtype=np.float32)[:count]
    assert np.isfinite(smoothed(np.ones(count, np.float32), vectors, np.arange(count))).all()


@pytest.mark.parametrize("text", ["cat", "xyzzy", "the", "?!", "quiet night at sea " * 40])
def test_every_query_gets_finite_scores_in_order(filled, text):
    for options in ({}, {"where": F.path == "d7"}, {"where": F.path.glob("d1*")}, {"k": 500}, {"k": 1}):
        hits = filled.search(text, **{"k": 10, **options})
        scores = [hit.score for hit in hits]
        assert hits
        assert np.isfinite(scores).all()
        assert scores == sorted(scores, reverse=True)
        assert all("neighbours" in hit.scores for hit in hits)


def test_a_passage_can_be_left_out(filled):
    snapshot, vector = filled.snapshot(), filled.encoder.encode(["cat"], kind="query")
    query = Query(snapshot, "cat", lambda: vector)
    first, second = query.hits(2, mode="hybrid", where=None)
    assert query.hits(1, mode="hybrid", where=None, without=first.passage)[0].passage == second.passage


def test_the_explanation_names_the_score_with_neighbours(filled):
    hit = filled.search("zebra at sea")[0]
    assert set(hit.explanation["ranks"]) == {"lexical", "semantic", "neighbours"}
    assert hit.scores["neighbours"] > 0
