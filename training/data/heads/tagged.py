"""Read texts with marked names: CoNLL columns, or rows with tokens and tags, or with a text and its entities."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ....core.checks import is_whole
from ....core.errors import InputError
from ....core.words import encodable
from ....retriever.models.heads.tagger import OUTSIDE, entities, word_spans
from ..columns import document_of
from ..dataset import HELD_OUT, LEFT_OUT, TRAIN, divide
from ..sources import rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    Row = tuple[str, Mapping[str, Any]]
    Span = tuple[str, int, int]  # label, first character, end

_CONLL = (".conll", ".iob", ".bio", ".txt")
_SHOWN = 60  # characters of a value in a message


@dataclass(frozen=True, slots=True)
class TaggedText:
    """A text and the spans of its names, which do not overlap."""

    text: str
    spans: tuple[Span, ...]
    document: str

    def tags(self, words: list[tuple[int, int]]) -> list[str]:
        """Return the BIO tag of each word; a word that a span cuts belongs to it."""
        tags = [OUTSIDE] * len(words)
        for label, start, end in self.spans:
            inside = _inside(words, start, end)
            for number in inside:
                tags[number] = f"{'B' if number == inside[0] else 'I'}-{label}"
        return tags


@dataclass(frozen=True, slots=True)
class TaggedSplit:
    """Texts to learn from and texts held out, with the tags of both."""

    learned: list[TaggedText]
    held_out: list[TaggedText]
    left_out: int = 0  # texts of other documents that are held out too

    @property
    def labels(self) -> list[str]:
        """All tags: O, then B-X and I-X of each label in alphabetical order."""
        names = sorted({label for text in (*self.learned, *self.held_out) for label, _, _ in text.spans})
        return [OUTSIDE, *(f"{prefix}-{name}" for name in names for prefix in "BI")]


def read_tagged(source: str | Path | Iterable[Mapping[str, Any]], share: float, maximum: int, seed: int) -> TaggedSplit:
    """Read and check every text, and hold some out, by document or by text. No text is in both parts.

    :param source: anything that `read_texts` reads.
    :raises InputError: naming the place of the first text that does not fit.
    """
    texts = read_texts(source)
    if not any(text.spans for text in texts):
        raise InputError("the data have no marked name to learn from")
    part = divide((text.document for text in texts), (text.text for text in texts), share, maximum, seed).tolist()
    learned, held_out = (
        [text for text, own in zip(texts, part, strict=True) if own == side] for side in (TRAIN, HELD_OUT)
    )
    return TaggedSplit(learned, held_out, part.count(LEFT_OUT))


def read_texts(source: str | Path | Iterable[Mapping[str, Any]]) -> list[TaggedText]:
    """Read and check every text.

    :param source: a file in CoNLL's layout (a token and its tag a line, a blank line between sentences), or what
        `data.sources.rows` reads, with `tokens` and `tags`, or `text` and `entities`.
    :raises InputError: naming the place of the first text that does not fit.
    """
    stream = _conll(Path(source)) if isinstance(source, (str, Path)) and is_conll(Path(source)) else rows(source)
    return [_tagged(location, row) for location, row in stream]


def is_conll(path: Path) -> bool:
    """Whether this is a file with an ending of CoNLL's layout; its content is not read."""
    return path.suffix.lower() in _CONLL and path.is_file()


def _conll(path: Path) -> Iterator[Row]:
    """Yield sentences: the first column is the token, the last its tag. Tabs separate them, or else spaces."""
    tokens: list[str] = []
    tags: list[str] = []
    first = 1
    try:
        lines = path.read_text("utf-8-sig").split("\n")  # splitlines would cut at U+2028, too
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 ({error.reason}): save it as UTF-8") from None
    _expect_tags(path, lines)
    for number, line in enumerate([*lines, ""], 1):
        cells = _cells(line)
        if not cells or cells[0] == "-DOCSTART-":
            if tokens:
                yield f"{path}:{first}", {"tokens": tokens, "tags": tags}
            tokens, tags, first = [], [], number + 1
            continue
        if len(cells) < 2:
            raise InputError(f"{path}:{number} has no tag: expected a token and its tag on each line")
        _check_tag(f"{path}:{number}", cells[-1])
        tokens.append(cells[0])
        tags.append(cells[-1])


