"""A hit as a person reads it: where it is, and the passage with what matched made visible."""

from __future__ import annotations

import re
import textwrap
import unicodedata
from itertools import groupby
from typing import TYPE_CHECKING

from ...core.words import UNSPACED, word_spans

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .hit import Hit

    Word = tuple[int, int, str]

_SHOWN = 5  # lines of a passage
_PART = re.compile(rf"(?P<unspaced>{UNSPACED.pattern}+)|[^_{UNSPACED.pattern[1:-1]}]+")
_ACCENTS = re.compile(r"[\u0300-\u036f]")
_ITEM = re.compile(r"(?:[-*+•]|\d{1,3}[.)])\s+")  # below which the rest of a list's item stands
_START = re.compile(rf"{_ITEM.pattern}|[#|>:=~+]|--|```|\d{{4}}-\d")  # of a line that is no more of the one above
_WRAPPED = 100  # characters of a line that was wrapped by hand, at most: longer ones are paragraphs, or records
_FENCES = ("```", "~~~")
_COMMON = frozenset(  # words of a query that are not worth showing
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
    place: Callable[[str], str] = str,
    colour: bool,
    width: int,
    explain: bool = False,
) -> Iterator[str]:
    """One printable block a hit: a line that says where, then the part of the passage where most words match.

    :param place: how the path of a file is shown, so that it opens from here.
    """
    from ..readers.formats import LINE_BY_LINE

    words = {word for _, _, word in _words(query)} - _COMMON
    for hit in hits:
        lines = [_where(hit, place(hit.path) if hit.source == "file" else hit.path, colour=colour)]
        excerpt = _excerpt(hit.text, words, max(16, width - 6), flowing=hit.format not in LINE_BY_LINE)
        lines += [f"    {_marked(line, words) if colour else line}" for line in excerpt]
        if explain:
            lines.append(f"    {_explained(hit)}")
        yield "\n".join(lines) + "\n"


def _where(hit: Hit, path: str, *, colour: bool) -> str:
    place = f"{printable_path(path)}:{hit.line_start}"
    page = f"  p. {hit.page}" if hit.page is not None else ""
    heading = f"  {printable(' > '.join(hit.heading))}" if hit.heading else ""
    if colour:
        return f"{hit.rank:>2}  {_PATH}{place}{_END}{page}{_FAINT + heading + _END if heading else ''}"
    return f"{hit.rank:>2}  {place}{page}{heading}"


def _explained(hit: Hit) -> str:
    stages = []
    for name, score in hit.scores.items():
        rank = hit.explanation["ranks"][name]
        among = f" of {hit.explanation['reranked']}" if name == "reranker" else ""
        stages.append(f"{name} {score:.3f} (rank {rank}{among})" if score is not None else f"{name} –")
    times = ", ".join(f"{name} {time:.1f} ms" for name, time in hit.explanation["milliseconds"].items())
    return f"score {hit.score:.3f} = {hit.explanation['mode']} of {', '.join(stages)}; {times}"


def _excerpt(text: str, words: set[str], width: int, *, flowing: bool) -> list[str]:
    """The few lines of a passage that hold most of the different words, as they stand in it or wrapped to width."""
    lines = [printable(line) for line in _fitted(text, words, width, flowing=flowing)]
    found = [_found(line, words) for line in lines]
    starts = range(max(1, len(lines) - _SHOWN + 1))
    best = max(starts, key=lambda start: (len(set().union(*found[start : start + _SHOWN])), -start))
    shown = [line.rstrip() for line in lines[best : best + _SHOWN]] or [""]
    if best:  # the first line of a passage has lost its indent already, those after it keep theirs
        shown = textwrap.dedent("\n".join(shown)).splitlines()
        shown[0] = f"… {shown[0]}"
    if best + _SHOWN < len(lines) and not shown[-1].endswith("…"):
        shown[-1] += " …"
    return shown


