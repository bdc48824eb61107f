"""Find the text of a PDF page that a person does not see: invisible, tiny, beside the page, or white on white.

An invisible text below a picture is the text of a scanned page, which the picture shows. White text counts as visible
where a picture or a coloured area may lie below it.
"""

from __future__ import annotations

from ctypes import addressof, c_float, c_int, c_uint
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

import pypdfium2.raw as pdfium_c

from ..document_builder import HIDING, SHOWING, hide

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Box = tuple[float, float, float, float]  # left, bottom, right, top in points
    Placed = tuple[Any, float, int]  # an object of a page, the scale and the number of the forms around it

_TINY = 1.5  # points: smaller letters cannot be read
_WHITE = 243  # of 255, in each colour
_FAINT = 13  # of 255: less opaque letters cannot be seen
_BROAD = 2.0  # points: a broader line can be a background
_MAX_PAIRS = 100_000  # of a text that may be hidden and an area that may show it
_MAX_DEPTH = 4  # forms inside forms
_MAX_SHIFT = 16  # characters that PDFium counts and does not return, or returns and does not count


class _Look(Enum):
    VISIBLE = auto()
    HIDDEN = auto()
    INVISIBLE = auto()  # seen only in a picture above
    WHITE = auto()  # seen only on a colour


def mark_hidden(page: Any, text_page: Any, text: str) -> str:
    """Mark the hidden parts of a page's text, as PDFium returned it."""
    if HIDING in text or SHOWING in text:
        text = text.translate({ord(HIDING): " ", ord(SHOWING): " "})
    hidden = _hidden_objects(page)
    if not hidden:
        return text
    pieces = []
    position = 0
    for start, end in _spans(text_page, text, hidden):
        pieces += [text[position:start], hide(text[start:end])]
        position = end
    return "".join([*pieces, text[position:]])


def _hidden_objects(page: Any) -> set[int]:
    """The addresses of the page's objects with hidden text."""
    sheet = page.get_bbox()
    doubtful: list[tuple[Placed, _Look]] = []
    areas: list[Placed] = []
    for placed in objects(page):
        if pdfium_c.FPDFPageObj_GetType(placed[0]) != pdfium_c.FPDF_PAGEOBJ_TEXT:
            areas.append(placed)
        elif (look := _look(placed, sheet)) is not _Look.VISIBLE:
            doubtful.append((placed, look))
    if len(doubtful) * len(areas) > _MAX_PAIRS:  # a map with many labels: they count as visible
        doubtful = [(text, look) for text, look in doubtful if look is _Look.HIDDEN]
    return {_address(text[0]) for text, look in doubtful if not _is_shown(text, look, areas)}


def objects(page: Any) -> Iterator[Placed]:
    """Every object of a page, also inside forms, but not the forms."""
    return _objects(page.raw, pdfium_c.FPDFPage_CountObjects, pdfium_c.FPDFPage_GetObject)


def _objects(
    parent: Any, count: Callable[[Any], int], get: Callable[[Any, int], Any], scale: float = 1.0, depth: int = 0
) -> Iterator[Placed]:
    for number in range(count(parent)):
        element = get(parent, number)
        if pdfium_c.FPDFPageObj_GetType(element) != pdfium_c.FPDF_PAGEOBJ_FORM:
            yield element, scale, depth
        elif depth < _MAX_DEPTH:
            inner = scale * _scale(element)
            yield from _objects(
                element, pdfium_c.FPDFFormObj_CountObjects, pdfium_c.FPDFFormObj_GetObject, inner, depth + 1
            )


def _look(placed: Placed, sheet: Box) -> _Look:
    element, scale, depth = placed
    mode = pdfium_c.FPDFTextObj_GetTextRenderMode(element)
    if mode == pdfium_c.FPDF_TEXTRENDERMODE_INVISIBLE:
        return _Look.INVISIBLE
    size = c_float()
    pdfium_c.FPDFTextObj_GetFontSize(element, size)
    if abs(size.value) * scale < 12 * _TINY and abs(size.value) * scale * _scale(element) < _TINY:
        return _Look.HIDDEN
    if not depth and _is_apart(box_of(element), sheet):
        return _Look.HIDDEN
    if mode != pdfium_c.FPDF_TEXTRENDERMODE_FILL:
        return _Look.VISIBLE
    colour, opacity = _fill(element)
    return _Look.HIDDEN if opacity < _FAINT else _Look.WHITE if colour >= _WHITE else _Look.VISIBLE


