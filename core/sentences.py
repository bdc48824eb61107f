"""Split text into sentences by rules over punctuation, for any alphabet, and strip Markdown from them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Ends of a sentence: a mark with its closing quotes or brackets before white space; a full-width mark, which needs no
# white space; a blank line; a line before an item of a list.
_END = re.compile(
    r"(?<![.!?…‽؟۔।])(?P<mark>[.!?…‽؟۔।]++)[\"')\]»”’*_]*+(?=\s|$)"
    r"|[。！？｡]+[」』）”’]*+"
    r"|(?=\n[ \t]*+\n|\n[ \t]*+(?:[-*+•>|#]|\d{1,3}[.)])[ \t])"
)
# Abbreviations that end in a dot inside a sentence, in several languages. Single letters and words with a dot inside
# count as abbreviations too.
_SHORT = frozenset(
    re.findall(
        r"\w+",
        "al approx art bd bzw ca cf cit co cp dept dr ed eds eq eqs esp est etc fig figs gen inc jr kap lt ltd max min "
        "mr mrs ms no nos nr núm op pp prof resp sec sect sig sr sra st str tab u usw vgl vol vols vs z zb",
    )
)


def spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of each sentence in order, without white space around it."""
    cased = any(character.isupper() for character in text)
    start = 0
    for match in _END.finditer(text):
        if match["mark"] == "." and _continues(text, match.start(), match.end(), cased=cased):
            continue
        yield from _stripped(text, start, match.end())
        start = match.end()
    yield from _stripped(text, start, len(text))


def _continues(text: str, dot: int, end: int, *, cased: bool) -> bool:
    """Whether the dot belongs to an abbreviation or a number, so that the sentence continues."""
    if dot == 0 or text[dot - 1].isspace():
        return False
    after = text[end : end + 40].lstrip()
    if cased and after[:1].islower():
        return True
    before = text[max(0, dot - 40) : dot]
    word = re.split(r"[\s(\[\"'“„«]", before)[-1]
    is_short = word.casefold() in _SHORT or "." in word or (len(word) == 1 and word.isalpha())
    return bool(after) and is_short and not (word.casefold() in {"al", "etc"} and after[:1].isupper())


def _stripped(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    piece = text[start:end]
    left, right = start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())
    if any(character.isalnum() for character in text[left:right]):
        yield left, right


_LINK = re.compile(r"!?\[([^\[\]]*)\](?:\([^()\s]*(?:\s[^()]*)?\)|\[[^\[\]]*\])")
_COMMENT = re.compile(r"<!--[^<>]*-->")
_MARK = re.compile(
    r"(?<!\w)[*_`]{1,3}(?=\S)|(?<=\S)[*_`]{1,3}(?!\w)|^[^\S\n]*+(?:#{1,6}|[-*+•>|]|\d{1,3}[.)])\s++", re.MULTILINE
)


def plain(text: str) -> str:
    """Return a text on one line, without comments and Markdown's marks around words."""
    return " ".join(_MARK.sub("", _LINK.sub(r"\1", _COMMENT.sub(" ", text))).split())
