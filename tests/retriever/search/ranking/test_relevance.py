"""The relevance of a hit: in [0, 1], falling with the rank, comparable between queries."""

import json
import math
import shutil
from dataclasses import asdict, replace

import numpy as np
import pytest

from binocle import Hits, Retriever
from binocle.core.errors import InputError
from binocle.retriever.search.query import Query
from binocle.retriever.search.ranking.everyday import SUBJECTS
from binocle.retriever.search.ranking.relevance import first_sentences, highest, relevance, shares
from binocle.retriever.search.ranking.relevance_calibration import best_line, measure_scale, renew_scale
from binocle.retriever.store.derived.relevance_scale import FITTED, RelevanceScale, read_scale, scale_of, store_scale

TEXTS = [f"the {animal} ran to the {place} at {time}" for animal in ("cat", "dog", "ship") for place in ("house", "city", "river") for time in ("night", "day")]  # fmt: skip


def of(cosines, shares=None, literal=None, scale=FITTED, nearest=(), passages=1_000, sentences=None):
    count = len(cosines)
    shares = [math.nan] * count if shares is None else shares
    literal = [False] * count if literal is None else literal
    best = None if sentences is None else np.float32(sentences)
    near = highest(np.float32(nearest))
    return relevance(np.float32(cosines), np.float32(shares), np.array(literal), scale, near, passages, best).tolist()


def test_a_near_passage_is_relevant_and_a_far_one_is_weak():
    assert of([0.65])[0] > 0.95
    assert of([0.2])[0] < 0.05
    assert of([0.65], [0.7])[0] > of([0.65], [0.2])[0] > of([0.3], [0.2])[0]


def test_it_falls_with_the_rank_whatever_the_order():
    draw = np.random.default_rng(0)
    values = of(draw.uniform(0, 1, 40), draw.uniform(0, 1, 40), draw.uniform(size=40) > 0.9)
    assert values == sorted(values, reverse=True)
    assert values[0] == max(values)
    assert 0 <= values[-1] <= values[0] <= 1


def test_a_near_passage_that_is_alone_is_less_relevant_than_one_among_near_ones():
    near, far = (of([0.4], [0.4], nearest=[0.4, math.nan, *[cosine] * 9]) for cosine in (0.38, 0.15))
    assert near[0] > far[0]
    assert of([0.4], [0.4], nearest=[0.38] * 9) == of([0.4], [0.4])  # ten are needed to tell


def test_the_same_passage_is_more_relevant_among_few_than_among_many():
    evidence = [math.log(value / (1 - value)) for value in (of([0.4], [0.4], passages=n)[0] for n in (1_000, 100, 10))]
    assert np.diff(evidence) == pytest.approx([2, 2], abs=1e-4)
    assert of([0.4], [0.4], passages=50_000) == of([0.4], [0.4])
    assert of([0.4], [0.4], passages=1) == of([0.4], [0.4], passages=10)
    assert of([math.nan], [0.4], passages=10) == of([math.nan], [0.4])  # words alone


def test_the_best_sentence_of_a_passage_counts_a_little_less_than_a_passage_of_its_own():
    assert of([0.3, 0.1], sentences=[0.7]) == pytest.approx(of([0.6, 0.1]))
    assert of([0.3, 0.1], sentences=[0.35]) == of([0.3, 0.1], sentences=[math.nan]) == of([0.3, 0.1])


def test_sentences_of_the_first_passages_are_bounded_and_a_single_one_is_the_passage():
    many = "\n\n".join(f"The cat number {number} sat there." for number in range(20))
    chosen = first_sentences([many, "The dog ran to the house.", many])
    assert [len(passage) for passage in chosen] == [20, 0, 4]
    assert chosen[0][1] == "The cat number 1 sat there."


def test_the_number_of_hits_asked_for_does_not_change_it():
    cosines = np.random.default_rng(1).uniform(0, 0.8, 40)
    assert of(cosines)[:10] == of(cosines[:10])


