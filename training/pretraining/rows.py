"""What pretraining reads: rows of tokens on disk, those of some documents held out."""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import asdict, dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.errors import InputError
from ...core.files import json_or_make
from ..data.dataset import hash_of
from ..data.tokenized import SENTENCE, Row, Rows, Writer, cut, tokenize

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_SEEN = 1_000  # documents whose hashes say where those held out end
_SHORTEST = 2  # tokens of a row that are known: one alone has nothing to be told from


@dataclass(frozen=True, slots=True)
class Counts:
    """What was read and written."""

    documents: int = 0
    held_out_documents: int = 0
    rows: int = 0  # to train on
    tokens: int = 0
    held_out_rows: int = 0
    held_out_tokens: int = 0
    pairs: int = 0  # rows that can be cut in two, of all

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


def prepare(
    texts: Iterable[tuple[str, bool]], folder: Path, tokenizer: Any, *, room: int, pack: bool = False
) -> Counts:
    """Tokenize every text once and write `train.arrow` and `held_out.arrow`; what a killed run has written counts.

    :param texts: what `parted` gives.
    :param room: tokens of a row, special ones left out.
    :param pack: whether rows to train on go on from one document to the next.
    """
    made = json_or_make(folder / "counts.json", lambda: asdict(_write(texts, folder, tokenizer, room, pack=pack)))
    return Counts(**made)


def _write(texts: Iterable[tuple[str, bool]], folder: Path, tokenizer: Any, room: int, *, pack: bool) -> Counts:
    train, held_out = Writer(folder / "train.arrow"), Writer(folder / "held_out.arrow")
    special = np.array(tokenizer.all_special_ids)
    documents = held_documents = pairs = 0

    def add(writer: Writer, row: Row, document: int) -> None:
        nonlocal pairs
        if (~np.isin(row.tokens, special)).sum() >= _SHORTEST:
            writer.add(row, document)
            pairs += bool((row.starts[1:] == SENTENCE).any())

    def training() -> Iterator[tuple[int, Row]]:
        """The documents to train on; those held out are written on the way."""
        nonlocal documents, held_documents
        for number, (row, held) in enumerate(_with_tokens(texts, tokenizer)):
            documents += 1
            held_documents += held
            if held:
                for piece in cut(row, room):
                    add(held_out, piece, number)
            else:
                yield number, row

    if pack:
        for number, row in enumerate(pack((row for _, row in training()), room, tokenizer.sep_token_id)):
            add(train, row, number)
    else:
        for number, row in training():
            for piece in cut(row, room):
                add(train, piece, number)
    train.close()
    held_out.close()
    return Counts(documents, held_documents, train.rows, train.tokens, held_out.rows, held_out.tokens, pairs)


def _with_tokens(texts: Iterable[tuple[str, bool]], tokenizer: Any) -> Iterator[tuple[Row, bool]]:
    flags: deque[bool] = deque()  # of the texts that the tokenizer is ahead

    def alone() -> Iterator[str]:
        for text, held in texts:
            flags.append(held)
            yield text

    for row in tokenize(alone(), tokenizer):
        yield row, flags.popleft()


def parted(
    texts: Iterable[str], share: float, least: int = 1, seed: int = 0, *, needed: bool = False
) -> Iterator[tuple[str, bool]]:
    """Each text with whether it is held out, which its hash decides: a text that comes twice is on one side.

    The hashes of the first thousand say from where on: a small collection is parted exactly.

    :param share: of the documents; 0 for none.
    :param least: documents held out, if any are.
    :param needed: whether some must be held out.
    :raises InputError: when that leaves none to train on.
    """
    given = iter(texts)
    first = list(islice(given, _SEEN))
    if not first:
        raise InputError("there is no text to train on: expected documents, or rows with a text")
    salt = hashlib.blake2b(str(seed).encode(), digest_size=8).digest()

    def place(text: str) -> int:
        return hash_of(text) ^ int.from_bytes(salt, "little")

    limit = -1
    if share:
        places = sorted({place(text) for text in first})
        count = max(least, round(share * len(places)))
        if len(places) < 2 * least or count >= len(places):
            there = f"is {len(places)} document" if len(places) == 1 else f"are {len(places)} different documents"
            instead = "" if needed else "; --held-out 0 trains on all of them"
            raise InputError(f"there {there}: expected at least {2 * least}, so that some can be held out{instead}")
        limit = places[count - 1]
    for text in chain(first, given):
        yield text, place(text) <= limit


def sample(rows: Rows, most: int) -> list[int]:
    """Up to `most` rows from all over the file, the shortest first, so that batches hold little padding."""
    chosen = np.unique(np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(np.int64))
    return chosen[np.argsort(rows.lengths[chosen], kind="stable")].tolist()  # type: ignore[no-any-return]
