"""Read Org files: the text as it stands, split at headings, code and tables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..plain_text.encoding import decode
from .line_scanner import LineScanner

if TYPE_CHECKING:
    from ...documents.document import Document

_STARS = re.compile(
    r"(\*+)[ \t]+(?:(?:TODO|DONE|NEXT|WAITING|CANCELLED)[ \t]+)?(?:\[#\w\][ \t]+)?(.*?)(?:[ \t]+:[\w@#%:]+:)?[ \t]*$"
)
_TITLE = re.compile(r"#\+title:[ \t]*(.*)", re.IGNORECASE)
_MARKS = re.compile(  # a link, code and verbatim words
    r"\[\[(?P<address>[^\[\]]*)\](?:\[(?P<shown>[^\[\]]*)\])?\]|(?<!\w)(?P<sign>[=~])(?P<code>\S|\S.*?\S)(?P=sign)(?!\w)"
)
_BEGIN = re.compile(r"[ \t]*#\+begin_(src|example|export)\b", re.IGNORECASE)


def read_org(data: bytes, format_name: str) -> Document:
    """Read an Org file."""
    text = decode(data)
    scanner = LineScanner(text)
    index = 0
    while index < len(scanner.lines):
        line = scanner.lines[index]
        if line.startswith("*") and (match := _STARS.match(line[:1000])):
            scanner.enter_heading(index, len(match[1]), _plain_title(match[2]))
        elif match := _TITLE.match(line):
            scanner.title = _plain_title(match[1])
        elif match := _BEGIN.match(line):
            closing = re.compile(rf"[ \t]*#\+end_{match[1]}", re.IGNORECASE)
            index = scanner.block(index, scanner.line_after(index + 1, closing.match), "code")
            continue
        elif line.lstrip().startswith("|"):
            index = scanner.block(index, scanner.skip_while(index, lambda row: row.lstrip().startswith("|")), "table")
            continue
        index += 1
    return scanner.document(format_name)


def _plain_title(title: str) -> str:
    return _MARKS.sub(lambda match: match["code"] or match["shown"] or match["address"] or "", title[:1000])
