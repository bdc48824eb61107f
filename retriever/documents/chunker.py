"""Cut a document into chunks that fit the encoder, measured in its own tokens; each is `document.text[start:end]`.

A chunk never crosses a page or, unless a section is small, a heading. Within a section, cuts fall where a reader would
make them: at paragraphs, sentences or, in code, statements. The pieces have nearly equal size, because a long passage
and its three-word remainder are found worse than two halves. The size comes from the encoder's settings: see
`models.settings`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from ...core.errors import InputError
from .document import SOURCE_CODE, LineCounter, context_of
from .sections import overlapping, sections

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .document import Document, Part
    from .sections import Offsets, Section

_WINDOW = 16_384  # characters tokenized and cut at a time
_HEADING_SHARE = 4  # the heading path takes at most one token in this many
_HEADINGS = 1_000  # of a document; their lengths are remembered
_MARGIN = 2  # tokens: a piece alone may have a few more than within its text


@dataclass(frozen=True, slots=True)
class Chunk:
    """A passage of a document. `heading` starts with the document's title when it has one."""

    start: int
    end: int
    line_start: int
    line_end: int
    page: int | None
    heading: tuple[str, ...]
    text: str
    symbols: tuple[str, ...] = ()  # qualified names of the definitions in it, in order

    @property
    def context(self) -> str:
        """The text for encoder, full-text index and reranker: the heading path on its own line, then the text."""
        return context_of(self.heading, self.text)


# Cuts, best first: (kinds of part, pattern that ends just before the new piece). No pattern may backtrack: quantifiers
# are possessive, and no white space is scanned from more than one start.
_CUTS: tuple[tuple[frozenset[str], re.Pattern[str]], ...] = (
    (
        frozenset({"code"}),  # a definition or a comment above it, at the left margin
        re.compile(
            r"\n(?=(?:@|#\[|///?|/\*\*|def |class |async def |fn |pub |impl |struct |enum |trait |func |type "
            r"|interface |export |function |const |public |private |protected |static |module |namespace |template"
            r"|sub |CREATE |\(def|[A-Za-z_][\w:<>,*& ]*+\([^;\n()]*+\)[ \t]*+\{))"
        ),
    ),
    (frozenset({"prose", "code"}), re.compile(r"\n[ \t]*+\n\s*+")),
    (frozenset({"table", "code"}), re.compile(r"\n")),
    (
        frozenset({"prose"}),
        re.compile(r"(?<=[.!?;:])[\"')\]»”]*+\s++|(?<=[。！？])|\n(?=[ \t]*+(?:[-*+•]|\d{1,3}[.)]) )"),
    ),
    (frozenset({"prose", "table", "code"}), re.compile(r"\s++")),
)
_INDENTATION = re.compile(r"\s*+")


