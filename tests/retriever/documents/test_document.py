from __future__ import annotations

import dataclasses

import pytest

from binocle import Document
from binocle.retriever.documents.document import Part


def test_a_text_is_one_part_of_prose_from_its_first_line():
    document = Document.from_text("one\ntwo\n", title="T", metadata={"year": 2024})
    assert document.parts == (Part(0, 8, 1, None, (), "prose"),)
    assert (document.title, document.format, document.metadata) == ("T", "text", {"year": 2024})


@pytest.mark.parametrize("text", ["", " ", "\n\n\t", "\u00a0\u2028"])
def test_white_space_is_no_part_at_all(text):
    document = Document.from_text(text)
    assert document.parts == ()
    assert document.line_at(0) == 1


def test_a_line_is_the_parts_own_plus_the_newlines_inside_it():
    text = "ab\ncd\n\nef\ngh"
    document = Document(text, (Part(0, 6, 10), Part(7, 12, 3)))
    assert [document.line_at(position) for position in range(len(text))] == [10, 10, 10, 11, 11, 11, 12, 3, 3, 3, 4, 4]


def test_before_the_first_part_and_beyond_the_end_lines_still_have_a_number():
    document = Document("  ab\n", (Part(2, 5, 7),))
    assert document.line_at(0) == 1
    assert document.line_at(2) == 7
    assert document.line_at(500) == 8


def test_documents_and_parts_cannot_be_changed():
    document = Document.from_text("text")
    with pytest.raises(dataclasses.FrozenInstanceError):
        document.text = "other"
    with pytest.raises(dataclasses.FrozenInstanceError):
        document.parts[0].line = 2
    assert not hasattr(document, "__dict__")


def test_two_documents_do_not_share_metadata():
    first, second = Document("a", ()), Document("b", ())
    first.metadata["x"] = 1
    assert second.metadata == {}
