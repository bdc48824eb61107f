"""Leave out the running headers and footers of a PDF: in its passages they would seem to be about the subject.

A running line is the first or the last line of most pages, the same but for the number of the page. The first page with
such a line keeps it, so no words are lost.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_MIN_PAGES = 5  # with the line
_MAX_HEADER, _MAX_FOOTER = 1, 2  # lines; a second one at the top may be the names of a table's columns
_NUMBER = re.compile(r"(?<!\d)\d{1,5}(?!\d)")
_MIN_WORDS = 3  # beside a number: "Article 7" at the top of page 7 may be a heading
_PAGE = re.compile(r"\W*(?:page|p)?\W*(?:of\W*)?\d*\W*", re.IGNORECASE)  # without its number

Line = tuple[int, int]  # start and end in the text of a page, with its line break


def without_running_lines(texts: Sequence[str]) -> list[str]:
    """Return the texts of the pages without the headers and footers that run through the document."""
    shorter = list(texts)
    for line_of, depth in ((_first_line, _MAX_HEADER), (_last_line, _MAX_FOOTER)):
        for _ in range(depth):
            lines = {page: line for page, text in enumerate(shorter) if (line := line_of(text))}
            running = _running({page: shorter[page][start:end].strip() for page, (start, end) in lines.items()})
            for page in running:
                start, end = lines[page]
                shorter[page] = shorter[page][:start] + shorter[page][end:]
    return shorter


def _first_line(text: str) -> Line | None:
    match = re.search(r"[^\n]*\S[^\n]*\n?", text)
    return match.span() if match else None


def _last_line(text: str) -> Line | None:
    end = len(text.rstrip())
    return (text.rfind("\n", 0, end) + 1, len(text)) if end else None


def _running(lines: dict[int, str]) -> set[int]:
    """The pages with lines that repeat lines of earlier pages.

    In a book, left pages have one header and right pages another: it is enough that most pages of a side have it.
    """
    pages = sorted(lines)
    with_key: dict[tuple[str, int], list[int]] = defaultdict(list)
    for page in pages:
        for key in _keys(lines[page], page):
            with_key[key].append(page)
    repeated = set()
    for same in with_key.values():
        sides = {page % 2 for page in same}
        among = [page for page in pages if page % 2 in sides]
        if len(same) >= _MIN_PAGES and 2 * len(same) > len(among):
            repeated.update(same[1:])
    return repeated


def _keys(line: str, page: int) -> Iterator[tuple[str, int]]:
    """Keys that a running line shares with those of other pages: its text, or its text without the page's number."""
    yield line, 0
    for match in _NUMBER.finditer(line):
        around = f"{line[: match.start()]}#{line[match.end() :]}"
        if _PAGE.fullmatch(around.replace("#", "")) or len(re.findall(r"[^\W\d_]+", around)) >= _MIN_WORDS:
            yield around, int(match[0]) - page
