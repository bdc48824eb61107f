"""Find the letters of a PDF page that a person reads and a program cannot: their font does not say which they are.

PDF draws glyphs by number. A table in the font gives the Unicode character of each number; without it, PDFium returns
the number as a character. Such words are gibberish, so they are left out, and OCR may read them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import pypdfium2.raw as pdfium_c

from .hidden_text import positions

if TYPE_CHECKING:
    Box = tuple[float, float, float, float]  # left, bottom, right, top in points

_STEP = 4  # letters: every fourth is looked at, and all of them only where one of these is unknown
_UNKNOWN = "\ufffd"
_WORD = re.compile(r"\S+")
_MIN_UNKNOWN = 20  # letters in words; fewer are bullets and other signs
_MIN_SIGNS = 100  # characters of a text that may be nothing but signs
_MIN_WORD = 12  # characters of a word on average, where the space is a sign too
_SIGN = re.compile(r"[!-/:-@\[-`{-~]")


class Legible(NamedTuple):
    """The text of a page with blanks for unknown letters."""

    text: str
    is_lacking: bool = False  # words
    box: Box | None = None  # around the unknown letters; None for the whole page


def legible(text_page: Any, text: str) -> Legible:
    """Blank out the letters of a page that have no Unicode.

    :param text: of the page, as PDFium returned it.
    """
    if _is_signs(text):
        return Legible("", is_lacking=True)
    is_unknown, raw = pdfium_c.FPDFText_HasUnicodeMapError, text_page.raw
    if not any(is_unknown(raw, number) == 1 for number in range(0, text_page.count_chars(), _STEP)):
        return Legible(text)
    letters = list(text)
    boxes = []
    for number, position in positions(text_page, text):
        if is_unknown(raw, number) == 1:
            letters[position] = _UNKNOWN
            boxes.append(text_page.get_charbox(number))
    marked = "".join(letters)
    words = [word for word in _WORD.findall(marked) if len(word) > 1]
    is_lacking = sum(word.count(_UNKNOWN) for word in words) >= _MIN_UNKNOWN
    lefts, bottoms, rights, tops = zip(*boxes, strict=True) if boxes else ((0.0,),) * 4
    return Legible(_WORD.sub(_blank, marked), is_lacking, (min(lefts), min(bottoms), max(rights), max(tops)))


def _blank(word: re.Match[str]) -> str:
    """Blanks for a word that is mostly unknown, or for its unknown letters."""
    is_mostly = 2 * word[0].count(_UNKNOWN) >= len(word[0])
    return " " * len(word[0]) if is_mostly else word[0].replace(_UNKNOWN, " ")


def _is_signs(text: str) -> bool:
    """Whether a text consists of signs in long words. Such a font numbers its letters in the order of the file."""
    words = text.split()
    characters = "".join(words)
    signs = _SIGN.findall(characters)
    letters = sum(map(str.isalpha, characters))
    return (
        len(characters) >= max(_MIN_SIGNS, _MIN_WORD * len(words))
        and len(set(signs)) >= 10
        and len(signs) * 3 > len(characters)
        and letters * 5 < len(characters)
    )
