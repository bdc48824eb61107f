"""Words: letters and digits, with the marks on them, which are the vowels of scripts such as Devanagari."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from .sentences import spans

if TYPE_CHECKING:
    from collections.abc import Iterator

    Span = tuple[int, int]
    from collections.abc import Sequence

_MARK = "\uffff"  # no character: `\w` matches no mark, so each is taken for this one
_WORD = re.compile(rf"\w[\w{_MARK}]*")
_NAMED = re.compile(rf"{_WORD.pattern}(?:[+#]+(?!\w))?")
_ELIDED = re.compile(rf"{_WORD.pattern}(?:[’'][^\W\d_](?:[^\W\d_]|{_MARK})*)*")
UNSPACED = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")  # written without spaces


def word_spans(text: str, *, signs: bool = False, elisions: bool = False) -> Iterator[Span]:
    """(start, end) of each word.

    :param signs: whether those that end a word belong to it which tell C++ and C# from C.
    :param elisions: whether letters after an apostrophe belong to the word before it, as in don't.
    """
    marks = {ord(sign) for sign in set(text) if is_mark(sign)}
    bare = text.translate(dict.fromkeys(marks, _MARK)) if marks else text
    return (word.span() for word in (_NAMED if signs else _ELIDED if elisions else _WORD).finditer(bare))


def is_mark(character: str) -> bool:
    return unicodedata.category(character)[0] == "M"


_NUMBER = re.compile(r"\d+(?:[.,:/-]\d+)*")


def words(text: str) -> list[str]:
    bare = folded(text)
    return [bare[start:end] for start, end in word_spans(bare)]


def numbers(text: str) -> list[str]:
    """The different numbers of a text."""
    return list(dict.fromkeys(_NUMBER.findall(text)))


def number_spans(text: str) -> list[Span]:
    """(start, end) of each number."""
    return [found.span() for found in _NUMBER.finditer(text)]


def _standing(wanted: Sequence[str], text: str) -> list[str]:
    """The numbers that stand in a text, whatever space there is around their signs: tokens come as 3 . 14."""
    return [number for number in wanted if re.search(_loose(number), text)]


def _loose(number: str) -> str:
    inside = re.sub(r"[.,:/-]", lambda sign: rf"\s*{re.escape(sign[0])}\s*", number)
    return rf"(?<!\d)(?<!\d[.,:/-]){inside}(?!\d)(?![.,:/-]\d)"


def names(text: str) -> list[str]:
    """The different names of a text, folded."""
    return list(dict.fromkeys(folded(text[start:end]) for start, end in name_spans(text)))


def name_spans(text: str) -> list[Span]:
    """(start, end) of each name."""
    later = (
        (start + first, start + last)
        for start, end in spans(text)
        for first, last in list(word_spans(text[start:end]))[1:]
    )
    return [(start, end) for start, end in later if text[start].isupper() and end - start > 1]


def folded(text: str) -> str:
    """Without case and accents."""
    bare = "".join(sign for sign in unicodedata.normalize("NFKD", text) if not unicodedata.combining(sign))
    return unicodedata.normalize("NFC", bare).casefold()


def encodable(text: str) -> str:
    """Replace halves of surrogate pairs, which JSON can smuggle in and UTF-8 cannot hold, by question marks."""
    return text.encode("utf-8", "replace").decode()
