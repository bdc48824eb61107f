"""Measures of recovered text, held to sacrebleu, to tables filled in by hand and to slower ways of counting."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("sacrebleu")

from sacrebleu.metrics.bleu import BLEU

from binocle.core.errors import InputError, MissingExtraError
from binocle.core.words import names, numbers
from binocle.retriever.models.tokens.token_ids import EncoderTokens
from binocle.training.inversion import metrics as recovered
from binocle.training.inversion.metrics import compare, longest_common, overlap, rouge_l, share_above

TRUE = ["the cat sat on the mat", "income tax is due every year", "Bake the bread in a hot oven."]
FOUND = ["the cat sat on a mat", "tax is due", "the moon and the sea and the stars"]


def by_letters(texts):
    return [[ord(sign) for sign in text] for text in texts]


@pytest.mark.parametrize(
    ("true", "guess", "expected"),
    [
        ("a a b", "a b b c", (2 / 4, 2 / 3, 4 / 7)),  # a once and b once in common
        ("a b", "b a", (1, 1, 1)),
        ("a", "b", (0, 0, 0)),
        ("a", "", (0, 0, 0)),
        ("", "", (0, 0, 0)),
    ],
)
def test_tokens_in_common_are_counted_as_often_as_both_texts_have_them(true, guess, expected):
    assert overlap(true.split(), guess.split()) == pytest.approx(expected)


@settings(deadline=None)
@given(st.lists(st.sampled_from("abcd"), max_size=12), st.lists(st.sampled_from("abcd"), max_size=12))
def test_precision_and_recall_change_places_with_the_texts(true, guess):
    first, second = overlap(true, guess), overlap(guess, true)
    assert first == (second[1], second[0], second[2])
    assert (first[2] == 1) == (bool(true) and sorted(true) == sorted(guess))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from("abc"), max_size=70), st.lists(st.sampled_from("abc"), max_size=70))
def test_the_longest_common_subsequence_is_that_of_the_textbook_table(first, second):
    table = np.zeros((len(first) + 1, len(second) + 1), int)
    for i, a in enumerate(first, 1):
        for j, b in enumerate(second, 1):
            table[i, j] = table[i - 1, j - 1] + 1 if a == b else max(table[i - 1, j], table[i, j - 1])
    assert longest_common(first, second) == table[-1, -1]


def test_rouge_l_is_lins_example():
    # Lin 2004, section 3.1: "police kill the gunman" has 3 of 4 words in order, "the gunman kill police" 2 of 4.
    assert rouge_l("police killed the gunman", "police kill the gunman") == 0.75
    assert rouge_l("police killed the gunman", "the gunman kill police") == 0.5
    assert rouge_l("Police KILLED the gunman!", "police killed the gunman") == 1


def test_bleu_is_sacrebleus():
    recovery = compare(TRUE, FOUND, by_letters)
    whole = BLEU(lowercase=True).corpus_score(FOUND, [TRUE]).score
    single = [
        BLEU(lowercase=True, effective_order=True).sentence_score(a, [b]).score
        for a, b in zip(FOUND, TRUE, strict=True)
    ]
    assert recovery["bleu"] == pytest.approx(whole, abs=1e-4)
    assert recovery["sentence_bleu"] == pytest.approx(sum(single) / 3, abs=1e-4)
    assert "case:lc" in recovered.bleu_signature() and "tok:13a" in recovered.bleu_signature()


def test_corpus_bleu_without_a_common_phrase_is_still_sacrebleus():
    recovery = compare(["a b c d", "e f"], ["d c b a", "x"], by_letters)
    expected = BLEU(lowercase=True).corpus_score(["d c b a", "x"], [["a b c d", "e f"]]).score
    assert recovery["bleu"] == pytest.approx(expected, abs=1e-4)


def test_what_was_recovered_whole_has_every_measure_at_its_best():
    recovery = compare(TRUE, TRUE, by_letters, cosines=[1, 1, 1])
    best = {"bleu": 100, "sentence_bleu": 100}
    for name, value in recovery.measures.items():
        if name not in ("numbers", "names"):
            assert (value.value, value.low, value.high) == pytest.approx((best.get(name, 1),) * 3), name
    assert recovery["exact"] == 1
    assert list(recovery.measures) == list(recovered.MEASURES)


def test_nothing_recovered_is_nothing():
    recovery = compare(TRUE, [""] * 3, by_letters, cosines=[0, 0, 0])
    assert {value.value for name, value in recovery.measures.items() if name not in ("numbers", "names")} == {0}


def test_numbers_are_recovered_where_they_stand_whatever_space_the_tokens_left():
    true = "In 2019, 3.14 of 1,200 patients (12-14 weeks) had 7.5; again 7.5, or 40 of 3."
    assert numbers(true) == ["2019", "3.14", "1,200", "12-14", "7.5", "40", "3"]
    recovery = compare([true], ["in 2019 , 3. 14 of 1200 patients 12 - 14 weeks 7.51 and 400.3"], by_letters)
    assert recovery["numbers"] == pytest.approx(4 / 7, abs=1e-4)  # 2019, 3.14, 12-14, and the 3 before a space


def test_names_are_capitalised_words_that_do_not_begin_a_sentence():
    true = "The DNA of Müller was in Paris. Tests by Ada Lovelace (I saw) followed. Paris again."
    assert names(true) == ["dna", "muller", "paris", "ada", "lovelace"]
    recovery = compare([true], ["dna of muller in PARIS with ada"], by_letters)
    assert recovery["names"] == 0.8


def test_a_vowel_sign_belongs_to_its_word():
    assert recovered.words("काला किला।") == ["काला", "किला"]
    assert rouge_l("काला", "किला") == 0
    assert names("तब Öde\u0301 Élan आया।") == ["ode", "elan"]


def test_shares_are_of_all_names_together_and_nothing_where_there_are_none():
    recovery = compare(["a Bob", "a Cat Dog Eel"], ["bob", "nothing"], by_letters)
    assert recovery["names"] == 0.25
    value = recovery.measures["numbers"]
    assert value.value is None and value.low is None
    assert math.isnan(recovery["numbers"])
    assert recovery.as_dict()["numbers"] == {"value": None, "low": None, "high": None}


def test_intervals_hold_the_value_and_shrink_with_more_texts():
    chance = random.Random(0)
    true = ["".join(chance.choices("abcdef", k=8)) for _ in range(200)]
    given_ = [text if chance.random() < 0.5 else "zzzzz" for text in true]
    part, all_ = compare(true[:20], given_[:20], by_letters), compare(true, given_, by_letters)
    for recovery in (part, all_):
        value = recovery.measures["exact"]
        assert value.low < value.value < value.high
    width = [value.high - value.low for value in (part.measures["exact"], all_.measures["exact"])]
    assert width[1] < width[0] / 2


@pytest.mark.parametrize(
    ("f1", "floor", "expected"),
    [
        ([0.6, 0.8], [0.2, 0.2], 0.625),  # from .2 on the way to 1: .5 of .8
        ([0.2, 0.2], [0.2, 0.2], 0.0),
        ([0.1, 0.2], [0.2, 0.2], 0.0),  # never below 0
        ([1.0, 1.0], [0.5, 0.7], 1.0),
        ([1.0, 1.0], [1.0, 1.0], 0.0),
    ],
)
def test_a_share_is_of_the_way_from_a_floor_to_the_whole_text(f1, floor, expected):
    share = share_above(f1, floor, seed=0)
    assert share.value == expected
    assert share.low <= share.value <= share.high


def test_the_same_texts_give_the_same_intervals():
    assert compare(TRUE, FOUND, by_letters, seed=3) == compare(TRUE, FOUND, by_letters, seed=3)


@pytest.mark.parametrize("guesses", [[], ["one"]])
def test_texts_that_do_not_belong_together_are_refused(guesses):
    with pytest.raises(InputError, match="one recovered text for each true one"):
        compare(TRUE if guesses else [], guesses, by_letters)


def test_without_sacrebleu_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sacrebleu", None)
    with pytest.raises(MissingExtraError, match=r"binocle\[audit\]"):
        compare(TRUE, TRUE, by_letters)


def test_the_encoders_own_tokens_are_as_many_as_it_cuts(tiny):
    tokens = EncoderTokens.of(tiny)
    texts = ["The CAT sat, cancelled!", "", "xyz " * 100]
    ids = tokens(texts)
    assert [len(row) for row in ids] == [len(row) for row in tiny.offsets(texts)]
    assert tokens(["the cat"]) == tokens(["The  CAT"])
    assert tokens.text(tokens(["the cat sat"])[0]) == "the cat sat"
    assert max(map(max, filter(None, ids))) < tokens.size


def test_a_token_that_the_encoder_does_not_know_is_not_recovered(tiny):
    tokens = EncoderTokens.of(tiny)
    true, guess = "the ქვა cat ხე", "the წყალი dog ცა"  # of two Georgian words each, with letters that have no token
    assert compare([true], [guess], tokens)["f1"] == pytest.approx(2 * 1 / (4 + 2), abs=1e-4)
    recovery = compare([true, "the cat"], [true, "the cat"], tokens)
    assert (recovery.unknown, recovery["precision"], recovery["recall"], recovery["exact"]) == (2 / 6, 1, 0.75, 0.5)
    assert compare(["the cat"], ["the cat"], tokens).unknown == 0
