"""Markup that people write by hand: the text stays the file's, cut where headings, code and tables begin."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..documents.document import Document
from .base import Cut, Outline, cut
from .encoding import decode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]+|$)")
_SETEXT = re.compile(r" {0,3}(=+|-{2,})[ \t]*$")
_FENCE = re.compile(r"[ \t]*(?:[-*+>][ \t]+)?(`{3,}|~{3,})(.*)$")
_RULE = re.compile(r"[ \t]*+\|?[ \t]*+:?-++:?[ \t]*+(?:\|[ \t]*+:?-++:?[ \t]*+)*+\|?[ \t]*+$")
_NOT_PARAGRAPH = re.compile(r"[ \t]*(?:[-*+>|]|\d+[.)])[ \t]|    |\t|[ \t]*<|[ \t]*(?:[-*_][ \t]*){3,}$")
_TITLE = re.compile(r"^title[ \t]*+[:=](.*)", re.MULTILINE | re.IGNORECASE)
_FOLDED = re.compile(r"[|>][-+0-9]*$")  # YAML for a text that stands on the next lines
_MARKS = re.compile(
    r"(?<!`)(?P<ticks>`++)(?P<code>.+?)(?<!`)(?P=ticks)(?!`)"
    r"|\\(?P<escaped>[!-/:-@\[-`{-~])"
    r"|!?\[(?P<link>[^\[\]]*)\](?:\([^()\s]*(?:[ \t]+[^()]*)?\)|\[[^\[\]]*\])"
    r"|<(?P<address>[A-Za-z][\w+.-]*+:[^<>\s]*|[^<>\s@]++@[^<>\s]*)>"
    r"|</?[a-z][a-z\d-]*+(?:\s[^<>]*)?/?>|<[A-Z]+\s[^<>]*=[^<>]*>|<!--.*?-->"
)
_EMPHASIS = re.compile(r"(\*+)(?=[^\s*])(.*?[^\s*])\1")
_STAR = "\0"  # a star that is no mark, until the marks are gone


class _Scan:
    """Walks a text's lines and notes where something else begins."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.starts = []
        position = 0
        for line in self.lines:
            self.starts.append(position)
            position += len(line) + 1
        self.outline = Outline()
        self.cuts = [Cut(0)]
        self.title = ""

    def prose(self, index: int) -> None:
        self.mark(index, "prose")

    def mark(self, index: int, kind: str) -> None:
        if index < len(self.starts):
            self.cuts.append(Cut(self.starts[index], self.outline.path, kind))

    def head(self, index: int, level: int, title: str) -> None:
        self.outline.enter(level, title)
        self.mark(index, "prose")
        if not self.title and level <= 1:
            self.title = self.outline.path[-1] if self.outline.path else ""

    def block(self, index: int, end: int, kind: str) -> int:
        """Lines from `index` up to `end` are one piece of another kind; goes on as prose."""
        self.mark(index, kind)
        self.prose(end)
        return end

    def while_(self, index: int, holds: Callable[[str], object]) -> int:
        """The first line from `index` on for which it no longer holds."""
        while index < len(self.lines) and holds(self.lines[index]):
            index += 1
        return index

    def after(self, index: int, closes: Callable[[str], object]) -> int:
        """The line after the first one that closes, or the end of the text."""
        return min(self.while_(index, lambda line: not closes(line)) + 1, len(self.lines))


def _document(text: str, scan: _Scan, form: str) -> Document:
    return Document(text, cut(text, _settle(scan.cuts)), scan.title, form)


def _settle(cuts: list[Cut]) -> Iterator[Cut]:
    """Of several cuts at one place only the last counts."""
    for this, following in zip(cuts, [*cuts[1:], None], strict=True):
        if following is None or following.start > this.start:
            yield this


def plain_title(markdown: str) -> str:
    """A Markdown title as it is displayed."""
    text = _MARKS.sub(_displayed, markdown)
    for _ in range(3):  # one in another
        text = _EMPHASIS.sub(r"\2", text)
    return text.replace(_STAR, "*")


def _displayed(found: re.Match[str]) -> str:
    if found["link"]:
        return _MARKS.sub(_displayed, found["link"])
    literal = (found["code"] or "").strip() or found["escaped"] or ""
    return literal.replace("*", _STAR) or found["address"] or ""


def read_markdown(data: bytes, form: str) -> Document:
    return of_markdown(decode(data), form)


def of_markdown(text: str, form: str) -> Document:
    scan = _Scan(text)
    index = _front_matter(scan)
    while index < len(scan.lines):
        index = _markdown_block(scan, index)
    return _document(text, scan, form)


