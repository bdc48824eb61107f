"""Checksums, reading without waiting, atomic writes, cached JSON and paths."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable
    from io import BufferedReader


_REGULAR_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
_SETTLED = 2.0  # seconds after a change: file systems keep times in steps up to this
_REMEMBERED = 200  # checksums of the files seen last
_LATEST = 2**63 - 1  # nanoseconds since 1970 in 64 bits: the year 2262


def open_regular(file: str | os.PathLike[str]) -> BufferedReader:
    """Open a regular file of the user for reading. A FIFO or a device in its place is refused, not waited for.

    :raises OSError: with ELOOP for a symbolic link, with ENXIO for anything else that is no regular file.
    """
    descriptor = os.open(file, _REGULAR_FLAGS)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.ENXIO, "not a regular file")
    return os.fdopen(descriptor, "rb")


def read_regular(file: str | os.PathLike[str], limit: int) -> bytes:
    """Read a regular file whole.

    :param limit: maximum size in bytes, because a sparse file can claim terabytes and take no space.
    :raises OSError: when it is missing, is larger, or is not a regular file.
    """
    with open_regular(file) as stream:
        if os.fstat(stream.fileno()).st_size > limit:
            raise too_large(file, limit)
        return stream.read()


def too_large(file: object, limit: int) -> OSError:
    """Return the error for a file of more than `limit` bytes."""
    return OSError(errno.EFBIG, f"larger than {limit:,} bytes, the most that such a file may have", str(file))


def mtime_ns(status: os.stat_result) -> int:
    """Return the time of a file in nanoseconds; a time after 2262 is the last that 64 bits hold."""
    return min(max(status.st_mtime_ns, -_LATEST), _LATEST)


def sha256(file: Path) -> str:
    """Return the hexadecimal sha256 of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def known_sha256(file: Path) -> str:
    """Return a file's sha256 from a cache, since a search must not hash 90 MB each time.

    Its key has the times of the last writing and of the last change of any kind, which no program can set. A file
    changed just now is not remembered: another change may have the same time.
    """
    status = file.stat()
    key = f"{file.resolve()}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"
    if status.st_size < 1_000_000:
        return sha256(file)
    checksums: dict[str, str] = {}
    try:
        cache = user_folder("CACHE", "~/.cache") / "binocle" / "sha256.json"
    except InputError:
        return sha256(file)
    try:
        checksums = json.loads(cache.read_text("utf-8"))
        if isinstance(checksums.get(key), str):
            return checksums[key]
    except (OSError, ValueError, AttributeError):
        checksums = {}
    value = sha256(file)
    if time.time() - max(status.st_ctime, status.st_mtime) < _SETTLED:
        return value
    checksums = dict(list(checksums.items())[-_REMEMBERED:])
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        staging = cache.with_suffix(f".{os.getpid()}")
        staging.write_text(json.dumps({**checksums, key: value}), "utf-8")
        staging.replace(cache)
    except OSError:
        pass  # the home is read-only: hash again next time
    return value


def user_folder(kind: Literal["CACHE", "CONFIG", "DATA", "STATE"], default: str) -> Path:
    """Return the user's folder for files of a kind, absolute; the variable XDG_*_HOME names another.

    A relative value of the variable is ignored, as the XDG base directory specification (freedesktop.org) says: the
    folder would depend on the current one.

    :raises InputError: when this user has no home folder, as in a container with an unknown user.
    """
    folders = [expand_home(path) for path in (os.environ.get(f"XDG_{kind}_HOME", ""), default)]
    folder = next(filter(Path.is_absolute, folders), None)
    if folder is None:
        raise InputError(f"this user has no home folder: set HOME, or XDG_{kind}_HOME, to an absolute path")
    return folder


def check_name(path: Path) -> None:
    """:raises InputError: for a path that is not UTF-8: libraries of weights and tables cannot open it."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise InputError(f"{path} has a name that is not UTF-8: rename it, or give another") from None


def write_atomic(file: Path, text: str) -> None:
    """Write a text file so that a reader sees the whole old or the whole new content.

    A byte of a file's name that is not UTF-8 becomes "?".
    """
    staging = file.with_name(f".{file.name}")
    staging.write_bytes(text.encode("utf-8", "replace"))
    staging.replace(file)


def json_or_make(file: Path, make: Callable[[], Any]) -> Any:
    """Read a value from a JSON file; if the file is missing, compute the value with `make` and write it first."""
    if not file.is_file():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, json.dumps(make()))
    return json.loads(file.read_text("utf-8"))


def existing_spelling(path: Path) -> Path:
    """Return the path of an existing file, however its accents are written: é is one letter, or e with a mark.

    People type the first, and macOS writes the second into names. The path of a missing file stays the same.
    """
    if str(path).isascii() or os.path.exists(path):  # noqa: PTH110 - False for a name that no file can have
        return path
    spelled = Path(path.anchor)
    for name in path.relative_to(path.anchor).parts:
        spelled /= _spelling_in(spelled, name)
    return spelled


def _spelling_in(folder: Path, name: str) -> str:
    """Return the only name in a folder that differs from this one by nothing but how its accents are written."""
    from .words import composed  # most names need none of it

    try:
        names = os.listdir(folder)  # noqa: PTH208 - names, not paths
    except (OSError, ValueError):
        return name
    same = [entry for entry in names if composed(entry) == composed(name)]
    return name if name in names or len(same) != 1 else same[0]


def expand_home(path: str | os.PathLike[str]) -> Path:
    """Expand "~" and "~user"; a path with an unknown user stays unchanged."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)
