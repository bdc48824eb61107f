"""Find lines of the stored texts by a regular expression or a fixed text, as grep does in files.

The texts are as the readers extracted them, so it also finds lines of a PDF or a letter. Patterns have the syntax of
RE2, which pyarrow brings. RE2 takes linear time for any pattern, so none can hang; it lacks look-around and
back-references (Cox 2007, "Regular Expression Matching Can Be Simple And Fast"). `\\w`, `\\d` and `\\s` match letters,
digits and white space of every alphabet; `\\b` within a pattern knows ASCII alone. Outside of square brackets, é
matches as one character and as a letter with a mark.
"""

from __future__ import annotations

import contextlib
import re
import unicodedata
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core.arrays import isin_sorted
from ...core.checks import is_whole
from ...core.errors import InputError
from ...core.words import composed, encodable, is_mark
from ..documents.file_parts import file_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ..store.filters.filter import Filter
    from ..store.snapshot import Snapshot

    Row = dict[str, Any]

_BATCH_BYTES, _BATCH_ROWS = 16 * 2**20, 1_000  # of documents read at a time; a larger document is a batch of its own
_MAX_CHARACTERS = 10_000  # of a pattern
_CHUNK_COLUMNS = ["document", "char_start", "char_end", "line_start", "line_end", "page"]
_WORD = r"\p{L}\p{M}\p{N}_"
_CLASSES = {  # outside and inside of square brackets
    "w": (f"[{_WORD}]", _WORD),
    "W": (f"[^{_WORD}]", r"\W"),
    "d": (r"\p{Nd}", r"\p{Nd}"),
    "D": (r"\P{Nd}", r"\P{Nd}"),
    "s": (r"[\s\p{Z}]", r"\s\p{Z}"),
    "S": (r"[^\s\p{Z}]", r"\S"),
}
_POSIX = {  # these too
    "[:alpha:]": r"\p{L}",
    "[:alnum:]": r"\p{L}\p{N}",
    "[:upper:]": r"\p{Lu}",
    "[:lower:]": r"\p{Ll}",
    "[:punct:]": r"[:punct:]\p{P}\p{S}",
    "[:space:]": r"\s\p{Z}",
}
_TOKEN = re.compile(r"\\Q.*?(?:\\E|\Z)|\\.|\[:\w+:\]|\[\^?\]?|\]|[^\\\[\]]+", re.DOTALL)
_LINE_BOUND = re.compile(r"\\[AzQ]|\(\?[a-zA-Z]*-")  # a pattern with these may match a line but not the whole text
_START, _END = "\ue000", "\ue001"  # around matches: characters of private use


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a document that matches, or a line of context around a match.

    Lines are numbered as in citations. In HTML and XML a line has the number of its passage's first line in the
    source, unless the passage has as many lines as its source.
    """

    number: int
    text: str
    page: int | None
    matches: tuple[tuple[int, int], ...]  # spans of characters; none for a match without characters
    is_match: bool


@dataclass(frozen=True, slots=True)
class DocumentMatches:
    """The matching lines of a document, or of one part of a large file.

    `groups` has lines that stand together: matches and their context.
    """

    path: str
    source: str  # "file" or "added"
    count: int  # of matching lines
    groups: tuple[tuple[Line, ...], ...]


@dataclass(frozen=True, slots=True)
class LinePattern:
    """A pattern that was checked, in RE2's syntax."""

    line: str
    span: str  # the part to highlight
    ascii_span: str  # the same for lines of ASCII, where RE2 knows the edges of words
    text: str | None  # matches every text with a matching line; None: any text may have one
    edges: tuple[bool, bool]  # whether a span begins, and ends, at the edge of a word

    @classmethod
    def parse(cls, pattern: str, *, fixed: bool = False, ignore_case: bool = False, word: bool = False) -> LinePattern:
        """Check a pattern.

        :param fixed: find the pattern itself; it is no regular expression.
        :param ignore_case: in any case.
        :param word: only as whole words.
        :raises InputError: when it is no pattern of RE2.
        """
        if not isinstance(pattern, str):
            raise InputError(f"a pattern is a text, but this one is of type {type(pattern).__name__}")
        if not pattern or len(pattern) > _MAX_CHARACTERS:
            raise InputError(f"the pattern has {len(pattern):,} characters: expected 1 to {_MAX_CHARACTERS:,}")
        flags = "(?i)" if ignore_case else ""
        body = composed(encodable(pattern))
        if not fixed:
            _check(body, pattern)  # before anything stands around it
        body = _escaped(body) if fixed else _unicode(body)
        ascii_span, span, edges = body, body, (word, word)
        if not fixed:
            body, span = _with_edges(body), _without_edges(body)
            if not word and "|" not in span:
                edges = bool(_LEFT_EDGE.search(ascii_span)), bool(_RIGHT_EDGE.search(ascii_span))
        if word:
            body, ascii_span = f"(?:^|[^{_WORD}])(?:{span})(?:$|[^{_WORD}])", span
        body, span, ascii_span = map(_in_both_forms, (body, span, ascii_span))
        line = f"{flags}(?:{body})"
        _check(f"{flags}(?:{span})", pattern)
        _check(line, pattern)
        whole = None if not fixed and _LINE_BOUND.search(pattern) else f"(?m){line}"
        return cls(line, f"{flags}({span})", f"{flags}({ascii_span})", whole, edges)

    def matches(self, texts: pa.Array) -> NDArray[np.intp]:
        """The numbers of the lines that match."""
        mask = pc.match_substring_regex(texts, self.line)
        return np.flatnonzero(mask.to_numpy(zero_copy_only=False))

    def spans(self, lines: Sequence[str]) -> list[tuple[tuple[int, int], ...]]:
        """The spans of each line that match."""
        spans: list[tuple[tuple[int, int], ...]] = [()] * len(lines)
        for pattern, is_ascii in ((self.ascii_span, True), (self.span, False)):
            numbers = [number for number, line in enumerate(lines) if line.isascii() is is_ascii]
            texts = _array([lines[number] for number in numbers])
            marked = pc.replace_substring_regex(texts, pattern, f"{_START}\\1{_END}").cast(pa.large_binary())
            for number, text in zip(numbers, marked.to_pylist(), strict=True):
                if _START not in lines[number] and _END not in lines[number]:
                    with contextlib.suppress(UnicodeDecodeError):  # RE2's \B and \C match within a character
                        spans[number] = tuple(_marked_spans(text.decode(), lines[number], self.edges))
        return spans


