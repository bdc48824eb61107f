"""Terms of full-text search: stems for words, whole tokens for identifiers, characters and pairs without spaces."""

from __future__ import annotations

import pytest

from binocle.core.terms import query_stems, query_whole, stems, stems_by_word, tokens, whole


def test_tokens_are_unchanged_and_in_order():
    assert tokens("Max_size of the café's 3 maps") == ["Max_size", "of", "the", "café", "s", "3", "maps"]


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        ("Running", ["run"]),
        ("max_sizes", ["max", "size"]),
        ("The", []),  # a stop word
        ("of_the_maps", ["map"]),
        ("Über", ["uber"]),
        ("Œuvre", ["oeuvr"]),
        ("x" * 40, ["x" * 40]),
        ("x" * 41, []),  # data, no word
    ],
)
def test_stems_are_the_parts_of_a_token_without_case_accents_and_endings(token, expected):
    assert stems(token) == stems(token, query=True) == expected


@pytest.mark.parametrize(
    ("token", "in_passage", "in_query"),
    [
        ("東京都", ["東", "京", "都", "東京", "京都"], ["東京", "京都"]),
        ("東", ["東"], ["東"]),
        ("東京Tower", ["東", "京", "東京", "tower"], ["東京", "tower"]),
    ],
)
def test_a_script_without_spaces_gives_characters_and_pairs_and_a_query_the_pairs_alone(token, in_passage, in_query):
    assert stems(token) == whole(token) == in_passage
    assert stems(token, query=True) == whole(token, query=True) == in_query


def test_a_whole_token_keeps_accents_and_underscores():
    assert whole("Max_Größe") == ["max_größe"]
    assert whole("MAX_SIZE") == ["max_size"]
    assert whole("x" * 200) == ["x" * 200]
    assert whole("x" * 201) == whole("é" * 201) == []


def test_a_query_keeps_order_and_repetitions():
    assert query_stems("the dogs and the dog") == ["dog", "dog"]
    assert query_whole("The dogs") == ["the", "dogs"]
    assert stems_by_word(["max_size", "the"]) == {"max_size": ["max", "size"], "the": []}
