"""Ask the process in the background for the output of a command, with nothing imported that costs time.

A request has the version, the words of the command, the environment and the streams. The answer comes whole, so a
server that dies leaves nothing half printed: the program then does the command itself.
"""

from __future__ import annotations

import os
import stat
import sys
import zlib

from ...core.version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket

STAY = "--stay-in-background"  # the first word of a process that does
COMMANDS = ("search", "similar", "show")
_NOT_HERE = {"-", "--open", "--ray", "--inverter"}  # they read standard input, start programs or load much
INTERRUPTED = 130
_RESUMED = {"index", "enrich", "switch", "rollback", "tune", "train", "distill", "pretrain"}
ACCEPTED, OUT, ERR, CODE = b"+", 1, 2, 0
ENVIRONMENT = dict(os.environb)  # of the start: the program sets variables of libraries later
_OF_LIBRARIES = (  # beginnings of variables that are read when a process starts or loads a library or a model
    *(b"BINOCLE_", b"PYTHON", b"LC_", b"LANG", b"TZ", b"LD_", b"MALLOC_", b"HF_", b"TRANSFORMERS_", b"TOKENIZERS_"),
    *(b"OMP_", b"GOMP_", b"KMP_", b"MKL_", b"OPENBLAS_", b"OV_", b"OPENVINO", b"LANCE_", b"AWS_", b"RAY_", b"CUDA_"),
)
_SECONDS = 0.25  # for a server to accept; the whole command takes three times as long without it


def identity() -> bytes:
    """The key of processes with equal output: the program, its version and the variables of libraries."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    changed = os.stat(package).st_mtime_ns  # an upgrade changes it
    interpreter = os.path.abspath(sys.executable)  # a child process sees ../venv/bin/python without ".."
    values = [__version__, package, changed, interpreter, sys.version, sys.flags.optimize, os.getuid()]
    variables = sorted(item for item in ENVIRONMENT.items() if item[0].startswith(_OF_LIBRARIES))
    return repr((values, variables)).encode()


def address() -> str | None:
    """The path of the socket for this identity, below the user's folder for sockets, or for caches; None: neither."""
    for name, default in (("XDG_RUNTIME_DIR", ""), ("XDG_CACHE_HOME", ""), ("", "~/.cache")):
        folder = os.path.expanduser(os.environ.get(name, default))
        if os.path.isabs(folder):
            return f"{folder}/binocle/stay-{zlib.crc32(identity()):08x}"
    return None


def ask(arguments: list[str]) -> int | None:
    """Print the answer of the server, and return the exit code; None: there is none that could answer."""
    if not arguments or arguments[0] not in COMMANDS or not _NOT_HERE.isdisjoint(arguments):
        return None
    try:
        path = address()
        if path is None or None in (sys.stdin, sys.stdout, sys.stderr) or not _is_ours(path):
            return None
        answer = _answer(path, arguments)
    except (OSError, ValueError):
        return None
    except KeyboardInterrupt:
        sys.stderr.write(f"{interrupted_line(arguments)}\n")
        os._exit(INTERRUPTED)
    return None if answer is None else _print(answer)


def interrupted_line(arguments: list[str]) -> str:
    """Return the line for Ctrl-C. It says whether the same command continues from its saved state."""
    is_resumed = not _RESUMED.isdisjoint(arguments[:1])
    return "binocle: interrupted" + "; the same command continues from the saved state" * is_resumed


def _is_ours(path: str) -> bool:
    state = os.lstat(path)
    return stat.S_ISSOCK(state.st_mode) and state.st_uid == os.getuid() and not stat.S_IMODE(state.st_mode) & 0o077


def _answer(path: str, arguments: list[str]) -> bytes | None:
    from _socket import AF_UNIX, SCM_RIGHTS, SOCK_STREAM, SOL_SOCKET, socket  # the module socket costs 5 ms

    here = os.stat(".")
    encodings = [part for each in (sys.stdout, sys.stderr) for part in (each.encoding, str(each.errors))]
    words = [os.getcwd(), f"{here.st_dev}:{here.st_ino}", *encodings, str(len(arguments)), *arguments]
    variables = [part for item in ENVIRONMENT.items() for part in item]
    content = b"\0".join([identity(), *map(os.fsencode, words), *variables])
    connection = socket(AF_UNIX, SOCK_STREAM)
    try:
        connection.settimeout(_SECONDS)
        connection.connect(path)
        if not _is_of_user(connection):
            return None
        streams = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
        connection.sendmsg([len(content).to_bytes(8, "big")], [(SOL_SOCKET, SCM_RIGHTS, streams)])
        connection.sendall(content)
        if connection.recv(1) != ACCEPTED:
            return None
        connection.settimeout(None)
        parts = []
        while part := connection.recv(1 << 20):
            parts.append(part)
        return b"".join(parts)
    finally:
        connection.close()


def _is_of_user(connection: socket) -> bool:
    """Whether a process of this user seems to listen."""
    import _socket

    if not hasattr(_socket, "SO_PEERCRED"):
        return True  # the socket's file is of this user
    credentials = connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[4:8], sys.byteorder) == os.getuid()


def frames(answer: bytes) -> list[tuple[int, bytes]] | None:
    """Divide an answer into its writes, each with its stream, and the exit code at the end; None: it is not whole."""
    parts, start = [], 0
    while start + 9 <= len(answer):
        end = start + 9 + int.from_bytes(answer[start + 1 : start + 9], "big")
        parts.append((answer[start], answer[start + 9 : end]))
        start = end
    is_whole = start == len(answer) and bool(parts) and parts[-1][0] == CODE
    return parts if is_whole else None


def _print(answer: bytes) -> int | None:
    writes = frames(answer)
    if writes is None:
        return None
    for stream, content in writes[:-1]:
        to = sys.stdout if stream == OUT else sys.stderr
        try:
            to.buffer.write(content)
            to.buffer.flush()
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), to.fileno())  # or Python would try again at the end
            if isinstance(error, BrokenPipeError):
                return 0
            if stream == OUT:
                sys.stderr.write(f"binocle: standard output: {error.strerror}\n")
            return 2
    return int(writes[-1][1])
