"""The headings of a PDF without an outline: which large lines are some, and which only end a section."""

from __future__ import annotations

import pytest

from binocle.retriever.readers import read

BODY = "The cat sat on the mat, and the dog ran all the way to the sea."


def pdf(*pages: list[tuple[float, str]]) -> bytes:
    """A PDF of lines in these sizes, which the matrix has, as many programs write them.

    A text that begins with "Hidden" is invisible.
    """
    first = 4
    objects = [
        "<</Type/Catalog/Pages 2 0 R>>",
        f"<</Type/Pages/Kids[{' '.join(f'{first + 2 * number} 0 R' for number in range(len(pages)))}]/Count {len(pages)}>>",
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    for number, lines in enumerate(pages):
        shown = "".join(
            f"{3 * text.startswith('Hidden')} Tr {size} 0 0 {size} 50 {750 - 40 * row} Tm ({text}) Tj\n"
            for row, (size, text) in enumerate(lines)
        )
        content = f"BT /F1 1 Tf {shown} ET"
        resources = "/Resources<</Font<</F1 3 0 R>>>>"
        place = first + 2 * number + 1
        objects.append(f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents {place} 0 R{resources}>>")
        objects.append(f"<</Length {len(content)}>>\nstream\n{content}\nendstream")
    body = "".join(f"{number} 0 obj\n{item}\nendobj\n" for number, item in enumerate(objects, 1))
    return f"%PDF-1.4\n{body}trailer\n<</Root 1 0 R/Size {len(objects) + 1}>>\n%%EOF\n".encode()


def sections(*pages: list[tuple[float, str]]) -> list[tuple[int | None, tuple[str, ...], str]]:
    document = read(pdf(*pages), "a.pdf")
    return [(part.page, part.heading, document.text[part.start : part.end]) for part in document.parts]


def headings(*lines: tuple[float, str]) -> list[tuple[str, ...]]:
    return [heading for _, heading, _ in sections(list(lines))]


def test_large_lines_above_text_are_headings_across_pages() -> None:
    first = [(10, BODY), (14, "1 Cats"), (10, BODY)]
    second = [(10, BODY), (14, "1.1 Dogs, and all the other animals"), (14, "that people keep"), (10, BODY)]
    assert sections(first, second) == [
        (1, (), BODY),
        (1, ("1 Cats",), f"1 Cats\n{BODY}"),
        (2, ("1 Cats",), BODY),
        (
            2,
            ("1.1 Dogs, and all the other animals that people keep",),
            f"1.1 Dogs, and all the other animals\nthat people keep\n{BODY}",
        ),
    ]


def test_a_heading_may_stand_above_another() -> None:
    assert headings((24, "A Book"), (14, "Chapter"), (10, BODY), (10, BODY))[-1] == ("Chapter",)


@pytest.mark.parametrize(
    "line",
    [(11.5, "Hardly larger"), (14, "42"), (14, "this goes on."), (14, "and so on"), (14, "Word " * 21), (9, "Smaller")],
)
def test_other_lines_are_no_headings(line: tuple[float, str]) -> None:
    assert set(headings((10, BODY), line, (10, BODY), (10, BODY), (10, BODY))) == {()}


def test_a_large_line_without_text_below_it_ends_a_section() -> None:
    assert headings((14, "Cats"), (10, BODY), (20, "TOTAL"), (10, "12.50"), (10, BODY)) == [("Cats",), ()]
    assert headings((14, "Cats"), (10, BODY), (20, "Ann"), (20, "Bob"), (20, "Eve"), (10, BODY)) == [("Cats",), ()]


def test_a_text_without_a_usual_size_has_no_headings() -> None:
    assert set(headings((14, "Cats"), (10, BODY), (8, BODY), (6, BODY))) == {()}


def test_the_header_of_each_page_is_no_heading() -> None:
    pages = [[(14, f"The Annals, page {number}"), (10, BODY), (10, BODY)] for number in range(3)]
    assert {heading for _, heading, _ in sections(*pages)} == {()}


def test_a_hidden_line_is_no_heading() -> None:
    assert headings((10, BODY), (14, "Hidden Cats"), (10, BODY), (10, BODY)) == [()]
    assert headings((10, BODY), (14, "Cats"), (10, BODY), (10, BODY)) == [(), ("Cats",)]
