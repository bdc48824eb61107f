"""The words of a tagged text, and the places of its names."""

from __future__ import annotations

import pytest

from binocle.retriever.models.heads.tagger import touching, word_spans
from binocle.training.data.heads.tagged import TaggedText


def test_words_touch_where_no_space_is_between_them():
    assert touching(word_spans("a foo-dev b")).tolist() == [0, 0, 1, 1, 0]
    assert touching([]).tolist() == []


def test_words_and_tags_follow_the_characters():
    text = "see foo_bar 1.2!"
    words = word_spans(text)
    assert [text[a:b] for a, b in words] == ["see", "foo", "_", "bar", "1", ".", "2", "!"]
    assert TaggedText(text, (("N", 4, 11), ("V", 12, 15)), "").tags(words) == "O B-N I-N I-N B-V I-V I-V O".split()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("นางปูดี ปี ๒๕๖๖", "น า ง ปู ดี ปี ๒๕๖๖".split()),
        ("张伟买iPhone15于2024年", "张 伟 买 iPhone15 于 2024 年".split()),
        ("ភ្នំពេញ", "ភ្ នំ ពេ ញ".split()),
    ],
)
def test_each_letter_is_a_word_in_a_script_without_spaces(text, words):
    assert [text[start:end] for start, end in word_spans(text)] == words


def test_a_name_in_a_script_without_spaces_is_tagged_without_what_stands_beside_it():
    text = "นางปูดีมา"
    assert TaggedText(text, (("PER", 3, 7),), "").tags(word_spans(text)) == "O O O B-PER I-PER O O".split()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Jose\u0301 Pen\u0303a", ["Jose\u0301", "Pen\u0303a"]),  # as macOS writes names of files
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("Schreib\u00admaschine", ["Schreib\u00admaschine"]),
        ("\u2068Ann\u2069 ran\u00ad", ["Ann", "ran"]),  # format characters around a word are no part of it
        ("❤\ufe0f👩\u200d💻", ["❤\ufe0f", "👩", "💻"]),
        ("ab\u200bcd _\u0301", ["ab", "cd", "_\u0301"]),  # a space without width
        ("\u0301 \u00ad", []),
    ],
)
def test_a_word_has_its_marks_and_the_format_characters_in_it(text, words):
    assert [text[start:end] for start, end in word_spans(text)] == words
