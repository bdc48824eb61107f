from __future__ import annotations

import math
import statistics
from collections import Counter

import lance
import numpy as np
import pytest

from binocle import Retriever
from binocle.core.errors import InputError
from binocle.retriever.search.mode import MODES
from binocle.retriever.search.query import Query
from binocle.retriever.store.filters.filter import F
from binocle.retriever.store.filters.where import parse
from binocle.retriever.store.snapshot import Snapshot

# No stop words, and no two with one stem.
WORDS = "cat dog mat house tax file task queue worker network search vector text python water sea ship moon sun night king river bread oven butter salt red blue green".split()
COUNT = 420


def text_of(number):
    draw = np.random.default_rng(number)
    common = 1 / np.arange(1, len(WORDS) + 1)
    return " ".join(draw.choice(WORDS, int(draw.integers(3, 40)), p=common / common.sum()))


@pytest.fixture(scope="session")
def library(tmp_path_factory, tiny_model):
    """420 documents of one passage each, put in at several times, some of them gone again."""
    retriever = Retriever.open(tmp_path_factory.mktemp("library") / "index", model=tiny_model)
    rows = [
        {"id": f"{number:03}", "text": text_of(number), "metadata": {"year": 2000 + number % 7}}
        for number in range(COUNT)
    ]
    retriever.add(rows[:300])
    retriever.add(rows[300:])
    return retriever


@pytest.fixture(scope="session")
def table(library):
    """Every chunk with its vector, by id."""
    rows = lance.dataset(library.path / "chunks.lance").to_table().to_pylist()
    return {row["id"]: row for row in rows}


QUERIES = [
    "cat night sea",
    "moon river ship",
    "tax file for the king",
    "green salt oven butter bread",
    "python search vector text queue worker",
    "the",
    "xyzzy",
    "cat cat dog sun",
]


def bm25(table, query):
    """Scores by the formula: k1 1.2, b 0.75, idf ln(1 + (N - n + 0.5) / (n + 0.5)); a word said twice counts twice."""
    counts = {number: Counter(row["text"].split()) for number, row in table.items()}
    mean = statistics.mean(sum(count.values()) for count in counts.values())
    scores = {}
    for word in query.split() if query != "the" else ():
        holding = [number for number, count in counts.items() if count[word]]
        idf = math.log(1 + (len(table) - len(holding) + 0.5) / (len(holding) + 0.5))
        for number in holding:
            frequency, length = counts[number][word], sum(counts[number].values())
            scores[number] = scores.get(number, 0) + idf * frequency * 2.2 / (
                frequency + 1.2 * (0.25 + 0.75 * length / mean)
            )
    return scores


def cosines(table, tiny, query):
    vector = tiny.encode([query], kind="query")[0].astype(float)
    return {number: float(np.dot(vector, np.array(row["vector"], float))) for number, row in table.items()}


def best(scores, k):
    return sorted(scores, key=lambda number: (-scores[number], number))[:k]


def by_lance(library, query):
    words = " ".join(dict.fromkeys(query.split()))
    found = (
        lance.dataset(library.path / "chunks.lance")
        .scanner(columns=["id", "_score"], full_text_query=words, limit=COUNT)
        .to_table()
    )
    return dict(zip(found["id"].to_pylist(), found["_score"].to_pylist(), strict=True))


@pytest.mark.parametrize("query", QUERIES)
def test_lexical_scores_are_those_of_bm25(query, library, table):
    hits = library.search(query, 50, mode="lexical")
    expected = bm25(table, query)
    assert [hit.passage for hit in hits] == best({hit.passage: hit.score for hit in hits}, 50)
    np.testing.assert_allclose([hit.score for hit in hits], sorted(expected.values(), reverse=True)[:50], rtol=1e-5)
    for hit in hits:
        assert hit.score == pytest.approx(expected[hit.passage], rel=1e-5)


@pytest.mark.parametrize("query", [query for query in QUERIES if query != "cat cat dog sun"])
def test_lance_finds_the_same_with_nearly_the_same_scores(query, library, table, monkeypatch):
    """It answers where there is no inverted index. It keeps lengths in a byte, and drops repeated words."""
    monkeypatch.setattr(Snapshot, "lexical", property(lambda _: None))
    hits = library.search(query, COUNT, mode="lexical")
    assert {hit.passage: hit.score for hit in hits} == pytest.approx(bm25(table, query), rel=0.1)


