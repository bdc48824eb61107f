"""Read PPTX, each slide under its title: shapes, tables, charts, SmartArt, notes and comments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..document_builder import PARAGRAPH, DocumentBuilder, Heading, collapse_spaces, name_set, shown, table_row
from .drawingml import graphics_text, paragraphs
from .hidden_runs import mark_slide
from .package import Package, attribute, local_name, parse_digits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...documents.document import Document
    from ..pictures import Pictures

_TITLES = name_set("title ctrTitle")
_WIDTH, _HEIGHT = 9_144_000, 6_858_000  # of a slide; an inch has 914,400 units
_SKIPPED_PLACEHOLDERS = name_set("sldNum sldImg dt")  # PowerPoint fills these in itself


def read_pptx(data: bytes, format_name: str, pictures: Pictures) -> Document:
    """Read a presentation; slides count as pages."""
    package = Package(data)
    main, root = package.main("ppt/presentation.xml", "presentation")
    builder = DocumentBuilder()
    parts = (package.part_of(main, slide) for slide in root.iter("{*}sldId"))
    size = _size(root)
    for number, part in enumerate(filter(None, parts), 1):
        _Slide(package, part, number, builder, size, pictures).read()
    builder.title = package.title() if package.title().lower() != "powerpoint presentation" else ""
    package.describe(builder)
    pictures.describe(builder)
    return builder.document(format_name)


def _size(root: Any) -> tuple[int, int]:
    """The width and the height of the slides."""
    size = next(root.iter("{*}sldSz"), None)
    width, height = (None, None) if size is None else (parse_digits(size.get("cx")), parse_digits(size.get("cy")))
    return width or _WIDTH, height or _HEIGHT


class _Slide:
    """Add one slide to a builder."""

    def __init__(
        self,
        package: Package,
        part: str,
        number: int,
        builder: DocumentBuilder,
        size: tuple[int, int],
        pictures: Pictures,
    ) -> None:
        self._package = package
        self._part = part
        self._number = number
        self._builder = builder
        self._size = size
        self._pictures = pictures
        self._heading: Heading = ()

    def read(self) -> None:
        """Add the title, then the other shapes, the notes and the comments."""
        root = self._package.xml(self._part)
        if root is None:
            return
        mark_slide(root, self._package, self._part, self._size)
        tree = next(root.iter("{*}spTree"), None)
        shapes = [] if tree is None else list(_shapes(tree))
        for shape in shapes:
            if _placeholder(shape) in _TITLES and (title := collapse_spaces(" ".join(paragraphs(shape)))):
                self._heading = (visible_title[:200],) if (visible_title := shown(title)) else ()
                self._add(title)
                break
        for shape in shapes:
            if (
                _placeholder(shape) not in _TITLES
                or not self._heading
                or collapse_spaces(" ".join(map(shown, paragraphs(shape)))) != self._heading[0]
            ):
                self._add_shape(shape)
        self._add_notes()
        self._add_comments()

    def _add(self, text: str, kind: str = "prose") -> None:
        self._builder.add(text, page=self._number, heading=self._heading, kind=kind)

    def _add_shape(self, shape: Any) -> None:
        name = local_name(shape)
        if name == "graphicFrame":
            for table in shape.iter("{*}tbl"):
                self._add("\n".join(_rows(table)), "table")
        elif _placeholder(shape) not in _SKIPPED_PLACEHOLDERS:
            self._add("\n".join(paragraphs(shape)))
        self._add("\n".join(graphics_text(self._package, self._part, shape, self._pictures)))

    def _add_notes(self) -> None:
        for part in self._package.related(self._part, "notesSlide"):
            root = self._package.xml(part)
            tree = None if root is None else next(root.iter("{*}spTree"), None)
            for shape in _shapes(tree) if tree is not None else ():
                if _placeholder(shape) not in {*_SKIPPED_PLACEHOLDERS, "hdr", "ftr"}:
                    self._add("\n".join(paragraphs(shape)))

    def _add_comments(self) -> None:
        for part in self._package.related(self._part, "comments"):
            root = self._package.xml(part)
            for comment in root.iter("{*}cm", "{*}reply") if root is not None else ():
                old = [node.text or "" for node in comment if local_name(node) == "text"]
                bodies = [text for node in comment if local_name(node) == "txBody" for text in paragraphs(node)]
                self._add("\n".join(old + bodies))


def _shapes(tree: Any) -> Iterator[Any]:
    """The shapes in the order of the file, with those in groups; of alternatives only the first."""
    stack = list(reversed(tree))
    while stack:
        node = stack.pop()
        name = local_name(node)
        if name in {"grpSp", "Choice"}:
            stack.extend(reversed(node))
        elif name == "AlternateContent":
            choice = next((child for child in node if local_name(child) == "Choice"), None)
            stack.extend(reversed(node) if choice is None else [choice])
        elif name == "Fallback":
            stack.extend(reversed(node))
        elif name in {"sp", "cxnSp", "graphicFrame", "pic", "contentPart"}:
            yield node


def _placeholder(shape: Any) -> str:
    placeholder = next(shape.iter("{*}ph"), None)
    return (attribute(placeholder, "type") or "body") if placeholder is not None else ""


def _rows(table: Any) -> Iterator[str]:
    for row in table.iter("{*}tr"):
        yield table_row(
            enumerate(collapse_spaces(PARAGRAPH.join(paragraphs(cell))) for cell in row if local_name(cell) == "tc")
        )
