"""The inverted index against brute force, and against changed files."""

from __future__ import annotations

import math
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from binocle.core import terms
from binocle.core.errors import DamagedError
from binocle.indexes.inverted import lexical_index
from binocle.indexes.inverted.build import SegmentBuilder, merge
from binocle.indexes.inverted.lexical_index import LexicalIndex, LiveSegment
from binocle.indexes.inverted.segment import MAX_ROWS, Segment
from binocle.retriever.search.words.corrections import edit_distances

WORDS = [
    "cat",
    "cats",
    "Ship",
    "the",
    "café",
    "snake_case",
    "max_len",
    "3.14",
    "日本語",
    "ภาษาไทย",
    "don't",
    "ß",
    "_",
    "#2809",
]
TEXTS = st.lists(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join), max_size=20)


def segment_of(texts, first=0):
    builder = SegmentBuilder()
    builder.add(np.arange(first, first + len(texts)), texts)
    return builder.build()


def index_of(*texts):
    return LexicalIndex([LiveSegment(segment_of(texts))])


def document_terms(text):
    return [term for token in terms.tokens(text) for term in terms.stems(token)]


def brute_force(query, texts, *, every=False):
    """Score and number of each text that has a term of the query (every: all of them), best first."""
    passages = [Counter(document_terms(text)) for text in texts]
    average = sum(passage.total() for passage in passages) / max(len(texts), 1)
    frequency = Counter(term for passage in passages for term in passage)
    scores = []
    for number, passage in enumerate(passages):
        if (all if every else any)(term in passage for term in query) and query:
            norm = 1.2 * (0.25 + 0.75 * passage.total() / average)
            idf = {term: math.log(1 + (len(texts) - frequency[term] + 0.5) / (frequency[term] + 0.5)) for term in query}
            score = sum(idf[term] * 2.2 * passage[term] / (passage[term] + norm) for term in query)
            scores.append((-score, number))
    return sorted(scores)


def check_search(index, query, texts, numbers, *, every):
    scores, ids = index.search(query, len(texts) + 1, every=every)
    expected = brute_force(query, texts, every=every)
    assert sorted(ids.tolist()) == sorted(numbers[number] for _, number in expected)
    np.testing.assert_allclose(scores, [-score for score, _ in expected], rtol=1e-5)


@settings(max_examples=20, deadline=None)
@given(TEXTS, TEXTS, st.lists(st.sampled_from(WORDS), max_size=4), st.randoms(use_true_random=False))
def test_scores_are_those_of_brute_force_after_deletions_and_merges(first, second, query, random):
    parts = [segment_of(first), segment_of(second, len(first))]
    texts = [*first, *second]
    live = [random.random() < 0.8 for _ in texts]
    masks = [np.array(live[: len(first)], bool), np.array(live[len(first) :], bool)]
    numbers = [number for number, kept in enumerate(live) if kept]
    remaining = [texts[number] for number in numbers]
    merged, fresh = merge(parts, masks), segment_of(remaining)
    merged.check()
    for name in ("stems", "whole"):
        for mine, theirs in zip(
            (getattr(getattr(merged, name), column) for column in type(merged.stems).__slots__),
            (getattr(getattr(fresh, name), column) for column in type(merged.stems).__slots__),
            strict=True,
        ):
            np.testing.assert_array_equal(mine, theirs)
    masked = LexicalIndex([LiveSegment(part, mask) for part, mask in zip(parts, masks, strict=True)])
    words = LexicalIndex([LiveSegment(fresh)]).words()
    for index in (masked, LexicalIndex([LiveSegment(merged)])):
        assert index.passages == len(remaining)
        query_terms = terms.query_stems(" ".join(query))
        for every in (False, True):
            check_search(index, query_terms, remaining, numbers, every=every)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lexical_index, "_LOOKUP", 0)  # look up frequent terms, however many passages that takes
            for k in (1, 3):
                expected = [-score for score, _ in brute_force(query_terms, remaining)[:k]]
                np.testing.assert_allclose(index.search(query_terms, k)[0], expected, rtol=1e-5)
        assert index.words() == words
        assert index.words("ca") == {word: count for word, count in words.items() if word.startswith("ca")}
        for word in WORDS:
            own = terms.query_whole(word)
            held = [{t for token in terms.tokens(text) for t in terms.whole(token)} for text in remaining]
            expected = [number for number, have in zip(numbers, held, strict=True) if own and have.issuperset(own)]
            assert index.whole(word.upper() if word.isascii() else word).tolist() == expected


