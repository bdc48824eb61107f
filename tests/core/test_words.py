"""Words, numbers and names of a text; folding removes case and accents."""

from __future__ import annotations

import unicodedata

import pytest

from binocle.core.words import (
    composed,
    encodable,
    folded,
    is_mark,
    names,
    number_spans,
    numbers,
    numbers_in,
    spellings,
    split_words,
    word_spans,
    words,
)


def test_ascii_text_is_folded_like_other_text():
    text = "".join(map(chr, range(128)))
    plain = unicodedata.normalize("NFC", unicodedata.normalize("NFKD", text)).casefold()
    assert folded(text) == plain and folded(text + "É") == plain + "e"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The cat's 3 maps, snake_case!", ["The", "cat", "s", "3", "maps", "snake_case"]),
        ("cafe\u0301 noir", ["cafe\u0301", "noir"]),  # a mark belongs to the word before it
        ("\u0301 a", ["a"]),
        ("हिन्दी में", ["हिन्दी", "में"]),  # marks are its vowels
        ("", []),
    ],
)
def test_a_word_is_letters_and_digits_with_their_marks(text, expected):
    assert split_words(text) == expected
    assert [text[start:end] for start, end in word_spans(text)] == expected


def test_signs_and_elisions_belong_to_a_word_if_asked_for():
    text = "C++ and C# don't, l’e\u0301té a+b"
    assert split_words(text) == ["C", "and", "C", "don", "t", "l", "e\u0301té", "a", "b"]
    assert split_words(text, signs=True) == ["C++", "and", "C#", "don", "t", "l", "e\u0301té", "a", "b"]
    assert split_words(text, elisions=True) == ["C", "and", "C", "don't", "l’e\u0301té", "a", "b"]


@pytest.mark.parametrize(("character", "expected"), [("\u0301", True), ("\u093f", True), ("a", False), ("+", False)])
def test_a_mark_is_no_letter(character, expected):
    assert is_mark(character) is expected


def test_words_are_folded_and_keep_their_order():
    assert words("Über die CAFÉS, über") == ["uber", "die", "cafes", "uber"]


def test_a_number_is_digits_with_signs_between_them():
    text = "On 2024-05-06 at 12:30 it was 3.14 or 1,000, and 3.14 again."
    assert numbers(text) == ["2024-05-06", "12:30", "3.14", "1,000"]
    assert [text[start:end] for start, end in number_spans(text)] == ["2024-05-06", "12:30", "3.14", "1,000", "3.14"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("it is 3 . 14", True),
        ("it is 3.14, and", True),
        ("it is 13.14", False),
        ("it is 3.141", False),
        ("version 2.3.14", False),
        ("version 3.14.1", False),
    ],
)
def test_a_number_is_in_a_text_with_spaces_around_its_signs_and_not_within_another(text, expected):
    assert numbers_in(["3.14"], text) == (["3.14"] if expected else [])


def test_names_are_capitalized_words_inside_of_sentences():
    assert names("We met Ada and B in Paris. There Ada stayed.") == ["ada", "paris"]


def test_forms_of_one_text():
    apart = "cafe\u0301"
    assert composed(apart) == "café"
    assert spellings(apart) == (apart, "café")
    assert spellings("café") == ("café", apart)
    assert spellings("cafe") == ("cafe",)
    assert encodable("a\ud83d\ude00b\ud83d") == "a😀b\ufffd"
