"""Leave encoded data out of a text: certificates, keys, and images in base64 or hexadecimal digits.

Nobody reads it or searches it, and its tokens match any nonsense. An ellipsis takes its place; the lines stay the same.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from ...documents.document import HIDDEN, Document, add_unread

if TYPE_CHECKING:
    from collections.abc import Iterator

_STEP = 16  # the step between the characters to check, until one lies in a run of data
_SAMPLES = re.compile(r"[A-Za-z0-9+/_=\r\n-]{24,}")
_DATA = re.compile(
    r"[A-Za-z0-9+/_-]{600,}+={0,2}"  # one long word
    r"|(?:(?<![^\n])[ \t]*+[\"']?[A-Za-z0-9+/_-]{56,}+={0,2}[\"',;+\\ \r]*+(?:\n|\Z)){5,}"  # lines of one word each
    r"(?:[ \t]*+[\"']?(?=\S*[0-9+/=])[A-Za-z0-9+/_-]{4,}+={0,2}[\"',;\\ \r]*+(?=\n|\Z))?"  # the last line is shorter
)
_HASH_LENGTHS = frozenset({64, 96, 128})  # a list of SHA-2 sums is something to search
_AROUND = 160  # characters
_SMALL_LETTERS = re.compile(r"[a-z]{4,}")
_WORDS = 0.25  # from this share of letters in such runs, names such as TestOrder1_ReturnsStatus201 are words
_SAMPLE = 4_096  # characters that decide the kind of a run


def drop_encoded(document: Document) -> Document:
    """Return the document without its runs of encoded data."""
    spans = list(_encoded(document.text))
    if not spans:
        return document
    text, moved = document.text, _Moves(document.text, spans)
    pieces = (text[end:start] + _note(text[start:stop]) for (_, end), (start, stop) in pairwise([(0, 0), *spans]))
    shorter = "".join(pieces) + text[spans[-1][1] :]
    parts = tuple(replace(part, start=moved(part.start), end=moved(part.end)) for part in document.parts)
    metadata = dict(document.metadata)
    add_unread(metadata, _reason(sum(end - start for start, end in spans)))
    if not any(map(str.isalnum, shorter)):  # the ellipses are all that is left
        return replace(document, text="", parts=(), metadata=metadata)
    if isinstance(concealed := metadata.get(HIDDEN), list):
        metadata[HIDDEN] = [moved(position) for position in concealed]
    visible = tuple(part for part in parts if shorter[part.start : part.end].strip())
    return replace(document, text=shorter, parts=visible, metadata=metadata)


def _reason(characters: int) -> str:
    return f"{characters:,} characters of encoded data left out"


def _note(data: str) -> str:
    """Return the replacement of encoded data: an ellipsis, and the number of newlines in the data."""
    return "…" + "\n" * data.count("\n")


class _Moves:
    """Maps positions of a text to positions of the shortened text. A position inside data keeps its line."""

    def __init__(self, text: str, spans: list[tuple[int, int]]) -> None:
        self._text, self._spans = text, spans
        self._removed = [0, *accumulate(end - start - len(_note(text[start:end])) for start, end in spans)]

    def __call__(self, position: int) -> int:
        number = bisect_left(self._spans, position, key=lambda span: span[0])  # of spans that start before it
        start, end = self._spans[number - 1] if number else (0, 0)
        if position >= end:
            return position - self._removed[number]
        return start - self._removed[number - 1] + 1 + self._text.count("\n", start, position)


def _encoded(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of encoded data."""
    if any(_DATA.search(text, *window) for window in _windows(text)):
        for match in _DATA.finditer(text):
            if _is_encoded(match[0][:_SAMPLE]):
                yield match.start(), match.start() + len(match[0].rstrip())


def _windows(text: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) around each position that may hold data."""
    for match in _SAMPLES.finditer(text[::_STEP]):
        start, end = match.start() * _STEP - _AROUND, match.end() * _STEP + _AROUND
        yield max(start, 0), end


def _is_encoded(data: str) -> bool:
    """Whether a run is base64 or hexadecimal: it mixes digits and letters as random bytes do, and has no words."""
    letters = [character for character in data if character.isalnum()]
    if not letters:
        return False
    digits = sum(character.isdigit() for character in letters) / len(letters)
    upper = sum(character.isupper() for character in letters) / len(letters)
    lower = 1 - digits - upper
    if all(character in "0123456789abcdefABCDEF" for character in letters):
        return 0.4 < digits < 0.85 and not {len(line.strip()) for line in data.split()[:3]} <= _HASH_LENGTHS
    in_words = sum(map(len, _SMALL_LETTERS.findall(data))) / len(letters)  # of random base64 a twelfth
    return digits > 0.04 and upper > 0.15 and lower > 0.15 and in_words < _WORDS