def test_frequencies_and_lengths_are_those_of_the_passages():
    texts = ["cat cat ship", "the sea", "cats at sea, a cat", ""]
    index = LexicalIndex([LiveSegment(segment_of(texts[:2])), LiveSegment(segment_of(texts[2:], 2))])
    ids = np.array([0, 2, 3, 7])
    table, idf = index.frequency_table(["cat", "dog"], ids)
    assert table.tolist() == [[2, 2, 0, 0], [0, 0, 0, 0]]
    assert idf == index.idf(["cat", "dog"]) == pytest.approx([math.log(2), math.log(10)])
    assert index.lengths(ids).tolist() == [3, 3, 0, 0]
    assert (index.document_frequencies(["cat"]), index.average_length) == ([2], 7 / 4)


@pytest.mark.parametrize("live", [None, np.arange(400) % 5 > 0])
def test_the_frequencies_of_few_passages_are_those_among_all(live):
    draw = np.random.default_rng(0)
    counts = draw.integers(0, 4, 400)
    index = LexicalIndex(
        [LiveSegment(segment_of(["cat " * count + "ship" * (count > 2) for count in counts.tolist()]), live)]
    )
    expected = np.stack([counts, counts > 2]) * (1 if live is None else live)
    for size in (0, 1, 3, 20, 400):
        ids = np.sort(draw.permutation(400)[:size])
        assert index.frequency_table(["cat", "ship"], ids)[0].tolist() == expected[:, ids].tolist()


def test_a_term_counts_as_often_as_the_query_has_it_and_only_allowed_passages_answer():
    index = index_of("cat ship", "ship", "cat", "cat")
    once, twice = (index.search(terms_, 9)[0] for terms_ in (["ship"], ["ship", "ship"]))
    np.testing.assert_allclose(twice, 2 * once, rtol=1e-6)
    assert index.search(["cat"], 2)[1].tolist() == [2, 3]  # equal scores: in order of id
    assert index.search(["cat"], 9, allowed=np.array([0, 1, 3]))[1].tolist() == [3, 0]
    assert index.search(["cat", "ship"], 9, every=True)[1].tolist() == [0]
    assert [len(index.search([], 9, every=every)[1]) for every in (False, True)] == [0, 0]


@pytest.mark.parametrize("live_share", [1.0, 0.7])
def test_the_best_are_the_same_when_frequent_terms_are_looked_up_for_them_alone(live_share, monkeypatch):
    draw = np.random.default_rng(1)
    words = np.array([f"word{number}" for number in range(300)])
    chances = 1 / np.arange(1, 301)
    texts = [" ".join(draw.choice(words, draw.integers(3, 30), p=chances / chances.sum())) for _ in range(4_000)]
    live = draw.random(len(texts)) < live_share
    parts = [
        LiveSegment(segment_of(texts[first : first + 1_500], first), live[first : first + 1_500])
        for first in (0, 1_500)
    ]
    parts.append(LiveSegment(segment_of(texts[3_000:], 3_000), live[3_000:]))
    index, looked_up = LexicalIndex(parts), []
    completed = LexicalIndex._completed
    monkeypatch.setattr(
        LexicalIndex,
        "_completed",
        lambda self, rows, *rest: looked_up.append(len(rows)) or completed(self, rows, *rest),
    )
    for _ in range(60):
        query = draw.choice(words, 5, p=chances**0.5 / (chances**0.5).sum()).tolist()
        scores, ids = index.search(query, 10)
        all_scores, all_ids = index.search(query, len(texts))
        np.testing.assert_allclose(scores, all_scores[:10], rtol=1e-5)
        by_id = dict(zip(all_ids.tolist(), all_scores.tolist(), strict=True))
        np.testing.assert_allclose([by_id[number] for number in ids.tolist()], scores, rtol=1e-5)
        assert len(set(ids.tolist())) == len(ids)
    assert len(looked_up) > 10


def test_a_small_segment_may_lack_a_frequent_word_of_the_query():
    texts = ["common word"] * 3_000 + ["rare thing"] * 40 + ["rare gem"] * 30
    parts = [LiveSegment(segment_of(texts[:3_040])), LiveSegment(segment_of(texts[3_040:], 3_040))]
    assert LexicalIndex(parts).search(["rare", "common"], 50)[1].tolist() == [*range(3_000, 3_050)]