def _front_matter(scan: _Scan) -> int:
    fence = scan.lines[0].rstrip()
    if fence not in {"---", "+++"}:
        return 0
    for end, line in enumerate(scan.lines[1:500], 1):
        if line.rstrip() in {fence, "..."}:
            found = _TITLE.search("\n".join(scan.lines[1:end]))
            scan.title = _front_title(found[1].strip()) if found else ""
            return scan.block(0, end + 1, "code")
        if end == 1 and not line.strip():  # a thematic break, not front matter
            break
    return 0


def _front_title(value: str) -> str:
    if value[:1] in {'"', "'"} and value[-1:] == value[:1]:
        return value[1:-1].strip()
    return "" if _FOLDED.match(value) else value


def _markdown_block(scan: _Scan, index: int) -> int:
    line = scan.lines[index]
    if not line.strip():
        return index + 1
    if line.lstrip().startswith("<!--"):
        return scan.after(index, lambda row: "-->" in row)
    if found := _ATX.match(line):
        title = line[found.end() : 2000].rstrip()
        bare = title.rstrip("#")  # a closing run of # is not part of the title
        scan.head(index, len(found[1]), plain_title(bare if not bare or bare[-1].isspace() else title))
        return index + 1
    if ("```" in line or "~~~" in line) and (found := _FENCE.match(line)) and _opens(*found.groups()):
        fence = found[1]
        closing = re.compile(rf"[ \t>]*{re.escape(fence[0])}{{{len(fence)},}}[ \t]*$")
        return scan.block(index, scan.after(index + 1, closing.match), "code")
    if "|" in line and index + 1 < len(scan.lines) and "|" in (rule := scan.lines[index + 1]) and _RULE.match(rule):
        return scan.block(index, scan.while_(index, lambda row: "|" in row), "table")
    return _markdown_paragraph(scan, index)


def _opens(fence: str, information: str) -> bool:
    """Whether it is a fence, and not a stretch of code within a line."""
    return fence[0] == "~" or "`" not in information


def _markdown_paragraph(scan: _Scan, index: int) -> int:
    """Goes to the paragraph's end; it is a heading if it is underlined."""
    first = index
    if _NOT_PARAGRAPH.match(scan.lines[index]):
        return index + 1
    while index + 1 < len(scan.lines):
        index += 1
        line = scan.lines[index]
        if found := _SETEXT.match(line):
            title = " ".join(scan.lines[first:index])[:2000]
            scan.head(first, 1 if found[1][0] == "=" else 2, plain_title(title))
            return index + 1
        if not line.strip() or _NOT_PARAGRAPH.match(line) or _ATX.match(line) or "```" in line or "~~~" in line:
            return index
    return index + 1


_ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1{2,}[ \t]*$")
_DIRECTIVE = re.compile(r"[ \t]*\.\. (?:code(?:-block)?|sourcecode|highlight|literalinclude|math|parsed-literal)::")
_GRID = re.compile(r"[ \t]*(?:\+[-=+]{2,}\+[ \t]*$|\|.*\|[ \t]*$)")


def read_rst(data: bytes, form: str) -> Document:
    text = decode(data)
    scan = _Scan(text)
    styles: list[tuple[str, bool]] = []  # adornments in the order of their first use: that is their level
    index = 0
    while index < len(scan.lines):
        index = _rst_section(scan, index, styles) or _rst_block(scan, index)
    return _document(text, scan, form)


def _rst_section(scan: _Scan, index: int, styles: list[tuple[str, bool]]) -> int:
    lines = [*scan.lines[index : index + 3], "", "", ""]
    over = bool(_ADORNMENT.match(lines[0]))
    title, under = (lines[1], lines[2]) if over else (lines[0], lines[1])
    if over and under.rstrip() != lines[0].rstrip():
        return 0
    title_fits = title.strip() and (over or not title[:1].isspace()) and not _ADORNMENT.match(title)
    if not title_fits or not (found := _ADORNMENT.match(under)) or len(under.rstrip()) < len(title.rstrip()):
        return 0
    style = (found[1], over)
    if style not in styles:
        styles.append(style)
    scan.head(index, styles.index(style) + 1, title.replace("`", "").replace("*", ""))
    return index + 2 + over


