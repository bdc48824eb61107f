"""Read Markdown, reStructuredText, Org, LaTeX and AsciiDoc.

The text of the file keeps its marks; only the character references of Markdown, such as &amp;, and the accents, ties
and escaped signs of LaTeX become letters. It is split at headings, code and tables.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import replace
from html import unescape
from html.entities import html5
from typing import TYPE_CHECKING

from ...documents.document import Document
from ..base import HeadingStack, PartStart, split_parts
from ..plain_text.encoding import SOFT_HYPHEN, decode
from ..tables import columns_heading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..base import Heading

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


class _LineScanner:
    """Walk over the lines of a text and record where its parts begin."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.line_starts = []
        position = 0
        for line in self.lines:
            self.line_starts.append(position)
            position += len(line) + 1
        self.headings = HeadingStack()
        self.part_starts = [PartStart(0)]
        self.title = ""

    def prose(self, index: int) -> None:
        """Begin a part of prose at a line."""
        self.mark(index, "prose")

    def mark(self, index: int, kind: str, names: Heading = ()) -> None:
        """Begin a part of a kind at a line."""
        if index < len(self.line_starts):
            self.part_starts.append(PartStart(self.line_starts[index], self.headings.path + names, kind))

    def enter_heading(self, index: int, level: int, title: str) -> None:
        """Begin a section at a line."""
        self.headings.enter(level, title)
        self.mark(index, "prose")

    def block(self, index: int, end: int, kind: str, names: Heading = ()) -> int:
        """Make the lines from `index` up to `end` one part of another kind, with prose behind; returns `end`.

        :param names: of the columns of a table, as a further heading.
        """
        self.mark(index, kind, names)
        self.prose(end)
        return end

    def skip_while(self, index: int, holds: Callable[[str], object]) -> int:
        """The first line from `index` on that does not pass."""
        while index < len(self.lines) and holds(self.lines[index]):
            index += 1
        return index

    def line_after(self, index: int, closes: Callable[[str], object]) -> int:
        """The line after the first one that closes the block, or the end of the text."""
        return min(self.skip_while(index, lambda line: not closes(line)) + 1, len(self.lines))


def _document(text: str, scanner: _LineScanner, format_name: str) -> Document:
    title = scanner.title or scanner.headings.title(deepest=1)
    return Document(text, split_parts(text, _last_starts(scanner.part_starts)), title, format_name)


def _last_starts(starts: list[PartStart]) -> Iterator[PartStart]:
    """Keep only the last of several parts that begin at one position."""
    for start, following in zip(starts, [*starts[1:], None], strict=True):
        if following is None or following.start > start.start:
            yield start


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


def read_markdown(data: bytes, format_name: str) -> Document:
    """Read Markdown, with its front matter as code and its character references as the letters that a page shows."""
    return with_letters(parse_markdown(decode(data), format_name))


def with_letters(document: Document) -> Document:
    """Replace the character references of a Markdown document by their letters; in code they stand for themselves.

    Lines stay as they are. So does a text that a program adds: it is stored as it was given.
    """
    return _outside_code(document, _REFERENCE, _referred) if "&" in document.text else document


def _referred(match: re.Match[str]) -> str:
    return _letters(match["entity"]) if match["entity"] else match[0]


def _outside_code(document: Document, pattern: re.Pattern[str], letters: Callable[[re.Match[str]], str]) -> Document:
    """Replace what a pattern matches, except in code."""
    pieces: list[str] = []
    parts = []
    position = length = 0
    for part in document.parts:
        text = document.text[part.start : part.end]
        if part.kind != "code":
            text = pattern.sub(letters, text)
        pieces += [document.text[position : part.start], text]
        start = length + part.start - position
        position, length = part.end, start + len(text)
        parts.append(replace(part, start=start, end=length))
    return replace(document, text="".join([*pieces, document.text[position:]]), parts=tuple(parts))


def parse_markdown(text: str, format_name: str) -> Document:
    """Split a Markdown text into its parts."""
    scanner = _LineScanner(text)
    index = _front_matter(scanner)
    while index < len(scanner.lines):
        index = _markdown_block(scanner, index)
    return _document(text, scanner, format_name)


def _front_matter(scanner: _LineScanner) -> int:
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


def _markdown_block(scanner: _LineScanner, index: int) -> int:
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
    return _markdown_paragraph(scanner, index)


def _end_of_html(scanner: _LineScanner, index: int) -> int:
    """Return the line after a comment or a block such as <pre>, which holds no Markdown; 0 if none begins here."""
    line = scanner.lines[index]
    if line.lstrip().startswith("<!--"):
        return scanner.line_after(index, lambda row: "-->" in row)
    if _RAW_HTML.match(line):
        return scanner.block(index, scanner.line_after(index, _RAW_END.match), "code")
    return 0


