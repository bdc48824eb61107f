"""Words: letters and digits, with the marks on them, which are the vowels of scripts such as Devanagari."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    Span = tuple[int, int]

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