def _expect_tags(path: Path, lines: list[str]) -> None:
    """Check that a line has a tag: plain text comes under the same ending."""
    rows = list(filter(None, map(_cells, lines)))
    if rows and not any(len(cells) > 1 and _is_bio(cells[-1]) for cells in rows):
        raise InputError(
            f"{path} has no tagged words: expected a token and its tag (O, B-NAME or I-NAME) on each line, as in "
            "'Paris B-PLACE'; other rows are in a .jsonl, .csv, .tsv or .parquet file"
        )


def _cells(line: str) -> list[str]:
    """Return the columns of a line; with tabs between them, a token may have spaces."""
    cells = (cell.strip(" ") for cell in line.split("\t" if "\t" in line else " "))
    return [cell for cell in cells if cell] if line.strip() else []


def _is_bio(tag: object) -> bool:
    return isinstance(tag, str) and (tag == OUTSIDE or (tag[:2] in ("B-", "I-") and bool(tag[2:].strip())))


def _check_tag(location: str, tag: object) -> None:
    if not _is_bio(tag):
        raise InputError(f"{location}: the tag {str(tag)[:_SHOWN]!r} is not BIO: expected O, B-NAME or I-NAME")


def _tagged(location: str, row: Mapping[str, Any]) -> TaggedText:
    if "tokens" in row:
        text, spans = _from_tokens(location, row)
    else:
        text, spans = _from_text(location, row)
    spans.sort(key=lambda span: span[1])
    for (_, _, end), (label, start, _) in pairwise(spans):
        if start < end:
            raise InputError(
                f"{location}: the span of {label!r} at character {start} overlaps another, or cuts its word: expected "
                "at most one for each word"
            )
    return TaggedText(text, tuple(spans), document_of(location, row) or text)


def _from_tokens(location: str, row: Mapping[str, Any]) -> tuple[str, list[Span]]:
    tokens, tags = row["tokens"], row.get("tags")
    if not isinstance(tokens, list) or not isinstance(tags, list) or len(tokens) != len(tags):
        raise InputError(f"{location}: expected a list of tokens and a list of as many tags")
    if not all(isinstance(token, str) and token for token in tokens):
        raise InputError(f"{location}: expected tokens with characters")
    for tag in tags:
        _check_tag(location, tag)
    tokens = [encodable(token) for token in tokens]
    starts = np.cumsum([0, *(len(token) + 1 for token in tokens)]).tolist()
    text = " ".join(tokens)
    words = word_spans(text)
    spans = [(label, *_whole_words(words, starts[first], starts[end] - 1)) for label, first, end in entities(tags)]
    return text, spans


def _from_text(location: str, row: Mapping[str, Any]) -> tuple[str, list[Span]]:
    text, marked = row.get("text"), row.get("entities")
    if not isinstance(text, str) or not isinstance(marked, list):
        raise InputError(f"{location}: expected tokens and tags, or a text and a list of entities")
    return encodable(text), [_span(location, text, entity) for entity in marked]


def _span(location: str, text: str, entity: Any) -> Span:
    """Return the span from the start of its first word to the end of its last one: a tagger tags whole words."""
    fields = entity if isinstance(entity, dict) else {}
    label, start, end = (fields.get(name, -1) for name in ("label", "start", "end"))
    if not isinstance(label, str) or not label.strip() or not is_whole(start, 0) or not is_whole(end, 1):
        raise InputError(f"{location}: {str(entity)[:_SHOWN]!r} is no entity: expected label, start and end")
    words = word_spans(text)
    if end > len(text) or not _inside(words, start, end):
        raise InputError(f"{location}: characters {start} to {end} of the text are no word: expected a span with words")
    return label, *_whole_words(words, start, end)


def _inside(words: list[tuple[int, int]], start: int, end: int) -> list[int]:
    """Return the numbers of the words that have some of these characters."""
    return [number for number, (left, right) in enumerate(words) if left < end and right > start]


def _whole_words(words: list[tuple[int, int]], start: int, end: int) -> tuple[int, int]:
    """Return a span from the start of its first word to the end of its last one; as it came if it has none."""
    inside = _inside(words, start, end)
    return (words[inside[0]][0], words[inside[-1]][1]) if inside else (start, end)
