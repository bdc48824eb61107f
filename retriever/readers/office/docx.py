"""Read DOCX: all text that a person sees in Word, in reading order, under its headings."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any

from ....core.errors import UnreadableError
from ..document_builder import PARAGRAPH, DocumentBuilder, HeadingStack, collapse_spaces, name_set, table_row
from ..table_rows import columns_heading, is_header
from .docx_numbering import Numbering
from .docx_styles import Styles, paragraph_property
from .drawingml import graphics_text
from .equations import equation
from .hidden_runs import mark_word
from .package import Package, attribute, local_name, parse_digits, property_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...documents.document import Document
    from ..pictures import Pictures

_SKIPPED = name_set("""
    del moveFrom delText instrText delInstrText rPr pPr sdtPr tblPr trPr tcPr sectPr rt fldChar Fallback docPr
    posOffset annotationRef numPr proofErr tblGrid ctrlPr
""")
_BOXES = name_set("drawing pict object")
_CONTAINERS = name_set("sdt sdtContent customXml ins moveTo smartTag AlternateContent Choice body hdr ftr altChunk")
_FIELDS = name_set("instrText fldSimple")
_PAGE_FIELD = re.compile(r"\s*(?:PAGE|NUMPAGES|SECTIONPAGES)\b")
_FIRST_ROW = re.compile("[0-9A-Fa-f]*[2367ABEFabef][0-9A-Fa-f]")  # a number with the bit 0x20
_MIN_COLUMNS = 3  # of a table with names above them; in two columns stand names and values
_PAGE_WORDS = 4  # of a line that is a page number, at most
_NOTES = {"footnoteReference": "footnote", "endnoteReference": "endnote", "commentReference": "comment"}
_CHARACTERS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-", "ptab": "\t"}


@dataclass(slots=True)
class _Paragraph:
    """The text of a paragraph, and the boxes, notes and graphics anchored in it."""

    text: str = ""
    boxes: list[Any] = field(default_factory=list)  # text boxes: their paragraphs follow this one
    notes: list[tuple[str, str]] = field(default_factory=list)
    graphics: list[str] = field(default_factory=list)  # the words in charts, SmartArt and pictures


def read_docx(data: bytes, format_name: str, pictures: Pictures) -> Document:
    """Read a Word document."""
    package = Package(data)
    main, root = package.main("word/document.xml", "Word document")
    styles = package.xml(next(package.related(main, "styles"), ""))
    mark_word(root, styles)
    numbering = Numbering.read(package.xml(next(package.related(main, "numbering"), "")), styles)
    reader = _WordReader(package, main, Styles.read(styles), numbering, pictures)
    try:
        reader.read(root)
    except RecursionError:
        raise UnreadableError("its tables or text boxes are nested too deeply") from None
    package.describe(reader.builder)
    pictures.describe(reader.builder)
    return reader.builder.document(format_name)


class _WordReader:
    """Add the body, notes, headers and footers of a document to a builder."""

    def __init__(self, package: Package, main: str, styles: Styles, numbering: Numbering, pictures: Pictures) -> None:
        self.builder = DocumentBuilder()
        self._package = package
        self._main = self._part = main  # `_part` is being read: its elements name other parts by its relations
        self._pictures = pictures
        self._headings = HeadingStack()
        self._levels, self._titles = styles.levels, styles.titles
        self._numbering = numbering
        self._notes: dict[tuple[str, str], tuple[str, Any]] = {}  # kind and id -> part and element
        self._in_note = False

    def read(self, root: Any) -> None:
        for kind in ("footnote", "endnote", "comment"):
            self._collect_notes(kind)
        for body in root:
            if local_name(body) == "body":
                self._add_blocks(body)
        self.builder.title = self.builder.title or self._headings.title() or self._package.title()
        self._headings = HeadingStack()
        for key in list(self._notes):  # notes without a reference in the text
            self._add_note(key)
        self._add_margins()

    def _collect_notes(self, kind: str) -> None:
        for part in self._package.related(self._main, kind + "s"):
            root = self._package.xml(part)
            for note in root if root is not None else ():
                if local_name(note) == kind and attribute(note, "type") in {None, "normal"}:
                    self._notes[kind, attribute(note, "id") or ""] = part, note

    def _add_margins(self) -> None:
        """Add headers and footers, each text once, without page numbers: these would be passages of their own."""
        texts: set[str] = set()
        for part in chain.from_iterable(self._package.related(self._main, kind) for kind in ("header", "footer")):
            root, self._part = self._package.xml(part), part
            for paragraph in self._lines(root) if root is not None else ():
                if paragraph not in texts:
                    texts.add(paragraph)
                    self.builder.add(paragraph, gap="\n\n")

    def _lines(self, root: Any) -> Iterator[str]:
        for element in _descend(root, "p"):
            paragraph = self._read_paragraph(element)
            boxes = (inner for box in paragraph.boxes for inner in _descend(box, "p"))
            yield from _without_page_number(element, paragraph.text)
            yield from filter(None, map(str.strip, paragraph.graphics))
            for inner in boxes:
                yield from _without_page_number(inner, self._read_paragraph(inner).text)

    def _add_blocks(self, container: Any) -> None:
        for child in container:
            name = local_name(child)
            if name == "p":
                self._add_paragraph(child)
            elif name == "tbl":
                self._add_table(child)
            elif name in _CONTAINERS and not _is_fallback(child):
                self._add_blocks(child)

    def _add_paragraph(self, element: Any) -> None:
        paragraph = self._read_paragraph(element)
        style = paragraph_property(element, "pStyle") or ""
        level = self._heading_level(element, style)
        text = paragraph.text.strip()
        if text and level is not None and not self._in_note:
            self._headings.enter(level, text)
        elif text and style in self._titles and not self.builder.title:
            self.builder.title = text
        gap = "\n" if paragraph_property(element, "numPr") is not None and level is None else "\n\n"
        self.builder.add(text, heading=self._headings.path, gap=gap)
        self._add_anchored(paragraph)

    def _add_anchored(self, paragraph: _Paragraph) -> None:
        for box in paragraph.boxes:
            self._add_blocks(box)
        for line in paragraph.graphics:
            self.builder.add(line, heading=self._headings.path, gap="\n")
        for key in paragraph.notes:
            self._add_note(key)

    def _add_note(self, key: tuple[str, str]) -> None:
        note = self._notes.pop(key, None)
        if note is not None:
            before = self._in_note, self._part
            self._in_note, (self._part, element) = True, note
            self._add_blocks(element)
            self._in_note, self._part = before

    def _heading_level(self, element: Any, style: str) -> int | None:
        """The heading level of a paragraph, from 1; None for body text."""
        own = parse_digits(paragraph_property(element, "outlineLvl"))
        if own is not None:
            return own + 1 if own < 9 else None
        return self._levels.get(style)

    def _read_paragraph(self, element: Any) -> _Paragraph:
        paragraph = _Paragraph()
        pieces: list[str] = []
        for child in element:
            self._collect(child, pieces, paragraph)
        paragraph.text = "".join(pieces)
        label = self._numbering.label(element, paragraph_property(element, "pStyle") or "")
        if label and paragraph.text.strip():
            paragraph.text = f"{label} {paragraph.text.lstrip()}"
        return paragraph

    def _collect(self, element: Any, pieces: list[str], paragraph: _Paragraph) -> None:  # noqa: C901 - one branch a kind
        name = local_name(element)
        if name == "t":
            pieces.append(element.text or "")
        elif name in _NOTES:
            paragraph.notes.append((_NOTES[name], attribute(element, "id") or ""))
        elif name in _BOXES:
            paragraph.boxes.extend(_boxes(element))
            paragraph.graphics.extend(graphics_text(self._package, self._part, element, self._pictures))
            paragraph.graphics.extend(_word_art(element))
        elif name == "oMath":
            pieces.append(equation(element))
        elif name == "ffData":
            pieces.append(_form_field(element))
        elif name == "AlternateContent":
            for choice in element:
                if not _is_fallback(choice):
                    self._collect(choice, pieces, paragraph)
        elif name in _SKIPPED and not (name == "fldChar" and len(element)):
            return
        elif name == "sym":
            pieces.append(_symbol(element))
        elif not (name == "r" and _is_hidden(element)):
            pieces.append(_CHARACTERS.get(name, ""))
            for child in element:
                self._collect(child, pieces, paragraph)

    def _add_table(self, table: Any) -> None:
        rows = [row for row in _descend(table, "tr") if not _is_deleted_row(row)]
        cells = [list(_descend(row, "tc")) for row in rows]
        if max(map(len, cells), default=0) <= 1 or any(_is_layout(cell) for row in cells for cell in row):
            for row in cells:
                for cell in row:
                    self._add_blocks(cell)
            return
        lines: list[str] = []
        header: list[str] = []
        paragraphs: list[_Paragraph] = []
        for row, row_cells in zip(rows, cells, strict=True):
            texts = [PARAGRAPH.join(self._cell(cell, paragraphs)) for cell in row_cells]
            columns = accumulate(
                map(_span, row_cells), initial=parse_digits(property_of(row, "trPr", "gridBefore")) or 0
            )
            if line := table_row(zip(columns, texts, strict=False)):
                header = texts if not lines and _is_header(table, row, texts) else header
                lines.append(line)
        heading = (*self._headings.path, *columns_heading(lines, header))
        self.builder.add("\n".join(lines), heading=heading, kind="table")
        for paragraph in paragraphs:
            self._add_anchored(paragraph)

    def _cell(self, cell: Any, paragraphs: list[_Paragraph]) -> Iterator[str]:
        for element in _descend(cell, "p"):
            paragraph = self._read_paragraph(element)
            paragraphs.append(paragraph)
            if text := collapse_spaces(paragraph.text):
                yield text


def _without_page_number(element: Any, text: str) -> Iterator[str]:
    """The text of a line, unless it is empty or the number of its page, perhaps in a few words: `Page 2 of 9`."""
    fields = (field.text or attribute(field, "instr") or "" for field in element.iter() if local_name(field) in _FIELDS)
    is_short = len(text.split()) <= _PAGE_WORDS
    if text.strip() and not (is_short and any(_PAGE_FIELD.match(field) for field in fields)):
        yield text.strip()


def _descend(element: Any, name: str) -> Iterator[Any]:
    """The nearest descendants of a name, also inside content controls and tracked insertions."""
    for child in element:
        child_name = local_name(child)
        if child_name == name:
            yield child
        elif (child_name in _CONTAINERS and not _is_fallback(child)) or (
            name == "p" and child_name in {"tbl", "tr", "tc"}
        ):
            yield from _descend(child, name)


def _is_fallback(element: Any) -> bool:
    """Whether an element repeats, for older programs, the text of the choice before it in mc:AlternateContent."""
    if local_name(element) != "Fallback":
        return False
    choice = element.getprevious()
    return choice is not None and bool(choice.xpath("boolean(.//*[local-name()='t' and string(.)])"))


def _boxes(element: Any) -> Iterator[Any]:
    """The text boxes of a drawing, without boxes nested in them."""
    for box in element.iter("{*}txbxContent"):
        for parent in box.iterancestors():
            if parent is element:
                yield box
            if parent is element or local_name(parent) == "txbxContent" or _is_fallback(parent):
                break


def _word_art(element: Any) -> list[str]:
    return [path.get("string", "") for path in element.iter("{urn:schemas-microsoft-com:vml}textpath")]


def _is_hidden(run: Any) -> bool:
    properties = next((child for child in run if local_name(child) == "rPr"), None)
    for child in properties if properties is not None else ():
        if local_name(child) == "vanish":
            return _is_on(child)
    return False


def _is_deleted_row(row: Any) -> bool:
    return any(local_name(child) == "trPr" and any(local_name(mark) == "del" for mark in child) for child in row)


def _is_header(table: Any, row: Any, texts: list[str]) -> bool:
    """Whether the first row has the names of the columns: it is repeated on each page, or looks like it."""
    is_repeated = any(_is_on(mark) for mark in row.iterfind("{*}trPr/{*}tblHeader"))
    is_styled = any(map(_marks_first_row, table.iterfind("{*}tblPr/{*}tblLook")))
    return is_repeated or (is_styled and len(texts) >= _MIN_COLUMNS and is_header(texts))


def _marks_first_row(look: Any) -> bool:
    """Whether the first row of a table looks otherwise than the rest: Word 2007 has it as a bit of a number."""
    own, bits = attribute(look, "firstRow"), attribute(look, "val") or ""
    return own in {"1", "true", "on"} if own else bool(_FIRST_ROW.fullmatch(bits))


def _is_on(mark: Any) -> bool:
    return attribute(mark, "val") not in {"0", "false", "off"}


def _span(cell: Any) -> int:
    """The number of columns that a cell spans."""
    return parse_digits(property_of(cell, "tcPr", "gridSpan")) or 1


def _is_layout(cell: Any) -> bool:
    return any(True for _ in _descend(cell, "tbl"))


def _symbol(element: Any) -> str:
    """The Unicode character for one of a symbol font: check marks and bullets of Wingdings; "" for all others."""
    code = (attribute(element, "char") or "").upper()
    return {"F0FE": "☒", "F0FD": "☒", "F0A8": "☐", "F06F": "☐", "F052": "☑", "F0FC": "✓", "F0B7": "•"}.get(code, "")


def _form_field(element: Any) -> str:
    """The state of a check box, or the chosen entry of a drop-down, in an old form."""
    for node in element:
        states = {local_name(child): attribute(child, "val") for child in node}
        if local_name(node) == "checkBox":
            ticked = states.get("checked", states.get("default", "0")) not in {"0", "false"}
            return "☒" if ticked else "☐"
        if local_name(node) == "ddList":
            entries = [attribute(child, "val") or "" for child in node if local_name(child) == "listEntry"]
            entry = parse_digits(states.get("result")) or 0
            return entries[entry] if entry < len(entries) else ""
    return ""