def _html_heading(scanner: _LineScanner, index: int) -> int:
    """Enter a heading in HTML, as many README files begin with; returns the line after it, 0 if there is none."""
    text = "\n".join(scanner.lines[index : index + 10])[:2000]
    if not (match := _HTML_HEADING.match(text)) or not (title := plain_title(match[2]).strip()):
        return 0
    scanner.enter_heading(index, int(match[1]), title)
    return index + 1 + match[0].count("\n")


def _opens(fence: str, information: str) -> bool:
    """Whether a line of backticks or tildes opens a block, not code within a line."""
    return fence[0] == "~" or "`" not in information


def _markdown_paragraph(scanner: _LineScanner, index: int) -> int:
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


_ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1{2,}[ \t]*$")
_UNDERLINE = re.compile(r"([!-/:-@\[-`{-~])\1*[ \t]*$")
_RST_MARKS = re.compile(  # code, and a role or a link around the words that a page shows
    r"``(?P<code>[^`]+)``|(?::[A-Za-z][\w:+.-]*:)?`[!~]?(?P<shown>[^`<]+?)(?:[ \t]+<[^`<>]*>)?`(?:__?(?!\w))?"
)
_MIN_UNDERLINE = 4  # signs: a shorter underline is as long as its title
_DIRECTIVE = re.compile(r"[ \t]*\.\. (?:code(?:-block)?|sourcecode|highlight|literalinclude|math|parsed-literal)::")
_GRID = re.compile(r"[ \t]*(?:\+[-=+]{2,}\+[ \t]*$|\|.*\|[ \t]*$)")


def read_rst(data: bytes, format_name: str) -> Document:
    """Read reStructuredText."""
    text = decode(data)
    scanner = _LineScanner(text)
    styles: list[tuple[str, bool]] = []  # the level of an adornment is the order of its first use
    index = 0
    while index < len(scanner.lines):
        index = _rst_section(scanner, index, styles) or _rst_block(scanner, index)
    return _document(text, scanner, format_name)


def _rst_section(scanner: _LineScanner, index: int, styles: list[tuple[str, bool]]) -> int:
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
    scanner.enter_heading(index, styles.index(style) + 1, _rst_title(title[:2000]))
    return index + 2 + over


def _rst_title(title: str) -> str:
    """A title without its roles, links and emphasis."""
    text = _RST_MARKS.sub(lambda match: match["code"] or match["shown"], title)
    return text.replace("`", "").replace("*", "")


def _is_underlined(title: str, under: str, *, over: bool) -> bool:
    length = len(under.rstrip())
    return length >= len(title.rstrip()) or (length >= _MIN_UNDERLINE and not over)


def _rst_block(scanner: _LineScanner, index: int) -> int:
    line = scanner.lines[index]
    if _DIRECTIVE.match(line) or (line.rstrip().endswith("::") and not line.lstrip().startswith("..")):
        indent = len(line) - len(line.lstrip())
        end = scanner.skip_while(index + 1, lambda row: not row.strip() or len(row) - len(row.lstrip()) > indent)
        return scanner.block(index + 1, end, "code") if end > index + 1 else index + 1
    if line.lstrip().startswith("+") and _GRID.match(line):
        return scanner.block(index, scanner.skip_while(index, _GRID.match), "table")
    return index + 1


_STARS = re.compile(
    r"(\*+)[ \t]+(?:(?:TODO|DONE|NEXT|WAITING|CANCELLED)[ \t]+)?(?:\[#\w\][ \t]+)?(.*?)(?:[ \t]+:[\w@#%:]+:)?[ \t]*$"
)
_ORG_TITLE = re.compile(r"#\+title:[ \t]*(.*)", re.IGNORECASE)
_ORG_MARKS = re.compile(  # a link, code and verbatim words
    r"\[\[(?P<address>[^\[\]]*)\](?:\[(?P<shown>[^\[\]]*)\])?\]|(?<!\w)(?P<sign>[=~])(?P<code>\S|\S.*?\S)(?P=sign)(?!\w)"
)
_ORG_BEGIN = re.compile(r"[ \t]*#\+begin_(src|example|export)\b", re.IGNORECASE)


def read_org(data: bytes, format_name: str) -> Document:
    """Read an Org file."""
    text = decode(data)
    scanner = _LineScanner(text)
    index = 0
    while index < len(scanner.lines):
        line = scanner.lines[index]
        if line.startswith("*") and (match := _STARS.match(line[:1000])):
            scanner.enter_heading(index, len(match[1]), _org_title(match[2]))
        elif match := _ORG_TITLE.match(line):
            scanner.title = _org_title(match[1])
        elif match := _ORG_BEGIN.match(line):
            closing = re.compile(rf"[ \t]*#\+end_{match[1]}", re.IGNORECASE)
            index = scanner.block(index, scanner.line_after(index + 1, closing.match), "code")
            continue
        elif line.lstrip().startswith("|"):
            index = scanner.block(index, scanner.skip_while(index, lambda row: row.lstrip().startswith("|")), "table")
            continue
        index += 1
    return _document(text, scanner, format_name)


