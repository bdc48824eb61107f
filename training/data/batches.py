"""Batches of equal lengths, without duplicates, drawn anew each epoch from rows that stay on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from .dataset import hash_of, take

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from numpy.typing import NDArray

_WINDOW = 64  # batches whose rows are sorted by length among themselves


def fitting(table: pa.Table, rows: NDArray[np.uint32], columns: tuple[str, ...], size: int) -> int:
    """How many rows a batch without duplicates can hold: `size`, unless a column has fewer different texts."""
    for name in columns:
        seen: set[int] = set()
        for start in range(0, len(rows), _WINDOW * size):
            texts = take(table.select([name]), rows[start : start + _WINDOW * size])[name]
            seen.update(map(hash_of, texts.to_pylist()))
            if len(seen) >= size:
                break
        size = min(size, len(seen))
    return size


class Batches:
    """Batches of row numbers: what a `DataLoader` takes as `batch_sampler`.

    Each epoch shuffles the rows, takes them in windows of 64 batches, sorts a window's rows by length, cuts it into
    batches and shuffles those: rows meet by chance, and little of a batch is padding. With `different`, no text is
    twice in a batch, since in-batch negatives (Henderson et al. 2017, arXiv:1705.00652) would call the second a wrong
    answer to the first: a row that does not fit waits for a batch that it fits, and what fits none makes short ones
    at the end. Every epoch has the same number of batches, so that a run can be resumed by counting them.

    :param table: the rows.
    :param rows: which of them, by number.
    :param columns: the columns of texts.
    :param different: whether no two rows of a batch may share a text.
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
    ) -> None:
        self._table = table.select(list(columns))
        self._rows = rows
        self.batch_size = batch_size
        self._different = different
        self._seed = seed
        self.epoch = 0
        self.drop_last = True

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return max(1, len(self._rows) // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        """Exactly `len` batches; where duplicates leave too few, the epoch's first come again."""
        given = 0
        first: list[list[int]] = []
        for batch in self._all():
            if given == len(self):
                return
            if len(first) < _WINDOW:
                first.append(batch)
            given += 1
            yield batch
        while given < len(self):
            yield first[given % len(first)]
            given += 1

    def _all(self) -> Iterator[list[int]]:
        generator = np.random.default_rng((self._seed, self.epoch))
        order = generator.permutation(self._rows)
        waiting = np.empty(0, np.uint32)
        last: list[list[int]] = []
        for start in range(0, len(order), _WINDOW * self.batch_size):
            window = np.concatenate([waiting, order[start : start + _WINDOW * self.batch_size]])
            batches, waiting = self._cut(window)
            for place in generator.permutation(len(batches)):
                yield batches[place]
            if len(waiting) > _WINDOW * self.batch_size:  # each window would look at all of them again
                last += self._short(waiting)
                waiting = waiting[:0]
        last += self._short(waiting)
        shuffled = [last[place] for place in generator.permutation(len(last))]
        yield from sorted(shuffled, key=len, reverse=True)

    def _short(self, waiting: NDArray[np.uint32]) -> list[list[int]]:
        """Batches of waiting rows, which may fill none: a text is in each once at most, however many rows have it."""
        rows, texts = self._by_length(waiting)
        hashes = self._hashes(texts) if self._different else [frozenset[int]()] * len(rows)
        batches: list[list[int]] = []
        behind: dict[int, int] = {}  # for a text the first batch behind those that hold it
        for place, held in enumerate(hashes):
            at = max((behind.get(text, 0) for text in held), default=0)
            while at < len(batches) and len(batches[at]) == self.batch_size:
                at += 1
            if at == len(batches):
                batches.append([])
            batches[at].append(place)
            behind.update(dict.fromkeys(held, at + 1))
        return [rows[batch].tolist() for batch in batches]

    def _cut(self, window: NDArray[np.uint32]) -> tuple[list[list[int]], NDArray[np.uint32]]:
        """Full batches of a window, and the rows that are left over."""
        rows, texts = self._by_length(window)
        if self._different:
            return self._packed(rows, self._hashes(texts))
        full = len(rows) // self.batch_size * self.batch_size
        return [rows[i : i + self.batch_size].tolist() for i in range(0, full, self.batch_size)], rows[full:]

    def _by_length(self, window: NDArray[np.uint32]) -> tuple[NDArray[np.uint32], pa.Table]:
        """Rows and their texts, the longest first."""
        texts = take(self._table, window)
        lengths = sum(pc.utf8_length(column).to_numpy().astype(np.int64) for column in texts.columns)
        order = np.argsort(-np.asarray(lengths), kind="stable")
        return window[order], texts.take(order)

    def _hashes(self, texts: pa.Table) -> list[frozenset[int]]:
        columns = [[hash_of(text) for text in column.to_pylist()] for column in texts.columns]
        return [frozenset(row) for row in zip(*columns, strict=True)]

    def _packed(
        self, rows: NDArray[np.uint32], hashes: list[frozenset[int]]
    ) -> tuple[list[list[int]], NDArray[np.uint32]]:
        """Full batches, one after another, and the rows that share texts and wait for others."""
        left = list(range(len(rows)))
        batches = []
        while len(left) >= self.batch_size:
            batch, passed = self._filled(left, hashes)
            if len(batch) < self.batch_size:
                break
            batches.append(rows[batch].tolist())
            left = passed
        return batches, rows[left]

    def _filled(self, left: list[int], hashes: list[frozenset[int]]) -> tuple[list[int], list[int]]:
        """A batch of the first rows that share no text with each other, and the rows that are left."""
        batch: list[int] = []
        held: set[int] = set()
        passed: list[int] = []
        for at, place in enumerate(left):
            if held.isdisjoint(hashes[place]):
                held |= hashes[place]
                batch.append(place)
                if len(batch) == self.batch_size:
                    return batch, passed + left[at + 1 :]
            else:
                passed.append(place)
        return batch, passed
