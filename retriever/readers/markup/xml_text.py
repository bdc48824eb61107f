"""Read XML of any vocabulary: a block for every element with text of its own, and titles as headings.

In data, each value follows the name of its element. In a text with paragraphs, names are only markup and are left out.
"""

from __future__ import annotations

import re
from html.entities import html5
from typing import TYPE_CHECKING, Any

from ....core.errors import UnreadableError
from ...documents.document import add_unread
from ..document_builder import DocumentBuilder, HeadingStack, collapse_spaces, name_set, table_row
from ..office.mathml import formula
from ..office.package import local_name, parse_xml
from ..plain_text.encoding import declared_charset, decode
from ..plain_text.text import read_code
from ..table_rows import columns_heading
from .html_text import HtmlReader

if TYPE_CHECKING:
    from ...documents.document import Document

# Elements that open a section in JATS, DocBook, TEI, DITA, RSS, Atom and FictionBook, and their titles.
_SECTIONS = name_set("""
    article front body back sec section chapter part appendix app book topic concept task reference channel item
    entry feed div div1 div2 div3 abstract ack ref-list boxed-text fig table-wrap bibliography glossary sect1 sect2
    sect3 sect4 sect5 simplesect preface refentry refsect1 refsect2 refsect3 refsection
""")
_TITLES = name_set("title article-title head book-title refname")
_DROPPED = name_set("script style binary annotation alternatives-source context-group")
_TEXT_ONLY = name_set("svg xliff tmx")  # attributes hold drawings here, or ids of texts to translate
_ROWS = name_set("tr row")
_INLINE = name_set("italic bold sub sup xref ext-link i b em strong emphasis a span tspan monospace underline sc")

_TITLED = _SECTIONS | {"title-group", "titleStmt", "title-info", "info", "refnamediv"}
_PARAGRAPHS = name_set("p para simpara")
_VERBATIM = name_set("programlisting screen literallayout preformat codeblock")
_NOT_IN_RECORD = _ROWS | _PARAGRAPHS | _VERBATIM
_MAX_RECORD_LENGTH = 600  # characters
_MAX_RECORD_ELEMENTS = 120
_MAX_VALUE = 200  # characters of a value that stands behind its name


_MIN_SHARE = 0.9  # of the text: less is a loss, not a stray sign that the parser drops
_TAG = re.compile(r"<[^<>]*>")
_COMMENT_OR_TAG = re.compile(rf"<!--.*?-->|{_TAG.pattern}", re.DOTALL)
_LITERAL = r"<!\[CDATA\[.*?(?:\]\]>|\Z)|<!--.*?(?:-->|\Z)"
_ENTITY = re.compile(rf"{_LITERAL}|&([A-Za-z_][\w.-]{{0,60}};)", re.DOTALL)
_TEX_AROUND = re.compile(
    r"\\documentclass.*?\\begin\{document\}|\\(?:begin|end)\{[a-z]+\*?\}|\$", re.DOTALL
)  # around a formula


def read_xml(data: bytes, format_name: str) -> Document:
    """Read an XML file; as source code if most of its text is in attributes."""
    root, damage = _parse(data)
    builder = DocumentBuilder()
    if damage:
        add_unread(builder.metadata, damage)
    reader = _XmlReader(builder, has_names=_is_data(root))
    try:
        reader.add_element(root, 0)
    except RecursionError:
        raise UnreadableError("its elements are nested too deeply") from None
    document = builder.document(format_name)
    if local_name(root) not in _TEXT_ONLY and (not document.parts or _is_in_attributes(root)):
        return read_code(data, format_name)
    return document


def _is_data(root: Any) -> bool:
    """Whether an XML file is data, not a text: nothing in it is a paragraph."""
    is_text = local_name(root) in _TEXT_ONLY | {"plist"}  # in a property list, the keys are values
    return not is_text and not any(local_name(element) in _PARAGRAPHS for element in root.iter("*"))


def _is_in_attributes(root: Any) -> bool:
    """Whether most of the text is in attributes, not counting addresses."""
    text = sum(len(word) for text in root.itertext() for word in text.split())
    values = (value for element in root.iter("*") for value in element.attrib.values() if "://" not in value)
    return sum(map(len, values)) >= 3 * text


def _parse(data: bytes) -> tuple[Any, str]:
    """The root element, also of a file with a wrong encoding declaration or with entities from an absent DTD.

    :returns: also the damage that cost much of the text, if any.
    """
    prolog = data.partition(b"?>")[0] if data.startswith(b"<?xml") else b""
    try:
        return parse_xml(data, encoding="windows-1252" if declared_charset(prolog) == "cp1252" else None), ""
    except UnreadableError as error:
        if "amplification" in str(error) or "depth" in str(error) or "more than" in str(error):
            raise
        source = _replace_entities(decode(data))
        root = parse_xml(source.encode(), recover=True, encoding="utf-8")
        length, expected = (sum(map(len, text.split())) for text in ("".join(root.itertext()), _without_tags(source)))
        return root, str(error).partition(" (<string>")[0] if length < _MIN_SHARE * expected else ""


