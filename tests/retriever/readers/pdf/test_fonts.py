"""PDF pages with letters that a program does not know, scanned pages, and pages that are missing in a cut file."""

from __future__ import annotations

import pytest

from binocle.retriever.documents.document import Document
from binocle.retriever.readers import ocr, read
from binocle.retriever.readers.pool.process import _pictures as note

SEEN = "BT /F1 12 Tf 72 700 Td (seen) Tj ET "
REASON = "page 1 with words in a font without Unicode (--ocr reads them)"


def pdf(*contents: str, end: str = "startxref\n0\n%%EOF\n") -> bytes:
    """A PDF of pages with a usual font F1, and a font F2 that numbers its glyphs and does not say what they are."""
    page = "<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Resources<</Font<</F1 3 0 R/F2 4 0 R>>>>/Contents {} 0 R>>"
    system = "<</Registry(Adobe)/Ordering(Identity)/Supplement 0>>"
    numbers = range(7, 7 + 2 * len(contents), 2)
    objects = [
        "<</Type/Catalog/Pages 2 0 R>>",
        f"<</Type/Pages/Kids[{' '.join(f'{number} 0 R' for number in numbers)}]/Count {len(contents)}>>",
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        "<</Type/Font/Subtype/Type0/BaseFont/X/Encoding/Identity-H/DescendantFonts[5 0 R]>>",
        f"<</Type/Font/Subtype/CIDFontType2/BaseFont/X/CIDSystemInfo{system}/DW 500/FontDescriptor 6 0 R>>",
        "<</Type/FontDescriptor/FontName/X/Flags 4/FontBBox[0 0 1000 1000]/Ascent 800/Descent -200/CapHeight 700/StemV 80/ItalicAngle 0>>",
    ]
    for number, content in zip(numbers, contents, strict=True):
        objects += [page.format(number + 1), f"<</Length {len(content)}>>\nstream\n{content}\nendstream"]
    body = "".join(f"{number} 0 obj\n{item}\nendobj\n" for number, item in enumerate(objects, 1))
    return f"%PDF-1.4\n{body}trailer\n<</Root 1 0 R/Size {len(objects) + 1}>>\n{end}".encode()


def glyphs(count: int, y: int = 600) -> str:
    return f"BT /F2 12 Tf 72 {y} Td <{''.join(f'{number:04x}' for number in range(40, 40 + count))}> Tj ET "


@pytest.mark.parametrize(
    ("content", "text", "reason"),
    [
        (SEEN + glyphs(20), "seen", REASON),
        (SEEN + glyphs(19), "seen", None),
        (SEEN + "".join(glyphs(1, 600 - 20 * line) for line in range(25)), "seen", None),  # bullets
        (glyphs(30), "", REASON),
        (SEEN + "BT /F1 12 Tf 72 600 Td (" + "!#$%&'*+,-./0123" * 10 + ") Tj ET", "", REASON),  # a font of a subset
        (SEEN + "BT /F1 12 Tf 72 600 Td (" + "1.5 - 2,5 = -1.0; " * 10 + ") Tj ET", "seen\n" + ("1.5 - 2,5 = -1.0; " * 10).strip(), None),
        (SEEN + "BT /F1 12 Tf 72 600 Td (Chapter" + "." * 200 + "7) Tj ET", "seen\nChapter" + "." * 200 + "7", None),
    ],
)  # fmt: skip
def test_letters_without_unicode_are_left_out_and_noted(content: str, text: str, reason: str | None) -> None:
    document = read(pdf(content), "a.pdf")
    assert (document.text, document.metadata.get("unread")) == (text, reason)


def test_a_word_with_few_unknown_letters_keeps_the_others() -> None:
    word = "BT /F1 12 Tf 72 600 Td (known) Tj /F2 12 Tf <0028002900280029> Tj /F1 12 Tf (word) Tj ET"
    assert read(pdf(SEEN + word), "a.pdf").text.split() == ["seen", "known", "word"]