@pytest.mark.parametrize("query", QUERIES)
def test_semantic_scores_are_cosines_of_every_passage(query, library, table, tiny):
    scores = cosines(table, tiny, query)
    hits = library.search(query, 30, mode="semantic")
    assert [hit.passage for hit in hits] == best(scores, 30)
    np.testing.assert_allclose([hit.score for hit in hits], sorted(scores.values(), reverse=True)[:30], atol=1e-5)
    assert all(hit.scores == {"lexical": None, "semantic": hit.score} for hit in hits)


def fused(lexical, semantic, depth=200):
    """Half the sum of standard scores over the candidates: the 200 best of either side."""
    by_words, by_meaning = best(lexical, depth), best(semantic, depth)
    candidates = sorted({*by_words, *by_meaning})
    sides = []
    for scores, found in ((lexical, set(by_words)), (semantic, set(semantic))):
        values = [scores[number] if number in found else 0.0 for number in candidates]
        mean, deviation = statistics.fmean(values), statistics.pstdev(values)
        sides.append([(value - mean) / deviation if deviation > 1e-6 else 0.0 for value in values])
    return {number: (one + other) / 2 for number, one, other in zip(candidates, *sides, strict=True)}


@pytest.mark.parametrize("query", QUERIES)
def test_hybrid_scores_are_standard_scores_of_both_sides(query, library, table, tiny):
    lexical, semantic = bm25(table, query), cosines(table, tiny, query)
    expected = fused(lexical, semantic)
    hits = library.search(query, 40)
    np.testing.assert_allclose([hit.score for hit in hits], sorted(expected.values(), reverse=True)[:40], atol=2e-4)
    for hit in hits:
        assert hit.score == pytest.approx(expected[hit.passage], abs=2e-4)
        assert hit.scores["semantic"] == pytest.approx(semantic[hit.passage], abs=1e-5)
        assert hit.scores["lexical"] == (
            pytest.approx(lexical[hit.passage], rel=1e-5) if hit.passage in lexical else None
        )


@pytest.mark.parametrize("depth", [12, 200])
def test_passages_with_all_of_one_or_two_words_come_first_in_the_order_of_the_fusion(
    depth, library, table, tiny, monkeypatch
):
    monkeypatch.setattr("binocle.retriever.search.query.SEARCH_DEPTH", depth)
    for words in ("cat", "blue", "xyzzy", "the", "sun blue", "moon moon salt", "moon xyzzy"):
        with_all = set.intersection(*(set(bm25(table, word)) for word in words.split()))
        hits = library.search(words, 12)
        has_all = [hit.passage in with_all for hit in hits]
        assert has_all == sorted(has_all, reverse=True)
        if depth == 200:
            assert sum(has_all) == min(12, len(with_all))
            scores = fused(bm25(table, words), cosines(table, tiny, words))
            order = sorted(scores, key=lambda n: (n not in with_all, -scores[n]))
            assert [hit.passage for hit in hits] == order[:12]
    assert library.search("blue", 12, mode="semantic")[0].passage in best(cosines(table, tiny, "blue"), 1)