def _rst_block(scan: _Scan, index: int) -> int:
    line = scan.lines[index]
    if _DIRECTIVE.match(line) or (line.rstrip().endswith("::") and not line.lstrip().startswith("..")):
        indent = len(line) - len(line.lstrip())
        end = scan.while_(index + 1, lambda row: not row.strip() or len(row) - len(row.lstrip()) > indent)
        return scan.block(index + 1, end, "code") if end > index + 1 else index + 1
    if line.lstrip().startswith("+") and _GRID.match(line):
        return scan.block(index, scan.while_(index, _GRID.match), "table")
    return index + 1


_STARS = re.compile(
    r"(\*+)[ \t]+(?:(?:TODO|DONE|NEXT|WAITING|CANCELLED)[ \t]+)?(?:\[#\w\][ \t]+)?(.*?)(?:[ \t]+:[\w@#%:]+:)?[ \t]*$"
)
_ORG_TITLE = re.compile(r"#\+title:[ \t]*(.*)", re.IGNORECASE)
_ORG_BEGIN = re.compile(r"[ \t]*#\+begin_(src|example|export)\b", re.IGNORECASE)


def read_org(data: bytes, form: str) -> Document:
    text = decode(data)
    scan = _Scan(text)
    index = 0
    while index < len(scan.lines):
        line = scan.lines[index]
        if line.startswith("*") and (found := _STARS.match(line[:1000])):
            scan.head(index, len(found[1]), found[2])
        elif found := _ORG_TITLE.match(line):
            scan.title = found[1]
        elif found := _ORG_BEGIN.match(line):
            closing = re.compile(rf"[ \t]*#\+end_{found[1]}", re.IGNORECASE)
            index = scan.block(index, scan.after(index + 1, closing.match), "code")
            continue
        elif line.lstrip().startswith("|"):
            index = scan.block(index, scan.while_(index, lambda row: row.lstrip().startswith("|")), "table")
            continue
        index += 1
    return _document(text, scan, form)


_COMMAND = re.compile(
    r"[ \t]*\\(title|part|chapter|section|subsection|subsubsection|paragraph|subparagraph)"
    r"\*?[ \t]*(?:\[[^\]]*\])?\{(.*)"
)
_VERBATIM = re.compile(r"[ \t]*\\begin\{(verbatim\*?|lstlisting|minted|Verbatim)\}")
_LEVELS = {
    "part": 0,
    "chapter": 1,
    "section": 2,
    "subsection": 3,
    "subsubsection": 4,
    "paragraph": 5,
    "subparagraph": 6,
}
_TEX = re.compile(r"\\[a-zA-Z]+\*?[ \t]*|[{}~$]|\\(?=[&%$#_{}])")


def read_latex(data: bytes, form: str) -> Document:
    text = decode(data)
    scan = _Scan(text)
    index = 0
    while index < len(scan.lines):
        line = scan.lines[index]
        if "\\" in line and (found := _COMMAND.match(line)):
            title = _TEX.sub(" ", _braced(found[2], scan.lines[index + 1 : index + 4]))
            if found[1] == "title":
                scan.title = " ".join(title.split())
            else:
                known = scan.title
                scan.head(index, _LEVELS[found[1]], title)
                scan.title = known
        elif "\\" in line and (found := _VERBATIM.match(line)):
            closing = re.compile(r".*\\end\{" + re.escape(found[1]) + r"\}")
            index = scan.block(index, scan.after(index + 1, closing.match), "code")
            continue
        index += 1
    return _document(text, scan, form)


def _braced(rest: str, following: list[str]) -> str:
    """What stands up to the brace that closes an open one."""
    text = "\n".join([rest, *following])[:2000]
    depth = 1
    for position, character in enumerate(text):
        depth += (character == "{") - (character == "}")
        if not depth:
            return text[:position]
    return rest


_ADOC_HEAD = re.compile(r"(={1,6}|#{1,6})[ \t]+(\S.*)")
_ADOC_BLOCK = re.compile(r"(-{4,}|\.{4,}|`{3,}|\|===)[a-z ]*$")


def read_asciidoc(data: bytes, form: str) -> Document:
    text = decode(data)
    scan = _Scan(text)
    index = 0
    while index < len(scan.lines):
        line = scan.lines[index]
        if found := _ADOC_HEAD.match(line):
            scan.head(index, len(found[1]), plain_title(found[2][:2000]))
        elif found := _ADOC_BLOCK.match(line):
            closing = re.compile(re.escape(found[1]) + r"[ \t]*$")
            end = scan.after(index + 1, closing.match)
            index = scan.block(index, end, "table" if found[1] == "|===" else "code")
            continue
        index += 1
    return _document(text, scan, form)