def test_ocr_reads_the_part_of_a_page_with_unknown_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    def recognize(picture: bytes, languages: str, seconds: float) -> str:
        return picture.partition(b" 255")[0].decode()

    monkeypatch.setattr(ocr, "recognize", recognize)
    monkeypatch.setattr(ocr, "find_command", str)
    document: Document = read(pdf(SEEN + glyphs(30)), "a.pdf", ocr="eng")
    seen, _, size = document.text.partition("\n\n")
    width, height = map(int, size.split()[1:])
    assert seen == "seen"
    assert (400 < width < 650, 30 < height < 200) == (True, True)  # 30 letters of 6 points at 200 pixels an inch
    assert document.metadata == {"pages": 1, "ocr": "eng"}
    monkeypatch.setattr(ocr, "recognize", lambda *_: "")
    document = read(pdf(SEEN + glyphs(30)), "a.pdf", ocr="eng")
    assert document.text == "seen"
    assert document.metadata["unread"] == "page 1 with words in a font without Unicode (OCR: eng)"


SCAN = "q 500 0 0 700 50 50 cm BI /W 1 /H 1 /CS /G /BPC 8 ID 0 EI Q "
LOGO = SCAN.replace("500 0 0 700", "90 0 0 70")
PAGE = "".join(f"BT /F1 12 Tf 72 {700 - 14 * line} Td (A line of a page with many words) Tj ET " for line in range(5))


@pytest.mark.parametrize(
    ("pages", "reason"),
    [
        ((SCAN, SCAN), "pages 1, 2 without text (scanned?)"),
        ((SCAN + SEEN, SCAN + SEEN, PAGE), "pages 1, 2 with hardly any text (scanned?)"),
        ((SCAN, SCAN + SEEN, PAGE), "page 1 without text (scanned?); page 2 with hardly any text (scanned?)"),
        ((SCAN + SEEN, PAGE, PAGE), None),  # a title with a picture behind it
        ((LOGO + SEEN, LOGO + SEEN), None),
        ((SCAN + PAGE, SCAN + PAGE), None),
        (("0 0 m 9 9 l S " * 100, PAGE), "page 1 without text (scanned?)"),  # letters may be drawn as lines
        (("0 0 m 9 9 l S " * 99, PAGE), None),
    ],
)
def test_scanned_pages_are_noted_also_with_a_stamp(pages: tuple[str, ...], reason: str | None) -> None:
    assert read(pdf(*pages), "a.pdf").metadata.get("unread") == reason


def test_ocr_reads_a_scanned_page_behind_its_stamp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ocr, "recognize", lambda *_: "read")
    monkeypatch.setattr(ocr, "find_command", str)
    document: Document = read(pdf(SCAN + SEEN, PAGE), "a.pdf", ocr="eng")
    assert document.text.startswith("seen\n\nA line")
    document = read(pdf(SCAN + SEEN), "a.pdf", ocr="eng")
    assert (document.text, document.metadata) == ("seen\n\nread", {"pages": 1, "ocr": "eng"})


def test_pages_that_a_cut_file_lacks_are_noted() -> None:
    whole = pdf(SEEN, SEEN, SEEN)
    cut = whole[: whole.rindex(b"12 0 obj")]
    assert "unread" not in read(whole, "a.pdf").metadata
    document = read(cut + b"trailer\n<</Root 1 0 R/Size 12>>\n", "a.pdf")
    assert document.metadata["unread"] == "page 3 damaged"
    assert "unread" not in read(pdf(SEEN, "", SEEN), "a.pdf").metadata  # a page that is left blank


@pytest.mark.parametrize(
    ("unread", "text"),
    [
        ("", " (scanned pages?)"),
        ("pages 1, 2 without text (scanned?)", " (scanned pages?)"),
        (REASON, f"; {REASON}"),
        ("page 1 damaged", "; page 1 damaged"),
    ],
)
def test_a_pdf_without_text_says_why(unread: str, text: str) -> None:
    assert note({"pages": 2, "unread": unread}) == text
