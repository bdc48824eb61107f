"""Print hits for people: the citation, and the lines around the sentence that answers, with the query's words marked.

The sentence with the most words of the query counts as the answer; rare words weigh more. For 500 questions of SQuAD
at a width of 100, the lines around it contain the answer in 96 %; the five lines with the most words did in 91 %. An
encoder that chose the sentence would read all of them: 60 take .6 s of processor time, as much as the search.
"""

from __future__ import annotations

import math
import re
import textwrap
import unicodedata
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, count, groupby
from typing import TYPE_CHECKING

from ....core.printable import printable, printable_path
from ....core.words import UNSPACED, word_spans
from ...documents.file_parts import file_of
from ..words.exact import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ..words.exact import ExactQuery
    from .hit import Copy, Hit

    Word = tuple[int, int, str]

_SHOWN = 5  # lines of a passage
_WORDS = 3  # of a sentence that says something
_LONGEST = 8  # lines of a sentence at most: in a longer one, each line counts as a sentence
_SENTENCE_END = re.compile(
    r"(?<=[.!?])(?<!\W[A-Z]\.)(?<!Mr\.)(?<!Dr\.)(?<!St\.)[\"')\]”]*\s+(?=[\"'(\[“]*[A-Z0-9À-ÞΑ-ΩА-Я])|(?<=[。！？])"
    r"|\n(?=[^\S\n]*+(?:[-*+•#|>]|\d{1,3}[.)]\s))|\n\s*\n"
)
_LINE_END = re.compile(r"\n")
_PART = re.compile(rf"(?P<unspaced>{UNSPACED.pattern}+)|[^_{UNSPACED.pattern[1:-1]}]+")
_ACCENTS = re.compile(r"[\u0300-\u036f]")
_ITEM = re.compile(r"(?:[-*+•]|\d{1,3}[.)])\s+")  # the mark of a list item; its other lines are indented as far
_START = re.compile(rf"{_ITEM.pattern}|[#|>:=~+]|--|```|\d{{4}}-\d")  # of a line that does not continue the one above
_WRAPPED = 100  # characters at most of a line wrapped by hand; longer ones are paragraphs or records
_FENCES = ("```", "~~~")
_COLUMN = "\0"  # stands for the second column of a wide letter
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
    url_of: Callable[[Hit | Copy], str] = lambda _: "",
    colour: bool,
    width: int,
    explain: bool = False,
    list_copies: bool = False,
    full: bool = False,
) -> Iterator[str]:
    """One printable block a hit: a citation of its first printed line, then the lines around the sentence that answers.

    :param path_of: converts the path of a file for the current folder.
    :param url_of: gives the address of a hit's document, for a link in colour; "" for none.
    :param list_copies: cite the copies of each hit too.
    :param full: the whole passage.
    """
    parts = parse(query)
    words = {word for _, _, word in _words(parts.text)} - _COMMON
    passages = [hit if full else hit.best for hit in hits]
    texts = [_Text.fit(passage, words, parts, max(16, width - 6)) for passage in passages]
    weights = _weights(texts, words)
    for hit, passage, text in zip(hits, passages, texts, strict=True):
        shown = range(len(text.lines)) if full else text.excerpt(weights)
        counts_lines = passage.line_end - passage.line_start == passage.text.count("\n")  # else the lines of its source
        line = passage.line_start + (text.numbers[shown.start] if counts_lines and text.numbers else 0)
        lines = [_citation(hit, passage, _location(passage, line, path_of), url_of(hit), colour=colour)]
        lines += [f"    = {_location(copy, copy.line_start, path_of)}" for copy in hit.copies if list_copies]
        lines += [f"    {_highlight(line, words) if colour else line}" for line in _cut(text, shown)]
        if explain:
            lines.append(f"    {_explained(hit.best)}")
            if hit.parts:
                ranks = (f"{part.line_start}-{part.line_end} (rank {part.rank})" for part in hit.parts)
                lines.append(f"    joined lines {', '.join(ranks)}")
        yield "\n".join(lines) + "\n"


def _location(passage: Hit | Copy, line: int, path_of: Callable[[str], str]) -> str:
    """Path and line of a passage."""
    path = path_of(passage.path) if passage.source == "file" else passage.path
    return f"{printable_path(file_of(path))}:{line}"


