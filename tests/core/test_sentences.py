"""Sentences and plain text of Markdown, also of a hostile text."""

from __future__ import annotations

import pytest

from binocle.core.sentences import plain, spans


def test_a_sentence_ends_at_its_marks() -> None:
    text = 'Really?! He said "no..." Dr. No left 1.5 km.Then\n- an item'
    assert [text[start:end] for start, end in spans(text)] == [
        "Really?!",
        'He said "no..."',
        "Dr. No left 1.5 km.Then",
        "- an item",
    ]


def test_marks_of_markdown_are_left_out() -> None:
    assert plain("# A *title*\n\n  - an `item`\n\n> quoted") == "A title an item quoted"


@pytest.mark.parametrize("sign", ["!", "\n", " \n", "#\n", ".)", "_", "- ", "<!--", "[", "](", "\t"])
def test_a_hostile_text_is_split_in_linear_time(sign: str) -> None:  # else this runs for minutes
    text = f"a{sign * 100_000}b"
    assert next(spans(text))[0] == 0
    assert plain(text)[0] == "a"
