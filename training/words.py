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


def word_spans(text: str, *, signs: bool = False) -> Iterator[Span]:
    """(start, end) of each word.

    :param signs: whether those that end a word belong to it which tell C++ and C# from C.
    """
    marks = {ord(sign) for sign in set(text) if unicodedata.category(sign)[0] == "M"}
    bare = text.translate(dict.fromkeys(marks, _MARK)) if marks else text
    return (word.span() for word in (_NAMED if signs else _WORD).finditer(bare))
