"""Batches of rows with similar lengths and without duplicates, drawn anew in each epoch from rows on disk."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from . import length_groups
from .dataset import hash_of, take

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from numpy.typing import NDArray

_WINDOW = 64  # batches; their rows are read together
_POOL = 6  # batches; waiting rows are sorted by length together
_MAX_EXCHANGED = 0.2  # share of a window's rows: if more share a text with their batch, all are packed anew


def largest_batch(table: pa.Table, rows: NDArray[np.uint32], columns: tuple[str, ...], size: int) -> int:
    """Return the number of rows that fit a batch without duplicates: at most `size`, or a column's different texts."""
    for name in columns:
        hashes: set[int] = set()
        for start in range(0, len(rows), _WINDOW * size):
            texts = take(table.select([name]), rows[start : start + _WINDOW * size])[name]
            hashes.update(map(hash_of, texts.to_pylist()))
            if len(hashes) >= size:
                break
        size = min(size, len(hashes))
    return size


class Batches:
    """Batches of row numbers, for a `DataLoader` as `batch_sampler`.

    Rows are sorted by length and cut into groups, and each epoch draws other batches from each group
    (`length_groups`). Two rows of a batch meet again in the next epoch at most about 5 times as often as by chance,
    so in-batch negatives change. Each epoch leaves other rows without a batch.

    With `different`, no text is twice in a batch: in-batch negatives (Henderson et al. 2017, arXiv:1705.00652) would
    treat the second row's answer as wrong for the first. A row that does not fit waits for a later batch. The last
    waiting rows make short batches at the end. Every epoch has the same number of batches, so that a run can be
    resumed by counting them.

    :param table: the rows.
    :param rows: the numbers of the rows that take part.
    :param columns: the columns of texts.
    :param different: whether no two rows of a batch may share a text.
    :param longest: the number of characters at most that are read of a text.
    """

    def __init__(
        self,
        table: pa.Table,
        rows: NDArray[np.uint32],
        columns: tuple[str, ...],
        *,
        batch_size: int,
        different: bool,
        seed: int = 0,
        longest: int = 1 << 30,
    ) -> None:
        self._table = table.select(list(columns))
        self._rows = rows
        self.batch_size = batch_size
        self._different = different
        self._seed = seed
        self._longest = longest
        self.epoch = 0
        self.drop_last = True

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next shuffle."""
        self.epoch = epoch

    def __len__(self) -> int:
        return max(1, len(self._rows) // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        """Yield exactly `len` batches; if duplicates leave too few, the epoch's first batches come again."""
        count = 0
        first: list[list[int]] = []
        for batch in self._all():
            if count == len(self):
                return
            if len(first) < _WINDOW:
                first.append(batch)
            count += 1
            yield batch
        while count < len(self):
            yield first[count % len(first)]
            count += 1

    def _all(self) -> Iterator[list[int]]:
        planned, waiting = self._plan()
        last: list[list[int]] = []
        if self._different:
            planned, waiting, last = self._without_duplicates(planned, waiting)
        generator = np.random.default_rng((self._seed, self.epoch))
        for number in generator.permutation(len(planned)):
            yield planned[number].tolist()
        last += self._short(waiting)
        shuffled = [last[number] for number in generator.permutation(len(last))]
        yield from sorted(shuffled, key=len, reverse=True)

    def _plan(self) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """Return the batches of the epoch, shape (batches, batch size), and the rows that fill none."""
        if not self._sizes:
            return np.empty((0, self.batch_size), np.uint32), self._rows
        length = max(2, min(self._sizes))
        cycle, epoch = divmod(self.epoch, length)
        generator = np.random.default_rng((self._seed, cycle, 0))
        order = generator.permutation(len(self._rows))
        order = order[np.argsort(-self._lengths[order].sum(axis=1), kind="stable")]
        spare = length_groups.left_out(len(order), len(order) % self.batch_size, length, generator)
        order[spare], order[spare + epoch] = order[spare + epoch], order[spare]  # they exchange batches
        groups = np.split(self._rows[np.delete(order, spare)], np.cumsum(self._sizes)[:-1] * self.batch_size)
        parts = [
            length_groups.deal(group, size, epoch, generator) for group, size in zip(groups, self._sizes, strict=True)
        ]
        return np.concatenate(parts), self._rows[order[spare]]

    @cached_property
    def _lengths(self) -> NDArray[np.int32]:
        """Characters of each row's texts, shape (rows, columns)."""
        columns = [pc.utf8_length(self._table[name]).to_numpy()[self._rows] for name in self._table.column_names]
        lengths: NDArray[np.int32] = np.minimum(np.stack(columns, axis=1), self._longest).astype(np.int32)
        return lengths

    @cached_property
    def _sizes(self) -> list[int]:
        """The batches of each group of similar lengths, the longest first."""
        order = np.argsort(-self._lengths.sum(axis=1), kind="stable")
        full = len(order) // self.batch_size * self.batch_size
        return length_groups.group_sizes(self._lengths[order[:full]], self.batch_size) if full else []

    def _without_duplicates(
        self, planned: NDArray[np.uint32], waiting: NDArray[np.uint32]
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint32], list[list[int]]]:
        """Move each row that shares a text with another row of its batch to another batch.

        :returns: full batches, shape (batches, batch size); rows that fit none; short batches, if many rows wait.
        """
        full = [np.empty((0, self.batch_size), np.uint32)]
        short: list[list[int]] = []
        for start in range(0, len(planned), _WINDOW):
            batches, rows = self._exchanged(planned[start : start + _WINDOW])
            full_batches, waiting = self._cut(np.concatenate([waiting, rows]))
            full.append(np.array(batches + full_batches, np.uint32).reshape(-1, self.batch_size))
            if len(waiting) > _WINDOW * self.batch_size:  # else each window would try all of them again
                short += self._short(waiting)
                waiting = waiting[:0]
        return np.concatenate(full), waiting, short

    def _exchanged(self, planned: NDArray[np.uint32]) -> tuple[list[list[int]], NDArray[np.uint32]]:
        """Exchange each row that shares a text with an earlier row of its batch for a row of another batch.

        :param planned: changed in place; the rows of a column have similar lengths.
        :returns: the batches without a shared text, and the rows of the remaining batches.
        """
        rows = planned.reshape(-1)
        hashes = dict(zip(rows.tolist(), self._hashes(take(self._table, rows)), strict=True))
        texts: list[set[int]] = []
        duplicates: set[tuple[int, int]] = set()  # batch and column
        for number, batch in enumerate(planned.tolist()):
            texts.append(set())
            for column, row in enumerate(batch):
                if texts[number].isdisjoint(hashes[row]):
                    texts[number] |= hashes[row]
                else:
                    duplicates.add((number, column))
        if len(duplicates) <= _MAX_EXCHANGED * len(rows):
            for number, column in sorted(duplicates):
                if _exchange(planned, number, column, texts, hashes, duplicates):
                    duplicates.remove((number, column))
        mixed = np.isin(np.arange(len(planned)), [number for number, _ in duplicates])
        return planned[~mixed].tolist(), planned[mixed].reshape(-1)

    def _short(self, waiting: NDArray[np.uint32]) -> list[list[int]]:
        """Pack waiting rows into batches that may stay short, each text at most once in a batch."""
        rows, texts = self._by_length(waiting)
        hashes = self._hashes(texts) if self._different else [frozenset[int]()] * len(rows)
        batches: list[list[int]] = []
        next_batch: dict[int, int] = {}  # of a text: the first batch behind all that contain it
        for position, row_hashes in enumerate(hashes):
            number = max((next_batch.get(text, 0) for text in row_hashes), default=0)
            while number < len(batches) and len(batches[number]) == self.batch_size:
                number += 1
            if number == len(batches):
                batches.append([])
            batches[number].append(position)
            next_batch.update(dict.fromkeys(row_hashes, number + 1))
        return [rows[batch].tolist() for batch in batches]

    def _cut(self, window: NDArray[np.uint32]) -> tuple[list[list[int]], NDArray[np.uint32]]:
        """Pack rows into full batches, and return them with the remaining rows."""
        rows, texts = self._by_length(window)
        return self._packed(rows, self._hashes(texts))

    def _by_length(self, window: NDArray[np.uint32]) -> tuple[NDArray[np.uint32], pa.Table]:
        """Return rows and their texts in pools, the longest of each pool first."""
        texts = take(self._table, window)
        lengths = sum(pc.utf8_length(column).to_numpy().astype(np.int64) for column in texts.columns)
        pools = np.arange(len(window)) // (_POOL * self.batch_size)
        order = np.lexsort((-np.asarray(lengths), pools))
        return window[order], texts.take(order)

    def _hashes(self, texts: pa.Table) -> list[frozenset[int]]:
        columns = [[hash_of(text) for text in column.to_pylist()] for column in texts.columns]
        return [frozenset(row) for row in zip(*columns, strict=True)]

    def _packed(
        self, rows: NDArray[np.uint32], hashes: list[frozenset[int]]
    ) -> tuple[list[list[int]], NDArray[np.uint32]]:
        """Return full batches, and the rows that share texts and must wait."""
        remaining = list(range(len(rows)))
        batches = []
        while len(remaining) >= self.batch_size:
            batch, passed = self._filled(remaining, hashes)
            if len(batch) < self.batch_size:
                break
            batches.append(rows[batch].tolist())
            remaining = passed
        return batches, rows[remaining]

    def _filled(self, remaining: list[int], hashes: list[frozenset[int]]) -> tuple[list[int], list[int]]:
        """Fill a batch with the first rows that share no text, and return it with the remaining rows."""
        batch: list[int] = []
        texts: set[int] = set()
        passed: list[int] = []
        for number, position in enumerate(remaining):
            if texts.isdisjoint(hashes[position]):
                texts |= hashes[position]
                batch.append(position)
                if len(batch) == self.batch_size:
                    return batch, passed + remaining[number + 1 :]
            else:
                passed.append(position)
        return batch, passed


def _exchange(
    planned: NDArray[np.uint32],
    number: int,
    column: int,
    texts: list[set[int]],
    hashes: dict[int, frozenset[int]],
    duplicates: set[tuple[int, int]],
) -> bool:
    """Exchange a row for one of the same column in the nearest batch where both fit; return whether there is one.

    :param texts: of each batch, without the rows in `duplicates`.
    """
    row = int(planned[number, column])
    for batch in sorted(range(len(planned)), key=lambda batch: abs(batch - number)):
        candidate = int(planned[batch, column])
        if batch != number and (batch, column) not in duplicates and texts[number].isdisjoint(hashes[candidate]):
            rest = texts[batch] - hashes[candidate]
            if rest.isdisjoint(hashes[row]):
                planned[number, column], planned[batch, column] = candidate, row
                texts[number] |= hashes[candidate]
                texts[batch] = rest | hashes[row]
                return True
    return False
