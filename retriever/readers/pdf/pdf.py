"""Read PDF with PDFium: the text page by page, under the titles of the document's outline or else its large lines.

The limits are those of every reader: memory and time in `pool/pool.py`, the size of a file in `large_files.py`, the
characters of its text in `document_builder.py`. Here are the limits of a page's objects and pictures and of the
outline; `hidden_text.py` limits the search for hidden text.
"""

from __future__ import annotations

import re
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from ....core.errors import UnreadableError
from ....core.units import count_of
from ...documents.document import add_unread
from ..document_builder import DocumentBuilder, Heading, HeadingStack, collapse_spaces
from .fonts import legible
from .headings import BREAK, LineSizes
from .hidden_text import box_of, mark_hidden, objects
from .hyphens import joiner
from .running_lines import without_running_lines
from .streams import count_damaged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...documents.document import Document
    from ..pictures import Pictures
    from .fonts import Box

_FILE = r".*\.(?:pdf|docx?|pptx?|xlsx?|od[tps]|rtf|txt|html?|tex|dvi|e?ps|indd|qxd|pub|pages|wpd|ai|cdr)"
_UNTITLED = re.compile(
    rf"(?:untitled|\(?anonymous\)?|powerpoint presentation|microsoft word - .*|{_FILE})$", re.IGNORECASE
)
_LAM_ALEF = re.compile("[اأإآ]ل")
_BLANKS = re.compile(" {2,}")
_ERRORS = {
    pdfium_c.FPDF_ERR_PASSWORD: "password-protected",
    pdfium_c.FPDF_ERR_FORMAT: "damaged: PDFium cannot read it as a PDF",
    pdfium_c.FPDF_ERR_SECURITY: "encrypted in a way PDFium does not know",
}

_MAX_OBJECTS = 1_000  # of a page, looked at for a picture
_MAX_PIXELS = 4_000  # on the longer side of a picture of a page
_MAX_LISTED = 20  # pages in a reason
_TRAILER_BYTES = 4_096  # at the end of a whole file, with the place of its table of objects
_MIN_PATHS = 100  # lines and areas, which may draw letters
_STAMP = 100  # characters of a page: fewer may be a stamp on a scanned one
_PICTURES = (pdfium_c.FPDF_PAGEOBJ_IMAGE, pdfium_c.FPDF_PAGEOBJ_FORM)
_MARGIN = 5.0  # points around letters in their picture

# Reasons why the text of a page lacks words that the page shows. OCR reads them; without it, the reason is reported.
_SCANNED, _STAMPED, _DAMAGED = "without text", "with hardly any text", "damaged"
_ILLEGIBLE = "with words in a font without Unicode"
_FOR_OCR = {_SCANNED: "scanned?", _STAMPED: "scanned?", _ILLEGIBLE: "--ocr reads them"}

Entry = tuple[int, str]  # level and title, as in the document's outline; level 0 for a line that ends a section


class _Page(NamedTuple):
    text: str
    lack: str = ""  # of text that the page shows
    box: Box | None = None  # around that text, in points; None for the whole page


def read_pdf(data: bytes, format_name: str, pictures: Pictures) -> Document:
    """Read a PDF; pages that are damaged give no text. A page without text is read as a picture."""
    builder = DocumentBuilder()
    try:
        file = pdfium.PdfDocument(data)
    except pdfium.PdfiumError as error:
        raise UnreadableError(
            _ERRORS.get(getattr(error, "err_code", 0) or 0, "damaged: PDFium cannot open it")
        ) from None
    try:
        builder.title = _title(file)
        builder.metadata["pages"] = len(file)
        entries = _entries(file)
        sizes = None if entries else LineSizes()
        is_cut = b"startxref" not in data[-_TRAILER_BYTES:]
        pages = [_read_page(file, index, sizes, is_cut=is_cut) for index in range(len(file))]
        _mark_stamped(file, pages)
        for index, page in enumerate(pages):
            if page.lack in _FOR_OCR and pictures.languages:
                pages[index] = _read_picture(file, index, page, pictures)
    finally:
        file.close()
    texts = without_running_lines([page.text for page in pages])
    entries, headings, join = sizes.headings() if sizes else entries, HeadingStack(), joiner(texts)
    for index, text in enumerate(texts):
        titles = [(level, join(title)) for level, title in entries.get(index, [])]
        _add_page(builder, join(text), index, titles, headings)
    for lack in dict.fromkeys(page.lack for page in pages if page.lack):
        numbers = [number for number, page in enumerate(pages, 1) if page.lack == lack]
        add_unread(builder.metadata, _reason(numbers, lack, pictures.languages))
    if not any(page.lack == _DAMAGED for page in pages) and (damaged := count_damaged(data)):
        add_unread(builder.metadata, f"{count_of(damaged, 'damaged stream')}, so text may be missing")
    pictures.describe(builder)
    return builder.document(format_name)