def _without_tags(source: str) -> str:
    """Remove tags and comments; only up to the last end of a comment is a comment looked for."""
    before, end, after = source.rpartition("-->")
    return _COMMENT_OR_TAG.sub(" ", before + end) + _TAG.sub(" ", after)


def _replace_entities(source: str) -> str:
    """Replace entities that HTML names by their letters, and unknown ones by their names, as `null` for `&null;`.

    Entities of XML and of the file itself stay.
    """
    unchanged = {
        "amp;",
        "lt;",
        "gt;",
        "quot;",
        "apos;",
        *(f"{name};" for name in re.findall(r"<!ENTITY\s+([\w.-]+)", source)),
    }

    def text_of(match: re.Match[str]) -> str:
        name = match[1]
        return match[0] if name is None or name in unchanged else _escape(html5.get(name, name[:-1]))

    return _ENTITY.sub(text_of, source)


def _escape(letters: str) -> str:
    return letters if letters not in "<&" else f"&#{ord(letters)};"


class _XmlReader:
    """Add the elements of a tree to a builder, in order."""

    def __init__(self, builder: DocumentBuilder, *, has_names: bool) -> None:
        self._builder = builder
        self._has_names = has_names
        self._headings = HeadingStack()
        self._columns: tuple[str, ...] = ()  # the names of the columns of a long table

    def add_element(self, element: Any, depth: int) -> None:
        """Add an element and all elements in it; `depth` is the number of sections around it."""
        name = local_name(element)
        if name in _DROPPED or not name:
            return
        if name in _FORMULAS:
            self._add(element, _FORMULAS[name](element))
            return
        section = name in _SECTIONS
        depth += section
        if section and (title := next(filter(_is_title, element), None)) is not None:  # a number may stand before it
            self._headings.enter(max(depth, 1), collapse_spaces(_text(title)))
        if name in _ROWS and not (self._has_names and _is_record(element) and _names_cells(element)):
            cells = [collapse_spaces(_text(cell)) for cell in ([element] if _has_own_text(element) else element)]
            self._add(element, table_row(enumerate(cells)), kind="table", gap="\n")
        elif _is_title(element):
            self._add_title(element, depth)
        elif name in _VERBATIM:
            line = int(element.sourceline or 1)  # the builder counts the empty lines above the text
            self._builder.add(_text(element), line=line, heading=self._headings.path, kind="code")
        elif _is_mixed(element) and not _has_blocks(element):
            self._add_block(element)
        elif _is_record(element):
            self._add(element, _named(element) if self._has_names else collapse_spaces(_text(element)), gap="\n")
        else:
            self._add_children(element, depth)
        if section:
            self._headings.leave(depth)

    def _add_children(self, element: Any, depth: int) -> None:
        """Add the elements in one, and the texts beside them."""
        self._builder.add(_key(element), line=_first_line(element), heading=self._headings.path, gap="\n")
        self._add(element, collapse_spaces(element.text or ""))
        outer = self._columns
        if local_name(element) == "table":
            self._columns = _columns(element)
        for child in element:
            self.add_element(child, depth)
            if child.tail and child.tail.strip():
                self._builder.add(collapse_spaces(child.tail), line=_line_behind(child), heading=self._headings.path)
        self._columns = outer

    def _add_title(self, element: Any, depth: int) -> None:
        text = collapse_spaces(_text(element))
        self._headings.enter(max(depth, 1), text)
        self._builder.title = self._builder.title or text
        self._add(element, text)

    def _add_block(self, element: Any) -> None:
        text = _text(element)
        if "<" in text and ("</" in text or "/>" in text) and not any(True for _ in element.iterchildren()):
            first = int(element.sourceline or 1)
            HtmlReader(
                text, self._builder, headings=_NestedHeadings(self._headings), first_line=first
            ).read()  # as in feeds
            return
        text = collapse_spaces(text)
        if self._has_names and len(text) <= _MAX_VALUE and local_name(element) not in _INLINE:
            self._add(element, _named(element), gap="\n")
        else:
            self._add(element, text)

    def _add(self, element: Any, text: str, *, kind: str = "prose", gap: str = "\n\n") -> None:
        line, last_line = _first_line(element), _last_line(element)
        heading = self._headings.path + self._columns * (kind == "table")
        self._builder.add(text, line=line, heading=heading, kind=kind, gap=gap, last_line=last_line)


def _columns(table: Any) -> tuple[str, ...]:
    """The names of the columns of a long table as a heading."""
    rows = (row for head in table.iter("{*}thead") for row in head if local_name(row) in _ROWS)
    header = [collapse_spaces(_text(cell)) for cell in next(rows, ())]
    return columns_heading(list(table.itertext()), header)


