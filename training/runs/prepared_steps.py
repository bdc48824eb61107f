"""Prepare the batches of coming steps in other processes, while a GPU computes the present one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Generic, TypeVar

from . import environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BatchT = TypeVar("BatchT")
_MAX_WORKERS = 12
_AHEAD = 4  # steps that each process has ready
_STEPS = 2**40  # more than any run has


class PreparedSteps(Generic[BatchT]):
    """Call it with the number of each step in turn. Without a GPU it prepares the step in this process.

    On a GPU a step takes a few milliseconds, and tokenizing its texts takes longer.

    :param prepare: returns the batch of a step; it must not use the GPU, and returns the same for the same number.
    :param workers: processes; None: some if there is a GPU.
    """

    def __init__(self, prepare: Callable[[int], BatchT], workers: int | None = None) -> None:
        self._prepare = prepare
        self._workers = _default_workers() if workers is None else workers
        self._next = -1
        self._ahead: Iterator[BatchT] = iter(())

    def __call__(self, step: int) -> BatchT:
        """Return the batch of a step."""
        if not self._workers:
            return self._prepare(step)
        if step != self._next:
            self._ahead = self._started(step)
        self._next = step + 1
        return next(self._ahead)

    def _started(self, step: int) -> Iterator[BatchT]:
        from torch.utils.data import DataLoader

        self._prepare(step)  # the processes inherit its results
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # else tokenizers warns of each fork
        loader: DataLoader[BatchT] = DataLoader(
            _Steps(self._prepare),  # type: ignore[arg-type]
            batch_size=None,
            sampler=range(step, _STEPS),
            num_workers=self._workers,
            collate_fn=_unchanged,
            worker_init_fn=_tokenize_alone,
            prefetch_factor=_AHEAD,
            multiprocessing_context="fork",
        )
        return iter(loader)


class _Steps(Generic[BatchT]):
    """The batches by their step, as a `DataLoader` reads them."""

    def __init__(self, prepare: Callable[[int], BatchT]) -> None:
        self._prepare = prepare

    def __getitem__(self, step: int) -> BatchT:
        return self._prepare(step)


def _default_workers() -> int:
    """Return some processes if there is a GPU, fewer than the processor has cores."""
    return max(1, min(_MAX_WORKERS, (os.cpu_count() or 1) - 2)) if environment.device() == "cuda" else 0


def _unchanged(batch: BatchT) -> BatchT:
    return batch


def _tokenize_alone(_worker: int) -> None:
    """Let this process tokenize in one thread: it has none of the threads of the process that forked it."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