def _fitted(text: str, words: set[str], width: int, *, flowing: bool) -> Iterator[str]:
    """Each line of a passage in width, with its indent.

    In flowing text, what has no room goes on with the next line of the paragraph, for most documents are wrapped a
    little wider than what is shown of them. Other lines are cut, unless that would hide a word that matches, or
    there is only one.
    """
    rest = below = ""  # what had no room in the line before, and the indent of more of it
    lines = text.expandtabs(4).splitlines()
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
        elif len(pieces) > 1 < len(lines) and (fenced or not flowing) and not _found(" ".join(pieces[1:]), words):
            pieces = [_pieces(body, width - 2, indent, below)[0] + " …"]
        yield from pieces


def _begins_fenced(lines: list[str]) -> bool:
    """Whether the first fence ends a block: one with a language can only begin one, so those before it pair up."""
    fences = [line.strip() for line in lines if line.lstrip().startswith(_FENCES)]
    first = next((place for place, fence in enumerate(fences) if fence.strip("`~")), len(fences))
    return first % 2 == 1


def _pieces(body: str, width: int, indent: str, below: str) -> list[str]:
    return textwrap.wrap(body, width, initial_indent=indent, subsequent_indent=below, break_on_hyphens=False)


def _found(line: str, words: set[str]) -> set[str]:
    """The words of the query that a line has, in whatever form."""
    return {word for _, _, word in _matches(line, words)}


def _marked(line: str, words: set[str]) -> str:
    marked = {place for start, end, _ in _matches(line, words) for place in range(start, end)}
    pieces = groupby(range(len(line)), marked.__contains__)
    written = ((is_marked, "".join(line[place] for place in places)) for is_marked, places in pieces)
    return "".join(f"{_MATCH}{text}{_END}" if is_marked else text for is_marked, text in written)


def _matches(line: str, words: set[str]) -> Iterator[Word]:
    """Where the line has a word of the query or a form of it, and which."""
    return ((start, end, one) for start, end, word in _words(line, single=True) if (one := _matching(word, words)))


def _words(text: str, *, single: bool = False) -> Iterator[Word]:
    """Where each word is, and the word without case and accents; of scripts without spaces, every two characters.

    :param single: of those scripts, every character too.
    """
    for first, last in word_spans(text):
        for part in _PART.finditer(text, first, last):
            start, end = part.span()
            spans = [(start, end)]
            if part["unspaced"] and end - start > 1:
                sizes = (1, 2) if single else (2,)
                spans = [(place, place + size) for size in sizes for place in range(start, end - size + 1)]
            yield from ((one, two, _folded(text[one:two])) for one, two in spans)


def _folded(word: str) -> str:
    return unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFKD", word.casefold())))


def _matching(word: str, words: set[str]) -> str | None:
    """The word of the query that this word is a form of: equal, or alike up to an ending."""
    return next((one for one in words if word == one or _alike(word, one)), None)


def _alike(word: str, one: str) -> bool:
    short, long = sorted((len(word), len(one)))
    same = next((place for place in range(short) if word[place] != one[place]), short)
    if "가" <= word[:1] <= "힣":  # a letter is a syllable, and what follows a Korean noun is one or two of them
        return same == short and long - same <= 2
    return same >= 4 and same >= short - 2 and long - same <= 4


def printable(text: str) -> str:
    """Without control characters, also those that turn the direction: a document must not command the terminal."""
    return text if text.isprintable() else _replaced(text, _substitute)


def printable_path(path: str) -> str:
    """The same of a file's name, which still has to tell which file it is: a line break is `\\n`."""
    return path if path.isprintable() else _replaced(path, lambda char: char.encode("unicode_escape").decode())


def _replaced(text: str, by: Callable[[str], str]) -> str:
    return "".join(char if char.isprintable() or char in _JOINERS else by(char) for char in text)


_JOINERS = {"\t", "\u200c", "\u200d", "\ufe0f", *map(chr, range(0xE0020, 0xE0080))}  # that scripts and emoji need


def _substitute(char: str) -> str:
    if char == "\N{SOFT HYPHEN}":
        return ""
    return " " if char.isspace() else "\N{REPLACEMENT CHARACTER}"
