"""Read Jupyter notebooks: prose under its headings, code, and the output of the code."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from ...core.errors import UnreadableError
from ...core.words import encodable
from .document_builder import DocumentBuilder, HeadingStack
from .markup.html_text import HtmlReader
from .markup.markdown import parse_markdown, with_letters
from .plain_text.encoding import decode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..documents.document import Document


_OBJECT_NAME = re.compile(r"\s*<IPython\.[\w.]+ object>\s*")  # a placeholder; another form of the output has the text
_FIGURE = re.compile(r"<Figure size [\d.]+x[\d.]+ with \d+ Axes>")


def read_notebook(data: bytes, format_name: str) -> Document:
    """Read a notebook of format 3 or 4."""
    try:
        notebook = json.loads(decode(data))
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"damaged notebook: {str(error)[:200]}") from None
    builder, headings = DocumentBuilder(), HeadingStack()
    if not isinstance(notebook, dict):
        raise UnreadableError("not a notebook: its JSON is not an object")
    for cell in _cells(notebook):
        source = _join_lines(cell.get("source", cell.get("input")))
        if cell.get("cell_type") in {"markdown", "heading"}:
            level = cell.get("level")
            _add_markdown(
                builder, headings, "#" * level + " " + source if type(level) is int and 0 < level < 7 else source
            )
        else:
            builder.add(source, heading=headings.path, kind="code")
            for output in _dicts(cell.get("outputs")):
                text, kind = _output(output)
                builder.add(text, heading=headings.path, kind=kind)
    return builder.document(format_name)


def _cells(notebook: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from _dicts(notebook.get("cells"))
    for sheet in _dicts(notebook.get("worksheets")):  # notebooks of format 3
        yield from _dicts(sheet.get("cells"))


def _dicts(value: Any) -> Iterator[dict[str, Any]]:
    yield from (item for item in value if isinstance(item, dict)) if isinstance(value, list) else ()


def _join_lines(value: Any) -> str:
    if isinstance(value, list):
        return "".join(line for line in value if isinstance(line, str))
    return value if isinstance(value, str) else ""


def _add_markdown(builder: DocumentBuilder, headings: HeadingStack, source: str) -> None:
    """Add a Markdown cell; its headings continue from the cells above."""
    valid_text = encodable(source)  # JSON can hold half a surrogate pair
    document = with_letters(parse_markdown(valid_text.replace("\r\n", "\n"), "markdown"))
    builder.title = builder.title or document.title
    before: tuple[str, ...] = ()
    for part in document.parts:
        text = document.text[part.start : part.end]
        columns: tuple[str, ...] = ()
        if part.kind == "table":  # below the headings of its section
            columns = part.heading[len(before) :]
        elif part.heading != before:
            if part.heading:
                headings.enter(_level(text), part.heading[-1])
            before = part.heading
        builder.add(text, heading=headings.path + columns, kind=part.kind)


def _level(section: str) -> int:
    """The level of the heading that a section begins with: of its hashes, or of the line under it."""
    text = section.lstrip()
    if text.startswith("#"):
        return len(text) - len(text.lstrip("#"))
    underline = next((line for line in text.split("\n")[1:] if line.strip(" \t=-") == ""), "")
    return 1 if "=" in underline else 2


def _output(output: dict[str, Any]) -> tuple[str, str]:
    """The text of an output, and its kind."""
    if output.get("output_type") in {"error", "pyerr"}:
        return f"{output.get('ename', '')}: {output.get('evalue', '')}", "code"
    data = output.get("data")
    if not isinstance(data, dict):
        return _join_lines(output.get("text")), "code"
    if markdown := _join_lines(data.get("text/markdown")):
        return markdown, "prose"
    plain = _FIGURE.sub("", _join_lines(data.get("text/plain")))
    return (
        (_html_text(_join_lines(data.get("text/html"))), "prose") if _OBJECT_NAME.fullmatch(plain) else (plain, "code")
    )


def _html_text(html: str) -> str:
    builder = DocumentBuilder()
    HtmlReader(html, builder, first_line=None).read()
    return builder.document("html").text
