"""Tokenized texts in an Arrow file: written once, read from disk row by row."""

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

INSIDE, WORD, SENTENCE = 0, 1, 2  # the position of a token: inside a word, or at the start of a word or a sentence
_SCHEMA = pa.schema([("tokens", pa.list_(pa.int32())), ("starts", pa.list_(pa.uint8())), ("document", pa.int64())])
_BATCH_ROWS = 1_024
_WINDOW = 20_000  # characters tokenized as one text: the tokens of a whole document may not fit into memory
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

    def __add__(self, following: Row) -> Row:
        return concatenate([self, following])


class TokenRowWriter:
    """Writes rows to a new file; the file is complete after `close`."""

    def __init__(self, file: Path) -> None:
        self._writer = pa.ipc.new_file(str(file), _SCHEMA)
        self._rows: list[tuple[Row, int]] = []
        self.rows = self.tokens = 0

    def add(self, row: Row, document: int) -> None:
        """Add a row.

        :param document: its number, never lower than the previous row's.
        """
        self._rows.append((row, document))
        self.rows += 1
        self.tokens += len(row)
        if len(self._rows) == _BATCH_ROWS:
            self._flush()

    def close(self) -> None:
        """Write the last rows."""
        if self._rows:
            self._flush()
        self._writer.close()

    def _flush(self) -> None:
        together = concatenate([row for row, _ in self._rows])
        ends = pa.array(np.cumsum([0, *(len(row) for row, _ in self._rows)]), pa.int32())
        columns = [
            pa.ListArray.from_arrays(ends, pa.array(together.tokens, pa.int32())),
            pa.ListArray.from_arrays(ends, pa.array(together.starts)),
            pa.array([document for _, document in self._rows], pa.int64()),
        ]
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=_SCHEMA))
        self._rows = []


class TokenRows:
    """The rows of a file, mapped into memory."""

    def __init__(self, file: Path) -> None:
        reader = pa.ipc.open_file(pa.memory_map(str(file)))
        batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
        self._batches = [
            (_numpy(b.column(0).offsets), _numpy(b.column(0).values), _numpy(b.column(1).values)) for b in batches
        ]
        empty = [np.empty(0, np.int64)]
        self.documents: NDArray[np.int64] = np.concatenate(empty + [_numpy(b.column(2)) for b in batches])
        self.lengths: NDArray[np.int64] = np.concatenate(empty + [np.diff(ends) for ends, _, _ in self._batches])

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, number: int) -> Row:
        batch, row = divmod(number, _BATCH_ROWS)
        ends, tokens, starts = self._batches[batch]
        inside = slice(ends[row], ends[row + 1])
        return Row(tokens[inside].astype(np.int64), starts[inside])


def _numpy(array: pa.Array) -> NDArray[Any]:
    return array.to_numpy(zero_copy_only=True)  # type: ignore[no-any-return]


def windows(text: str) -> Iterator[str]:
    """Cut a text into windows of bounded length, before a line or else a word if possible."""
    start = 0
    while len(text) - start > _WINDOW:
        low, high = start + _WINDOW // 2, start + _WINDOW
        ends = (text.rfind("\n", low, high), text.rfind(" ", low, high), high)
        end = next(end for end in ends if end > 0)
        yield text[start:end]
        start = end
    yield text[start:]


def tokenize(texts: Iterable[str], tokenizer: Any) -> Iterator[Row]:
    """Tokenize each text, without special tokens, and mark the tokens that start a word or a sentence.

    :param tokenizer: a fast tokenizer of transformers.
    """
    pieces = ((number, piece) for number, text in enumerate(texts) for piece in windows(text))
    rows: list[Row] = []
    current = 0
    while batch := list(_batch(pieces)):
        encodings = _encode([piece for _, piece in batch], tokenizer)
        for (number, piece), encoding in zip(batch, encodings, strict=True):
            if number != current:
                yield concatenate(rows)
                rows, current = [], number
            rows.append(Row(np.array(encoding.ids, np.int64), _starts(piece, encoding)))
    if rows:
        yield concatenate(rows)


def concatenate(rows: Sequence[Row]) -> Row:
    """Join rows into one."""
    return Row(np.concatenate([row.tokens for row in rows]), np.concatenate([row.starts for row in rows]))


def _batch(pieces: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Take the pieces to tokenize together."""
    characters = 0
    for number, piece in islice(pieces, 1_000):
        yield number, piece
        characters += len(piece)
        if characters >= _BATCH_CHARACTERS:
            return


def _encode(texts: Sequence[str], tokenizer: Any) -> list[Any]:
    """Tokenize texts; `[MASK]` and the like in a text count as plain characters."""
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
    """Cut a document into rows of at most `room` tokens and nearly equal length, at sentences or else words."""
    while len(document) > room:
        end = _cut_at(document.starts, -(-len(document) // -(-len(document) // room)))
        yield document[:end]
        document = document[end:]
    if len(document):
        yield document


def _cut_at(starts: NDArray[np.uint8], end: int) -> int:
    """Return the last start of a sentence in the second half, else of a word, else the end."""
    half = (end + 1) // 2
    for level in (SENTENCE, WORD):
        positions = np.flatnonzero(starts[half : end + 1] >= level)
        if len(positions):
            return half + int(positions[-1])
    return end


def pack_rows(documents: Iterable[Row], room: int, separator: int) -> Iterator[Row]:
    """Join all documents with a separator between them, and cut them into rows of about `room` tokens."""
    between = Row(np.array([separator], np.int64), np.array([WORD], np.uint8))
    waiting: list[Row] = []
    for document in documents:
        waiting += [between, document] if waiting else [document]
        if sum(map(len, waiting)) > 20 * room:
            *full, rest = _full(concatenate(waiting), room)
            yield from full
            waiting = [rest]
    if waiting:
        yield from _full(concatenate(waiting), room)


def _full(row: Row, room: int) -> Iterator[Row]:
    """Cut a row into rows of full length and a last one."""
    while len(row) > room:
        end = _cut_at(row.starts, room)
        yield row[:end]
        row = row[end:]
    yield row