def grep(
    snapshot: Snapshot,
    pattern: LinePattern,
    where: Filter | None,
    *,
    before: int = 0,
    after: int = 0,
    lines: bool = True,
) -> Iterator[DocumentMatches]:
    """Find lines in all documents, in order of path and in bounded memory.

    :param before: the number of lines to return before each match.
    :param after: the number of lines to return after each match.
    :param lines: False only counts the lines.
    """
    for documents in _batches(snapshot, where):
        table = snapshot.take("documents", [row["id"] for row in documents], ["id", "text"])
        if pattern.text is not None:
            table = table.filter(pc.match_substring_regex(table["text"], pattern.text))
        texts = dict(zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True))
        chunks = _chunks(snapshot, sorted(texts)) if lines else {}
        for row in documents:
            if row["id"] in texts:
                yield from _matches(row, texts[row["id"]], chunks.get(row["id"], []), pattern, before, after)


def check_context(before: int, after: int) -> None:
    """Check the numbers of lines around a match."""
    for name, count in (("before", before), ("after", after)):
        if not is_whole(count, 0):
            raise InputError(f"{name} is a number of lines, a whole number from 0, not {count!r}")


def _batches(snapshot: Snapshot, where: Filter | None) -> Iterator[list[Row]]:
    rows = snapshot.document_rows.select(["id", "path", "source", "size", "chunks"]).to_pylist()
    passing = None if where is None else set(snapshot.passing(where).documents.tolist())
    batch: list[Row] = []
    size = 0
    for row in sorted(rows, key=lambda row: (row["path"], row["source"])):
        if not row["chunks"] or (passing is not None and row["id"] not in passing):
            continue
        if batch and (size + row["size"] > _BATCH_BYTES or len(batch) == _BATCH_ROWS):
            yield batch
            batch, size = [], 0
        batch.append(row)
        size += row["size"]
    if batch:
        yield batch


def _chunks(snapshot: Snapshot, documents: list[int]) -> dict[int, list[Row]]:
    """The positions of the chunks of documents, in order."""
    table = snapshot.chunk_ids
    mask = isin_sorted(table["document"].to_numpy(), np.array(documents, np.int64))
    chunks: dict[int, list[Row]] = {}
    for row in snapshot.chunks_by_id(table["id"].to_numpy()[mask].tolist(), _CHUNK_COLUMNS).values():
        chunks.setdefault(row["document"], []).append(row)
    return {document: sorted(rows, key=lambda row: row["char_start"]) for document, rows in chunks.items()}


def _matches(
    row: Row, text: str, chunks: list[Row], pattern: LinePattern, before: int, after: int
) -> Iterator[DocumentMatches]:
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    matches = pattern.matches(_array(lines)).tolist()
    if matches:
        numbering = _numbering(row["path"], text, lines, chunks) if chunks else None
        groups = tuple(_groups(lines, matches, numbering, pattern, before, after)) if numbering else ()
        yield DocumentMatches(row["path"], row["source"], len(matches), groups)


def _groups(
    lines: list[str],
    matches: list[int],
    numbering: list[tuple[int, int | None]],
    pattern: LinePattern,
    before: int,
    after: int,
) -> Iterator[tuple[Line, ...]]:
    spans = dict(zip(matches, pattern.spans([lines[number] for number in matches]), strict=True))
    runs: list[list[int]] = []  # first line and end of each group
    for number in matches:
        start, end = max(number - before, 0), min(number + after + 1, len(lines))
        if runs and start <= runs[-1][1] and before + after:
            runs[-1][1] = end
        else:
            runs.append([start, end])
    for start, end in runs:
        yield tuple(
            Line(numbering[number][0], lines[number], numbering[number][1], spans.get(number, ()), number in spans)
            for number in range(start, end)
        )


