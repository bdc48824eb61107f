"""Read LaTeX: the text with its commands, but with accents, ties and escaped signs as letters."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from ..plain_text.encoding import decode
from .line_scanner import LineScanner, replace_outside_code

if TYPE_CHECKING:
    from ...documents.document import Document

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
_STRING = re.compile(r"\\texorpdfstring[ \t]*\{(?:[^{}]|\{[^{}]*\})*\}[ \t]*\{([^{}]*)\}")
_MARKS = re.compile(
    r"\\(?:thanks|footnote|label|index|cite\w*)\{[^{}]*\}|\\[a-zA-Z]+\*?(?=\{)|[{}$]"
    r"|(?P<space>\\[a-zA-Z]+\*?[ \t]*|\\\\(?:\[[^\]]*\])?)"
)
_IS_MARKS = re.compile(
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
_LETTER = re.compile(
    r"\\\\|\\(?:verb|lstinline)\*?(?P<delimiter>[^\w\s*{])[^\n]*?(?P=delimiter)"  # these and formulas do not change
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
    scanner = LineScanner(text)
    index = 0
    while index < len(scanner.lines):
        line = scanner.lines[index]
        if "\\" in line and (match := _COMMAND.match(line)):
            title = _plain_title(_braced(match[2], scanner.lines[index + 1 : index + 4]))
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
    document = scanner.document(format_name)
    return replace_outside_code(document, _LETTER, _letter) if _IS_MARKS.search(text) else document


def _plain_title(source: str) -> str:
    """A title without its commands, as a page shows it."""
    title = _LETTER.sub(_letter, _STRING.sub(r"\1", source))
    return " ".join(_MARKS.sub(lambda match: " " if match["space"] else "", title).split())


def _letter(match: re.Match[str]) -> str:
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
