"""Read many files in worker processes, so that a hostile or broken file costs only itself."""

from __future__ import annotations

import os
import selectors
import time
from collections import deque
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ....core.errors import BinocleError
from ....core.runtime.device import usable_cores
from ...documents.file_parts import size_and_time
from ..large_files import MAX_BYTES
from .process import LOAD_BYTES, LOAD_FILES, WorkerProcess
from .reading import Job, Reading

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping

    from ..formats import Format

_MAX_AHEAD = 512  # files that are read before the caller takes them
_MAX_AHEAD_BYTES = 64 << 20  # bytes of their text, about
_MAX_BATCH = 32  # files that are sent to a worker together
_MAX_BATCH_BYTES = 512 << 10  # a larger file is sent alone
_MAX_QUEUED = 2  # batches at a worker: the one it reads, and the next, so that it never waits

Name = str | os.PathLike[str]


class ReaderPool:
    """Worker processes, started when there are files to read, and restarted when a file ends one."""

    def __init__(
        self,
        root: Name | None = None,
        *,
        workers: int | None = None,
        seconds: float = 20.0,
        wall_seconds: float = 300.0,
        memory: int = 1_200_000_000,
        max_bytes: int = MAX_BYTES,
        formats: Mapping[str, Format] | None = None,
        ocr: str = "",
    ) -> None:
        """
        :param root: the folder of relative paths; the working directory if None.
        :param workers: the number of processes; by default the usable cores, at most 4.
        :param seconds: the limit of processor time for one file, so that a busy machine fails no file.
        :param wall_seconds: the limit by the clock for one file, for a slow disk or a reader that waits.
        :param memory: the memory limit of one process, in bytes.
        :param max_bytes: the size in bytes above which files are skipped.
        :param formats: endings of your own: {".msg": ("outlook", "package.module:function")}. The function takes the
            bytes and the format's name, and returns a Document.
        :param ocr: the languages to read pictures in, as Tesseract names them: "deu+eng"; "" to read none.
        """
        self._root = os.fspath(root) if root is not None else ""
        self._max_workers = workers or min(usable_cores(), 4)
        self._settings = {
            "seconds": seconds,
            "wall_seconds": wall_seconds,
            "memory": memory,
            "max_bytes": max_bytes,
            "formats": dict(formats or {}),
            "ocr": ocr,
        }
        self._workers: list[WorkerProcess] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes."""
        while self._workers:
            self._workers.pop().stop()

    def read_all(self, paths: Iterable[Name]) -> Generator[Reading, None, None]:
        """The reading of every path, in order; the next files are read while the caller works."""
        read_ahead = _ReadAhead(self._root, paths)
        try:
            while not read_ahead.finished:
                self._feed(read_ahead)
                yield from read_ahead.ready()
                if read_ahead.unanswered:
                    self._wait(read_ahead)
        finally:
            for worker in [worker for worker in self._workers if worker.jobs]:  # the caller stopped early
                worker.stop()
                self._workers.remove(worker)

    def _feed(self, read_ahead: _ReadAhead) -> None:
        """Send batches to the workers, idle ones first; start more while all have as much to do as a start costs."""
        for worker in self._workers:
            if not worker.jobs and (batch := read_ahead.take(idle=True)):
                worker.send(batch)
        while len(self._workers) < self._max_workers and all(worker.is_loaded for worker in self._workers):
            batch = read_ahead.take(idle=True)
            if not batch:
                break
            if not self._start_worker():
                read_ahead.retries.extendleft(reversed(batch))
                break
            self._workers[-1].send(batch)
        for worker in sorted(self._workers, key=lambda worker: worker.batches):
            if 0 < worker.batches < _MAX_QUEUED and (batch := read_ahead.take(idle=False)):
                worker.send(batch)

    def _start_worker(self) -> bool:
        """Start one more worker; False if the machine has room for no more than there are."""
        try:
            self._workers.append(WorkerProcess(self._settings))
        except BinocleError:
            if not self._workers:
                raise
            return False
        return True

    def _wait(self, read_ahead: _ReadAhead) -> None:
        """Wait for answers of the workers, at most until the first deadline, and take them in."""
        with selectors.DefaultSelector() as selector:
            listening = [worker for worker in self._workers if worker.jobs]
            for worker in listening:
                worker.held_back = read_ahead.is_full and worker.first_index != read_ahead.next
                worker.register(selector)
            timeout = min((worker.deadline for worker in listening), default=0.0) - time.monotonic()
            ready = selector.select(max(timeout, 0.0))
        for key, events in ready:
            worker = key.data
            if events & selectors.EVENT_WRITE:
                worker.flush()
            if events & selectors.EVENT_READ:
                for reading, index in worker.receive():
                    read_ahead.put(index, reading)
        now = time.monotonic()
        for worker in listening:
            if worker.ended or (now > worker.deadline and not any(key.data is worker for key, _ in ready)):
                self._discard(worker, read_ahead)

    def _discard(self, worker: WorkerProcess, read_ahead: _ReadAhead) -> None:
        """End a worker. Unless it retired by itself, the file that it was reading fails."""
        self._workers.remove(worker)
        jobs, reason = worker.stop()
        if reason and jobs:
            job = jobs.pop(0)
            read_ahead.put(job.index, Reading(job.path, **(job.identity or {}), reason=reason, again=True))
        read_ahead.retries.extendleft(reversed(jobs))


class _ReadAhead:
    """One pass over paths: the files still to read, and the readings that the caller has not taken yet."""

    def __init__(self, root: str, paths: Iterable[Name]) -> None:
        self._root = root
        self._source = iter(paths)
        self._exhausted = False
        self._done: dict[int, Reading] = {}
        self._buffered = 0
        self._taken = 0  # jobs taken from the source so far
        self.retries: deque[Job] = deque()
        self.next = 0  # the index of the reading that the caller gets next

    @property
    def finished(self) -> bool:
        return self._exhausted and self.next == self._taken

    @property
    def unanswered(self) -> bool:
        return self._taken - self.next > len(self._done) + len(self.retries)

    @property
    def is_full(self) -> bool:
        return self._buffered > _MAX_AHEAD_BYTES

    def take(self, *, idle: bool) -> list[Job]:
        """The next files for one worker; none while enough is read ahead.

        Files of a worker that ended go to an idle one. So each worker has its files in order, and the file that the
        caller waits for is never queued behind an answer that is held back.
        """
        if self.retries and not idle:
            return []
        batch: list[Job] = []
        size = 0
        limit = min(_MAX_BATCH, LOAD_FILES + self._taken // 8)
        max_bytes = LOAD_BYTES if self._taken < _MAX_BATCH else _MAX_BATCH_BYTES  # all workers share few large files
        while len(batch) < limit and (job := self._draw()):
            if batch and size + job.size > max_bytes:
                self.retries.appendleft(job)
                break
            batch.append(job)
            size += job.size
        return batch

    def _draw(self) -> Job | None:
        if self.retries:
            return self.retries.popleft()
        if self._exhausted or self._taken - self.next >= _MAX_AHEAD or self.is_full:
            return None
        for path in islice(self._source, 1):
            index, name = self._taken, os.fspath(path)
            self._taken += 1
            file = str(Path(self._root, name).absolute())
            return Job(index, name, file, _size(file))
        self._exhausted = True
        return None

    def put(self, index: int, reading: Reading) -> None:
        """Store the reading of a job until the caller takes it."""
        self._done[index] = reading
        self._buffered += _cost(reading)

    def ready(self) -> Iterator[Reading]:
        """The complete readings that are next in order."""
        while (reading := self._done.pop(self.next, None)) is not None:
            self._buffered -= _cost(reading)
            self.next += 1
            yield reading


def read_file(path: Name, **limits: Any) -> Reading:
    """Read one file as the pool does, in a process of its own."""
    with ReaderPool(workers=1, **limits) as pool:
        return next(pool.read_all([os.path.realpath(path)]))


def _cost(reading: Reading) -> int:
    """The bytes of memory that a reading takes, about."""
    return len(reading.document.text) + 200 * len(reading.document.parts) if reading.document else 0


def _size(file: str) -> int:
    try:
        return size_and_time(file)[0]
    except (OSError, ValueError):
        return 0
