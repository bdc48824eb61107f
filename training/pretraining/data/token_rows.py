"""Rows of tokens on disk, to train on and held out."""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import asdict, dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from ....core.errors import InputError
from ....core.files import json_or_make
from ...data.dataset import hash_of
from ...data.tokenized import SENTENCE, Row, TokenRows, TokenRowWriter, cut, pack_rows, tokenize

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_SAMPLE = 1_000  # documents: their hashes set the limit of the held-out hashes
_SHORTEST = 2  # known tokens of a row: a single token has no context to predict it from


@dataclass(frozen=True, slots=True)
class RowCounts:
    """The numbers of documents read and of rows written."""

    documents: int = 0
    held_out_documents: int = 0
    rows: int = 0  # to train on
    tokens: int = 0
    held_out_rows: int = 0
    held_out_tokens: int = 0
    pairs: int = 0  # rows with two sentences or more

    def as_dict(self) -> dict[str, int]:
        """Return all counts for JSON."""
        return asdict(self)


def prepare(
    texts: Iterable[tuple[str, bool]], folder: Path, tokenizer: Any, *, room: int, pack: bool = False
) -> RowCounts:
    """Tokenize every text once and write `train.arrow` and `held_out.arrow`; reuse the files of a killed run.

    :param texts: each text with whether it is held out, from `split_held_out`.
    :param room: maximum number of tokens in a row, without special tokens.
    :param pack: whether rows to train on continue from one document to the next.
    """
    counts = json_or_make(folder / "counts.json", lambda: asdict(_write(texts, folder, tokenizer, room, pack=pack)))
    return RowCounts(**counts)


def _write(  # noqa: C901 - its counters belong together
    texts: Iterable[tuple[str, bool]], folder: Path, tokenizer: Any, room: int, *, pack: bool
) -> RowCounts:
    train, held_out = TokenRowWriter(folder / "train.arrow"), TokenRowWriter(folder / "held_out.arrow")
    special = np.array(tokenizer.all_special_ids)
    documents = held_documents = pairs = 0

    def add(writer: TokenRowWriter, row: Row, document: int) -> None:
        nonlocal pairs
        if (~np.isin(row.tokens, special)).sum() >= _SHORTEST:
            writer.add(row, document)
            pairs += bool((row.starts[1:] == SENTENCE).any())

    def training() -> Iterator[tuple[int, Row]]:
        """The documents to train on; held-out ones are written on the way."""
        nonlocal documents, held_documents
        for number, (row, is_held_out) in enumerate(_with_tokens(texts, tokenizer)):
            documents += 1
            held_documents += is_held_out
            if is_held_out:
                for piece in cut(row, room):
                    add(held_out, piece, number)
            else:
                yield number, row

    if pack:
        for number, row in enumerate(pack_rows((row for _, row in training()), room, tokenizer.sep_token_id)):
            add(train, row, number)
    else:
        for number, row in training():
            for piece in cut(row, room):
                add(train, piece, number)
    train.close()
    held_out.close()
    return RowCounts(documents, held_documents, train.rows, train.tokens, held_out.rows, held_out.tokens, pairs)


def _with_tokens(texts: Iterable[tuple[str, bool]], tokenizer: Any) -> Iterator[tuple[Row, bool]]:
    flags: deque[bool] = deque()  # of the texts that the tokenizer has read ahead

    def texts_only() -> Iterator[str]:
        for text, is_held_out in texts:
            flags.append(is_held_out)
            yield text

    for row in tokenize(texts_only(), tokenizer):
        yield row, flags.popleft()


def split_held_out(
    texts: Iterable[str], share: float, minimum: int = 1, seed: int = 0, *, required: bool = False
) -> Iterator[tuple[str, bool]]:
    """Yield each text with whether it is held out.

    The text's hash decides, so that a repeated text is always on the same side. The hashes of the first thousand texts
    set the limit, so that a small collection is split exactly.

    :param share: of the documents to hold out; 0 for none.
    :param minimum: number of documents to hold out, unless the share is 0.
    :param required: whether the caller cannot do without held-out documents.
    :raises InputError: when no document would be left to train on.
    """
    iterator = iter(texts)
    first = list(islice(iterator, _SAMPLE))
    if not first:
        raise InputError("there is no text to train on: expected documents, or rows with a text")
    salt = hashlib.blake2b(str(seed).encode(), digest_size=8).digest()

    def salted(text: str) -> int:
        return hash_of(text) ^ int.from_bytes(salt, "little")

    limit = -1
    if share:
        hashes = sorted({salted(text) for text in first})
        count = max(minimum, round(share * len(hashes)))
        if len(hashes) < 2 * minimum or count >= len(hashes):
            there = f"is {len(hashes)} document" if len(hashes) == 1 else f"are {len(hashes)} different documents"
            instead = "" if required else "; --held-out 0 trains on all of them"
            raise InputError(f"there {there}: expected at least {2 * minimum}, so that some can be held out{instead}")
        limit = hashes[count - 1]
    for text in chain(first, iterator):
        yield text, salted(text) <= limit


def sample(rows: TokenRows, limit: int) -> list[int]:
    """Up to `limit` row numbers, evenly from the file, shortest rows first, so that batches have little padding."""
    numbers = np.unique(np.linspace(0, len(rows) - 1, min(limit, len(rows))).astype(np.int64))
    return numbers[np.argsort(rows.lengths[numbers], kind="stable")].tolist()  # type: ignore[no-any-return]
