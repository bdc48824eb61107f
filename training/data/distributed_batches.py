"""Batches for several processes that use each other's texts as negatives."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .batches import Batches

_SPARE_BATCHES = 64  # full batches in memory, to replace short ones


class SharedBatches:
    """The parts of larger batches in order; accelerate deals them out to processes in turn.

    Gathered across processes, the parts form the whole batch again, without duplicate texts. A short batch has too few
    parts, so a full batch replaces it.

    :param batches: batches for all processes together.
    """

    def __init__(self, batches: Batches, processes: int) -> None:
        self._batches, self._processes = batches, processes
        self.batch_size = batches.batch_size // processes
        self.drop_last = True

    @property
    def epoch(self) -> int:
        """The epoch of the next shuffle."""
        return self._batches.epoch

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next shuffle."""
        self._batches.set_epoch(epoch)

    def __len__(self) -> int:
        return len(self._batches) * self._processes

    def __iter__(self) -> Iterator[list[int]]:
        size = self.batch_size * self._processes
        full: list[list[int]] = []
        for number, batch in enumerate(self._batches):
            rows = batch
            if len(batch) < size:  # without a full batch, rows come twice
                rows = full[number % len(full)] if full else (batch * size)[:size]
            elif len(full) < _SPARE_BATCHES:
                full.append(batch)
            for process in range(self._processes):
                yield rows[process : size : self._processes]