def chunk(document: Document, offsets: Offsets, max_tokens: int) -> list[Chunk]:
    """Cut a document into passages that fit the encoder with their heading path.

    :param offsets: an encoder's `offsets`: the character spans of each text's tokens.
    :param max_tokens: an encoder's `max_tokens`.
    :raises InputError: when `max_tokens` leaves no room for text.
    """
    if max_tokens <= _MARGIN:
        raise InputError(
            f"the encoder has room for {max(max_tokens, 0)} tokens of a text, which is too few for any passage: "
            "raise its max_seq_length, or shorten its prompt"
        )
    lines = LineCounter(document)

    @lru_cache(_HEADINGS)
    def heading_of(path: tuple[str, ...]) -> tuple[tuple[str, ...], int]:
        """The heading of a passage, and the number of tokens that remain for its text."""
        heading = _shorten(_with_title(document.title, path), offsets, max_tokens // _HEADING_SHARE)
        return heading, max_tokens - len(offsets([" > ".join(heading)])[0]) - _MARGIN

    chunks = []
    for section in sections(document, offsets, lambda path: heading_of(path)[1]):
        room = min(heading_of(path)[1] for path in ([section.shared] if section.fits else section.paths()))
        for start, end in _pieces(document.text, section, offsets, room):
            chunks.append(
                Chunk(
                    start,
                    end,
                    lines.at(start),
                    lines.at(end - 1),
                    section.page,
                    heading_of(section.path(start, end))[0],
                    document.text[start:end],
                    section.symbols(start, end, document.text) if document.format in SOURCE_CODE else (),
                )
            )
    return chunks


def whole(document: Document) -> Chunk:
    """Return a document as one passage, perhaps without text."""
    text, lines = document.text.strip(), LineCounter(document)
    start = len(document.text) - len(document.text.lstrip()) if text else 0
    end = start + len(text)
    heading = (document.title,) if document.title else ()
    return Chunk(start, end, lines.at(start), lines.at(max(start, end - 1)), None, heading, text)


def _with_title(title: str, heading: tuple[str, ...]) -> tuple[str, ...]:
    return (title, *heading) if title and title not in heading else heading


def _shorten(heading: tuple[str, ...], offsets: Offsets, room: int) -> tuple[str, ...]:
    """Shorten a heading path to `room` tokens: keep the innermost titles, and truncate the last if necessary."""
    titles: list[str] = []
    for title in reversed(heading):
        spans = offsets([title[:1000]])[0]
        if len(spans) > room:
            if not titles and room > 0:
                titles.append(title[: spans[room - 1][1]].strip())
            break
        room -= len(spans) + 1
        titles.append(title)
    return tuple(reversed(titles))


def _pieces(text: str, section: Section, offsets: Offsets, room: int) -> Iterator[tuple[int, int]]:
    """Cut a section into (start, end) of at most `room` tokens each, without white space at either end."""
    for start, end in _windows(text, section.start, section.end):
        window = text[start:end]
        tokens = [begin for begin, stop in offsets([window])[0] if stop > begin]
        if not tokens:
            continue
        ranks = _cut_ranks(window, start, section.parts) if len(tokens) > room else {}
        for piece_start, piece_end in _split_long(
            _divide(tokens, len(window), ranks, room), window, ranks, offsets, room
        ):
            piece = window[piece_start:piece_end]
            left = start + piece_start + len(piece) - len(piece.lstrip())
            right = start + piece_start + len(piece.rstrip())
            if left < right:
                yield left, right


def _windows(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield spans of bounded length. They end at a blank line if possible, or else at a line, or else at a word."""
    while end - start > _WINDOW:
        limit = start + _WINDOW
        cut = max(text.rfind("\n\n", start + _WINDOW // 2, limit), -1)
        if cut < 0:
            cut = text.rfind("\n", start + _WINDOW // 2, limit)
        if cut < 0:
            cut = text.rfind(" ", start + _WINDOW // 2, limit)
        cut = limit if cut < 0 else cut + 1
        yield start, cut
        start = cut
    yield start, end


def _cut_ranks(window: str, start: int, parts: tuple[Part, ...]) -> dict[int, int]:
    """Return the positions in the window where a piece may begin, each with its rank: 0 is best."""
    ranks: dict[int, int] = {}
    for part in overlapping(parts, start, start + len(window)):
        low, high = max(part.start - start, 0), min(part.end - start, len(window))
        if low >= high:
            continue
        first = _INDENTATION.match(window, low, high)
        assert first
        ranks[first.end()] = 0 if low else len(_CUTS)
        for rank, (kinds, pattern) in enumerate(_CUTS):
            if part.kind in kinds:
                for match in pattern.finditer(window, low, high):
                    ranks.setdefault(match.end(), rank)
    return ranks


def _split_long(
    pieces: Iterable[tuple[int, int]], window: str, ranks: dict[int, int], offsets: Offsets, room: int
) -> Iterator[tuple[int, int]]:
    """Halve pieces that are too long: a cut inside a word can make more tokens of it."""
    for start, end in pieces:
        inside = (start and start not in ranks) or (end < len(window) and end not in ranks)
        tokens = [begin for begin, stop in offsets([window[start:end]])[0] if stop > begin] if inside else []
        if len(tokens) > room + _MARGIN and tokens[len(tokens) // 2]:
            middle = start + tokens[len(tokens) // 2]
            yield from _split_long([(start, middle), (middle, end)], window, ranks, offsets, room)
        else:
            yield start, end


def _divide(tokens: list[int], length: int, ranks: dict[int, int], room: int) -> Iterator[tuple[int, int]]:
    """Divide tokens (their first characters) into pieces of at most `room`, nearly equal, cut at the best places."""
    first, start = 0, 0
    while len(tokens) - first > room:
        remaining = len(tokens) - first
        target = remaining / -(-remaining // room)
        best = min(
            range(first + max(1, int(target * 0.6)), min(first + room, len(tokens) - 1) + 1),
            key=lambda token: (ranks.get(tokens[token], len(_CUTS)), abs(token - first - target)),
        )
        yield start, tokens[best]
        first, start = best, tokens[best]
    yield start, length
