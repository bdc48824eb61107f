"""The process in the background: run commands one after the other, each as in a process of its own.

It takes over the folder, the environment and the arguments of a request, and collects the output of the command. It
ends by itself after the time of `--stay` without a request.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import socket
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ...core.errors import InputError
from . import kept
from .client import ACCEPTED, CODE, ENVIRONMENT, ERR, OUT, STAY, address, identity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MAX_REQUEST, _MAX_ANSWER = 4 << 20, 64 << 20  # bytes
_END = "end"
_SECONDS = 1.0  # for a client to send its request, and to read each part of the answer


class _Request(NamedTuple):
    folder: str
    inode: str
    encodings: list[str]  # of standard output and of standard error, each with how it treats errors
    arguments: list[str]
    environment: dict[bytes, bytes]
    streams: list[int]


def leave_behind(seconds: float) -> None:
    """Have a process stay in the background for further searches, unless one does; 0 seconds ends it.

    :raises InputError: when no socket can be made for it.
    """
    if kept.RETRIEVERS is not None:
        kept.RETRIEVERS.seconds = seconds
    elif not seconds:
        _end_starting()
    else:
        path = _socket_path()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined] # noqa: SLF001
        program = [sys.executable, *flags, "-P", "-m", "binocle", STAY, str(seconds), *sys.argv[1:]]
        process = subprocess.Popen(  # noqa: S603 - this program
            program,
            env=ENVIRONMENT,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        process.returncode = 0  # nobody waits for it


def _end_starting() -> None:
    """Have the process that does not listen yet end after its first command."""
    import fcntl

    with contextlib.suppress(OSError, InputError), _lock_file(_socket_path()).open("r+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.write(_END)


def _lock_file(path: Path) -> Path:
    """The file that the process in the background has locked. Other processes write into it to end that one."""
    return path.with_name(f"{path.name}.lock")


def _socket_path() -> Path:
    path = address()
    if path is None:
        raise InputError("--stay needs a folder for its socket: set HOME or XDG_RUNTIME_DIR")
    if len(os.fsencode(path)) > 100:
        raise InputError(f"--stay cannot make the socket {path}: its path is too long, so set XDG_RUNTIME_DIR")
    return Path(path)


def stay(program: Callable[[], object]) -> None:
    """Open what the first command needs, then answer others until nobody has asked for some time.

    :param program: runs the words of `sys.argv`, prints, and raises SystemExit.
    """
    import fcntl

    _, seconds, *arguments = sys.argv[1:]
    path = _socket_path()
    with _lock_file(path).open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # another one stays already
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        retrievers = kept.RETRIEVERS = kept.Retrievers(float(seconds))
        lock.truncate(0)
        output = [os.open(os.devnull, os.O_RDWR) for _ in range(3)]
        first = _Request(str(Path.cwd()), "", ["utf-8", "strict"] * 2, arguments, ENVIRONMENT, output)
        with contextlib.suppress(kept.ColdError):
            _run(first, program)
        os.chdir("/")
        retrievers.end_command()
        lock.seek(0)
        if lock.read() == _END:
            return
        with _listening(path) as listener:
            while _answer_next(listener, retrievers, program):
                pass


@contextlib.contextmanager
def _listening(path: Path) -> Iterator[socket.socket]:
    """A socket for this user alone; the lock ensures that no other process listens there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        path.unlink(missing_ok=True)
        mask = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(mask)
        listener.listen()
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)


def _answer_next(listener: socket.socket, retrievers: kept.Retrievers, program: Callable[[], object]) -> bool:
    """Answer one client; returns whether to go on."""
    end = retrievers.last + retrievers.seconds
    if (remaining := end - time.monotonic()) <= 0:
        return False
    listener.settimeout(remaining)
    try:
        client, _ = listener.accept()
    except TimeoutError:
        return False
    with client, contextlib.suppress(OSError, ValueError, kept.ColdError):
        client.settimeout(_SECONDS)
        request = _read(client)
        try:
            client.sendall(ACCEPTED)
            client.sendall(_run(request, program))
        finally:
            for stream in request.streams:
                os.close(stream)
            os.chdir("/")
            retrievers.end_command()
    return True


def _read(client: socket.socket) -> _Request:
    """Read a request.

    :raises ValueError: when it is of another version, or not whole.
    """
    head, streams, _, _ = socket.recv_fds(client, 8, 3)
    size = int.from_bytes(head, "big")
    content = bytearray()
    while size <= _MAX_REQUEST and len(content) < size and (part := client.recv(1 << 20)):
        content += part
    first, *fields = bytes(content).split(b"\0")
    if len(content) != size or first != identity() or len(streams) != 3:
        for stream in streams:
            os.close(stream)
        raise ValueError("a request of another program")
    folder, inode, *encodings = map(os.fsdecode, fields[:6])
    count = int(fields[6])
    arguments, rest = [*map(os.fsdecode, fields[7 : 7 + count])], fields[7 + count :]
    return _Request(folder, inode, encodings, arguments, dict(zip(rest[::2], rest[1::2], strict=True)), streams)


def _run(request: _Request, program: Callable[[], object]) -> bytes:
    """Run a command, and return its writes and its exit code.

    :raises ColdError: when it needs a process of its own.
    """
    os.chdir(request.folder)
    here = os.stat(".")  # noqa: PTH116 - of the folder itself, whatever its name
    if request.inode not in ("", f"{here.st_dev}:{here.st_ino}"):
        raise kept.ColdError  # the client sees another file system
    os.environb.clear()
    os.environb.update(request.environment)
    writes: list[bytes] = []
    streams = [
        io.TextIOWrapper(_Output(stream, number, writes), encoding, errors, write_through=True)
        for stream, number, encoding, errors in zip(
            request.streams[1:], (OUT, ERR), request.encodings[::2], request.encodings[1::2], strict=True
        )
    ]
    names = ("argv", "stdin", "stdout", "stderr", "__stdin__", "__stdout__", "__stderr__")
    values = (["binocle", *request.arguments], *([_Input(request.streams[0]), *streams] * 2))
    before = [getattr(sys, name) for name in names]
    for name, value in zip(names, values, strict=True):
        setattr(sys, name, value)
    try:
        with warnings.catch_warnings():  # each is shown again
            program()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0
    finally:
        for name, value in zip(names, before, strict=True):
            setattr(sys, name, value)
    return b"".join([*writes, _frame(CODE, str(code).encode())])


def _frame(stream: int, content: bytes) -> bytes:
    return bytes([stream]) + len(content).to_bytes(8, "big") + content


class _Output(io.BytesIO):
    """A stream of the client: it collects the output, and asks the client's terminal."""

    def __init__(self, descriptor: int, number: int, writes: list[bytes]) -> None:
        super().__init__()
        self._descriptor, self._number, self._writes = descriptor, number, writes

    def write(self, content: bytes) -> int:  # type: ignore[override]
        self._writes.append(_frame(self._number, bytes(content)))
        if sum(map(len, self._writes)) > _MAX_ANSWER:
            raise kept.ColdError
        return len(content)

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)


class _Input(io.TextIOBase):
    """The standard input of a client. A command that reads it must run in a process of its own."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def readline(self, *_: object) -> str:  # type: ignore[override]
        raise kept.ColdError

    @property
    def buffer(self) -> io.BytesIO:
        """Raise ColdError, as `readline` does."""
        raise kept.ColdError
