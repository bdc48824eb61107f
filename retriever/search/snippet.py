"""Print hits for people: the citation, and the lines of the passage with most words of the query, highlighted."""

from __future__ import annotations

import re
import textwrap
import unicodedata
from itertools import groupby
from typing import TYPE_CHECKING

from ...core.printable import printable, printable_path
from ...core.words import UNSPACED, word_spans
from ..documents.file_parts import file_of
from .exact import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .exact import ExactQuery
    from .hit import Copy, Hit

    Word = tuple[int, int, str]

_SHOWN = 5  # lines of a passage
_PART = re.compile(rf"(?P<unspaced>{UNSPACED.pattern}+)|[^_{UNSPACED.pattern[1:-1]}]+")
_ACCENTS = re.compile(r"[\u0300-\u036f]")
_ITEM = re.compile(r"(?:[-*+•]|\d{1,3}[.)])\s+")  # the mark of a list item; its other lines are indented as far
_START = re.compile(rf"{_ITEM.pattern}|[#|>:=~+]|--|```|\d{{4}}-\d")  # of a line that does not continue the one above
_WRAPPED = 100  # at most so many characters in a line wrapped by hand; longer ones are paragraphs or records
_FENCES = ("```", "~~~")
_COMMON = frozenset(  # words of a query that are not worth a highlight
    re.findall(
        r"\w+",
        "a an and are as at be but by do does for from how i if in into is it me my no not of on or such that the "
        "their then there these they this to was what when where which who why will with you your",
    )
)
_PATH, _MATCH, _FAINT, _END = "\x1b[1;36m", "\x1b[1;33m", "\x1b[2m", "\x1b[0m"


def blocks(
    hits: Sequence[Hit],
    query: str,
    *,
    path_of: Callable[[str], str] = str,
    colour: bool,
    width: int,
    explain: bool = False,
    list_copies: bool = False,
) -> Iterator[str]:
    """One printable block a hit: a line with the citation, then the part of the passage where most words match.

    :param path_of: converts the path of a file, so that it opens from here.
    :param list_copies: cite the copies of each hit too.
    """
    from ..readers.formats import LINE_BY_LINE

    parts = parse(query)
    words = {word for _, _, word in _words(parts.text)} - _COMMON
    for hit in hits:
        lines = [_citation(hit, path_of, colour=colour)]
        lines += [f"    = {_location(copy, path_of)}" for copy in hit.copies if list_copies]
        excerpt = _excerpt(hit.text, words, max(16, width - 6), parts, flowing=hit.format not in LINE_BY_LINE)
        lines += [f"    {_highlight(line, words) if colour else line}" for line in excerpt]
        if explain:
            lines.append(f"    {_explained(hit)}")
        yield "\n".join(lines) + "\n"


def _location(passage: Hit | Copy, path_of: Callable[[str], str]) -> str:
    """Path and first line of a passage."""
    path = path_of(passage.path) if passage.source == "file" else passage.path
    return f"{printable_path(file_of(path))}:{passage.line_start}"


def _citation(hit: Hit, path_of: Callable[[str], str], *, colour: bool) -> str:
    location = _location(hit, path_of)
    page = f"  p. {hit.page}" if hit.page is not None else ""
    heading = f"  {printable(' > '.join(hit.heading))}" if hit.heading else ""
    hidden = "  [hidden text]" if hit.hidden else ""
    copies = f"  (+{len(hit.copies)} {'copy' if len(hit.copies) == 1 else 'copies'})" if hit.copies else ""
    if colour:
        heading = _FAINT + heading + _END if heading else ""
        hidden = _MATCH + hidden + _END if hidden else ""
        return f"{hit.rank:>2}  {_PATH}{location}{_END}{page}{heading}{hidden}{copies}"
    return f"{hit.rank:>2}  {location}{page}{heading}{hidden}{copies}"


def _explained(hit: Hit) -> str:
    stages = []
    for name, score in hit.scores.items():
        rank = hit.explanation["ranks"][name]
        among = f" of {hit.explanation['reranked']}" if name == "reranker" else ""
        stages.append(f"{name} {score:.3f} (rank {rank}{among})" if score is not None else f"{name} –")
    times = ", ".join(f"{name} {time:.1f} ms" for name, time in hit.explanation["milliseconds"].items())
    exact = ", ".join(f"{literal} ({kind})" for literal, kind in hit.explanation.get("exact", {}).items())
    stages += [f"exact: {printable(exact)}"] if exact else []
    return f"score {hit.score:.3f} = {hit.explanation['mode']} of {', '.join(stages)}; {times}"


