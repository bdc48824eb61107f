"""Read AsciiDoc: its text as it stands, split at headings, code and tables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..plain_text.encoding import decode
from .line_scanner import LineScanner
from .markdown import plain_title

if TYPE_CHECKING:
    from ...documents.document import Document

_HEAD = re.compile(r"(={1,6}|#{1,6})[ \t]+(\S.*)")
_BLOCK = re.compile(r"(-{4,}|\.{4,}|/{4,}|\+{4,}|`{3,}|\|===)[a-z ]*$")
_UNDER = re.compile(r"(=+|-+|~+|\^+|\++)[ \t]*$")
_TITLE = re.compile(r"(?![.\[|]|[-*.]+[ \t]).*\w")  # of that style; none is a list item
_LEVELS = "=-~^+"
_ABOVE = re.compile(  # a line that may stand above a title: an anchor or attributes, a comment, a condition
    r"(?:\[.*\]|//.*|:[^\s:]+:.*|(?:ifn?def|ifeval|endif)::.*)?[ \t]*$"
)
_MARKS = re.compile(  # an anchor or an index term, a link or a picture, a cross-reference, curved quotes
    r"\[\[[^\[\]]*\]\]|\(\(\([^()]*\)\)\)"
    r"|(?:link:|xref:|image:|(?=https?://))(?P<target>[^\s\[\]]+)\[(?P<shown>[^\[\]]*)\]"
    r"|<<(?P<id>[^<>,]+)(?:,(?P<label>[^<>]*))?>>"
    r"|(?P<sign>[\"'])`(?P<quoted>[^`]+)`(?P=sign)"
)


def read_asciidoc(data: bytes, format_name: str) -> Document:
    """Read AsciiDoc."""
    text = decode(data)
    scanner = LineScanner(text)
    index = below = 0  # `below`: the line below the last title or block, which may be a title
    while index < len(scanner.lines):
        line = scanner.lines[index]
        may_begin = index == below or _ABOVE.match(scanner.lines[index - 1])
        if match := _HEAD.match(line):
            scanner.enter_heading(index, len(match[1]), _plain_title(match[2]))
            index = below = index + 1
        elif may_begin and (level := _level(scanner, index)):
            scanner.enter_heading(index, level, _plain_title(line))
            index = below = index + 2
        elif match := _BLOCK.match(line):
            closing = re.compile(re.escape(match[1]) + r"[ \t]*$")
            end = scanner.line_after(index + 1, closing.match)
            index = below = scanner.block(index, end, "table" if match[1] == "|===" else "code")
        else:
            index += 1
    return scanner.document(format_name)


def _level(scanner: LineScanner, index: int) -> int:
    """The level of a title that is underlined, the older style; 0 for any other line."""
    title, under = [*scanner.lines[index : index + 2], ""][:2]
    if not (match := _UNDER.match(under)) or not _TITLE.match(title := title.rstrip()):
        return 0
    return _LEVELS.index(match[1][0]) + 1 if abs(len(match[1]) - len(title)) <= 1 < len(match[1]) else 0


def _plain_title(title: str) -> str:
    return plain_title(_MARKS.sub(_shown, title[:2000]))


def _shown(match: re.Match[str]) -> str:
    if match["target"]:
        shown = match["shown"].partition(",")[0].strip().strip('"')
        return shown if shown and "=" not in shown else match["target"]
    if match["quoted"]:
        return f"“{match['quoted']}”" if match["sign"] == '"' else f"‘{match['quoted']}’"
    return match["label"] or match["id"] or ""
