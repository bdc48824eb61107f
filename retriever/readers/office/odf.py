"""Read OpenDocument: texts by heading, presentations by slide, spreadsheets by sheet."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from ....core.errors import UnreadableError
from ..document_builder import PARAGRAPH, DocumentBuilder, HeadingStack, collapse_spaces, name_set, table_row
from ..table_rows import add_rows, columns_heading
from .hidden_runs import mark_odf
from .mathml import formula
from .odf_numbering import Numbering
from .package import Package, attribute, local_name, parse_digits, parse_xml

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...documents.document import Document
    from ..pictures import Pictures

_SKIPPED = name_set("""
    tracked-changes deletion sequence-decls variable-decls forms scripts font-face-decls automatic-styles styles
    desc bibliography-configuration settings annotation-end note-citation page-number shapes database-ranges
    named-expressions content-validations
""")
_BLOCKS_INSIDE = name_set("text-box note annotation custom-shape rect object image")
_CHARACTERS = {"tab": "\t", "line-break": "\n"}
_MAX_SPACES = 100
_MAX_COPIES = 100  # of one cell in a row; more are the format of a column, not content


def read_odf(data: bytes, format_name: str, pictures: Pictures) -> Document:
    """Read an OpenDocument file, packed as a ZIP or flat as one XML file. Pictures are only read in a ZIP."""
    package = None
    if data[:4] == b"PK\x03\x04":
        package = Package(data)
        if b"encryption-data" in package.read("META-INF/manifest.xml"):
            raise UnreadableError("password-protected")
        content = package.tree("content.xml") if "content.xml" in package else None
        meta, styles = (package.xml(f"{name}.xml") for name in ("meta", "styles"))
    else:
        content = meta = parse_xml(data)
        styles = None
    body = next(content.iter("{*}body"), None) if content is not None else None
    if body is None:
        raise package.without("content") if package else UnreadableError("damaged: no content in it")
    roots = [root for root in (styles, content) if root is not None]
    reader = _OdfReader(_title_styles(content), Numbering(reversed(roots)), package, pictures)
    try:
        if package is not None:
            _insert_formulas(body, package)
        mark_odf(body, roots)
        reader.add_blocks(body)
    except RecursionError:
        raise UnreadableError("its lists or tables are nested too deeply") from None
    reader.builder.title = _title(meta) or reader.builder.title
    if package is not None:
        package.describe(reader.builder)
    pictures.describe(reader.builder)
    return reader.builder.document(format_name)


def _insert_formulas(body: Any, package: Package) -> None:
    """Put the formulas that are files of their own into the elements that show them, as a flat file has them."""
    for element in list(body.iter("{*}object")):
        name = f"{(attribute(element, 'href') or '').removeprefix('./')}/content.xml"
        root = package.xml(name)
        if root is not None and local_name(root) == "math":
            element.append(root)


def _title(meta: Any | None) -> str:
    element = next(meta.iter("{http://purl.org/dc/elements/1.1/}title"), None) if meta is not None else None
    return collapse_spaces(element.text or "") if element is not None else ""


def _title_styles(content: Any) -> frozenset[str]:
    """The paragraph styles of the document's title: "Title", and styles derived from it."""
    derived = (
        attribute(style, "name") or ""
        for style in content.iter("{*}style")
        if attribute(style, "parent-style-name") == "Title"
    )
    return frozenset({"Title", *derived})