def _org_title(title: str) -> str:
    return _ORG_MARKS.sub(lambda match: match["code"] or match["shown"] or match["address"] or "", title[:1000])


_COMMAND = re.compile(
    r"[ \t]*\\(title|part|chapter|section|subsection|subsubsection|paragraph|subparagraph)"
    r"\*?[ \t]*(?:\[[^\]]*\])?\{(.*)"
)
_VERBATIM = re.compile(r"[ \t]*\\begin\{(verbatim\*?|lstlisting|minted|Verbatim|comment)\}")
_LEVELS = {
    "part": 0,
    "chapter": 1,
    "section": 2,
    "subsection": 3,
    "subsubsection": 4,
    "paragraph": 5,
    "subparagraph": 6,
}
_TEX_STRING = re.compile(r"\\texorpdfstring[ \t]*\{(?:[^{}]|\{[^{}]*\})*\}[ \t]*\{([^{}]*)\}")
_TEX = re.compile(
    r"\\(?:thanks|footnote|label|index|cite\w*)\{[^{}]*\}|\\[a-zA-Z]+\*?(?=\{)|[{}$]"
    r"|(?P<space>\\[a-zA-Z]+\*?[ \t]*|\\\\(?:\[[^\]]*\])?)"
)
_IS_TEX = re.compile(
    r"\\[a-zA-Z]{2,}[ \t]*[\[{]|^[ \t]*@\w+[ \t]*\{", re.MULTILINE
)  # not a .cls file of another language
_ACCENTS = {
    '"': 0x308, "'": 0x301, "`": 0x300, "^": 0x302, "~": 0x303, "=": 0x304, ".": 0x307, "u": 0x306, "v": 0x30C,
    "H": 0x30B, "c": 0x327, "k": 0x328, "r": 0x30A,
}  # fmt: skip
_SPECIAL = {
    "ss": "ß", "ae": "æ", "AE": "Æ", "oe": "œ", "OE": "Œ", "aa": "å", "AA": "Å", "o": "ø", "O": "Ø", "l": "ł", "L": "Ł",
}  # fmt: skip
_SPECIAL_NAMES = "|".join(_SPECIAL)
_ACCENTED = r"\\(?:[\"'`^~=.]|[uvHckr](?=[ \t{\\]))[ \t]*(?:\{\\?[a-zA-Z]\}|\\[ij](?![a-zA-Z])[ \t]*|[a-zA-Z])"
_TEX_LETTER = re.compile(
    r"\\\\|\\(?:verb|lstinline)\*?(?P<delimiter>[^\w\s*{])[^\n]*?(?P=delimiter)"  # these and formulas stay as they are
    r"|\\(?:url|href|path|nolinkurl)[ \t]*\{[^{}\n]*\}|\$[^$\n]*\$"
    rf"|(?P<accented>\{{{_ACCENTED}\}}|{_ACCENTED})"
    rf"|\{{\\(?P<grouped>{_SPECIAL_NAMES})\}}"
    rf"|\\(?P<special>{_SPECIAL_NAMES})(?![a-zA-Z])(?:\{{\}}|[ \t]+(?=\S))?"
    r"|\\(?P<sign>[~^])\{\}|\\(?P<escaped>[&%$#_{}])|(?P<space>~|\\[,; ])|(?P<nothing>\\[-/])"
    r"|(?<![\w\\}\]])\{(?P<capital>[A-Z]+)\}(?=[a-z])"  # {B}ayesian, in a bibliography
)


def read_latex(data: bytes, format_name: str) -> Document:
    r"""Read LaTeX, with its accents and escaped signs as letters: G\"odel, R\&D, Fig.~3. Formulas and code stay."""
    text = decode(data)
    scanner = _LineScanner(text)
    index = 0
    while index < len(scanner.lines):
        line = scanner.lines[index]
        if "\\" in line and (match := _COMMAND.match(line)):
            title = _tex_title(_braced(match[2], scanner.lines[index + 1 : index + 4]))
            if match[1] == "title":
                scanner.title = title
            else:
                scanner.enter_heading(index, _LEVELS[match[1]], title)
        elif "\\" in line and (match := _VERBATIM.match(line)):
            closing = re.compile(r".*\\end\{" + re.escape(match[1]) + r"\}")
            first = index if closing.match(line) else index + 1
            index = scanner.block(index, scanner.line_after(first, closing.match), "code")
            continue
        index += 1
    document = _document(text, scanner, format_name)
    return _outside_code(document, _TEX_LETTER, _tex_letter) if _IS_TEX.search(text) else document