def test_a_passage_with_all_words_or_an_exact_part_counts_as_an_answer():
    assert of([0.1], [1.0])[0] >= 0.5
    assert of([0.1], literal=[True])[0] >= 0.9
    assert of([0.1], [0.99])[0] < 0.5


def test_without_vectors_the_words_decide():
    assert of([math.nan], [0.9])[0] > 0.5 > of([math.nan], [0.2])[0]


def test_cosines_of_another_encoder_are_put_on_the_scale_of_the_default_one():
    narrow = RelevanceScale(everyday=0.74, own=0.85)  # as of encoders for which all texts are near
    assert of([0.85], scale=narrow)[0] == pytest.approx(of([0.70])[0])
    assert of([0.74], scale=narrow)[0] == pytest.approx(of([0.24])[0])


@pytest.fixture(scope="session")
def retriever(tmp_path_factory, tiny_model):
    retriever = Retriever.open(tmp_path_factory.mktemp("relevance") / "index", model=tiny_model)
    retriever.add([{"id": str(number), "text": text} for number, text in enumerate(TEXTS)])
    return retriever


def test_search_returns_a_list_of_hits_with_relevances(retriever):
    hits = retriever.search("the cat ran", 5)
    assert isinstance(hits, Hits)
    assert issubclass(Hits, list)
    relevances = [hit.relevance for hit in hits]
    assert relevances == sorted(relevances, reverse=True)
    assert not any(hit.weak for hit in hits)  # no error was measured with this encoder, so none is promised
    assert hits.answerable is None


def test_the_shares_of_words_are_in_the_order_of_the_passages(retriever):
    snapshot = retriever.snapshot()
    ids = np.random.default_rng(0).permutation(snapshot.sorted_ids)
    texts = [row["text"] for row in snapshot.passages.of(ids.tolist()).values()]
    cat, night, both = (shares(snapshot.lexical, stems, ids) for stems in (["cat"], ["night"], ["cat", "night"]))
    assert cat.tolist() == [float("cat" in text) for text in texts]
    assert night.tolist() == [float("night" in text) for text in texts]
    assert np.array_equal(both == 1, (cat == 1) & (night == 1))


@pytest.fixture
def many_subjects(tmp_path, tiny_model, monkeypatch):
    """Return a retriever of one passage with several subjects. Its cosine with QUESTION is a little too low."""
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add([{"id": "many", "text": "\n\n".join(PIECES)}, {"id": "one", "text": "the moon shines by night"}])
    vector = retriever.encoder.encode([QUESTION], kind="query")
    cosine = float((retriever.snapshot().index.reconstruct(np.array([0, 1])) @ vector[0]).max())
    scale = RelevanceScale(cosine - 0.06, cosine + 0.4, 0.03, 0.02, 1_000)  # as .30 with the default encoder
    monkeypatch.setitem(vars(retriever.snapshot()), "scale", scale)
    return retriever


QUESTION = "which animal barks"
PIECES = ["The cat sat on the house.", "The dog ran to the river.", "The ship lay in the city."]


def test_a_question_about_one_subject_of_a_passage_is_answered_in_a_small_index(many_subjects, monkeypatch):
    snapshot, encoded = many_subjects.snapshot(), []
    vector = many_subjects.encoder.encode([QUESTION], kind="query")

    def encode(texts):
        encoded.extend(texts)
        return 9 * vector[[0] * len(texts)]  # sentences that are very near to the query

    def hits(encode_texts):
        return Query(snapshot, QUESTION, lambda: vector, encode_texts=encode_texts).hits(2, mode="hybrid", where=None)

    assert hits(None).answerable is False
    assert hits(encode).answerable
    assert encoded == PIECES  # not the passage of one sentence: its vector is that of the passage
    monkeypatch.setitem(
        vars(snapshot), "scale", RelevanceScale(5.0, 9.0, 0.03, 0.02, 1_000)
    )  # so far that no sentence helps
    assert hits(encode).answerable is False
    monkeypatch.undo()
    monkeypatch.setattr("binocle.retriever.search.ranking.relevance._PASSAGES", (1, 2))  # the index is no small one
    hits(encode)
    assert len(encoded) == 3