class _OdfReader:
    """Add the blocks of a document to a builder; slides and sheets count as pages."""

    def __init__(
        self, title_styles: frozenset[str], numbering: Numbering, package: Package | None, pictures: Pictures
    ) -> None:
        self._title_styles = title_styles
        self._numbering = numbering
        self._label = ""  # the number of a list item that has no text yet
        self._package = package
        self._pictures = pictures
        self.builder = DocumentBuilder()
        self._headings = HeadingStack()
        self._page: int | None = None
        self._spreadsheet = False
        self._gap = "\n\n"

    def add_blocks(self, container: Any) -> None:
        """Add all blocks in an element, in order."""
        for child in container:
            name = local_name(child)
            if name in {"p", "h"}:
                self._add_paragraph(child, name == "h")
            elif name == "page":
                self._add_slide(child)
            elif name == "spreadsheet":
                self._spreadsheet = True
                self.add_blocks(child)
            elif name == "table":
                self._add_table(child)
            elif name == "list":
                self._add_list(child)
            elif name == "image":
                self._add_picture(child)
            elif name == "math":
                self.builder.add(formula(child), page=self._page, heading=self._headings.path, gap=self._gap)
            elif name and name not in _SKIPPED:
                self.add_blocks(child)

    def _add_list(self, element: Any) -> None:
        before, self._gap = self._gap, "\n"
        self._numbering.enter(element)
        for item in element:
            has_text = any(local_name(child) in {"p", "h"} for child in item)
            self._label = self._numbering.item(item) if has_text and local_name(item) == "list-item" else ""
            self.add_blocks([item])
        self._numbering.leave()
        self._gap = before

    def _add_picture(self, image: Any) -> None:
        name = (attribute(image, "href") or "").removeprefix("./")
        if self._package is not None:
            text = self._pictures.text_in(self._package, name)
            self.builder.add(text, page=self._page, heading=self._headings.path)

    def _add_slide(self, page: Any) -> None:
        self._page = (self._page or 0) + 1
        self._headings = HeadingStack()
        titles = [frame for frame in page if attribute(frame, "class") == "title"]
        for frame in titles:
            self._headings.enter(1, collapse_spaces(" ".join(_text(element) for element in frame.iter("{*}p", "{*}h"))))
        for frame in [*titles, *(child for child in page if child not in titles)]:
            self.add_blocks([frame])

    def _add_paragraph(self, element: Any, is_heading: bool) -> None:
        inner: list[Any] = []
        text = _text(element, inner)
        label, self._label = self._label, ""
        if is_heading and not label:
            label = self._numbering.heading(element)
        if label and text.strip():
            text = f"{label} {text.lstrip()}"
        if is_heading and text.strip():
            self._headings.enter(parse_digits(attribute(element, "outline-level")) or 1, text)
        if not self.builder.title and attribute(element, "style-name") in self._title_styles:
            self.builder.title = text
        self.builder.add(text, page=self._page, heading=self._headings.path, gap=self._gap)
        self.add_blocks(inner)

    def _add_table(self, table: Any) -> None:
        if self._spreadsheet:
            self._page = (self._page or 0) + 1
            self._headings = HeadingStack()
            self._headings.enter(1, attribute(table, "name") or "")
        inner: list[Any] = []
        separator = "\t" if self._spreadsheet else " | "
        rows = (table_row(_cells(row, inner), separator) for row in _rows(table))
        if self._spreadsheet:
            add_rows(self.builder, rows, self._page or 0, attribute(table, "name") or "")
        else:
            lines = list(filter(None, rows))
            is_named = table.find("{*}table-header-rows") is not None and bool(lines)
            heading = (*self._headings.path, *columns_heading(lines, lines[0].split(separator) if is_named else ()))
            self.builder.add("\n".join(lines), page=self._page, heading=heading, kind="table")
        self.add_blocks(inner)
        for shapes in table:
            if local_name(shapes) == "shapes":
                self.add_blocks(shapes)


def _rows(table: Any) -> Iterator[Any]:
    """The rows of a table, also inside groups but not inside nested tables; a repeated row comes once."""
    for child in table:
        name = local_name(child)
        if name == "table-row":
            yield child
        elif name in {"table-header-rows", "table-rows", "table-row-group"}:
            yield from _rows(child)


def _cells(row: Any, inner: list[Any]) -> Iterator[tuple[int, str]]:
    """The column and the text of each cell in a row; blocks inside cells are appended to `inner`."""
    column = 0
    for cell in row:
        if local_name(cell) in {"table-cell", "covered-table-cell"}:
            text = PARAGRAPH.join(_cell(cell, inner))
            repeated = parse_digits(attribute(cell, "number-columns-repeated")) or 1
            yield from ((column + copy, text) for copy in range(repeated if repeated <= _MAX_COPIES else 1))
            column += repeated


def _cell(cell: Any, inner: list[Any]) -> Iterator[str]:
    for child in cell:
        name = local_name(child)
        if name in {"p", "h"}:
            yield from filter(None, [collapse_spaces(_text(child, inner))])
        elif name == "table":
            for nested in chain.from_iterable(_rows(child)):
                yield from _cell(nested, inner)
        elif name in _BLOCKS_INSIDE or name == "frame":
            inner.append(child)
        elif name not in _SKIPPED:
            yield from _cell(child, inner)


def _text(element: Any, inner: list[Any] | None = None) -> str:
    """The text of a paragraph; frames, notes and comments in it are appended to `inner`."""
    pieces = [element.text or ""]
    for child in element:
        name = local_name(child)
        if name == "s":
            pieces.append(" " * min(parse_digits(attribute(child, "c")) or 1, _MAX_SPACES))
        elif name in _CHARACTERS:
            pieces.append(_CHARACTERS[name])
        elif name == "object" and (math := child.find("{*}math")) is not None:
            pieces.append(formula(math))
        elif name in _BLOCKS_INSIDE:
            if inner is not None:
                inner.append(child)
        elif name and name not in _SKIPPED and name != "ruby-text":
            pieces.append(_text(child, inner))
        pieces.append(child.tail or "")
    return "".join(pieces)
