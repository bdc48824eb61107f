"""Batches for several processes that see each other's texts as negatives."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .batches import Batches

_KEPT = 64  # full batches, of which one comes again in place of a short one


class SharedBatches:
    """The parts of larger batches, one after another: what accelerate deals out to processes in turn.

    Gathered across processes, the parts of a batch are one batch again, in which no text is twice. A short batch has no
    part for each: a full one comes again instead.

    :param batches: of as many rows as all processes take together.
    """

    def __init__(self, batches: Batches, processes: int) -> None:
        self._batches, self._processes = batches, processes
        self.batch_size = batches.batch_size // processes
        self.drop_last = True

    @property
    def epoch(self) -> int:
        return self._batches.epoch

    def set_epoch(self, epoch: int) -> None:
        self._batches.set_epoch(epoch)

    def __len__(self) -> int:
        return len(self._batches) * self._processes

    def __iter__(self) -> Iterator[list[int]]:
        whole = self.batch_size * self._processes
        full: list[list[int]] = []
        for number, batch in enumerate(self._batches):
            given = batch
            if len(batch) < whole:  # without a full one, rows come twice
                given = full[number % len(full)] if full else (batch * whole)[:whole]
            elif len(full) < _KEPT:
                full.append(batch)
            for place in range(self._processes):
                yield given[place : whole : self._processes]