def test_a_search_reads_sentences_only_if_the_best_passage_is_weak(many_subjects, monkeypatch):
    encode, kinds = many_subjects.encoder.encode, []

    def noting(texts, *, kind="document"):
        kinds.append((kind, len(texts)))
        return encode(texts, kind=kind)

    monkeypatch.setattr(many_subjects.encoder, "encode", noting)
    many_subjects.search(QUESTION)
    assert kinds == [("query", 1), ("document", 3)]
    many_subjects.search("cat house")  # all its words are there
    many_subjects.search(QUESTION, vector=encode([QUESTION], kind="query")[0])
    many_subjects.search(QUESTION, mode="lexical")
    assert kinds[2:] == [("query", 1)]


def test_hits_are_weak_only_where_both_errors_are_small(retriever, monkeypatch):
    for answered, refused, promised in ((0.05, 0.1, True), (0.05, 0.11, False), (0.2, 0.05, False)):
        scale = RelevanceScale(5.0, 9.0, answered, refused, 1_000)
        monkeypatch.setitem(vars(retriever.snapshot()), "scale", scale)
        hits = retriever.search("does the moon shine", 3)
        assert (hits[0].relevance < 0.5, hits[0].weak) == (True, promised)
        assert hits.answerable is (False if promised else None)
        assert retriever.search("cat ran", 3).answerable is (True if promised else None)  # the words are there
        assert retriever.search("does the moon shine at night", 3, mode="lexical").answerable is None
        assert retriever.similar("1", 1).answerable is None


def test_an_index_judges_hits_by_its_own_line(retriever, monkeypatch):
    scale = RelevanceScale(0.9, 1.9, 0.05, 0.05, 1_000)
    monkeypatch.setitem(vars(retriever.snapshot()), "scale", scale)
    relevance = retriever.search("does the moon shine", 3)[0].relevance
    assert 0.001 < relevance < 0.5
    for line in (relevance / 2, relevance * 2):
        monkeypatch.setitem(vars(retriever.snapshot()), "scale", replace(scale, line=line))
        assert retriever.search("does the moon shine", 3).answerable == (line < relevance)


def test_the_line_is_the_value_nearest_to_a_half_with_small_errors():
    answered, unanswered = np.linspace(0.6, 1, 20), np.linspace(0, 0.4, 20)
    assert best_line(unanswered, answered) == 0.5
    assert best_line(np.array([]), answered) == 0.5
    low = np.concatenate([np.full(1, 0.05), np.full(19, 0.2)])  # two of twenty may be refused
    assert best_line(np.full(20, 0.1), low) == 0.2
    assert best_line(np.full(20, 0.3), low) == 0.5  # no value tells them apart
    high = np.concatenate([np.zeros(15), np.full(5, 0.55)])
    assert best_line(high, np.full(20, 0.9)) == pytest.approx(0.55)
    assert (high < best_line(high, np.full(20, 0.9))).all()
    assert best_line(np.full(20, 0.7), np.full(20, 0.9)) == 0.5  # a passage with all words has .6, and is never weak


