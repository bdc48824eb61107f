"""Running headers and footers of a PDF."""

from __future__ import annotations

import pytest

from binocle.retriever.readers import read
from binocle.retriever.readers.pdf.running_lines import without_running_lines

from .test_fonts import pdf

WORDS = "amber basil cedar daisy elder fern ginger hazel iris jasmine".split()


def pages(top: str, bottom: str = "", count: int = 6) -> list[str]:
    """The texts of pages, with # for the number of the page in the lines around the body."""
    around = [(top.replace("#", str(number)), bottom.replace("#", str(number))) for number in range(9, 9 + count)]
    return ["\r\n".join(filter(None, [first, word, last])) for word, (first, last) in zip(WORDS, around, strict=False)]


@pytest.mark.parametrize(
    ("top", "bottom"),
    [
        ("Terms of use", ""),
        ("# The terms of use", ""),
        ("The terms of use #", "- # -"),
        ("", "page #"),
        ("", "Page # of 10"),
        ("Terms of use", "Acme Ltd\r\n#"),
    ],
)
def test_a_line_that_runs_through_the_pages_is_read_once(top: str, bottom: str) -> None:
    texts = pages(top, bottom)
    shorter = without_running_lines(texts)
    assert shorter[0] == texts[0]
    assert [text.strip() for text in shorter[2:]] == WORDS[2:6]
    assert shorter[1].strip() in {WORDS[1], f"{WORDS[1]}\r\nAcme Ltd"}  # a second line of the footer stays once more


@pytest.mark.parametrize(
    ("top", "bottom", "count"),
    [
        ("Terms of use", "", 4),  # few pages
        ("Article #", "", 6),  # perhaps a heading
        ("Terms of use\r\nName Age Town", "", 6),  # the names of columns, under a header
    ],
)
def test_a_line_that_may_be_text_stays(top: str, bottom: str, count: int) -> None:
    texts = pages(top, bottom, count)
    kept = [text.replace("Terms of use\r\n", "") if "Age" in text else text for text in texts[1:]]
    assert without_running_lines(texts) == [texts[0], *kept]


def test_lines_of_fewer_than_half_of_the_pages_stay() -> None:
    texts = [*pages("Terms of use", count=5), *(f"{word}\nbody" for word in "a b c d e".split())]
    assert without_running_lines(texts) == texts


def test_a_book_has_a_header_of_its_own_on_left_pages() -> None:
    texts = [f"{'The book' if page % 2 else f'On {word}'}\n{word}" for page, word in enumerate(WORDS)]
    assert without_running_lines(texts) == [
        text.removeprefix("The book\n") if page > 1 else text for page, text in enumerate(texts)
    ]


def test_pages_of_a_pdf_are_read_without_their_header_and_number() -> None:
    def line(text: object, y: int) -> str:
        return f"BT /F1 12 Tf 72 {y} Td ({text}) Tj ET "

    data = pdf(
        *(line("Terms of use", 700) + line(word, 600) + line(number, 40) for number, word in enumerate(WORDS, 5))
    )
    document = read(data, "a.pdf")
    assert document.text.split() == ["Terms", "of", "use", WORDS[0], "5", *WORDS[1:]]
    assert [part.page for part in document.parts] == list(range(1, 11))


def test_pages_without_text_are_left_as_they_are() -> None:
    assert without_running_lines(["", " \r\n", *["a"] * 5, ""]) == ["", " \r\n", "a", *[""] * 5]
