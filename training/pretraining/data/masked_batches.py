"""Batches for masked language modelling: rows of similar length, masked anew in every epoch.

The masking of a row depends only on the seed, the epoch and the row's number. It does not depend on the batch, on the
process, or on where a run was interrupted.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Sampler

from .masking import IGNORED
from .segments import OBJECTIVES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ....core.arrays import Integers
    from ...data.tokenized import TokenRows
    from .masking import Masking
    from .segments import Pair


RowInEpoch = tuple[int, int]  # epoch, row

_STEP = 8  # batch widths are multiples: on a CPU each new one costs a kernel compiled for it, and memory that stays
_POOL = 64  # batches: their rows are sorted by length together, enough for almost no padding


@dataclass(frozen=True, slots=True)
class Frame:
    """The special tokens around one segment or two: before the first, after it, and after the second."""

    one: tuple[tuple[int, ...], ...]  # prose: beside `two`
    two: tuple[tuple[int, ...], ...]
    types: bool  # whether the model marks the second segment by a token type
    pad: int

    @classmethod
    def of(cls, tokenizer: Any, *, types: bool) -> Frame:
        """:param tokenizer: a fast one of transformers, of any model: its output shows where special tokens go."""
        return cls(_around(tokenizer("a")), _around(tokenizer("a", "a")), types, tokenizer.pad_token_id)

    def size(self, segments: int) -> int:
        """The number of special tokens around one segment or two."""
        return sum(map(len, self.one if segments == 1 else self.two))


def _around(encoded: Any) -> tuple[tuple[int, ...], ...]:
    """The special tokens of an encoded text, split where its segments are."""
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


class _MaskedRow(NamedTuple):
    """One row of a batch, with special tokens: arrays (tokens,)."""

    ids: Integers
    labels: Integers
    types: Integers
    pair_label: int


@dataclass(frozen=True, slots=True)
class MaskedBatches:
    """Builds the model's inputs from row numbers: the `collate_fn` of a `DataLoader`."""

    rows: TokenRows
    masking: Masking
    frame: Frame
    longest: int  # tokens that the model takes
    objective: str = "mlm"
    seed: int = 0

    def __call__(self, numbers: Sequence[RowInEpoch]) -> dict[str, Tensor]:
        """int64 tensors `input_ids`, `attention_mask`, `labels` and, if the model has them, `token_type_ids`, of shape
        (rows, width); for objectives with pairs also `pair_labels` of shape (rows,).
        """
        rows = [self._row(epoch, number) for epoch, number in numbers]
        width = min(-(-max(len(row.ids) for row in rows) // _STEP) * _STEP, self.longest)
        columns = {
            "input_ids": _padded([row.ids for row in rows], width, self.frame.pad),
            "attention_mask": _padded([np.ones(len(row.ids), np.int64) for row in rows], width, 0),
            "labels": _padded([row.labels for row in rows], width, IGNORED),
        }
        if self.frame.types:
            columns["token_type_ids"] = _padded([row.types for row in rows], width, 0)
        if self.objective != "mlm":
            columns["pair_labels"] = np.array([row.pair_label for row in rows], np.int64)
        return {name: torch.from_numpy(column) for name, column in columns.items()}

    def _row(self, epoch: int, number: int) -> _MaskedRow:
        random = np.random.default_rng((self.seed, epoch, number))
        pair = OBJECTIVES[self.objective](self.rows, number, random)
        row = pair.first if pair.second is None else pair.first + pair.second
        masked, labels = self.masking(row.tokens, row.starts > 0, random)
        return self._framed(pair, masked, labels)

    def _framed(self, pair: Pair, tokens: Integers, labels: Integers) -> _MaskedRow:
        """Put the special tokens around the segments."""
        around = self.frame.one if pair.second is None else self.frame.two
        cuts = [0, len(pair.first), len(tokens)] if pair.second is not None else [0, len(tokens)]
        segments = [slice(start, end) for start, end in pairwise(cuts)]
        before = np.array(around[0], np.int64)
        ids, all_labels, types = [before], [np.full(len(before), IGNORED)], [np.zeros(len(before), np.int64)]
        for number, (segment, special) in enumerate(zip(segments, around[1:], strict=True)):
            after = np.array(special, np.int64)
            ids += [tokens[segment], after]
            all_labels += [labels[segment], np.full(len(after), IGNORED)]
            types.append(np.full(len(ids[-2]) + len(after), number))
        return _MaskedRow(np.concatenate(ids), np.concatenate(all_labels), np.concatenate(types), pair.label)


def _padded(rows: Sequence[NDArray[np.int64]], width: int, value: int) -> NDArray[np.int64]:
    table = np.full((len(rows), width), value, np.int64)
    for line, row in zip(table, rows, strict=True):
        line[: len(row)] = row
    return table


class EpochRows(Sampler[RowInEpoch]):
    """The rows of each epoch in random order, neighbours of similar length: the `sampler` of a `DataLoader`.

    Yields (epoch, row), so that the batch knows the epoch.
    """

    def __init__(self, lengths: NDArray[np.int64], batch: int, seed: int = 0) -> None:
        self._lengths, self._batch, self._seed = lengths, batch, seed
        self._epoch = 0

    def __len__(self) -> int:
        return len(self._lengths)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration; it determines the order and the masking."""
        self._epoch = epoch

    def __iter__(self) -> Iterator[RowInEpoch]:
        epoch = self._epoch
        for number in by_length(self._lengths, self._batch, np.random.default_rng((self._seed, epoch))):
            yield epoch, int(number)


def by_length(lengths: NDArray[np.int64], batch: int, random: np.random.Generator) -> NDArray[np.int64]:
    """A permutation with batches of similar length in random order; an incomplete batch is last."""
    order = random.permutation(len(lengths))
    full = len(order) // batch * batch
    order, rest = order[:full], order[full:]
    pool = batch * min(max(full // batch // 4, 1), _POOL)  # at least four pools, so that batches vary between epochs
    order = order[np.lexsort((lengths[order], np.arange(full) // pool))]
    return np.concatenate([random.permutation(order.reshape(-1, batch)).reshape(-1), rest])