def _excerpt(text: str, words: set[str], width: int, parts: ExactQuery, *, flowing: bool) -> list[str]:
    """The `_SHOWN` lines of a passage with most of the exact parts and of the different words, wrapped to width."""
    lines = list(_fitted(text, words, width, flowing=flowing))
    matches = [_hit_words(line, words) for line in lines]
    starts = range(max(1, len(lines) - _SHOWN + 1))
    levels = [parts.level("\n".join(lines[start : start + _SHOWN])) if parts.literals else (0, 0) for start in starts]
    best = max(starts, key=lambda start: (levels[start], len(set().union(*matches[start : start + _SHOWN])), -start))
    shown = [line.rstrip() for line in lines[best : best + _SHOWN]] or [""]
    if best:  # the first line of a passage has lost its indent already, the lines after it keep theirs
        shown = textwrap.dedent("\n".join(shown)).splitlines()
        shown[0] = f"… {shown[0]}"
    if best + _SHOWN < len(lines) and not shown[-1].endswith("…"):
        shown[-1] += " …"
    return shown


def _fitted(text: str, words: set[str], width: int, *, flowing: bool) -> Iterator[str]:
    """Fit each line of a passage into the width, with its indent.

    In flowing text, words without room move to the next line of the paragraph, since most documents are wrapped a
    little wider than an excerpt. Other lines are cut, unless that would hide a word that matches, or there is only
    one line.
    """
    rest = below = ""  # the words without room in the line before, and the indent of their line
    lines = [printable(line) for line in text.expandtabs(4).splitlines()]
    fenced = _begins_fenced(lines)
    for line in [*lines, ""]:
        body = line.strip()
        indent = line[: len(line) - len(line.lstrip())][: width // 2]
        if rest and (not body or indent != below or _START.match(body)):
            yield below + rest
            rest = ""
        item = _ITEM.match(body)
        below = indent + " " * min(item.end() if item else 0, width // 4)
        pieces = _pieces(f"{rest} {body}".lstrip(), width, indent, below)
        rest = ""
        fenced ^= body.startswith(_FENCES)
        if len(pieces) > 1 and flowing and not fenced and len(line) <= _WRAPPED:
            rest = pieces.pop().strip()
        elif len(pieces) > 1 < len(lines) and (fenced or not flowing) and not _hit_words(" ".join(pieces[1:]), words):
            pieces = [_pieces(body, width - 2, indent, below)[0] + " …"]
        yield from pieces


def _begins_fenced(lines: list[str]) -> bool:
    """Whether the text begins inside a fenced block.

    A fence with a language can only begin a block, so an odd number of fences before it means that the first ends one.
    """
    fences = [line.strip() for line in lines if line.lstrip().startswith(_FENCES)]
    first = next((number for number, fence in enumerate(fences) if fence.strip("`~")), len(fences))
    return first % 2 == 1


def _pieces(body: str, width: int, indent: str, below: str) -> list[str]:
    return textwrap.wrap(body, width, initial_indent=indent, subsequent_indent=below, break_on_hyphens=False)


def _hit_words(line: str, words: set[str]) -> set[str]:
    """The words of the query in a line, in any form."""
    return {word for _, _, word in _matches(line, words)}


def _highlight(line: str, words: set[str]) -> str:
    """Highlight the words of the query in a line."""
    marked = {index for start, end, _ in _matches(line, words) for index in range(start, end)}
    runs = groupby(range(len(line)), marked.__contains__)
    pieces = ((is_marked, "".join(line[index] for index in run)) for is_marked, run in runs)
    return "".join(f"{_MATCH}{text}{_END}" if is_marked else text for is_marked, text in pieces)


def _matches(line: str, words: set[str]) -> Iterator[Word]:
    """The spans of a line that are a word of the query or a form of it, each with that word."""
    for start, end, word in _words(line, single=True):
        if match := _matching(word, words):
            yield start, end, match


def _words(text: str, *, single: bool = False) -> Iterator[Word]:
    """The span of each word, and the word without case and accents; in scripts without spaces, every two characters.

    :param single: in those scripts, every character too.
    """
    for first, last in word_spans(text):
        for part in _PART.finditer(text, first, last):
            start, end = part.span()
            spans = [(start, end)]
            if part["unspaced"] and end - start > 1:
                sizes = (1, 2) if single else (2,)
                spans = [(left, left + size) for size in sizes for left in range(start, end - size + 1)]
            yield from ((left, right, _fold(text[left:right])) for left, right in spans)


def _fold(word: str) -> str:
    """Remove case and accents."""
    return unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFKD", word.casefold())))


def _matching(word: str, words: set[str]) -> str | None:
    """The word of the query with the same stem, as far as spelling tells."""
    return next((candidate for candidate in words if word == candidate or _alike(word, candidate)), None)


def _alike(word: str, candidate: str) -> bool:
    """Whether two words differ only in their endings."""
    short, long = sorted((len(word), len(candidate)))
    same = next((index for index in range(short) if word[index] != candidate[index]), short)
    if "가" <= word[:1] <= "힣":  # a letter is a syllable; a Korean noun has one or two more as its ending
        return same == short and long - same <= 2
    return same >= 4 and same >= short - 2 and long - same <= 4