def _lack_without_text(page: Any, *, is_cut: bool) -> str:
    """Say why a page without text may lack some. A picture may show text, and so may many lines.

    :param is_cut: whether the end of the file is missing, and perhaps the content of the page with it.
    """
    kinds = [pdfium_c.FPDFPageObj_GetType(element) for element, _, _ in islice(objects(page), _MAX_OBJECTS)]
    if pdfium_c.FPDF_PAGEOBJ_IMAGE in kinds or kinds.count(pdfium_c.FPDF_PAGEOBJ_PATH) >= _MIN_PATHS:
        return _SCANNED
    return _DAMAGED if is_cut and not kinds else ""


def _mark_stamped(file: Any, pages: list[_Page]) -> None:
    """Mark scanned pages with a stamp, such as a number, if most pages of the file are scanned.

    A slide with a picture behind a few words looks the same, but most slides have more words.
    """
    short = [index for index, page in enumerate(pages) if not page.lack and 0 < len(page.text.strip()) < _STAMP]
    stamped = [index for index in short if _is_covered(file, index)]
    scanned = sum(page.lack == _SCANNED for page in pages)
    if 2 * (len(stamped) + scanned) > len(pages):
        for index in stamped:
            pages[index] = pages[index]._replace(lack=_STAMPED)


def _is_covered(file: Any, index: int) -> bool:
    """Whether a picture, or a form with one, covers most of a page."""
    with closing(file[index]) as page:
        left, bottom, right, top = page.get_bbox()
        if not any(
            pdfium_c.FPDFPageObj_GetType(element) == pdfium_c.FPDF_PAGEOBJ_IMAGE
            for element, _, _ in islice(objects(page), _MAX_OBJECTS)
        ):
            return False
        elements = (
            pdfium_c.FPDFPage_GetObject(page.raw, number)
            for number in range(min(pdfium_c.FPDFPage_CountObjects(page.raw), _MAX_OBJECTS))
        )
        boxes = (box_of(element) for element in elements if pdfium_c.FPDFPageObj_GetType(element) in _PICTURES)
        return any(2 * (box[2] - box[0]) * (box[3] - box[1]) > (right - left) * (top - bottom) for box in boxes)


def _read_picture(file: Any, index: int, page: _Page, pictures: Pictures) -> _Page:
    """Read a page with OCR, and add the result to its text."""
    text = pictures.text(_picture(file, index, page.box)) or ""
    return _Page("\n\n".join(filter(None, map(str.strip, [page.text, text])))) if text.strip() else page


def _picture(file: Any, index: int, box: Box | None) -> bytes:
    """A page as a grey picture of 200 pixels an inch, or fewer on a large page, in the format PGM.

    :param box: the part of the page to draw; None for all of it.
    """
    with closing(file[index]) as page:
        scale = min(200 / 72, _MAX_PIXELS / max(*page.get_size(), 1))
        left, bottom, right, top = page.get_bbox()
        crop = (0.0,) * 4
        if box and not page.get_rotation():
            edges = (box[0] - left, box[1] - bottom, right - box[2], top - box[3])
            crop = tuple(max(0.0, edge - _MARGIN) for edge in edges)
        bitmap = page.render(scale=scale, grayscale=True, crop=crop)
        pixels: bytes = bitmap.to_numpy()[:, : bitmap.width].tobytes()
        return f"P5 {bitmap.width} {bitmap.height} 255\n".encode() + pixels


def _reason(pages: list[int], lack: str, languages: str) -> str:
    listed = ", ".join(map(str, pages[:_MAX_LISTED])) + ", …" * (len(pages) > _MAX_LISTED)
    why = f" ({f'OCR: {languages}' if languages else _FOR_OCR[lack]})" if lack in _FOR_OCR else ""
    return f"{'page' if len(pages) == 1 else 'pages'} {listed} {lack}{why}"


