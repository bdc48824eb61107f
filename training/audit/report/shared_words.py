"""Mark the words that a true text and its recovered text share, as HTML."""

from __future__ import annotations

from collections import Counter
from html import escape
from typing import TYPE_CHECKING

from ....core.printable import printable
from ....core.words import UNSPACED, encodable, folded, word_spans

if TYPE_CHECKING:
    from collections.abc import Iterator

    Span = tuple[int, int]


def marked(true: str, recovered: str) -> tuple[str, str]:
    """Return both texts escaped, with `<mark>` around each word as often as both have it.

    Words are compared without case and accents, as a multiset, like the tokens of the F1.
    """
    texts = [printable(encodable(text)) for text in (true, recovered)]
    first, second = ([(folded(text[start:end]), start, end) for start, end in _spans(text)] for text in texts)
    shared = Counter(word for word, *_ in first) & Counter(word for word, *_ in second)
    return _marked(texts[0], first, shared), _marked(texts[1], second, shared)


def _spans(text: str) -> Iterator[Span]:
    """Yield (start, end) of each word, and of each character in scripts without spaces."""
    for start, end in word_spans(text):
        if UNSPACED.search(text, start, end):
            yield from ((position, position + 1) for position in range(start, end))
        else:
            yield start, end


def _marked(text: str, words: list[tuple[str, int, int]], shared: Counter[str]) -> str:
    rest, parts, last = Counter(shared), [], 0
    for word, start, end in words:
        if rest[word]:
            rest[word] -= 1
            parts += [escape(text[last:start]), f"<mark>{escape(text[start:end])}</mark>"]
            last = end
    return "".join([*parts, escape(text[last:])])
