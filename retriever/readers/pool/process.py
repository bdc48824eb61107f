"""Start one worker process, send it files, take in its answers, and tell why it ended."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....core.errors import BinocleError
from ...documents.document import OCR, UNREAD
from ..containers.members import safe_path
from .protocol import LENGTHS, Json, Lengths, frame, load, load_document
from .reading import Job, MemberName, Reading

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


_START = """
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
import json
settings = json.loads(sys.argv[1])
sys.path[:] = settings["path"]
from importlib import import_module
import_module(settings["module"]).main(settings)
"""
_READ_SIZE = 1 << 20
_START_SECONDS = 60.0
_GRACE_SECONDS = 2.0  # a worker that should have ended itself is killed after this time
LOAD_FILES, LOAD_BYTES = 16, 64 << 10  # reading these takes about as long as starting a process: 80 ms
_SMALL_ANSWER = 1 << 20  # bytes: answers up to this size are taken in even when enough is read ahead


class WorkerProcess:
    """One worker process. `jobs` are the files without an answer so far, in the order of reading."""

    def __init__(self, settings: Json) -> None:
        self._settings = settings
        self._process = _start(settings)
        assert self._process.stdin
        assert self._process.stdout
        self._in, self._out = self._process.stdin, self._process.stdout
        for pipe in (self._in, self._out):
            os.set_blocking(pipe.fileno(), False)
        self._pending = bytearray()
        self._received = bytearray()
        self._sent: deque[list[Job]] = deque()
        self._fault = ""
        self._ready = self._retired = False
        self.jobs: deque[Job] = deque()
        self.held_back = False
        self.ended = False
        self.deadline = time.monotonic() + _START_SECONDS

    @property
    def batches(self) -> int:
        """The number of batches without a complete answer."""
        return len(self._sent)

    @property
    def is_loaded(self) -> bool:
        """Whether its files keep it busy for about as long as a further process takes to start."""
        return len(self.jobs) >= LOAD_FILES or sum(job.size for job in self.jobs) >= LOAD_BYTES

    @property
    def first_index(self) -> int:
        """The index of the file that is being read."""
        return self.jobs[0].index

    def send(self, batch: list[Job]) -> None:
        """Send files to the worker."""
        if not self.jobs and self._ready:
            self._reset_deadline()
        self.jobs.extend(batch)
        self._sent.append(list(batch))
        self._pending += frame({"files": [(job.index, job.file) for job in batch]})
        self.flush()

    def flush(self) -> None:
        """Write as much as the pipe takes; the rest follows when it has room."""
        try:
            while self._pending:
                written = os.write(self._in.fileno(), self._pending[:_READ_SIZE])
                del self._pending[:written]
        except BlockingIOError:
            pass
        except OSError:  # the worker has ended, which reading will show
            self._pending.clear()

    def register(self, selector: selectors.BaseSelector) -> None:
        """Register the pipes that can be read or written now."""
        if not (self.held_back and self._is_large()):
            selector.register(self._out, selectors.EVENT_READ, self)
        if self._pending:
            selector.register(self._in, selectors.EVENT_WRITE, self)

    def _is_large(self) -> bool:
        """Whether the answer that is coming in is too large to be taken before the caller waits for it."""
        if len(self._received) < LENGTHS.size:
            return False
        lengths = Lengths.read(self._received[: LENGTHS.size])
        large = lengths.json + lengths.text > _SMALL_ANSWER
        if large:
            self._reset_deadline()  # it has read the file: now it waits for the pool
        return large

    def _reset_deadline(self) -> None:
        self.deadline = time.monotonic() + self._settings["wall_seconds"] + _GRACE_SECONDS

    def receive(self) -> Iterator[tuple[Reading, int]]:
        """Take in the answers that are complete."""
        try:
            while piece := os.read(self._out.fileno(), _READ_SIZE):
                self._received += piece
                self.deadline = max(self.deadline, time.monotonic() + _GRACE_SECONDS)  # it is writing an answer
                yield from self._answers()
                if self.held_back and self._is_large():
                    return
            self.ended = True
        except BlockingIOError:
            pass
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
            self._fault = "its reader answered nonsense"
            self.ended = True

    def _answers(self) -> Iterator[tuple[Reading, int]]:
        while len(self._received) >= LENGTHS.size:
            lengths = Lengths.read(self._received[: LENGTHS.size])
            body = LENGTHS.size + lengths.json
            if len(self._received) < body + lengths.text:
                return
            message = load(self._received[LENGTHS.size : body])
            text = self._received[body : body + lengths.text].decode()
            del self._received[: body + lengths.text]
            self._reset_deadline()
            if message.get("ready") is True:
                self._ready = True
            elif message.get("bye") is True:
                self._retired = True
            else:
                yield from self._answer(message, text)

    def _answer(self, message: Json, text: str) -> Iterator[tuple[Reading, int]]:
        job = self.jobs[0]
        if message["index"] != job.index:
            raise ValueError("an answer to another question")
        if "sha256" in message:
            job.identity = _identity(message)
            return
        reading = self._reading(job, message, text)
        self.jobs.popleft()
        if job is self._sent[0][-1]:
            self._sent.popleft()
        yield reading, job.index

    def _reading(self, job: Job, message: Json, text: str) -> Reading:
        identity = job.identity or {}
        if message["state"] == "ok":
            document = load_document(message["document"], text)
            members = tuple(_members(message.get("members", ())))
            if document.parts or members:
                return Reading(job.path, **identity, document=document, state="ok", members=members)
            reason = " ".join(("no text in it" + _pictures(document.metadata)).split())
            return Reading(job.path, **identity, document=document, state="skipped", reason=reason)
        state, reason = message["state"], str(message["reason"])
        if state not in {"skipped", "failed"}:
            raise ValueError("an unknown state")
        return Reading(
            job.path,
            **identity,
            state=state,
            reason=self._memory_message() if reason == "memory" else " ".join(reason.split()),
            again=reason == "memory",
        )

    def _memory_message(self) -> str:
        return f"it needed more than {self._settings['memory'] / 1e9:.3g} GB of memory"

    def stop(self) -> tuple[list[Job], str]:
        """End the process; return the files without an answer, and how the first of them ended the worker."""
        late = not self.ended and self.jobs and time.monotonic() > self.deadline
        if self.ended and not self._fault:
            self._in.close()
            try:
                self._process.wait(_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                self._fault = "its reader answered nonsense"
        self._process.kill()
        code = self._process.wait()
        self._in.close()
        self._out.close()
        jobs = list(self.jobs)
        self.jobs.clear()
        if self.ended and not self._ready and not self._fault:
            raise BinocleError(f"a reader process did not start: {sys.executable} ended with status {code}")
        if self._retired:
            return jobs, ""
        return jobs, self._fault or self._reason_of(-signal.SIGALRM if late else code)

    def _reason_of(self, code: int) -> str:
        if code == -signal.SIGPROF:
            return f"it took longer than {self._settings['seconds']:g} s of processor time"
        if code == -signal.SIGALRM:
            return f"it was not read within {self._settings['wall_seconds']:g} s"
        if -code in {signal.SIGKILL, signal.SIGABRT, signal.SIGTRAP}:
            return f"its reader was ended (signal {-code}), perhaps because it needed too much memory"
        if code < 0:
            return f"its reader crashed (signal {-code})"
        return f"its reader ended with status {code}"


def _pictures(metadata: Mapping[str, Any]) -> str:
    """A remark on the pictures in a file without text, in brackets; "" for none."""
    if metadata.get(OCR):
        return f" (OCR: {metadata[OCR]})"
    reasons = list(filter(None, str(metadata.get(UNREAD, "")).split("; ")))
    if metadata.get("pages") and all("(scanned?)" in reason for reason in reasons):
        return " (scanned pages?)"
    return "".join(f"; {reason}" for reason in reasons)


def _members(fields: Iterable[Any]) -> Iterator[MemberName]:
    """Check the names of the members of a file, which lead to no other file."""
    paths: set[str] = set()
    for name, size, reason in fields:
        if not all(isinstance(text, str) for text in (name, reason)) or type(size) is not int or size < 0:
            raise TypeError("no account of a member")
        if safe_path(name) != name.rstrip("/") or name in paths:
            raise ValueError("a member with the path of another file")
        paths.add(name)
        yield MemberName(name, size, " ".join(reason.split()))


def _identity(message: Json) -> dict[str, Any]:
    sha256, size, mtime_ns = message["sha256"], message["size"], message["mtime_ns"]
    if not isinstance(sha256, str) or len(sha256) != 64 or type(size) is not int or type(mtime_ns) is not int:
        raise TypeError("no account of a file")
    return {"sha256": sha256, "size": size, "mtime_ns": mtime_ns}


def _start(settings: Json) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603 - our own interpreter and module
            _command(settings), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
        )
    except OSError as error:
        raise BinocleError(
            f"no reader process can be started ({error.strerror}): end other programs, then run it again"
        ) from error


def _command(settings: Json) -> list[str]:
    package = __name__.rpartition(".")[0]
    path = [entry for entry in sys.path if Path(entry).is_absolute()]
    top = package.partition(".")[0]
    for folder in (Path(entry).absolute() for entry in getattr(sys.modules[top], "__path__", ())):
        if folder.name == top and str(folder.parent) not in path:  # the package was imported from the working directory
            path.append(str(folder.parent))
    start = json.dumps({**settings, "path": path, "module": f"{package}.worker"})
    # -P: import nothing from the working directory, which may be the very folder that is read
    return [sys.executable, "-P", "-W", "ignore", "-c", _START, start]
