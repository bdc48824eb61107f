"""Words that an index does not know are corrected from its vocabulary."""

import random

import pytest

from binocle import Retriever
from binocle.retriever.search.words.corrections import candidates, correct, edit_distances, nearest, replace_words
from binocle.retriever.search.words.exact import parse

WORDS = {"password": 9, "passwords": 3, "prompt": 7, "bracket": 5, "bucket": 20, "table": 4, "cable": 8, "plain": 6}


def reference_distance(one, other):
    """Optimal string alignment, letter by letter."""
    rows = {(left, 0): left for left in range(len(one) + 1)} | {(0, right): right for right in range(len(other) + 1)}
    for left in range(1, len(one) + 1):
        for right in range(1, len(other) + 1):
            differs = one[left - 1] != other[right - 1]
            best = min(rows[left - 1, right] + 1, rows[left, right - 1] + 1, rows[left - 1, right - 1] + differs)
            if left > 1 < right and one[left - 2 : left] == other[right - 2 : right][::-1]:
                best = min(best, rows[left - 2, right - 2] + 1)
            rows[left, right] = best
    return rows[len(one), len(other)]


def test_distances_are_those_of_the_definition():
    draw = random.Random(0)
    for _ in range(20):
        word, *words = ("".join(draw.choices("abcé", k=draw.randint(1, 7))) for _ in range(30))
        assert edit_distances(word, words).tolist() == [reference_distance(word, other) for other in words]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("pasword", "password"),
        ("promt", "prompt"),
        ("passwrod", "password"),
        ("brackte", "bracket"),
        ("tabel", "table"),
        ("dable", "cable"),  # the more frequent one
        ("tbael", None),  # two errors
        ("mongolia", None),
    ],
)
def test_the_word_that_was_meant_is_near(typed, meant):
    assert nearest(typed, WORDS, 1) == meant


def test_an_empty_vocabulary_corrects_nothing():
    assert nearest("pasword", {}, 1) is None


def corrections(query, tokens):
    """Correct a query. The encoder breaks each unknown word into this number of tokens."""

    def vocabulary(_, prefix, errors):
        return {word: count for word, count in WORDS.items() if word.startswith(prefix)}

    return correct(parse(query), WORDS.keys().__and__, lambda _: tokens, vocabulary)


@pytest.mark.parametrize(
    ("typed", "tokens", "meant"),
    [
        ("dable", 1, None),  # the encoder knows it
        ("dable", 2, None),  # a word with an ending differs from others by a letter
        ("dable", 3, "cable"),
        ("tabl", 2, "table"),
        ("tabel", 2, "table"),
        ("tablee", 2, "table"),
        ("plugin", 3, None),  # two errors in six letters
        ("passwodrs", 3, "passwords"),
        ("pssaword", 3, "password"),  # two errors in eight letters
        ("pasxwoards", 3, "passwords"),  # two errors in ten letters
        ("pasxwoards", 2, None),
        ("dasxwords", 3, None),  # two errors, one of them in the first letter
    ],
)
def test_a_word_that_may_be_spelled_right_is_left(typed, tokens, meant):
    assert corrections(f"find {typed}", tokens).get(typed) == meant


def test_only_words_that_nobody_knows_are_corrected():
    assert correct(
        parse("Pasword recipe promt"),
        {"recipe"}.intersection,
        lambda _: 3,
        lambda _, prefix, errors: {word: WORDS[word] for word in WORDS if word.startswith(prefix)},
    ) == {
        "Pasword": "password",
        "promt": "prompt",
    }


def test_the_vocabulary_is_read_only_for_an_unknown_word():
    def read(*_):
        pytest.fail("it was read")

    assert correct(parse("bracket table"), WORDS.keys().__and__, read, read) == {}


@pytest.mark.parametrize(
    "query",
    ['"pasword"', "+pasword", "pass_wrd", "passWord", "find PaswordManager", "#1234", "v1.2", "--pasword", "NASA"],
)
def test_exact_parts_are_left_as_they_are(query):
    assert [word for word in candidates(parse(query)) if word != "find"] == []


def test_a_query_of_one_ordinary_word_is_corrected():
    assert candidates(parse("pasword")) == ["pasword"]


@pytest.fixture(scope="session")
def retriever(tmp_path_factory, tiny_model):
    retriever = Retriever.open(tmp_path_factory.mktemp("corrections") / "index", model=tiny_model)
    texts = ["the password prompt", "a mountain river", "bread and butter"]
    retriever.add([{"id": text[:3], "text": text, "metadata": {"n": n}} for n, text in enumerate(texts)])
    return retriever


@pytest.mark.parametrize("mode", ["hybrid", "semantic", "lexical"])
def test_a_search_uses_the_corrected_words_and_says_so(retriever, mode):
    hits = retriever.search("pasword promt", 1, mode=mode)
    assert hits.corrections == {"pasword": "password", "promt": "prompt"}
    assert [hit.passage for hit in hits] == [hit.passage for hit in retriever.search("password prompt", 1, mode=mode)]


@pytest.mark.parametrize("query", ["password", "passwords", '"pasword"', "recipe", "wo ist der pasword und das nicht"])
def test_a_search_leaves_known_and_quoted_words(retriever, query):
    assert retriever.search(query, 1).corrections == {}


def test_a_word_that_is_one_token_of_the_encoder_is_spelled_right(tmp_path, tiny_model):
    index = Retriever.open(tmp_path / "index", model=tiny_model)
    index.add([{"id": "noon", "text": "the noon of a day"}])
    assert index.search("moon", 1).corrections == {}
    assert index.search("doon", 1).corrections == {"doon": "noon"}


def test_with_a_filter_no_word_of_another_document_is_named(retriever):
    assert retriever.search("pasword", 1, where={"n": 1}).corrections == {}
    assert retriever.search("pasword", 1, where={"n": 0}).corrections == {"pasword": "password"}


def test_with_a_filter_the_nearest_word_of_its_documents_is_the_correction(tmp_path, tiny_model):
    index = Retriever.open(tmp_path / "index", model=tiny_model)
    index.add({"text": f"The zorblaxing plan {n}", "metadata": {"t": 1}} for n in range(9))
    index.add([{"id": "own", "text": "The zorblaxins plan", "metadata": {"t": 2}}])
    for t, word in ((1, "zorblaxing"), (2, "zorblaxins")):
        hits = index.search("zorblaxinq", mode="lexical", where={"t": t})
        assert hits.corrections == {"zorblaxinq": word}
        assert hits


def test_corrections_replace_whole_words_only():
    assert replace_words("promt, promts and promt?", {"promt": "prompt"}) == "prompt, promts and prompt?"
