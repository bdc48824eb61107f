"""Read Markdown.

The text keeps its marks; only character references, such as &amp;, become letters. It is split at headings, code and
tables.
"""

from __future__ import annotations

import re
from html import unescape
from html.entities import html5
from typing import TYPE_CHECKING

from ..plain_text.encoding import SOFT_HYPHEN, decode
from ..table_rows import columns_heading
from .line_scanner import LineScanner, replace_outside_code

if TYPE_CHECKING:
    from ...documents.document import Document

_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]+|$)")
_SETEXT = re.compile(r" {0,3}(=+|-{2,})[ \t]*$")
_FENCE = re.compile(r"[ \t]*(?:(?:[-*+>]|\d{1,9}[.)])[ \t]+)*+(`{3,}|~{3,})(.*)$")
_RAW_HTML = re.compile(r" {0,3}<(?:pre|script|style|textarea)(?:[\s>]|$)", re.IGNORECASE)
_RAW_END = re.compile(r".*</(?:pre|script|style|textarea)>", re.IGNORECASE)
_HTML_HEADING = re.compile(r" {0,3}<h([1-6])(?:\s[^>]*)?>(.*?)</h\1\s*>", re.DOTALL | re.IGNORECASE)
_ATTRIBUTES = re.compile(r"(?<=\S)[ \t]+\{:?[ \t]*[#.][\w-][^{}]*\}$")  # of a heading: {#install}
_ITEM = re.compile(r"[ \t]*(?:[-*+>]|\d+[.)])[ \t]")
_RULE = re.compile(r"[ \t]*+\|?[ \t]*+:?-++:?[ \t]*+(?:\|[ \t]*+:?-++:?[ \t]*+)*+\|?[ \t]*+$")
_NOT_PARAGRAPH = re.compile(r"[ \t]*(?:[-*+>|]|\d+[.)])[ \t]|    |\t|[ \t]*<|[ \t]*(?:[-*_][ \t]*){3,}$")
_TITLE = re.compile(r"^title[ \t]*+[:=](.*)", re.MULTILINE | re.IGNORECASE)
_FOLDED = re.compile(r"[|>][-+0-9]*$")  # in YAML, the value follows on the next lines
_MARKS = re.compile(
    r"(?<!`)(?P<ticks>`++)(?P<code>.+?)(?<!`)(?P=ticks)(?!`)"
    r"|\\(?P<escaped>[!-/:-@\[-`{-~])"
    r"|!?\[(?P<link>[^\[\]]*)\](?:\([^()\s]*(?:[ \t]+[^()]*)?\)|\[[^\[\]]*\])"
    r"|<(?P<address>[A-Za-z][\w+.-]*+:[^<>\s]*|[^<>\s@]++@[^<>\s]*)>"
    r"|(?P<entity>&(?:\w{2,31}|#\d{1,7}|#[xX][0-9a-fA-F]{1,6});)"
    r"|</?[a-z][a-z\d-]*+(?:\s[^<>]*)?/?>|<[A-Z]+\s[^<>]*=[^<>]*>|<!--.*?-->"
)
_EMPHASIS = re.compile(r"(\*+)(?=[^\s*])(.*?[^\s*])\1")
_REFERENCE = re.compile(
    r"^(?: {4}|\t).*"  # code, perhaps
    r"|(?<!`)(?P<ticks>`++)(?:[^\n]|\n(?![ \t]*\n)){1,1000}?(?<!`)(?P=ticks)(?!`)"
    r"|\\[&`\\]"
    r"|(?P<entity>&(?:\w{2,31}|#\d{1,7}|#[xX][0-9a-fA-F]{1,6});)",
    re.MULTILINE,
)
_STAR = "\0"  # stands for a literal star until the emphasis marks are removed


def read_markdown(data: bytes, format_name: str) -> Document:
    """Read Markdown, with its front matter as code and its character references as the letters that a page shows."""
    return with_letters(parse_markdown(decode(data), format_name))


def with_letters(document: Document) -> Document:
    """Replace the character references of a Markdown document by their letters; in code they stand for themselves.

    The lines stay the same. A text that a program adds is not changed at all.
    """
    return replace_outside_code(document, _REFERENCE, _referred) if "&" in document.text else document


def _referred(match: re.Match[str]) -> str:
    return _letters(match["entity"]) if match["entity"] else match[0]


def parse_markdown(text: str, format_name: str) -> Document:
    """Split a Markdown text into its parts."""
    scanner = LineScanner(text)
    index = _front_matter(scanner)
    while index < len(scanner.lines):
        index = _block(scanner, index)
    return scanner.document(format_name)


