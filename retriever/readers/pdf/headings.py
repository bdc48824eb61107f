"""Find the headings of a PDF without an outline: short lines in larger letters than the text that follows them.

The rule is strict, as a wrong heading is worse than none. A heading stands right above a long line in the letters of
most of the document, or above another heading. So forms, tables, slides and title pages have none. Sizes give no
levels: where a chapter's title is missed, its sections would be those of the chapter before. For the same reason each
other large line ends a section.
"""

from __future__ import annotations

import re
from collections import Counter
from math import hypot
from typing import TYPE_CHECKING, Any, NamedTuple

import pypdfium2.raw as pdfium_c

from ..document_builder import HIDING, collapse_spaces

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    Entry = tuple[int, str]  # 1 and the title of a heading, or 0 and a line that ends a section

BREAK = "\r\n"  # between the lines of a page, in the text that PDFium returns
_LARGER = 1.2  # than the letters of most of the text
_SAME = 0.06  # of a size: letters that differ by less are of one size
_MAX_LENGTH = 100  # characters of a heading
_MIN_FOLLOWING = 40  # characters of the line below a heading
_MIN_WRAPPED = 25  # characters of the first line of a heading of two
_MIN_SHARE = 0.5  # of all characters: fewer in one size are no running text
_WORD = re.compile(r"[^\W\d_]{3}|[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]{2}")  # in Chinese, two characters are one


class _Line(NamedTuple):
    text: str
    size: float  # of its letters, in points; if they look large, of the smaller ones at its ends


class LineSizes:
    """The lines of all pages with the sizes of their letters."""

    def __init__(self) -> None:
        self._pages: dict[int, list[_Line]] = {}

    def add(self, index: int, text_page: Any, text: str, marked: str) -> None:
        """Measure the lines of a page.

        :param text: as PDFium returned it.
        :param marked: the same lines, with marks around hidden text, which heads nothing.
        """
        raw, matrix = text_page.raw, pdfium_c.FS_MATRIX()
        lines, starts, position = [], [], 0
        for content, shown in zip(text.split(BREAK), marked.split(BREAK), strict=True):
            if content.strip() and HIDING not in shown:
                start = position + len(content) - len(content.lstrip())
                lines.append(_Line(content.strip(), _size(raw, start, matrix)))
                starts.append(start)
            position += _length(content) + len(BREAK)
        usual = _usual(_count(lines))
        for number, (line, start) in enumerate(zip(lines, starts, strict=True)):
            if line.size > usual:
                end = start + _length(line.text) - 1
                lines[number] = line._replace(size=min(line.size, _size(raw, end, matrix)))
        self._pages[index] = lines

    def headings(self) -> dict[int, list[Entry]]:
        """The headings, and the other lines that end a section, by the index of their page."""
        counts = _count(line for lines in self._pages.values() for line in lines)
        usual = _usual(counts)
        if sum(counts[size] for size in counts if _is_same(size, usual)) < _MIN_SHARE * counts.total():
            return {}
        by_page = {index: _entries(lines, usual) for index, lines in self._pages.items()}
        counts_of_titles = Counter(_without_digits(title) for entries in by_page.values() for _, title in entries)
        return {  # a title on several pages is a header
            index: [entry for entry in entries if counts_of_titles[_without_digits(entry[1])] == 1]
            for index, entries in by_page.items()
        }


def _length(text: str) -> int:
    """The length of a text in the characters of UTF-16, which PDFium counts."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def _count(lines: Iterable[_Line]) -> Counter[float]:
    """The characters by their size."""
    counts: Counter[float] = Counter()
    for line in lines:
        counts[line.size] += len(line.text)
    return counts


def _usual(counts: Counter[float]) -> float:
    return max(counts, key=lambda size: counts[size], default=0.0)


def _size(text_page: Any, position: int, matrix: Any) -> float:
    """The size of a letter as it is drawn, in points.

    :param matrix: room for the matrix of the letter.
    """
    index = pdfium_c.FPDFText_GetCharIndexFromTextIndex(text_page, position)
    pdfium_c.FPDFText_GetMatrix(text_page, index, matrix)
    return round(float(pdfium_c.FPDFText_GetFontSize(text_page, index)) * hypot(matrix.c, matrix.d), 1)


def _is_same(size: float, usual: float) -> bool:
    return abs(size - usual) <= _SAME * usual


def _without_digits(title: str) -> str:
    return re.sub(r"\d", "", title)


def _entries(lines: list[_Line], usual: float) -> list[Entry]:
    """The headings of a page and the other large lines, in order."""
    entries: list[Entry] = []
    is_followed = False  # whether a heading may stand above the present line
    for block in reversed(list(_blocks(lines, _LARGER * usual))):
        first = block[0]
        if first.size < _LARGER * usual:
            is_followed = _is_same(first.size, usual) and len(first.text) >= _MIN_FOLLOWING
            continue
        title = collapse_spaces(" ".join(line.text for line in block))
        is_followed = is_followed and _is_title(title, block)
        entries.append((1, title) if is_followed else (0, first.text))
    return entries[::-1]


def _is_title(title: str, block: list[_Line]) -> bool:
    is_wrapped = len(block) == 2 and len(block[0].text) >= _MIN_WRAPPED
    is_phrase = _WORD.search(title) is not None and not title[0].islower() and title[-1] not in ".,;:"
    return is_phrase and len(title) <= _MAX_LENGTH and (len(block) == 1 or is_wrapped)


def _blocks(lines: list[_Line], large: float) -> Iterator[list[_Line]]:
    """Join neighbouring lines of one large size, as a heading of two lines has; each other line is alone."""
    block: list[_Line] = []
    for line in lines:
        if block and not (line.size >= large and _is_same(line.size, block[0].size)):
            yield block
            block = []
        block.append(line)
    if block:
        yield block