def _named(element: Any) -> str:
    """The values in an element on one line, each behind the name of its element or attribute."""
    name = element.get("name") or element.get("key") or local_name(element)
    values = [f"{key.rpartition('}')[2]}: {value}" for key, value in element.attrib.items() if _is_value(key, value)]
    if _is_mixed(element):
        text = collapse_spaces(_own_text(element))
        values.insert(0, text)
    else:
        values += filter(None, (_named(child) for child in element if local_name(child) not in _DROPPED | {""}))
    if local_name(element) in _INLINE:
        return ", ".join(values)
    separator = "; " if any(len(child) for child in element) else ", "
    return f"{name}: {separator.join(values)}" if values else ""


def _is_value(key: str, value: str) -> bool:
    """Whether an attribute adds something to the name of its element: it is no address, and no key."""
    return key not in {"name", "key"} and bool(value.strip()) and len(value) <= _MAX_VALUE and "://" not in value


def _own_text(element: Any) -> str:
    return _text(element).removeprefix(_key(element))


def _names_cells(row: Any) -> bool:
    """Whether the cells of a row are named after their columns."""
    names = {local_name(cell) for cell in row}
    return len(names) > 1 and not names & {"td", "th"}


def _is_title(element: Any) -> bool:
    return (
        local_name(element) in _TITLES
        and element.getparent() is not None
        and local_name(element.getparent()) in _TITLED
    )


def _is_record(element: Any) -> bool:
    """Whether an element is a few short values, which are put on one line."""
    length = count = 0
    for node in element.iter():
        count += 1
        length += len(node.text or "")
        if (
            length > _MAX_RECORD_LENGTH
            or count > _MAX_RECORD_ELEMENTS
            or (local_name(node) in _NOT_IN_RECORD and node is not element)
            or _is_title(node)
        ):
            return False
    return count > 1


class _NestedHeadings(HeadingStack):
    """Headings of an embedded page, below the headings of the element that holds it."""

    def __init__(self, outer: HeadingStack) -> None:
        super().__init__()
        self._outer = outer.path
        self.path = outer.path

    def leave(self, level: int) -> None:
        super().leave(level)
        self.path = self._outer + self.path

    def enter(self, level: int, title: str) -> tuple[str, ...]:
        super().enter(level, title)
        if self.path[: len(self._outer)] != self._outer:
            self.path = self._outer + self.path
        return self.path


def _is_mixed(element: Any) -> bool:
    """Whether an element is a text, not only a container of elements."""
    return _has_own_text(element) or any(local_name(child) in _INLINE for child in element)


def _has_blocks(element: Any) -> bool:
    """Whether paragraphs or listings stand in an element that is none itself; text beside them is a block."""
    return local_name(element) not in _PARAGRAPHS and any(
        local_name(node) in _PARAGRAPHS | _VERBATIM for node in element.iterdescendants("*")
    )


def _text(element: Any) -> str:
    """All text in an element, with white space between the children of a pure container."""
    pieces: list[str] = []
    stack: list[Any] = [element]
    while stack:
        node = stack.pop()
        if isinstance(node, str):
            pieces.append(node)
        elif write := _FORMULAS.get(local_name(node)):
            pieces.append(write(node))
        elif local_name(node) not in _DROPPED:
            gap = "" if _has_own_text(node) else " "
            for child in reversed(node):
                stack.append((child.tail or "") + gap)
                stack.append(child)
            stack.append(_key(node) + (node.text or ""))
    return "".join(pieces)


def _tex(element: Any) -> str:
    """Return a formula in TeX, unchanged; "" if MathML stands beside it."""
    parent = element.getparent()
    is_other = parent is not None and parent.find("{*}math") is not None
    return "" if is_other else collapse_spaces(_TEX_AROUND.sub("", element.text or ""))


_FORMULAS = {"math": formula, "tex-math": _tex}


def _key(element: Any) -> str:
    """The name or key of an element, and a space: of a setting, say, or of a text to translate."""
    name = element.get("name") or element.get("key") if local_name(element) not in _INLINE else ""
    return f"{name} " if name else ""


def _has_own_text(element: Any) -> bool:
    return bool((element.text and element.text.strip()) or any(child.tail and child.tail.strip() for child in element))


def _last_line(element: Any) -> int:
    """The line on which the element's text or its last tag ends, if no tag after that is longer than a line."""
    texts = ((int(node.sourceline or 1), (node.text or "").rstrip()) for node in element.iter("*"))
    ends = (line + text.count("\n") for line, text in texts)
    return max(int(element.sourceline or 1) + _text(element).rstrip().count("\n"), *ends)


def _line_behind(element: Any) -> int:
    """The line on which the text behind an element begins, if no tag in it is longer than a line."""
    tail = str(element.tail)
    inside = sum(str(text).count("\n") for text in element.itertext())
    return int(element.sourceline or 1) + inside + tail.count("\n", 0, len(tail) - len(tail.lstrip()))


def _first_line(element: Any) -> int:
    """The line on which the element's text begins, counted from libxml2's: the end of its tag."""
    line = int(element.sourceline or 1)
    text = element.text or ""
    return line + text.count("\n", 0, len(text) - len(text.lstrip()))
