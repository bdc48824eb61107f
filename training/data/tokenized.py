"""Texts as tokens in an Arrow file: tokenized once, read from disk row by row."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ...core.sentences import spans

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

INSIDE, WORD, SENTENCE = 0, 1, 2  # what begins with a token: nothing, a word, a sentence
_SCHEMA = pa.schema([("tokens", pa.list_(pa.int32())), ("starts", pa.list_(pa.uint8())), ("document", pa.int64())])
_BATCH_ROWS = 1_024
_WINDOW = 20_000  # characters tokenized as one text: a document may be longer than memory has room for its tokens
_BATCH_CHARACTERS = 1_000_000  # tokenized at a time


@dataclass(frozen=True, slots=True)
class Row:
    """Neighbouring tokens, without special ones around them."""

    tokens: NDArray[np.int64]
    starts: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, inside: slice) -> Row:
        return Row(self.tokens[inside], self.starts[inside])

    def __add__(self, other: Row) -> Row:
        return Row(np.concatenate([self.tokens, other.tokens]), np.concatenate([self.starts, other.starts]))


class Writer:
    """Writes rows to a new file, which is whole only after `close`."""

    def __init__(self, file: Path) -> None:
        self._writer = pa.ipc.new_file(str(file), _SCHEMA)
        self._rows: list[tuple[Row, int]] = []
        self.rows = self.tokens = 0

    def add(self, row: Row, document: int) -> None:
        """:param document: its number, never lower than that of the row before."""
        self._rows.append((row, document))
        self.rows += 1
        self.tokens += len(row)
        if len(self._rows) == _BATCH_ROWS:
            self._flush()

    def close(self) -> None:
        if self._rows:
            self._flush()
        self._writer.close()

    def _flush(self) -> None:
        together = joined([row for row, _ in self._rows])
        ends = pa.array(np.cumsum([0, *(len(row) for row, _ in self._rows)]), pa.int32())
        columns = [
            pa.ListArray.from_arrays(ends, pa.array(together.tokens, pa.int32())),
            pa.ListArray.from_arrays(ends, pa.array(together.starts)),
            pa.array([document for _, document in self._rows], pa.int64()),
        ]
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=_SCHEMA))
        self._rows = []


class Rows:
    """The rows of a file, mapped into memory."""

    def __init__(self, file: Path) -> None:
        reader = pa.ipc.open_file(pa.memory_map(str(file)))
        batches = [reader.get_batch(place) for place in range(reader.num_record_batches)]
        self._batches = [
            (_numpy(b.column(0).offsets), _numpy(b.column(0).values), _numpy(b.column(1).values)) for b in batches
        ]
        none = [np.empty(0, np.int64)]
        self.documents: NDArray[np.int64] = np.concatenate(none + [_numpy(b.column(2)) for b in batches])
        self.lengths: NDArray[np.int64] = np.concatenate(none + [np.diff(ends) for ends, _, _ in self._batches])

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, number: int) -> Row:
        batch, place = divmod(number, _BATCH_ROWS)
        ends, tokens, starts = self._batches[batch]
        inside = slice(ends[place], ends[place + 1])
        return Row(tokens[inside].astype(np.int64), starts[inside])


def _numpy(array: pa.Array) -> NDArray[Any]:
    return array.to_numpy(zero_copy_only=True)  # type: ignore[no-any-return]


def windows(text: str) -> Iterator[str]:
    """The text in stretches of bounded length, cut before a line or a word where there is one to cut at."""
    start = 0
    while len(text) - start > _WINDOW:
        low, high = start + _WINDOW // 2, start + _WINDOW
        ends = (text.rfind("\n", low, high), text.rfind(" ", low, high), high)
        end = next(end for end in ends if end > 0)
        yield text[start:end]
        start = end
    yield text[start:]


def tokenized(texts: Iterable[str], tokenizer: Any) -> Iterator[Row]:
    """For each text its tokens, without special ones, and what begins with each of them.

    :param tokenizer: a fast one of transformers.
    """
    pieces = ((number, piece) for number, text in enumerate(texts) for piece in windows(text))
    made: list[Row] = []
    current = 0
    while batch := list(_some(pieces)):
        encodings = _encode([piece for _, piece in batch], tokenizer)
        for (number, piece), encoding in zip(batch, encodings, strict=True):
            if number != current:
                yield joined(made)
                made, current = [], number
            made.append(Row(np.array(encoding.ids, np.int64), _starts(piece, encoding)))
    if made:
        yield joined(made)


def joined(rows: Sequence[Row]) -> Row:
    return Row(np.concatenate([row.tokens for row in rows]), np.concatenate([row.starts for row in rows]))


def _some(pieces: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    taken = 0
    for number, piece in islice(pieces, 1_000):
        yield number, piece
        taken += len(piece)
        if taken >= _BATCH_CHARACTERS:
            return


def _encode(texts: Sequence[str], tokenizer: Any) -> list[Any]:
    """`[MASK]` and the like in a text are characters like others."""
    encoded = tokenizer(texts, add_special_tokens=False, split_special_tokens=True, truncation=False, verbose=False)
    return encoded.encodings  # type: ignore[no-any-return]


def _starts(text: str, encoding: Any) -> NDArray[np.uint8]:
    words = np.array([-1 if word is None else word for word in encoding.word_ids], np.int64)
    starts = np.full(len(words), INSIDE, np.uint8)
    starts[np.diff(words, prepend=-2) != 0] = WORD
    ends = np.array([end for _, end in encoding.offsets], np.int64)
    sentences = np.searchsorted(ends, [start for start, _ in spans(text)], side="right")
    starts[sentences[sentences < len(starts)]] = SENTENCE
    return starts


def cut(document: Row, room: int) -> Iterator[Row]:
    """A document in rows of at most `room` tokens and of nearly equal length, cut where a sentence or a word begins."""
    while len(document) > room:
        end = _cut_at(document.starts, -(-len(document) // -(-len(document) // room)))
        yield document[:end]
        document = document[end:]
    if len(document):
        yield document


def _cut_at(starts: NDArray[np.uint8], end: int) -> int:
    """The last place in the second half of these where a sentence begins, else a word, else the end."""
    half = (end + 1) // 2
    for level in (SENTENCE, WORD):
        found = np.flatnonzero(starts[half : end + 1] >= level)
        if len(found):
            return half + int(found[-1])
    return end


def packed(documents: Iterable[Row], room: int, separator: int) -> Iterator[Row]:
    """All documents one after another, a separator between them, in rows of about `room` tokens."""
    between = Row(np.array([separator], np.int64), np.array([WORD], np.uint8))
    waiting: list[Row] = []
    for document in documents:
        waiting += [between, document] if waiting else [document]
        if sum(map(len, waiting)) > 20 * room:
            *full, rest = _full(joined(waiting), room)
            yield from full
            waiting = [rest]
    if waiting:
        yield from _full(joined(waiting), room)


def _full(row: Row, room: int) -> Iterator[Row]:
    """Rows as long as they may be, the last one excepted."""
    while len(row) > room:
        end = _cut_at(row.starts, room)
        yield row[:end]
        row = row[end:]
    yield row
