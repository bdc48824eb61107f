from __future__ import annotations

import dataclasses

import pytest

from binocle import Document
from binocle.retriever.documents.chunker import whole
from binocle.retriever.documents.document import LineCounter, Part, hidden_spans


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


def test_the_last_character_of_a_part_is_further_by_the_lines_that_were_joined():
    document = Document("one two three\nfour", (Part(0, 13, 5, joins=2), Part(14, 18, 9)))
    expected = [*[5] * 12, 7, 7, *[9] * 4]
    assert [document.line_at(position) for position in range(18)] == expected
    counter = LineCounter(document)
    assert [counter.at(position) for position in range(18)] == expected


def test_a_page_is_that_of_the_part_which_holds_the_character():
    document = Document("ab\ncd", (Part(1, 3, 1, 4), Part(3, 5, 2, 7)))
    assert [document.page_at(position) for position in range(5)] == [None, 4, 4, 7, 7]
    assert Document.from_text("text").page_at(0) is None


@pytest.mark.parametrize(
    ("concealed", "expected"),
    [
        ([0, 10, 20, 30], ()),  # they end where the passage begins, and begin where it ends
        ([8, 12, 18, 25], ((10, 12), (18, 20))),
        ([0, 50], ((10, 20),)),
        ([11, 13, 12, 15, 15, 16], ((11, 16),)),
        ("10, 20", ()),
    ],
)
def test_hidden_spans_are_cut_to_the_passage_and_joined(concealed, expected):
    assert hidden_spans(concealed, 10, "0123456789") == expected


def test_a_whole_document_as_one_passage_cites_its_first_and_last_line_of_text():
    passage = whole(Document.from_text("\n one\ntwo\n\n", title="T"))
    assert (passage.start, passage.end, passage.text) == (2, 9, "one\ntwo")
    assert (passage.line_start, passage.line_end, passage.heading) == (2, 3, ("T",))
    empty = whole(Document.from_text(" \n"))
    assert (empty.start, empty.end, empty.text, empty.line_start, empty.line_end) == (0, 0, "", 1, 1)


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
