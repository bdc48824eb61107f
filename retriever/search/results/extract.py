"""Shorten a passage to neighbouring sentences that have the most important words of a query."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate
from math import fsum  # the order of a set differs between processes, and so would its sum
from typing import TYPE_CHECKING

from ....core import terms

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .hit import Hit

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n\s*\n|\n(?=\s*(?:[-*+•#|>]|\d{1,3}[.)])\s)")
_LINE_END = re.compile(r"\n")


def shorten(hit: Hit, weights: Mapping[str, float], count: Callable[[str], int], room: int) -> Hit | None:
    """Cut a hit to its best sentence, and to as many neighbouring sentences as fit.

    Code and tables are cut between lines. A hit with hidden text is not cut.

    :param weights: stem of a word of the query -> its weight. The best sentence has the highest sum.
    :param count: counts the tokens of a text.
    :param room: tokens for the text.
    :returns: None if no sentence fits.
    """
    spans = _spans(hit)
    costs = [count(hit.text[start:end]) for start, end in spans]
    if hit.hidden or not spans or min(costs) > room:
        return None
    matches = [fsum(weights.get(stem, 0) for stem in _stems(hit.text[start:end])) for start, end in spans]
    fitting = [number for number, cost in enumerate(costs) if cost <= room]
    first = last = max(fitting, key=lambda number: (matches[number], -number))
    room -= costs[first]
    while True:
        neighbours = [number for number in (last + 1, first - 1) if 0 <= number < len(spans) and costs[number] <= room]
        if not neighbours:
            return _cut(hit, spans[first][0], spans[last][1])
        best = max(neighbours, key=matches.__getitem__)
        first, last, room = min(first, best), max(last, best), room - costs[best]


def _spans(hit: Hit) -> list[tuple[int, int]]:
    """Return the span of each sentence, or line, that is not blank."""
    from ...readers.formats import LINE_BY_LINE

    ends = list((_LINE_END if hit.format in LINE_BY_LINE else _SENTENCE_END).finditer(hit.text))
    starts = [0, *(match.end() for match in ends)]
    spans = zip(starts, [*(match.start() for match in ends), len(hit.text)], strict=True)
    return [(start, end) for start, end in spans if hit.text[start:end].strip()]


def _stems(text: str) -> set[str]:
    return {stem for token in terms.tokens(text) for stem in _stems_of(token)}


@lru_cache(10_000)
def _stems_of(token: str) -> list[str]:
    return terms.stems(token)


def _cut(hit: Hit, start: int, end: int) -> Hit:
    lines = list(accumulate(hit.text[left:right].count("\n") for left, right in ((0, start), (start, end))))
    counts_lines = hit.line_end - hit.line_start == hit.text.count("\n")  # of the text, not of its source
    return replace(
        hit,
        text=hit.text[start:end],
        char_start=hit.char_start + start,
        char_end=hit.char_start + end,
        line_start=hit.line_start + lines[0] if counts_lines else hit.line_start,
        line_end=hit.line_start + lines[1] if counts_lines else hit.line_end,
    )