def _citation(hit: Hit, shown: Hit, location: str, url: str, *, colour: bool) -> str:
    """The first line of a hit.

    :param shown: the passage that is printed.
    """
    page = f"  p. {hit.page}" if hit.page is not None else ""
    heading = f"  {printable(' > '.join(shown.heading))}" if shown.heading else ""
    hidden = "  [hidden text]" * bool(shown.hidden) + "  [weak]" * hit.weak
    joined = f"  ({len(hit.parts)} passages, lines {hit.line_start}-{hit.line_end})" if hit.parts else ""
    copies = joined + f"  (+{len(hit.copies)} {'copy' if len(hit.copies) == 1 else 'copies'})" * bool(hit.copies)
    if colour:
        heading = _FAINT + heading + _END if heading else ""
        hidden = _MATCH + hidden + _END if hidden else ""
        location = f"\x1b]8;;{url}\x1b\\{location}\x1b]8;;\x1b\\" if url else location  # a hyperlink (OSC 8)
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


@dataclass(frozen=True, slots=True)
class _Text:
    """The printable lines of a passage; an excerpt shows some of them."""

    lines: list[str]
    numbers: list[int]  # of the line at the start of each, in the passage, from 0
    sentences: list[tuple[int, int]]  # the first line of each and the end
    matches: list[set[str]]  # the words of the query in each sentence
    levels: list[tuple[int, int]]  # how well each sentence holds the exact parts

    @classmethod
    def fit(cls, hit: Hit, words: set[str], parts: ExactQuery, width: int) -> _Text:
        """Wrap a passage to the width, and find its sentences; in code and tables, each line is one."""
        from ...readers.formats import LINE_BY_LINE

        flowing = hit.format not in LINE_BY_LINE
        fitted = list(_fitted(hit.text, words, width, flowing=flowing))
        lines = [line for line, _ in fitted]
        text = "\n".join(lines)
        starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
        sentences: list[tuple[int, int, str]] = []
        has_literals = bool(parts.literals)
        for start, end in _spans(text, _SENTENCE_END if flowing else _LINE_END):
            first, last = bisect_right(starts, start) - 1, bisect_right(starts, end - 1)
            whole = last - first <= _LONGEST
            sentences += (
                [(first, last, text[start:end])] if whole else zip(count(first), count(first + 1), lines[first:last])
            )
        return cls(
            lines,
            [number for _, number in fitted],
            [(first, end) for first, end, _ in sentences],
            [_hit_words(sentence, words) for _, _, sentence in sentences],
            [parts.level(sentence) if has_literals else (0, 0) for _, _, sentence in sentences],
        )

    def excerpt(self, weights: Mapping[str, float]) -> range:
        """The lines around the sentence with most of the exact parts, then with the heaviest words of the query.

        A sentence often refers to the previous one, so half of the previous weight counts too.
        """
        if len(self.lines) <= _SHOWN:
            return range(len(self.lines))
        own = [sum(weights[word] for word in match) for match in self.matches]
        earlier = [0.0, *(self._weight(number, weights) for number in range(1, len(own)))]
        best = max(range(len(own)), key=lambda number: (self.levels[number], own[number] + earlier[number], -number))
        first, end = self.sentences[best]
        size = max(_SHOWN, end - first) if self.matches[best] else _SHOWN
        start = max(0, min(first - max(0, size - (end - first)) // 2, len(self.lines) - size))
        return range(start, start + size)

    def _weight(self, number: int, weights: Mapping[str, float]) -> float:
        return sum(weights[word] for word in self.matches[number - 1] - self.matches[number]) / 2


def sentences(text: str) -> list[str]:
    """The sentences of flowing text, of three words or more."""
    pieces = (text[start:end].strip() for start, end in _spans(text, _SENTENCE_END))
    return [piece for piece in pieces if len(piece.split()) >= _WORDS]


def _spans(text: str, end: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    """The span of each sentence that is not empty."""
    position = 0
    for match in end.finditer(text):
        if match.start() > position:
            yield position, match.start()
        position = match.end()
    if len(text) > position or not position:
        yield position, max(len(text), 1)


def _weights(texts: Sequence[_Text], words: set[str]) -> dict[str, float]:
    """The weight of each word of the query: the fewer of the sentences have it, the heavier (idf)."""
    counts = Counter(word for text in texts for match in text.matches for word in match)
    total = sum(len(text.matches) for text in texts)
    return {word: math.log(1 + total / (1 + counts[word])) for word in words}


def _cut(text: _Text, shown: range) -> list[str]:
    """These lines of a passage, with a sign where it goes on."""
    lines = [line.rstrip() for line in text.lines[shown.start : shown.stop]] or [""]
    if shown.start:  # the first line of a passage has lost its indent already, the lines after it keep theirs
        lines = textwrap.dedent("\n".join(lines)).splitlines()
        lines[0] = f"… {lines[0]}"
    if shown.stop < len(text.lines) and not lines[-1].endswith("…"):
        lines[-1] += " …"
    return lines


def _fitted(text: str, words: set[str], width: int, *, flowing: bool) -> Iterator[tuple[str, int]]:
    """Fit each line of a passage into the width, and yield it with its indent and its number from 0.

    In flowing text, words that do not fit move to the next line of the paragraph, since most documents are wrapped a
    little wider than an excerpt. Other lines are cut. A line stays whole if the cut would hide a matching word, or if
    it is the only line.
    """
    rest = below = ""  # the words that did not fit into the line before, and the indent of their line
    begun = number = 0  # `begun`: the number of the line where `rest` began
    whole = text.expandtabs(4).splitlines(keepends=True)
    lines = [printable(line.rstrip("\n")).rstrip() for line in whole]
    fenced = _begins_fenced(lines)
    for line, end in [*zip(lines, whole, strict=True), ("", "")]:
        body = line.strip()
        indent = line[: len(line) - len(line.lstrip())][: width // 2]
        if rest and (not body or indent != below or _START.match(body)):
            yield below + rest, begun
            rest = ""
        item = _ITEM.match(body)
        below = indent + " " * min(item.end() if item else 0, width // 4)
        numbers = [begun if rest else number]
        pieces = _pieces(f"{rest} {body}".lstrip(), width, indent, below)
        rest = ""
        fenced ^= body.startswith(_FENCES)
        if len(pieces) > 1 and flowing and not fenced and len(line) <= _WRAPPED:
            rest, begun = pieces.pop().strip(), number
        elif len(pieces) > 1 < len(lines) and (fenced or not flowing) and not _hit_words(" ".join(pieces[1:]), words):
            pieces = [_pieces(body, width - 2, indent, below)[0] + " …"]
        numbers += [number] * len(pieces)
        yield from zip(pieces, numbers, strict=False)
        number += end.endswith("\n")


def _begins_fenced(lines: list[str]) -> bool:
    """Tell whether the text begins inside a fenced block.

    A fence with a language can only begin a block, so an odd number of fences before it means that the first ends one.
    """
    fences = [line.strip() for line in lines if line.lstrip().startswith(_FENCES)]
    first = next((number for number, fence in enumerate(fences) if fence.strip("`~")), len(fences))
    return first % 2 == 1


def _pieces(body: str, width: int, indent: str, below: str) -> list[str]:
    """Wrap a line to a width in columns of a terminal: letters of Chinese, Japanese and Korean take two."""
    if not body.isascii():
        body = "".join(letter + _COLUMN * (unicodedata.east_asian_width(letter) in "WF") for letter in body)
    wrap = partial(textwrap.wrap, body, initial_indent=indent, subsequent_indent=below, break_on_hyphens=False)
    pieces = wrap(width)
    if any(piece.lstrip().startswith(_COLUMN) for piece in pieces):  # the line above ends within a letter
        pieces = wrap(width - 1)
    return [piece.replace(_COLUMN, "") for piece in pieces]


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
    """The spans of words in a line that are forms of a word of the query; each with the word of the query."""
    known: dict[str, str | None] = {}
    for start, end, word in _words(line, single=True):
        if word not in known:
            known[word] = _matching(word, words)
        if match := known[word]:
            yield start, end, match


def _words(text: str, *, single: bool = False) -> Iterator[Word]:
    """The span of each word, and the word without case and accents; in scripts without spaces, every two characters.

    :param single: in those scripts, every character too.
    """
    for first, last in word_spans(text):
        word = text[first:last]
        if word.isascii() and "_" not in word:  # as most words
            yield first, last, word.lower()
            continue
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
    """The word of the query that has the same stem by its spelling."""
    return next((candidate for candidate in words if word == candidate or _alike(word, candidate)), None)


def _alike(word: str, candidate: str) -> bool:
    """Whether two words differ only in their endings."""
    if word[:1] != candidate[:1]:
        return False
    short, long = sorted((len(word), len(candidate)))
    same = next((index for index in range(short) if word[index] != candidate[index]), short)
    if "가" <= word[:1] <= "힣":  # a letter is a syllable; a Korean noun has one or two more as its ending
        return same == short and long - same <= 2
    return same >= 4 and same >= short - 2 and long - same <= 4


def highlights(text: str, query: str) -> list[tuple[int, int]]:
    """The spans of words in a text that are forms of a word of the query: in order, none overlapping."""
    words = {word for _, _, word in _words(parse(query).text)} - _COMMON
    spans: list[tuple[int, int]] = []
    for start, end, _ in _matches(text, words):
        if spans and start <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(end, spans[-1][1])
        else:
            spans.append((start, end))
    return spans