def _tex_title(source: str) -> str:
    """A title without its commands, as a page shows it."""
    title = _TEX_LETTER.sub(_tex_letter, _TEX_STRING.sub(r"\1", source))
    return " ".join(_TEX.sub(lambda match: " " if match["space"] else "", title).split())


def _tex_letter(match: re.Match[str]) -> str:
    if accented := match["accented"]:
        command, letter = accented.strip("{\\ \t")[0], accented.rstrip("} \t")[-1]
        composed = unicodedata.normalize("NFC", letter + chr(_ACCENTS[command]))
        return composed if len(composed) == 1 else accented
    if name := match["grouped"] or match["special"]:
        return _SPECIAL[name]
    if match["space"]:
        return " "
    letter = match["sign"] or match["escaped"] or match["capital"]
    return letter or ("" if match["nothing"] else match[0])


def _braced(rest: str, following: list[str]) -> str:
    """The text up to the brace that closes one already open."""
    text = "\n".join([rest, *following])[:2000]
    depth = 1
    for position, character in enumerate(text):
        depth += (character == "{") - (character == "}")
        if not depth:
            return text[:position]
    return rest


_ADOC_HEAD = re.compile(r"(={1,6}|#{1,6})[ \t]+(\S.*)")
_ADOC_BLOCK = re.compile(r"(-{4,}|\.{4,}|/{4,}|\+{4,}|`{3,}|\|===)[a-z ]*$")
_ADOC_UNDER = re.compile(r"(=+|-+|~+|\^+|\++)[ \t]*$")
_ADOC_TITLE = re.compile(r"(?![.\[|]|[-*.]+[ \t]).*\w")  # of that style; none is a list item
_ADOC_LEVELS = "=-~^+"
_ADOC_ABOVE = re.compile(  # a line that may stand above a title: an anchor or attributes, a comment, a condition
    r"(?:\[.*\]|//.*|:[^\s:]+:.*|(?:ifn?def|ifeval|endif)::.*)?[ \t]*$"
)
_ADOC_MARKS = re.compile(  # an anchor or an index term, a link or a picture, a cross-reference, curved quotes
    r"\[\[[^\[\]]*\]\]|\(\(\([^()]*\)\)\)"
    r"|(?:link:|xref:|image:|(?=https?://))(?P<target>[^\s\[\]]+)\[(?P<shown>[^\[\]]*)\]"
    r"|<<(?P<id>[^<>,]+)(?:,(?P<label>[^<>]*))?>>"
    r"|(?P<sign>[\"'])`(?P<quoted>[^`]+)`(?P=sign)"
)


def _adoc_level(scanner: _LineScanner, index: int) -> int:
    """The level of a title that is underlined, the older style; 0 for any other line."""
    title, under = [*scanner.lines[index : index + 2], ""][:2]
    if not (match := _ADOC_UNDER.match(under)) or not _ADOC_TITLE.match(title := title.rstrip()):
        return 0
    return _ADOC_LEVELS.index(match[1][0]) + 1 if abs(len(match[1]) - len(title)) <= 1 < len(match[1]) else 0


def _adoc_title(title: str) -> str:
    return plain_title(_ADOC_MARKS.sub(_adoc_shown, title[:2000]))


def _adoc_shown(match: re.Match[str]) -> str:
    if match["target"]:
        shown = match["shown"].partition(",")[0].strip().strip('"')
        return shown if shown and "=" not in shown else match["target"]
    if match["quoted"]:
        return f"“{match['quoted']}”" if match["sign"] == '"' else f"‘{match['quoted']}’"
    return match["label"] or match["id"] or ""


def read_asciidoc(data: bytes, format_name: str) -> Document:
    """Read AsciiDoc."""
    text = decode(data)
    scanner = _LineScanner(text)
    index = below = 0  # `below`: the line below the last title or block, which may be a title
    while index < len(scanner.lines):
        line = scanner.lines[index]
        may_begin = index == below or _ADOC_ABOVE.match(scanner.lines[index - 1])
        if match := _ADOC_HEAD.match(line):
            scanner.enter_heading(index, len(match[1]), _adoc_title(match[2]))
            index = below = index + 1
        elif may_begin and (level := _adoc_level(scanner, index)):
            scanner.enter_heading(index, level, _adoc_title(line))
            index = below = index + 2
        elif match := _ADOC_BLOCK.match(line):
            closing = re.compile(re.escape(match[1]) + r"[ \t]*$")
            end = scanner.line_after(index + 1, closing.match)
            index = below = scanner.block(index, end, "table" if match[1] == "|===" else "code")
        else:
            index += 1
    return _document(text, scanner, format_name)