def test_a_passage_that_only_the_words_found_gets_its_true_cosine(library, table, tiny):
    """The 200 nearest leave out half of the library, the words do not."""
    scores = cosines(table, tiny, "green")
    hits = {hit.passage: hit for hit in library.search("green", 400)}
    missed = [number for number in by_lance(library, "green") if number not in best(scores, 200)]
    assert missed
    for number in missed:
        assert hits[number].scores["semantic"] == pytest.approx(scores[number], abs=1e-5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("query", QUERIES)
def test_fewer_hits_are_the_first_of_more(mode, query, library):
    many = library.search(query, 120, mode=mode)
    for k in (0, 1, 2, 10, 119):
        assert [(hit.passage, hit.score) for hit in library.search(query, k, mode=mode)] == [
            (hit.passage, hit.score) for hit in many[:k]
        ]


@pytest.mark.parametrize("mode", MODES)
def test_a_million_hits_are_as_many_as_there_are(mode, library):
    hits = library.search("cat", 10**6, mode=mode)
    assert len(hits) == len({hit.passage for hit in hits})
    assert len(hits) == (len(by_lance(library, "cat")) if mode == "lexical" else COUNT)
    assert library.search("cat", 0, mode=mode) == []


@pytest.mark.parametrize("mode", MODES)
def test_hits_carry_their_rank_order_and_citation(mode, library):
    hits = library.search("cat dog", 25, mode=mode)
    assert [hit.rank for hit in hits] == list(range(1, 26))
    keys = [(-hit.score, hit.passage) for hit in hits]
    assert keys == sorted(keys)
    for hit in hits:
        assert hit.text == text_of(int(hit.path)) == library.document(hit.path)["text"][hit.char_start : hit.char_end]
        assert (hit.line_start, hit.line_end, hit.page, hit.heading, hit.title) == (1, 1, None, (), "")
        assert hit.metadata == {"year": 2000 + int(hit.path) % 7}
        assert hit.explanation["mode"] == mode
        assert set(hit.explanation["ranks"]) == {"lexical", "semantic"}
        for stage, rank in hit.explanation["ranks"].items():
            assert (rank is None) == (hit.scores[stage] is None)


def test_ranks_of_each_stage_are_places_in_it(library):
    hits = library.search("moon river", 200)
    for stage in ("lexical", "semantic"):
        ranked = sorted(
            (hit.explanation["ranks"][stage], hit.scores[stage]) for hit in hits if hit.scores[stage] is not None
        )
        assert [score for _, score in ranked] == sorted((score for _, score in ranked), reverse=True)
        assert len({rank for rank, _ in ranked}) == len(ranked)
        assert ranked[0][0] >= 1


@pytest.mark.parametrize("mode", MODES)
def test_the_same_query_gives_the_same_answer(mode, library):
    first = [(hit.passage, hit.score) for hit in library.search("tax file king", 100, mode=mode)]
    again = Retriever.open(library.path)
    for _ in range(5):
        assert [(hit.passage, hit.score) for hit in library.search("tax file king", 100, mode=mode)] == first
        assert [(hit.passage, hit.score) for hit in again.search("tax file king", 100, mode=mode)] == first


@pytest.mark.parametrize("mode", MODES)
def test_of_equal_passages_the_first_in_the_index_come_first(mode, tmp_path, tiny_model):
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add({"id": f"{number:03}", "text": "the cat sat"} for number in range(300))
    retriever.add({"id": f"x{number}", "text": "bread and salt"} for number in range(10))
    for k in (1, 10, 250):
        assert [hit.path for hit in retriever.search("cat", k, mode=mode, collapse=False)] == [
            f"{number:03}" for number in range(k)
        ]


def test_the_query_is_encoded_once_and_only_where_it_must_be(library, tiny):
    for mode, expected in (("lexical", 0), ("semantic", 1), ("hybrid", 1)):
        calls = 0

        def vector():
            nonlocal calls
            calls += 1
            return tiny.encode(["green"], kind="query")

        Query(library.snapshot(), "green", vector).hits(10, mode=mode, where=None)
        assert calls == expected, mode


# Filters


@pytest.mark.parametrize("mode", MODES)
def test_a_filter_gives_the_best_of_what_passes(mode, library, table, tiny):
    chosen = {number for number, row in table.items() if row["document"] % 7 == 3}
    paths = {hit.path for hit in library.search("cat", COUNT, mode="semantic", where={"year": 2003})}
    assert paths == {f"{number:03}" for number in range(COUNT) if number % 7 == 3}
    hits = library.search("moon cat ship", 20, mode=mode, where="year=2003")
    assert {hit.passage for hit in hits} <= chosen
    lexical = {number: score for number, score in by_lance(library, "moon cat ship").items() if number in chosen}
    semantic = {number: score for number, score in cosines(table, tiny, "moon cat ship").items() if number in chosen}
    expected = {"lexical": lexical, "semantic": semantic, "hybrid": fused(lexical, semantic)}[mode]
    np.testing.assert_allclose(
        [hit.score for hit in hits], sorted(expected.values(), reverse=True)[:20], rtol=1e-4, atol=2e-4
    )


def random_filter(draw):
    """A glob of paths, and the numbers of the documents that pass it: anything from all to a handful."""
    digits = ["".join(sorted(draw.choice(list("0123456789"), int(draw.integers(3, 11)), replace=False))) for _ in "123"]
    passing = {n for n in range(COUNT) if all(one in chosen for one, chosen in zip(f"{n:03}", digits, strict=True))}
    return "path=" + "".join(f"[{chosen}]" for chosen in digits), passing


@pytest.fixture
def asked(monkeypatch):
    """What Lance's full-text search is asked: for how many, and under what condition."""
    monkeypatch.setattr(Snapshot, "lexical", property(lambda _: None))
    calls, full_text = [], Snapshot.full_text
    monkeypatch.setattr(
        Snapshot,
        "full_text",
        lambda self, words, limit, where=None, *, every=False: (
            calls.append((limit, where)) or full_text(self, words, limit, where, every=every)
        ),
    )
    return calls


DEEP = 12  # so many candidates of either side, that a filter in this library is loose or strict as in a large one


def test_filters_loose_and_strict_give_what_comparing_everything_gives(library, table, tiny, asked, monkeypatch):
    monkeypatch.setattr("binocle.retriever.search.query.SEARCH_DEPTH", DEEP)
    draw = np.random.default_rng(3)
    for turn in range(40):
        where, chosen = random_filter(draw)
        query = QUERIES[turn % len(QUERIES)]
        lexical = {n: score for n, score in by_lance(library, query).items() if table[n]["document"] in chosen}
        semantic = {n: score for n, score in cosines(table, tiny, query).items() if table[n]["document"] in chosen}
        words = library.search(query, DEEP, mode="lexical", where=where)
        assert [hit.score for hit in words] == sorted(lexical.values(), reverse=True)[:DEEP]
        assert all(lexical[hit.passage] == hit.score for hit in words)
        meaning = library.search(query, DEEP, mode="semantic", where=where)
        assert [hit.passage for hit in meaning] == best(semantic, DEEP)
        if len({*best(lexical, DEEP)} - {hit.passage for hit in words}) == 0:  # else others of equal scores
            both = fused(lexical, semantic, DEEP)
            hits = library.search(query, 10**6 if len(chosen) <= DEEP else DEEP, mode="hybrid", where=where)
            np.testing.assert_allclose(
                [hit.score for hit in hits], sorted(both.values(), reverse=True)[: len(hits)], atol=2e-4
            )
    conditional = [where is not None for _, where in asked]
    assert 10 < sum(conditional) < len(conditional) - 10


def test_where_the_words_are_in_what_does_not_pass_more_is_looked_through_and_then_only_what_passes(
    library, asked, monkeypatch
):
    monkeypatch.setattr("binocle.retriever.search.query.SEARCH_DEPTH", DEEP)
    holding = [number for number in range(COUNT) if "worker" in text_of(number).split()]
    passing = {*range(COUNT)}.difference(holding[1:])
    where = {"path": [f"{number:03}" for number in passing]}
    (hit,) = library.search("the worker", DEEP, mode="lexical", where=where)
    assert hit.path == f"{holding[0]:03}"
    first = math.ceil(1.5 * DEEP * COUNT / len(passing))
    assert 4 * first < len(holding) < len(passing) < 16 * first
    assert [(limit, where is None) for limit, where in asked] == [(first, True), (4 * first, True), (DEEP, False)]


def test_few_results_of_words_are_all_there_are(library, asked):
    """Fewer than were asked for: what passes of them is all that passes."""
    hits = library.search("the salt", 10, mode="lexical", where="path=[0123]*")
    found = by_lance(library, "the salt")
    assert [hit.score for hit in hits] == sorted((found[n] for n in found if n < 400), reverse=True)[:10]
    assert [where for _, where in asked] == [None]


def test_what_passes_is_remembered_until_something_is_committed(tmp_path, tiny_model, monkeypatch):
    applied, select = [], Snapshot.select
    monkeypatch.setattr(Snapshot, "select", lambda self, where: applied.append(where) or select(self, where))
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add({"id": f"{number}", "text": text_of(number), "metadata": {"odd": number % 2}} for number in range(6))

    def found(where):
        return sorted(hit.path for hit in retriever.search("cat", where=where, mode="semantic"))

    for where in ("odd=1", ["odd=1"], {"odd": 1}, F.odd == 1):
        assert found(where) == ["1", "3", "5"]
    assert applied == [parse("odd=1"), F.odd == 1]
    for _ in range(2):
        for number in range(6):
            assert found([f"path={number}", "odd=0"]) == [f"{number}"] * (number % 2 == 0)
            assert found({"path": f"{number}"}) == [f"{number}"]
    retriever.delete("3")
    retriever.add([{"id": "7", "text": "moon", "metadata": {"odd": 1}}])
    assert found("odd=1") == ["1", "5", "7"]
    assert found({"odd": 1}) == ["1", "5", "7"]


@pytest.mark.parametrize("mode", MODES)
def test_a_filter_that_nothing_passes_gives_nothing(mode, library):
    assert library.search("cat", where="year=1999", mode=mode) == []
    assert library.search("cat", where=["year=2003", "path=004"], mode=mode) == []


@pytest.mark.parametrize("mode", MODES)
def test_a_filter_down_to_one_document_finds_it(mode, library):
    words = text_of(123)
    (hit,) = library.search(words, 10, where={"path": "123"}, mode=mode)
    assert hit.path == "123"


# Odd queries

ODD = [
    "cat " * 10_000,
    " ".join(f"word{number}" for number in range(10_000)) + " cat",
    "x" * 100_000,
    "🐈 👩‍🚀",
    "שלום עולם",
    "\u202emoon",
    '"cat',
    '"cat dog"',
    "cat AND dog OR NOT (moon",
    "cat* dog~2 +moon -sun ^3 [a TO b] {x} field:cat \\",
    "'; DROP TABLE chunks; --",
    "cat\0dog",
    "\0",
    "\ud83d",
    "cat \udc00 dog",
    "the of and",
    "a\nb\tc\r\nd",
    "%_",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢",
    "天気",
    "\u200b",
    "?",
    "e\u0301",
]


@pytest.mark.parametrize("query", ODD, ids=lambda query: ascii(query[:20]))
@pytest.mark.parametrize("mode", MODES)
def test_any_text_is_a_query(mode, query, library):
    hits = library.search(query, 5, mode=mode)
    assert len(hits) == 5 or mode == "lexical"
    assert all(math.isfinite(hit.score) for hit in hits)


def test_words_are_found_among_quotes_and_operators(library):
    plain = [hit.passage for hit in library.search("cat dog", 5, mode="lexical")]
    for query in (
        '"cat" dog',
        "+cat +dog",
        "(cat) [dog]",
        "cat, dog!",
        "CAT Dog",
        "cät dög",
        "cats dogs",
        "cat\0dog",
        "cat-dog",
    ):
        assert [hit.passage for hit in library.search(query, 5, mode="lexical")] == plain, query


@pytest.mark.parametrize("query", ["C", "R", "e", "os", "io", "dir", "caring", "multi-", "num", "x"])
def test_a_word_of_another_language_or_of_one_letter_is_found(query, letters):
    assert [hit.path for hit in letters.search(query, 5, mode="lexical")] == [query]


@pytest.mark.parametrize("query", ["the", "I", "a", "which of these", "himself"])
def test_the_common_words_of_english_find_nothing(query, letters):
    assert letters.search(query, 5, mode="lexical") == []


@pytest.fixture(scope="session")
def letters(tmp_path_factory, tiny_model):
    retriever = Retriever.open(tmp_path_factory.mktemp("letters") / "index", model=tiny_model)
    around = "which of these is the moon that I saw because a cat saw them themselves: {}?"
    asked = ["C", "R", "e", "os", "io", "dir", "caring", "multi-", "num", "x"]
    retriever.add([{"id": word, "text": around.format(word)} for word in asked])
    return retriever


def test_a_word_after_many_others_still_counts_within_reason(library):
    query = " ".join(["the"] * 5_000 + ["moon"])
    assert [hit.passage for hit in library.search(query, 5, mode="lexical")] == [
        hit.passage for hit in library.search("moon", 5, mode="lexical")
    ]


@pytest.mark.parametrize("query", ["", " ", "\n\t", "\u3000"])
def test_an_empty_query_is_refused(query, library):
    with pytest.raises(InputError, match="empty"):
        library.search(query)


@pytest.mark.parametrize("query", [3, b"cat", ["cat"]])
def test_what_is_no_text_is_refused(query, library):
    with pytest.raises(InputError, match=type(query).__name__):
        library.search(query)


@pytest.mark.parametrize("k", [-1, 1.5, "3", None, True, float("nan")])
def test_a_bad_count_is_refused(k, library):
    with pytest.raises(InputError, match="whole number"):
        library.search("cat", k)


def test_a_count_may_be_any_whole_number(library):
    assert len(library.search("cat", np.int64(3))) == 3


@pytest.mark.parametrize("mode", ["", "Hybrid", "bm25", None, 3, ["lexical"]])
def test_a_bad_mode_is_refused_with_the_good_ones(mode, library):
    with pytest.raises(InputError, match="hybrid, semantic, lexical"):
        library.search("cat", mode=mode)


def test_a_bad_filter_is_refused_before_anything_is_searched(library):
    with pytest.raises(InputError, match="filter"):
        library.search("cat", where="nonsense")


# After changes


@pytest.mark.parametrize("mode", MODES)
def test_deleted_and_replaced_documents_never_show(mode, tmp_path, tiny_model):
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add({"id": f"{number}", "text": text_of(number)} for number in range(30))
    for number in range(0, 30, 3):
        retriever.delete(f"{number}")
    retriever.add({"id": f"{number}", "text": "bread bread bread"} for number in range(1, 30, 3))
    hits = retriever.search("cat moon bread", 100, mode=mode, collapse=False)
    assert len(hits) == 20 or mode == "lexical"
    for hit in hits:
        assert int(hit.path) % 3 != 0
        assert hit.text == ("bread bread bread" if int(hit.path) % 3 == 1 else text_of(int(hit.path)))
    assert retriever.verify().faults == []
