"""Which parts of a document make one section; a token is a word here."""

from __future__ import annotations

import re

from binocle.retriever.documents.document import Document, Part
from binocle.retriever.documents.sections import sections


def offsets(texts):
    return [[match.span() for match in re.finditer(r"\S+", text)] for text in texts]


def document_of(*parts, kind="prose", word="w"):
    """A document of parts with these headings and numbers of words, each on lines of its own."""
    text, places = "", []
    for heading, count in parts:
        body = " ".join([word] * count) + "\n"
        places.append(Part(len(text), len(text) + len(body), 1, None, heading, kind))
        text += body
    return Document(text, tuple(places))


def headings_of(document, room=64):
    """The headings of the parts of each section."""
    return [[part.heading for part in section.parts] for section in sections(document, offsets, lambda _: room)]


def test_a_section_of_fewer_than_32_tokens_joins_the_next():
    assert headings_of(document_of((("A",), 31), (("B",), 90))) == [[("A",), ("B",)]]
    assert headings_of(document_of((("A",), 32), (("B",), 90))) == [[("A",)], [("B",)]]


def test_a_section_of_few_but_long_tokens_stays_apart():
    assert headings_of(document_of((("A",), 20), (("B",), 90), word="w" * 30)) == [[("A",)], [("B",)]]


def test_a_tiny_section_at_the_end_stays_alone():
    assert headings_of(document_of((("A",), 90), (("B",), 3))) == [[("A",)], [("B",)]]


def test_a_definition_that_fits_is_one_section():
    parts = (("A",), 5), (("A", "f"), 20), (("A", "g"), 30), (("B",), 60)
    document = document_of(*parts, kind="code")
    assert headings_of(document) == [[("A",), ("A", "f"), ("A", "g")], [("B",)]]


def test_a_definition_that_does_not_fit_is_divided_at_those_inside_it():
    parts = (("A",), 5), (("A", "f"), 40), (("A", "g"), 60), (("B",), 10)
    document = document_of(*parts, kind="code")
    assert headings_of(document) == [[("A",), ("A", "f")], [("A", "g")], [("B",)]]


def test_small_neighbours_in_code_join_up_to_128_tokens():
    sizes = (("f",), 64), (("g",), 64), (("h",), 65)
    assert headings_of(document_of(*sizes, kind="code"), room=500) == [[("f",), ("g",)], [("h",)]]