def _front_matter(scanner: LineScanner) -> int:
    fence = scanner.lines[0].rstrip()
    if fence not in {"---", "+++"}:
        return 0
    for end, line in enumerate(scanner.lines[1:500], 1):
        if line.rstrip() in {fence, "..."}:
            match = _TITLE.search("\n".join(scanner.lines[1:end]))
            scanner.title = _front_title(match[1].strip()) if match else ""
            return scanner.block(0, end + 1, "code")
        if end == 1 and not line.strip():  # a thematic break, not front matter
            break
    return 0


def _front_title(value: str) -> str:
    if value[:1] in {'"', "'"} and value[-1:] == value[:1]:
        return value[1:-1].strip()
    return "" if _FOLDED.match(value) else value


def _block(scanner: LineScanner, index: int) -> int:
    line = scanner.lines[index]
    if not line.strip():
        return index + 1
    if "<" in line and (end := _end_of_html(scanner, index) or _html_heading(scanner, index)):
        return end
    if match := _ATX.match(line):
        title = line[match.end() : 2000].rstrip()
        bare = title.rstrip("#")  # a closing run of # does not belong to the title
        scanner.enter_heading(index, len(match[1]), plain_title(bare if not bare or bare[-1].isspace() else title))
        return index + 1
    if ("```" in line or "~~~" in line) and (match := _FENCE.match(line)) and _opens(*match.groups()):
        fence = match[1]
        closing = re.compile(rf"[ \t>]*{re.escape(fence[0])}{{{len(fence)},}}[ \t]*$")
        return scanner.block(index, scanner.line_after(index + 1, closing.match), "code")
    if (
        "|" in line
        and index + 1 < len(scanner.lines)
        and "|" in (rule := scanner.lines[index + 1])
        and _RULE.match(rule)
    ):
        end = scanner.skip_while(index, lambda row: "|" in row)
        header = map(plain_title, map(str.strip, line.strip().strip("|").split("|")))
        return scanner.block(index, end, "table", columns_heading(scanner.lines[index:end], header))
    return _paragraph(scanner, index)


def _end_of_html(scanner: LineScanner, index: int) -> int:
    """Return the line after a comment or a block such as <pre>, which holds no Markdown; 0 if none begins here."""
    line = scanner.lines[index]
    if line.lstrip().startswith("<!--"):
        return scanner.line_after(index, lambda row: "-->" in row)
    if _RAW_HTML.match(line):
        return scanner.block(index, scanner.line_after(index, _RAW_END.match), "code")
    return 0


def _html_heading(scanner: LineScanner, index: int) -> int:
    """Enter a heading in HTML, as many README files begin with; returns the line after it, 0 if there is none."""
    text = "\n".join(scanner.lines[index : index + 10])[:2000]
    if not (match := _HTML_HEADING.match(text)) or not (title := plain_title(match[2]).strip()):
        return 0
    scanner.enter_heading(index, int(match[1]), title)
    return index + 1 + match[0].count("\n")


def _opens(fence: str, information: str) -> bool:
    """Whether a line of backticks or tildes opens a block, not code within a line."""
    return fence[0] == "~" or "`" not in information


def _paragraph(scanner: LineScanner, index: int) -> int:
    """Move to the end of a paragraph, which is a heading if it is underlined."""
    first = index
    is_item = _ITEM.match(scanner.lines[index])  # a rule below a list item is no underline
    if _NOT_PARAGRAPH.match(scanner.lines[index]) and not is_item:
        return index + 1
    while index + 1 < len(scanner.lines):
        index += 1
        line = scanner.lines[index]
        if (match := _SETEXT.match(line)) and not is_item:
            title = " ".join(scanner.lines[first:index])[:2000]
            scanner.enter_heading(first, 1 if match[1][0] == "=" else 2, plain_title(title))
            return index + 1
        if not line.strip() or _NOT_PARAGRAPH.match(line) or _ATX.match(line) or "```" in line or "~~~" in line:
            return index
    return index + 1


def plain_title(markdown: str) -> str:
    """A Markdown title without its marks and its attributes, as a page shows it."""
    text = _MARKS.sub(_displayed, _ATTRIBUTES.sub("", markdown.rstrip()))
    for _ in range(3):  # emphasis inside emphasis
        text = _EMPHASIS.sub(r"\2", text)
    return text.replace(_STAR, "*")


def _displayed(match: re.Match[str]) -> str:
    if match["link"]:
        return _MARKS.sub(_displayed, match["link"])
    if match["entity"]:
        return _letters(match["entity"]).replace("*", _STAR)
    if match[0][:3].lower() == "<br":
        return " "
    literal = (match["code"] or "").strip() or match["escaped"] or ""
    return literal.replace("*", _STAR) or match["address"] or ""


def _letters(reference: str) -> str:
    """The letters that a character reference stands for; itself if there are none that one can see."""
    if reference[1] != "#" and reference[1:] not in html5:
        return reference
    letters = unescape(reference).replace("\xa0", " ").replace(SOFT_HYPHEN, "")
    return letters if letters.isprintable() else reference