def _title(file: Any) -> str:
    title = collapse_spaces(file.get_metadata_value("Title"))
    return "" if _UNTITLED.match(title) else title


def _entries(file: Any) -> dict[int, list[Entry]]:
    """The titles of the outline, by the index of the page that they lead to."""
    by_page: dict[int, list[Entry]] = {}
    for count, bookmark in enumerate(file.get_toc(max_depth=8)):
        destination = bookmark.get_dest()
        page = destination.get_index() if destination else None
        if page is not None:
            by_page.setdefault(page, []).append((bookmark.level + 1, collapse_spaces(bookmark.get_title())))
        if count >= 20_000:
            break
    return by_page


def _read_page(file: Any, index: int, sizes: LineSizes | None, *, is_cut: bool) -> _Page:
    try:
        with closing(file[index]) as page:
            if not _is_filled_in(page):
                return _text(page, index, sizes, is_cut=is_cut)
            pdfium_c.FPDFPage_Flatten(page.raw, pdfium_c.FLAT_NORMALDISPLAY)
        with closing(file[index]) as page:
            return _text(page, index, sizes, is_cut=is_cut)
    except pdfium.PdfiumError:  # the other pages of the file are still read
        return _Page("", _DAMAGED)


def _is_filled_in(page: Any) -> bool:
    """Whether the page has form fields or free-text remarks, which PDFium does not count as its text."""
    for number in range(pdfium_c.FPDFPage_GetAnnotCount(page.raw)):
        annotation = pdfium_c.FPDFPage_GetAnnot(page.raw, number)
        kind = pdfium_c.FPDFAnnot_GetSubtype(annotation)
        pdfium_c.FPDFPage_CloseAnnot(annotation)
        if kind in {pdfium_c.FPDF_ANNOT_WIDGET, pdfium_c.FPDF_ANNOT_FREETEXT}:
            return True
    return False


def _text(page: Any, index: int, sizes: LineSizes | None, *, is_cut: bool) -> _Page:
    with closing(page.get_textpage()) as text_page:
        text, is_lacking, box = legible(text_page, str(text_page.get_text_range(errors="replace")))
        if _LAM_ALEF.search(text):
            text = _mend_ligatures(text_page, text)
        marked = mark_hidden(page, text_page, text)
        if sizes:
            sizes.add(index, text_page, text, marked)
    marked = marked.replace(BREAK, "\n")
    if is_lacking:
        return _Page(_BLANKS.sub(" ", marked), _ILLEGIBLE, box)
    return _Page(marked, "" if marked.strip() else _lack_without_text(page, is_cut=is_cut))


def _mend_ligatures(text_page: Any, text: str) -> str:
    """Put lam and alef in order: they are one glyph, and PDFium swaps its letters when it reverses the line."""
    if text_page.count_chars() != len(text):
        return text
    letters = list(text)
    for match in _LAM_ALEF.finditer(text):
        first = match.start()
        if text_page.get_charbox(first) == text_page.get_charbox(first + 1):
            letters[first], letters[first + 1] = letters[first + 1], letters[first]
    return "".join(letters)


def _add_page(builder: DocumentBuilder, text: str, index: int, entries: list[Entry], headings: HeadingStack) -> None:
    position, heading = 0, headings.path
    for start, following in _sections(text, entries, headings):
        builder.add(text[position:start], page=index + 1, heading=heading)
        position, heading = start, following
    builder.add(text[position:], page=index + 1, heading=heading)


def _sections(text: str, entries: list[Entry], headings: HeadingStack) -> Iterator[tuple[int, Heading]]:
    """The positions of headings on a page; a heading that is not found takes the position of the heading before it."""
    position = 0
    for level, title in entries:
        if match := _find(title, text, position):
            line = text.rfind("\n", position, match.start()) + 1
            position = max(position, line)
        yield position, headings.enter(level, title if level else "")


def _find(title: str, text: str, position: int) -> re.Match[str] | None:
    """Find a title on a page: best as a whole line, with or without a number, else as words within a line."""
    spread = r"\s+".join(re.escape(word) for word in title.split()[:20])
    for pattern in (rf"^[ \t]*(?:[\d.]+[ \t]+)?{spread}[ \t]*$", rf"(?<!\w){spread}(?!\w)") if spread else ():
        if match := re.compile(pattern, re.IGNORECASE | re.MULTILINE).search(text, position):
            return match
    return None
