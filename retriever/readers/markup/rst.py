"""Read reStructuredText: its text as it stands, split at headings, code and tables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..plain_text.encoding import decode
from .line_scanner import LineScanner

if TYPE_CHECKING:
    from ...documents.document import Document

_ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1{2,}[ \t]*$")
_UNDERLINE = re.compile(r"([!-/:-@\[-`{-~])\1*[ \t]*$")
_MARKS = re.compile(  # code, and a role or a link around the words that a page shows
    r"``(?P<code>[^`]+)``|(?::[A-Za-z][\w:+.-]*:)?`[!~]?(?P<shown>[^`<]+?)(?:[ \t]+<[^`<>]*>)?`(?:__?(?!\w))?"
)
_MIN_UNDERLINE = 4  # signs: a shorter underline is as long as its title
_DIRECTIVE = re.compile(r"[ \t]*\.\. (?:code(?:-block)?|sourcecode|highlight|literalinclude|math|parsed-literal)::")
_GRID = re.compile(r"[ \t]*(?:\+[-=+]{2,}\+[ \t]*$|\|.*\|[ \t]*$)")


def read_rst(data: bytes, format_name: str) -> Document:
    """Read reStructuredText."""
    text = decode(data)
    scanner = LineScanner(text)
    styles: list[tuple[str, bool]] = []  # the level of an adornment is the order of its first use
    index = 0
    while index < len(scanner.lines):
        index = _section(scanner, index, styles) or _block(scanner, index)
    return scanner.document(format_name)


def _section(scanner: LineScanner, index: int, styles: list[tuple[str, bool]]) -> int:
    lines = [*scanner.lines[index : index + 3], "", "", ""]
    over = bool(_ADORNMENT.match(lines[0]))
    title, under = (lines[1], lines[2]) if over else (lines[0], lines[1])
    if over and under.rstrip() != lines[0].rstrip():
        return 0
    title_fits = title.strip() and (over or not title[:1].isspace()) and not _ADORNMENT.match(title)
    if not title_fits or not (match := _UNDERLINE.match(under)) or not _is_underlined(title, under, over=over):
        return 0
    is_sure = _ADORNMENT.match(under) and len(under.rstrip()) >= len(title.rstrip())
    if not is_sure and index and scanner.lines[index - 1].strip():
        return 0  # in a paragraph
    style = (match[1], over)
    if style not in styles:
        styles.append(style)
    scanner.enter_heading(index, styles.index(style) + 1, _plain_title(title[:2000]))
    return index + 2 + over


def _plain_title(title: str) -> str:
    """A title without its roles, links and emphasis."""
    text = _MARKS.sub(lambda match: match["code"] or match["shown"], title)
    return text.replace("`", "").replace("*", "")


def _is_underlined(title: str, under: str, *, over: bool) -> bool:
    length = len(under.rstrip())
    return length >= len(title.rstrip()) or (length >= _MIN_UNDERLINE and not over)


def _block(scanner: LineScanner, index: int) -> int:
    line = scanner.lines[index]
    if _DIRECTIVE.match(line) or (line.rstrip().endswith("::") and not line.lstrip().startswith("..")):
        indent = len(line) - len(line.lstrip())
        end = scanner.skip_while(index + 1, lambda row: not row.strip() or len(row) - len(row.lstrip()) > indent)
        return scanner.block(index + 1, end, "code") if end > index + 1 else index + 1
    if line.lstrip().startswith("+") and _GRID.match(line):
        return scanner.block(index, scanner.skip_while(index, _GRID.match), "table")
    return index + 1