def _is_shown(text: Placed, look: _Look, areas: list[Placed]) -> bool:
    """Whether another object shows a text that is hidden by itself."""
    if look is _Look.HIDDEN:
        return False
    left, bottom, right, top = box_of(text[0])
    x, y = (left + right) / 2, (bottom + top) / 2
    for area in areas:
        element, _, depth = area
        if _shows(element, look):
            if depth or text[2]:  # a form has coordinates of its own
                return True
            left, bottom, right, top = box_of(element)
            if left <= x <= right and bottom <= y <= top:
                return True
    return False


def _shows(area: Any, look: _Look) -> bool:
    kind = pdfium_c.FPDFPageObj_GetType(area)
    if kind != pdfium_c.FPDF_PAGEOBJ_PATH:
        return kind == pdfium_c.FPDF_PAGEOBJ_IMAGE or look is _Look.WHITE
    mode, stroke, width = c_int(), c_int(), c_float()
    pdfium_c.FPDFPath_GetDrawMode(area, mode, stroke)
    pdfium_c.FPDFPageObj_GetStrokeWidth(area, width)
    is_filled = mode.value != pdfium_c.FPDF_FILLMODE_NONE and _fill(area)[0] < _WHITE
    return look is _Look.WHITE and (is_filled or (bool(stroke.value) and width.value >= _BROAD))


def _address(element: Any) -> int:
    return addressof(element.contents)


def _scale(element: Any) -> float:
    matrix = pdfium_c.FS_MATRIX()
    pdfium_c.FPDFPageObj_GetMatrix(element, matrix)
    return float(max(abs(matrix.a) + abs(matrix.b), abs(matrix.c) + abs(matrix.d)))


def box_of(element: Any) -> Box:
    """The box around an object, in the coordinates of its page or form."""
    left, bottom, right, top = c_float(), c_float(), c_float(), c_float()
    pdfium_c.FPDFPageObj_GetBounds(element, left, bottom, right, top)
    return left.value, bottom.value, right.value, top.value


def _is_apart(box: Box, sheet: Box) -> bool:
    return box[2] < sheet[0] or box[0] > sheet[2] or box[3] < sheet[1] or box[1] > sheet[3]


def _fill(element: Any) -> tuple[int, int]:
    """The darkest colour of an object's fill, and its opacity, of 255."""
    red, green, blue, opacity = (c_uint() for _ in range(4))
    if not pdfium_c.FPDFPageObj_GetFillColor(element, red, green, blue, opacity):
        return 0, 255
    return min(red.value, green.value, blue.value), opacity.value


def _spans(text_page: Any, text: str, hidden: set[int]) -> Iterator[tuple[int, int]]:
    """The spans of the text that the hidden objects wrote."""
    start = end = -1
    for number, position in positions(text_page, text):
        element = pdfium_c.FPDFText_GetTextObject(text_page.raw, number)
        if not element or _address(element) not in hidden:
            if element and start >= 0 and not text[position].isspace():
                yield start, end
                start = -1
        else:
            start, end = position if start < 0 else start, position + 1
    if start >= 0:
        yield start, end


def positions(text_page: Any, text: str) -> Iterator[tuple[int, int]]:
    """The number of each character of the page, and its position in the text; they differ by a few."""
    position = 0
    count = text_page.count_chars()
    if count == len(text):
        yield from zip(range(count), range(count), strict=True)
        return
    for number in range(count):
        letter = chr(pdfium_c.FPDFText_GetUnicode(text_page.raw, number) % 0x110000)
        match = text.find(letter, position, position + _MAX_SHIFT)
        if match >= 0:
            yield number, match
            position = match + 1
