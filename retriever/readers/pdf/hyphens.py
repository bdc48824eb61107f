"""Join the words that a PDF divides at the ends of its lines, and keep the hyphens that belong to a word.

PDFium joins the two lines, and marks where a hyphen was: `chat-optimized`. The other words of the document tell whether
the hyphen belongs to the word. With simulated line ends in the Rust book, one in twenty words is wrong; if every hyphen
is dropped, it is one in six.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MARK = "\ufffe"
_WORD = re.compile(r"[^\W\d_]++(?:-[^\W\d_]++)*+")
_DIVIDED = re.compile(rf"(?<![^\W_])([^\W_]++){MARK}([^\W_]+)")
_MIN_PART = 3  # letters of a word that may be part of another
_LONG_FIRST, _LONG_SECOND = 4, 6  # letters of a word that is known, and of a second part that is no ending


def joiner(texts: Iterable[str]) -> Callable[[str], str]:
    """Return a function that joins the divided words of a text of a document.

    :param texts: all texts of the document.
    """
    texts = list(texts)
    counts: Counter[str] = Counter()
    if any(MARK in text for text in texts):
        counts.update(word for text in texts for word in _WORD.findall(_DIVIDED.sub(" ", text)))

    def join(match: re.Match[str]) -> str:
        first, second = match.groups()
        return first + "-" * _is_compound(first, second, counts) + second

    return lambda text: _DIVIDED.sub(join, text).replace(MARK, "") if MARK in text else text


def _is_compound(first: str, second: str, counts: Counter[str]) -> bool:
    """Whether the hyphen belongs to the word.

    :param counts: the words of the document, in their case: German nouns are compounds too, with no capital inside.
    """
    if not (first + second).isalpha() or (len(first) > 1 and second[0].isupper() != first.isupper()):
        return True  # COVID-19, Anglo-Saxon, IBM-owned
    joined, hyphenated = counts[first + second], counts[f"{first}-{second}"]
    if joined or hyphenated:
        return not joined
    is_long = first.islower() and len(first) >= _LONG_FIRST and len(second) >= _LONG_SECOND
    return bool(counts[first] and (is_long or (counts[second] and min(len(first), len(second)) >= _MIN_PART)))