@pytest.mark.parametrize(
    ("text", "stems", "whole"),
    [
        (
            "The running_Cats weren't Café",
            ["run", "cat", "weren", "t", "cafe"],
            ["the", "running_cats", "weren", "t", "café"],
        ),
        ("v1.2.3 #2809 --flag", ["v1", "2", "3", "2809", "flag"], ["v1", "2", "3", "2809", "flag"]),
        ("日本語", ["日本", "本語"], ["日本", "本語"]),
        ("茶", ["茶"], ["茶"]),
        ("C言語で", ["言語", "語で", "c"], ["言語", "語で", "c"]),
        ("हिन्दी Straße Ærø", ["हिनदी", "strass", "aero"], ["हिन्दी", "straße", "ærø"]),
        ("x" * 41, [], ["x" * 41]),
        ("", [], []),
    ],
)
def test_terms_of_a_query(text, stems, whole):
    assert (terms.query_stems(text), terms.query_whole(text)) == (stems, whole)


@pytest.fixture
def file(tmp_path):
    segment = segment_of(["cat ship", "the ship sails", "snake_case cat"])
    segment.write(tmp_path / "words.bin")
    return tmp_path / "words.bin", segment.sizes()


def test_a_segment_is_read_as_it_was_written(file):
    segment = Segment.open(*file)
    segment.check()
    assert LexicalIndex([LiveSegment(segment)]).search(["ship"], 9)[1].tolist() == [0, 1]


@pytest.mark.parametrize(
    "change",
    [
        lambda sizes: None,
        lambda sizes: [],
        lambda sizes: {**sizes, "ids": sizes["ids"] + 1},
        lambda sizes: {**sizes, "ids": -1, "lengths": -1},
        lambda sizes: {**sizes, "ids": MAX_ROWS + 1, "lengths": MAX_ROWS + 1},
        lambda sizes: {**sizes, "stems.rows": 2**70, "stems.counts": 2**70},
        lambda sizes: {**sizes, "whole.rows": sizes["whole.rows"] + 100},
        lambda sizes: {**sizes, "more": 1},
        lambda sizes: {**sizes, "ids": True, "lengths": True},
    ],
)
def test_sizes_that_are_not_those_of_the_file_are_damage(change, file):
    with pytest.raises(DamagedError):
        Segment.open(file[0], change(file[1]))


@pytest.mark.parametrize("content", [None, b"", b"short"])
def test_a_file_that_is_missing_or_cut_short_is_damage(content, file):
    file[0].unlink()
    if content is not None:
        file[0].write_bytes(content)
    with pytest.raises(DamagedError):
        Segment.open(*file)


def test_any_changed_bytes_give_an_answer_or_damage(file):
    """Nothing else, whatever stands in the file."""
    path, sizes = file
    data, random = path.read_bytes(), np.random.default_rng(0)
    damages = 0
    for _ in range(200):
        changed = bytearray(data)
        for place in random.integers(0, len(data), random.integers(1, 9)):
            changed[place] = random.choice([0, 1, 127, 255])
        path.write_bytes(changed)
        index = LexicalIndex([LiveSegment(Segment.open(path, sizes), np.array([True, False, True]))])
        with np.errstate(all="ignore"):
            for use in (
                lambda index: index.search(["ship", "cat"], 3),
                lambda index: index.frequency_table(["cat"], np.arange(3)),
                lambda index: index.whole("snake_case"),
                lambda index: index.words(),
                lambda index: index.words(like="snakes", errors=2),
                lambda index: Segment.open(path, sizes).check(),
            ):
                try:
                    use(index)
                except DamagedError:
                    damages += 1
    assert damages > 60


@pytest.mark.parametrize("live", [None, np.arange(300) % 3 > 0])
def test_similar_words_include_every_word_within_few_errors(live):
    draw = random.Random(3)
    words = ["".join(draw.choices("abcdé日", (9, 9, 9, 9, 3, 1), k=draw.randint(2, 9))) for _ in range(300)]
    index = LexicalIndex([LiveSegment(segment_of(words), live)])
    known = index.words()
    for word in [*words[::10], "zebra", "abé"]:
        for errors, prefix in ((1, ""), (2, word[0])):
            like = index.words(prefix, like=word, errors=errors)
            distances = edit_distances(word, known)
            near = [each for each, distance in zip(known, distances, strict=True) if distance <= errors]
            assert {each for each in near if each.startswith(prefix)} <= like.keys()
            assert like.items() <= known.items()
    assert len(index.words(like="abcdabcd", errors=1)) < len(known) / 2
    assert index.words("zz", like="zzebra", errors=1) == {}
