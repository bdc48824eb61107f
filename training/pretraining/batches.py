"""Batches for masked language modelling: rows of one length, masked anew in every epoch.

What a row looks like in an epoch depends on the seed, the epoch and the row's number alone: not on the batch it is
in, the process that makes it, or where a run was interrupted.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from .masking import IGNORED
from .segments import OBJECTIVES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ..data.tokenized import Rows
    from .masking import Masking
    from .segments import Pair

    Drawn = tuple[int, int]  # epoch, row

_STEP = 8  # widths of batches are multiples: on CPU each new one costs a kernel made for it, and memory that stays
_POOL = 64  # batches whose rows are sorted by length together: enough for nearly no padding


@dataclass(frozen=True, slots=True)
class Frame:
    """The special tokens around one segment or two: alternately the tokens before, between and after the segments."""

    one: tuple[tuple[int, ...], ...]
    two: tuple[tuple[int, ...], ...]
    types: bool  # whether the model tells the second segment by its token type
    pad: int

    @classmethod
    def of(cls, tokenizer: Any, *, types: bool) -> Frame:
        """:param tokenizer: a fast one of transformers, which is asked rather than trusted to be like BERT's."""
        return cls(_around(tokenizer("a")), _around(tokenizer("a", "a")), types, tokenizer.pad_token_id)

    def taken(self, segments: int) -> int:
        """How many special tokens stand around so many segments."""
        return sum(map(len, self.one if segments == 1 else self.two))


def _around(encoded: Any) -> tuple[tuple[int, ...], ...]:
    """The special tokens of an encoding, parted where its segments stand."""
    encoding = encoded.encodings[0]
    parts: list[list[int]] = [[]]
    before = None
    for token, segment in zip(encoding.ids, encoding.sequence_ids, strict=True):
        if segment is None:
            parts[-1].append(token)
        elif segment != before:
            parts.append([])
        before = segment
    return tuple(map(tuple, parts))


@dataclass(frozen=True, slots=True)
class MaskedBatches:
    """Makes a batch of the model's inputs out of row numbers: what a `DataLoader` takes as `collate_fn`."""

    rows: Rows
    masking: Masking
    frame: Frame
    longest: int  # tokens that the model takes
    objective: str = "mlm"
    seed: int = 0

    def __call__(self, drawn: Sequence[Drawn]) -> dict[str, Any]:
        """int64 tensors `input_ids`, `attention_mask`, `labels` and, if the model has them, `token_type_ids`, of shape
        (rows, width); `pair_labels` of shape (rows,) where pairs are asked for.
        """
        import torch

        made = [self._row(epoch, number) for epoch, number in drawn]
        width = min(-(-max(len(ids) for ids, _, _, _ in made) // _STEP) * _STEP, self.longest)
        columns = {
            "input_ids": _padded([ids for ids, _, _, _ in made], width, self.frame.pad),
            "attention_mask": _padded([np.ones(len(ids), np.int64) for ids, _, _, _ in made], width, 0),
            "labels": _padded([labels for _, labels, _, _ in made], width, IGNORED),
        }
        if self.frame.types:
            columns["token_type_ids"] = _padded([types for _, _, types, _ in made], width, 0)
        if self.objective != "mlm":
            columns["pair_labels"] = np.array([label for _, _, _, label in made], np.int64)
        return {name: torch.from_numpy(column) for name, column in columns.items()}

    def _row(self, epoch: int, number: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], int]:
        random = np.random.default_rng((self.seed, epoch, number))
        pair = OBJECTIVES[self.objective](self.rows, number, random)
        row = pair.first if pair.second is None else pair.first + pair.second
        seen, labels = self.masking(row.tokens, row.starts > 0, random)
        return *self._framed(pair, seen, labels), pair.label

    def _framed(
        self, pair: Pair, seen: NDArray[np.int64], labels: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Tokens, labels and token types with the special tokens around the segments."""
        around = self.frame.one if pair.second is None else self.frame.two
        cuts = [0, len(pair.first), len(seen)] if pair.second is not None else [0, len(seen)]
        segments = [slice(start, end) for start, end in pairwise(cuts)]
        ids, asked, types = (
            [np.array(around[0], np.int64)],
            [np.full(len(around[0]), IGNORED)],
            [np.zeros(len(around[0]))],
        )
        for kind, (inside, after) in enumerate(zip(segments, around[1:], strict=True)):
            ids += [seen[inside], np.array(after, np.int64)]
            asked += [labels[inside], np.full(len(after), IGNORED)]
            types.append(np.full(len(ids[-2]) + len(after), kind))
        return np.concatenate(ids), np.concatenate(asked), np.concatenate(types).astype(np.int64)


def _padded(rows: Sequence[NDArray[np.int64]], width: int, value: int) -> NDArray[np.int64]:
    table = np.full((len(rows), width), value, np.int64)
    for line, row in zip(table, rows, strict=True):
        line[: len(row)] = row
    return table


class Order:
    """The rows of each epoch in a random order in which neighbours are of one length: a `DataLoader`'s `sampler`.

    Gives (epoch, row), so that the epoch reaches whoever makes the batch.
    """

    def __init__(self, lengths: NDArray[np.int64], batch: int, seed: int = 0) -> None:
        self._lengths, self._batch, self._seed = lengths, batch, seed
        self._epoch = 0

    def __len__(self) -> int:
        return len(self._lengths)

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __iter__(self) -> Iterator[Drawn]:
        epoch = self._epoch
        for number in by_length(self._lengths, self._batch, np.random.default_rng((self._seed, epoch))):
            yield epoch, int(number)


def by_length(lengths: NDArray[np.int64], batch: int, random: np.random.Generator) -> NDArray[np.int64]:
    """A permutation whose batches are of nearly one length each, and come in a random order; the rest comes last."""
    order = random.permutation(len(lengths))
    full = len(order) // batch * batch
    order, rest = order[:full], order[full:]
    pool = batch * min(max(full // batch // 4, 1), _POOL)  # four at least, so that other rows meet each time
    order = order[np.lexsort((lengths[order], np.arange(full) // pool))]
    return np.concatenate([random.permutation(order.reshape(-1, batch)).reshape(-1), rest])
