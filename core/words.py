"""Split text into words, numbers and names.

A word is letters and digits with their marks. In scripts such as Devanagari, marks are the vowels.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from .sentences import spans

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Span = tuple[int, int]

_MARK = "\uffff"  # no character: stands for every mark, because `\w` matches none
_WORD = re.compile(rf"\w[\w{_MARK}]*")
_NAMED = re.compile(rf"{_WORD.pattern}(?:[+#]+(?!\w))?")
_ELIDED = re.compile(rf"{_WORD.pattern}(?:[’'][^\W\d_](?:[^\W\d_]|{_MARK})*)*")
# The characters of scripts without spaces between words, as ranges for a regular expression: Thai and Lao, Burmese,
# Khmer, Japanese, Chinese.
UNSPACED_RANGES = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
UNSPACED = re.compile(f"[{UNSPACED_RANGES}]")


def word_spans(text: str, *, signs: bool = False, elisions: bool = False) -> Iterator[Span]:
    """Yield (start, end) of each word.

    :param signs: whether plus and hash signs at the end belong to the word, as in C++ and C#.
    :param elisions: whether letters after an apostrophe belong to the word before it, as in don't.
    """
    bare = text
    if not text.isascii() and (marks := [ord(sign) for sign in set(text) if is_mark(sign)]):
        bare = text.translate(dict.fromkeys(marks, _MARK))
    return (word.span() for word in (_NAMED if signs else _ELIDED if elisions else _WORD).finditer(bare))


def split_words(text: str, *, signs: bool = False, elisions: bool = False) -> list[str]:
    """Return the words of a text, unchanged and in order; see `word_spans`."""
    return [text[start:end] for start, end in word_spans(text, signs=signs, elisions=elisions)]


def is_mark(character: str) -> bool:
    """Whether a character is a combining mark."""
    return unicodedata.category(character)[0] == "M"


_NUMBER = re.compile(r"\d+(?:[.,:/-]\d+)*")


def words(text: str) -> list[str]:
    """Return the words of a text, folded."""
    return split_words(folded(text))


def numbers(text: str) -> list[str]:
    """Return the different numbers of a text, in order."""
    return list(dict.fromkeys(_NUMBER.findall(text)))


def number_spans(text: str) -> list[Span]:
    """Return (start, end) of each number."""
    return [match.span() for match in _NUMBER.finditer(text)]


def numbers_in(candidates: Sequence[str], text: str) -> list[str]:
    """Return the numbers that a text contains, with any space around their signs: tokens may read 3 . 14."""
    return [number for number in candidates if re.search(_spaced_pattern(number), text)]


def _spaced_pattern(number: str) -> str:
    inside = re.sub(r"[.,:/-]", lambda sign: rf"\s*{re.escape(sign[0])}\s*", number)
    return rf"(?<!\d)(?<!\d[.,:/-]){inside}(?!\d)(?![.,:/-]\d)"


def names(text: str) -> list[str]:
    """Return the different names of a text, folded."""
    return list(dict.fromkeys(folded(text[start:end]) for start, end in name_spans(text)))


def name_spans(text: str) -> list[Span]:
    """Return (start, end) of each name: a capitalized word of two letters or more inside a sentence."""
    later = (
        (start + first, start + last)
        for start, end in spans(text)
        for first, last in list(word_spans(text[start:end]))[1:]
    )
    return [(start, end) for start, end in later if text[start].isupper() and end - start > 1]


def folded(text: str) -> str:
    """Remove case and accents."""
    if text.isascii():
        return text.lower()
    bare = "".join(sign for sign in unicodedata.normalize("NFKD", text) if not unicodedata.combining(sign))
    return unicodedata.normalize("NFC", bare).casefold()


def composed(text: str) -> str:
    """Return a text with letters and marks joined, as in é (Unicode form NFC): equal texts may be written both ways."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def spellings(text: str) -> tuple[str, ...]:
    """Return the spellings of a text: its own, one with accents joined to their letters, one with both apart (NFD)."""
    if text.isascii():
        return (text,)
    return tuple(dict.fromkeys((text, composed(text), unicodedata.normalize("NFD", text))))


def encodable(text: str) -> str:
    """Join halves of surrogate pairs, which JSON can smuggle in and UTF-8 cannot hold; a lone one becomes U+FFFD."""
    try:
        return text.encode().decode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
