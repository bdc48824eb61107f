"""The program of a worker process: read the files named on standard input, and end rather than exceed a limit."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

from ....core.errors import UnreadableError, UnsupportedError
from ....core.files import mtime_ns
from ...documents.document import UNREAD
from ...documents.file_parts import FileBytes, file_around, open_document
from .. import read
from ..containers.members import CutBytes, OpenFile, has_members, list_members
from ..formats import FORMATS
from ..large_files import HEAD_BYTES, read_part
from ..large_files import reason as too_large
from ..pictures import PICTURE_FORMATS
from .protocol import LENGTHS, Lengths, document_json, frame, load
from .reading import DENIED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...documents.document import Document
    from ..formats import Format
    from .protocol import Json

_OPEN_ERRORS = {
    errno.ENOENT: ("failed", "it is no longer there"),
    errno.ENOTDIR: ("failed", "it is no longer there"),
    errno.EACCES: ("failed", DENIED),
    errno.EPERM: ("failed", DENIED),
    errno.ELOOP: ("skipped", "a symbolic link"),
    errno.ENXIO: ("skipped", "not a regular file"),
}


class _CannotOpenError(Exception):
    """A file that cannot be opened or must not be read; `state` is the state of its reading."""

    def __init__(self, state: str, reason: str) -> None:
        super().__init__(reason)
        self.state = state


def main(settings: Json) -> NoReturn:
    """Serve until standard input ends. Only the pool starts this, with its settings."""
    _set_limits(settings["memory"])
    requests, answers = _take_pipes()
    _send(answers, {"ready": True})
    own = {ending: (name, reader) for ending, (name, reader) in settings["formats"].items()}
    formats = FORMATS | (PICTURE_FORMATS if settings["ocr"] else {}) | own
    loader = _Loader(settings["max_bytes"], formats)
    while head := requests.read(LENGTHS.size):
        for index, path in load(requests.read(Lengths.read(head).json))["files"]:
            _serve(answers, index, path, settings, formats, loader)
            if _is_near_limit(settings["memory"]):
                _retire(answers)
    os._exit(0)


def _serve(
    answers: BinaryIO, index: int, path: str, settings: Json, formats: Mapping[str, Format], loader: _Loader
) -> None:
    result: Json = {}
    text, out_of_memory = "", False
    try:
        _start_timers(settings)
        data, identity, context = loader.load(path)
        _stop_timers()  # the limits do not run while the pool takes the answer
        _send(answers, {"index": index, **identity})
        _start_timers(settings)
        document = (
            read_part(data, *context, path, formats) if context else read(data, path, formats, ocr=settings["ocr"])
        )
        if isinstance(data, CutBytes):
            document = _note(document, data.unread)
        text, result = document.text, dict[str, Any](state="ok", document=document_json(document))
        if has_members(document.format):
            result["members"] = [
                (member.name, member.size, member.reason) for member in list_members(data, document.format, path)
            ]
    except _CannotOpenError as error:
        result = {"state": error.state, "reason": str(error)}
    except UnsupportedError as error:
        result = {"state": "skipped", "reason": str(error)}
    except UnreadableError as error:
        result = {"state": "failed", "reason": str(error)}
    except MemoryError:
        result, out_of_memory = {"state": "failed", "reason": "memory"}, True
    except RecursionError:
        result = {"state": "failed", "reason": "it is nested too deeply"}
    except Exception as error:  # noqa: BLE001 - a bug of a reader costs only the file that shows it
        result = {"state": "failed", "reason": f"its reader failed: {type(error).__name__}: {error}"[:300]}
    data = b""
    message = frame({"index": index, **result}, text)
    _stop_timers()
    answers.write(message)
    answers.flush()
    if out_of_memory:
        _retire(answers)


def _note(document: Document, unread: str) -> Document:
    """Add a reason to the metadata, before the reasons of the reader, why a part of the document is unread."""
    reasons = [unread, *filter(None, [document.metadata.get(UNREAD)])]
    return replace(document, metadata={**document.metadata, UNREAD: "; ".join(reasons)})


def _start_timers(settings: Json) -> None:
    """Limit the next step by processor time and by the clock. The signals have no handler: they end the process."""
    signal.setitimer(signal.ITIMER_PROF, settings["seconds"])
    signal.setitimer(signal.ITIMER_REAL, settings["wall_seconds"])


def _stop_timers() -> None:
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.setitimer(signal.ITIMER_REAL, 0)


class _Loader:
    """Loads files and parts of files, and remembers how many lines the last large file has up to a part."""

    def __init__(self, max_bytes: int, formats: Mapping[str, Format]) -> None:
        self._max_bytes = max_bytes
        self._open = OpenFile(formats)
        self._file: tuple[int, ...] = ()  # the `_state` of the last large file
        self._position = self._newlines = 0  # in that file

    def load(self, path: str) -> tuple[bytes, Json, tuple[bytes, int] | None]:
        """The bytes of a regular file, with their hash, size and time. Never waits for a FIFO or a device.

        :returns: for a part of a file, also the first bytes of the file and the number of newlines before the part.
        """
        try:
            file = open_document(path)
        except NotADirectoryError:
            return self._load_member(path)
        except OSError as error:
            code = error.errno or 0
            raise _CannotOpenError(*_OPEN_ERRORS.get(code, ("failed", os.strerror(code)))) from None
        except ValueError:
            raise _CannotOpenError("failed", "its name holds a zero byte") from None
        with file.stream as stream:
            status = os.fstat(stream.fileno())
            size = status.st_size if file.end is None else file.end - file.start
            if size > self._max_bytes:
                raise _CannotOpenError("skipped", too_large(self._max_bytes))
            try:
                data = stream.read(size if file.end else self._max_bytes + 1)  # a file may grow meanwhile
                context = None if file.end is None else self._context(file, status)
            except OSError as error:
                raise _CannotOpenError("failed", error.strerror or "it cannot be read") from None
        if len(data) > self._max_bytes:
            raise _CannotOpenError("skipped", too_large(self._max_bytes))
        sha256 = hashlib.sha256(data).hexdigest()
        return data, {"sha256": sha256, "size": len(data), "mtime_ns": mtime_ns(status)}, context

    def _load_member(self, path: str) -> tuple[bytes, Json, None]:
        """The bytes of a file in a file, with their hash and size, and the time of the outer file."""
        try:
            outer = file_around(path)
            status = os.lstat(outer)
            identity = (outer, *_state(status))
            below = path[len(outer) + 1 :]
            data = self._open.read(identity, lambda: self.load(outer)[0], outer, below)
        except FileNotFoundError:
            raise _CannotOpenError("failed", "it is no longer there") from None
        except OSError as error:
            raise _CannotOpenError("failed", error.strerror or "it cannot be read") from None
        return data, {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "mtime_ns": mtime_ns(status)}, None

    def _context(self, file: FileBytes, status: os.stat_result) -> tuple[bytes, int]:
        """The first bytes of a file, and the number of newlines before a part of it."""
        identity = _state(status)
        if identity != self._file or self._position > file.start:
            self._file, self._position, self._newlines = identity, 0, 0
        file.stream.seek(self._position)
        while self._position < file.start and (
            block := file.stream.read(min(_BLOCK_BYTES, file.start - self._position))
        ):
            self._newlines += block.count(b"\n")
            self._position += len(block)
        file.stream.seek(0)
        return file.stream.read(HEAD_BYTES), self._newlines


_BLOCK_BYTES = 2**20


def _state(status: os.stat_result) -> tuple[int, ...]:
    """Identify the content of a file. It includes the change time, which programs cannot set back."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _send(answers: BinaryIO, message: Json) -> None:
    answers.write(frame(message))
    answers.flush()


def _retire(answers: BinaryIO) -> NoReturn:
    """End, so that a fresh process takes over the rest of the batch."""
    _send(answers, {"bye": True})
    os._exit(0)


def _take_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Move the pipes to the pool to descriptors that no library reads or writes."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.close(nothing)
    return requests, answers


def _set_limits(memory: int) -> None:
    sys.setrecursionlimit(1000)
    for number in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(number, signal.SIG_DFL)
    try:
        import resource
    except ImportError:  # without this module, the limits of the pool remain
        return
    for name, limit in (("RLIMIT_AS", memory), ("RLIMIT_CORE", 0)):
        try:
            kind = getattr(resource, name)
            _, hard = resource.getrlimit(kind)
            allowed = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
            resource.setrlimit(kind, (allowed, allowed))
        except (AttributeError, OSError, ValueError):
            continue


def _is_near_limit(memory: int) -> bool:
    """Whether memory left over from earlier files leaves too little for the next one."""
    try:
        pages = int(Path("/proc/self/statm").read_bytes().split()[0])
    except (OSError, ValueError):
        return False
    return pages * _PAGE_BYTES > memory // 2


_PAGE_BYTES: int = os.sysconf("SC_PAGESIZE") if hasattr(os, "sysconf") else 4096