def _numbering(path: str, text: str, lines: list[str], chunks: list[Row]) -> list[tuple[int, int | None]]:
    """Number and page of each line, as citations have them."""
    earlier, position, first_lines = 0, 0, []  # first_lines: the line at the start of each chunk, from 0
    for chunk in chunks:
        earlier += text.count("\n", position, chunk["char_start"])
        position = chunk["char_start"]
        first_lines.append(earlier)
    offset = chunks[0]["line_start"] - 1 - first_lines[0] if file_of(path) != path else 0  # of a part of a file
    newlines = [text.count("\n", chunk["char_start"], chunk["char_end"]) for chunk in chunks]
    counts_text = all(
        (chunk["line_start"], chunk["line_end"]) == (1 + offset + first, 1 + offset + first + count)
        for chunk, first, count in zip(chunks, first_lines, newlines, strict=True)
    )
    numbering = []
    for number in range(len(lines)):
        index = max(bisect_right(first_lines, number) - 1, 0)
        chunk, below = chunks[index], max(number - first_lines[index], 0)
        line = chunk["line_start"]
        if counts_text:
            line = number + 1 + offset
        elif chunk["line_end"] - line == newlines[index]:  # the passage has the lines of its source
            line = min(line + below, chunk["line_end"])
        numbering.append((line, chunk["page"]))
    return numbering


def _array(lines: Sequence[str]) -> pa.Array:
    return pa.array(lines, pa.large_string())


def _marked_spans(marked: str, line: str, edges: tuple[bool, bool]) -> Iterator[tuple[int, int]]:
    end = 0  # in the line
    for number, piece in enumerate(re.split(f"[{_START}{_END}]", marked)):
        start, end = end, end + len(piece)
        inside = _is_word(line[start - 1 : start]), _is_word(line[end : end + 1])
        if number % 2 and start < end and not any(edge and cut for edge, cut in zip(edges, inside, strict=True)):
            yield start, end


def _is_word(character: str) -> bool:
    return bool(re.match(r"\w", character)) or (character != "" and is_mark(character))


def _escaped(text: str) -> str:
    return re.sub(r"([^\w\s]|_)", lambda match: f"\\{match[0]}" if match[0].isascii() else match[0], text)


def _unicode(pattern: str) -> str:
    r"""Let the classes `\w`, `\d` and `\s` and their opposites match all alphabets; in RE2 they match ASCII alone.

    An open `\Q` is closed.
    """
    pieces = []
    is_inside = False
    for match in _TOKEN.finditer(pattern):
        piece = match[0]
        if piece[0] == "[" and not is_inside and not piece.startswith("[:"):
            is_inside = True
        elif piece == "]":
            is_inside = False
        elif piece[0] == "\\" and piece[1:] in _CLASSES:
            piece = _CLASSES[piece[1:]][is_inside]
        elif piece.startswith(r"\Q") and not piece.endswith(r"\E"):
            piece += r"\E"
        pieces.append(_POSIX.get(piece, piece) if is_inside else piece)
    return "".join(pieces)


def _in_both_forms(pattern: str) -> str:
    """Let a letter with a mark match as one character or as two (NFC and NFD), except in brackets and quotes."""
    if pattern.isascii():
        return pattern
    pieces = []
    is_inside = False
    for match in _TOKEN.finditer(pattern):
        piece = match[0]
        is_inside = piece[0] == "[" if not is_inside else piece != "]"
        pieces.append(piece if is_inside or piece[0] == "\\" else "".join(map(_form, piece)))
    return "".join(pieces)


def _form(sign: str) -> str:
    parts = unicodedata.normalize("NFD", sign)
    return sign if sign == parts else f"(?:{sign}|{parts})"


_LEFT_EDGE = re.compile(r"\A\\b(?=\w|\\p|\[[\w\\])")
_RIGHT_EDGE = re.compile(r"(?<=[\w\]}+])(?<!\\[A-Za-z])\\b\Z")


def _with_edges(pattern: str) -> str:
    r"""Let `\b` at either end of a pattern stand for the edge of a word in any alphabet."""
    pattern = _LEFT_EDGE.sub(lambda _: f"(?:^|[^{_WORD}])", pattern)
    return _RIGHT_EDGE.sub(lambda _: f"(?:$|[^{_WORD}])", pattern)


def _without_edges(pattern: str) -> str:
    return _RIGHT_EDGE.sub("", _LEFT_EDGE.sub("", pattern))


def _check(compiled: str, pattern: str) -> None:
    try:
        pc.match_substring_regex(_array([""]), compiled)
    except pa.ArrowInvalid as error:
        reason = str(error).removeprefix("Invalid regular expression: ")
        hint = (
            "; look-around and back-references do not exist here"
            if "perl operator" in reason or "escape" in reason
            else ""
        )
        raise InputError(f"{pattern!r} is no regular expression: {reason}{hint}") from None