@pytest.mark.parametrize("mode", ["hybrid", "semantic", "lexical"])
def test_least_relevance_leaves_out_the_others(retriever, mode):
    hits = retriever.search("the cat ran to the moon", 18, mode=mode)
    least = hits[len(hits) // 2].relevance
    expected = [hit.passage for hit in hits if hit.relevance >= least]
    assert [hit.passage for hit in retriever.search("the cat ran to the moon", 18, mode=mode, min_relevance=least)] == expected  # fmt: skip


@pytest.mark.parametrize("least", [-0.1, 1.5, "high", True, math.nan])
def test_a_least_relevance_is_a_number_from_0_to_1(retriever, least):
    with pytest.raises(InputError, match="min_relevance is the least relevance of a hit, from 0 to 1, not"):
        retriever.search("cat", min_relevance=least)


def test_a_context_leaves_out_weak_passages(retriever, monkeypatch):
    monkeypatch.setitem(
        vars(retriever.snapshot()), "scale", RelevanceScale(everyday=5.0, own=9.0)
    )  # all cosines are far below
    assert retriever.context("the cat ran", min_relevance=0.95).passages == ()
    assert retriever.context("the cat ran", min_relevance=0.0).passages


def test_a_quoted_phrase_is_an_answer_however_far_the_vectors_are(retriever):
    hits = retriever.search('"ship ran to the river"', 2)
    assert all(hit.relevance >= 0.9 for hit in hits)
    assert not any(hit.weak for hit in hits)


def test_a_scale_is_measured_once_and_again_when_the_index_has_grown(retriever, monkeypatch):
    monkeypatch.setattr("binocle.retriever.search.ranking.relevance_calibration._PASSAGES", 10)
    snapshot, encoder = retriever.snapshot(), retriever.encoder
    location, name = snapshot.store.location, snapshot.head.encoder
    renew_scale(snapshot, encoder)
    scale = read_scale(location, name)
    assert scale == measure_scale(snapshot, encoder)
    assert scale.passages == len(TEXTS)
    assert scale.line is not None
    for passages, line, again in (
        (10, 0.5, False),
        (9, 0.5, True),
        (35, 0.5, False),
        (36, 0.5, True),
        (35, None, True),
    ):
        store_scale(location, replace(scale, passages=passages, line=line), name)
        renew_scale(snapshot, encoder)
        assert (read_scale(location, name).passages == len(TEXTS)) == again
    location.remove("relevance-")


@pytest.mark.parametrize("part", range(12))
def test_a_damaged_inverted_index_leaves_the_judgement_to_the_vectors(part, tmp_path, retriever):
    shutil.copytree(retriever.path, tmp_path / "copy")
    (file,) = (tmp_path / "copy").glob("vectors/*/words.bin")
    data = bytearray(file.read_bytes())
    size = len(data) // 12
    data[part * size : (part + 1) * size] = bytes([255]) * size
    file.write_bytes(data)
    hits = Retriever.open(tmp_path / "copy").search("the cat ran, sayd the pasword", 3)
    assert len(hits) == 3
    assert all(0 <= hit.relevance <= 1 for hit in hits)


def test_a_small_index_is_not_measured(retriever):
    renew_scale(retriever.snapshot(), retriever.encoder)
    assert read_scale(retriever.location, retriever.snapshot().head.encoder) is None


@pytest.mark.parametrize(
    "values",
    [
        {"everyday": 0.7, "own": 0.7},
        {"everyday": "0.2"},
        {"everyday": float("nan")},
        {"passages": 0},
        {"passages": True},
        {"answered": 7.0},
        {"line": 1.5},
        {"stranger": 1},
        {"own": 1e300},
    ],
)
def test_a_scale_from_a_stranger_is_used_only_if_it_is_possible(retriever, values):
    location, name = retriever.location, retriever.snapshot().head.encoder
    store_scale(location, RelevanceScale(passages=5), name)
    assert read_scale(location, name) == RelevanceScale(passages=5)
    (file,) = retriever.path.glob("relevance-*.json")
    file.write_text(json.dumps({**asdict(RelevanceScale(passages=5)), **values}), "utf-8")
    assert read_scale(location, name) is None
    assert scale_of(location, name) == RelevanceScale()
    file.write_text("[" * 100_000, "utf-8")
    assert read_scale(location, name) is None
    location.remove("relevance-")


def test_everyday_questions_differ():
    questions = [question for subject in SUBJECTS for question in subject]
    assert len(set(questions)) == len(questions) == 96
