"""An index in a folder, and its lock: on this machine, or on a shared file system that locks and renames like it."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import secrets
import shutil
import socket
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ....core.errors import StoreError
from ....core.files import read_regular
from ..foreign.confinement import check_files
from ..tables import TableLocation
from .location import ANY, HEAD, LARGEST, NEW, PREVIOUS, TABLES, Location
from .new_files import NewFiles
from .patience import Patience
from .waiting_line import Busy, WaitingLine, is_ticket, wait_for

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

    from filelock import BaseFileLock


_VECTORS = re.compile(r"\.[0-9a-f]{12}|\w+-\d+-[0-9a-f]{16}")  # the folder of an unfinished or a published vector index
_PARTS = (*TABLES, "vectors")  # the subfolders that a commit names files of
_POLL_SECONDS = 0.05  # between two attempts to take the lock
_SETTINGS = "settings.json"  # written first, so that the tables beside it are ours
_UNFINISHED = {  # the files that an unfinished index may leave -> a pattern of their bytes
    "lock": rb"",
    "lock.json": rb'(\{"pid": .*)?',  # it is not synced, so a power cut may leave a part
    ".gitignore": rb"\*?\s*",
    _SETTINGS: rb'\{"format": \d+, "folder": .*\}',
    **{f".{name}": rb".*" for name in ("lock.json", ".gitignore", _SETTINGS, HEAD, PREVIOUS)},  # possibly cut short
}


class FolderLocation:
    """A folder; machines may share it if its file system locks and renames as a local one does."""

    lock_expires = False

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        """:param durable: sync all files of a commit before it, so that a power cut loses nothing."""
        self.cache = path
        self.durable = durable
        self._new_files = NewFiles(path, _PARTS, durable=durable)
        self.patience = Patience()

    def __str__(self) -> str:
        return str(self.cache)

    def table(self, name: str) -> TableLocation:
        """Return the path of `NAME.lance` in the folder."""
        return TableLocation(str(self.cache / f"{name}.lance"))

    def read(self, file: str) -> tuple[bytes, str]:
        """Read the whole file; its tag is always `ANY`, because the lock keeps other writers away."""
        return read_regular(self.cache / file, LARGEST), ANY

    def exists(self, file: str) -> bool:
        """Tell whether a regular file is there; a missing folder is no error."""
        try:
            return stat.S_ISREG((self.cache / file).stat().st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def write(self, file: str, data: bytes, *, over: str) -> str:  # noqa: ARG002 - the lock guards it
        """Write and sync a temporary file, then rename it; the lock stands in for the check of `over`."""
        temporary = self._write_aside(file, data)
        self._new_files.settle_file(temporary)
        temporary.replace(self.cache / file)
        self._new_files.settle_folder(self.cache)
        return ANY

    def _write_aside(self, file: str, data: bytes) -> Path:
        """Write a temporary file, in place of one of a killed writer, since there is one writer at a time."""
        temporary = self.cache / f".{file}"
        temporary.unlink(missing_ok=True)
        with open(temporary, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as stream:
            stream.write(data)
        return temporary

    def commit(self, head: bytes, previous: bytes, *, over: str) -> str:
        """Settle all new files, then rename HEAD.json into place. The previous state is kept only with `durable`."""
        states = [self._write_aside(HEAD, head)]
        if self.durable:
            # HEAD.json first if there is none: it makes the folder an index.
            states.insert(over == NEW, self._write_aside(PREVIOUS, previous))
        else:
            (self.cache / PREVIOUS).unlink(missing_ok=True)  # so that the next durable commit syncs everything
        self._new_files.settle(*states)
        for state in states:
            state.replace(self.cache / state.name[1:])
        self._new_files.settle_folder(self.cache)
        return ANY

    def begin(self, *, synced: bool) -> None:
        """Note the present files, so that a commit finds the new ones by name."""
        self._new_files = NewFiles(self.cache, _PARTS, durable=self.durable)
        if synced:
            self._new_files.trust()

    def remove(self, prefix: str) -> None:
        """Delete the files and their temporary copies."""
        for dot in ("", "."):  # also the temporary files of `write`
            for file in self.cache.glob(f"{dot}{prefix}*"):
                file.unlink(missing_ok=True)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Create the folder and lock its file `lock`; the system frees the lock when the process dies.

        Writers that wait get it in order of arrival.

        :raises StoreError: when the folder cannot be used, or has a symbolic link or a special file in it.
        """
        from filelock import FileLock

        lock = FileLock(self.cache / "lock", timeout=0, mode=0o600)
        with reachable(self):
            self._make_folder()
            check_files(self.cache)
            self._acquire(lock)
        try:
            with reachable(self):
                self._write_aside("lock.json", writer_since(now())).replace(self.cache / "lock.json")
            yield
        finally:
            lock.release()

    def _make_folder(self) -> None:
        self.cache.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _acquire(self, lock: BaseFileLock) -> None:
        from filelock import Timeout

        def attempt() -> None:
            try:
                self._make_folder()  # another process may have removed it
                first = line.first()
                if first is None:
                    with contextlib.suppress(Timeout):
                        lock.acquire()
                        return
                if self.patience.seconds:
                    line.join()
            except (FileNotFoundError, FileExistsError):
                raise Busy("a process that removes it") from None
            raise Busy(writer_in(self.cache / "lock.json") if first is None else f"process {first}, whose turn it is")

        line = WaitingLine(self.cache)
        try:
            wait_for(self, attempt, poll_seconds=_POLL_SECONDS)
        finally:
            line.leave()

    def abandon(self) -> None:
        """Remove the files of the lock, and the folder if nothing else is in it."""
        for name in ("lock", "lock.json", ".lock.json"):  # the folder may now be a user's, with files of other names
            (self.cache / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.cache.rmdir()

    def is_free(self) -> bool:
        """Tell whether the folder is missing, empty, or has only remains of an index; this reads its small files."""
        return not self.cache.exists() or unfinished_files(self, (entry.name for entry in self.cache.iterdir()))

    def prepare(self) -> None:
        """Close the folder to other users, hide it from git, and delete the tables."""
        self.cache.chmod(0o700)
        self.write(".gitignore", b"*\n", over=ANY)
        for name in TABLES:
            shutil.rmtree(self.cache / name, ignore_errors=True)
        self._new_files.settle_parents()

    def vectors(self, name: str) -> Path:
        """Return the subfolder of `vectors`; the index itself lies there, so nothing is copied."""
        return self.cache / "vectors" / name

    def has(self, name: str) -> bool:
        """Tell whether the subfolder exists, without a look at its files."""
        return self.vectors(name).exists()

    def keep(self, name: str) -> None:
        """Do nothing: all machines see the folder."""

    def size(self) -> int:
        """Walk the whole folder; files that another process removes meanwhile count 0."""
        return folder_size(self.cache)

    def supersede(self, name: str) -> None:
        """Set the subfolder's time to now, which `tidy` compares; a failure is ignored."""
        with contextlib.suppress(OSError):  # it was removed, or belongs to another user
            os.utime(self.cache / "vectors" / name)

    def drop(self, name: str) -> None:
        """Delete the subfolder at once, and ignore files that cannot be deleted."""
        shutil.rmtree(self.cache / "vectors" / name, ignore_errors=True)

    def tidy(self, keep: Container[str], before: float, *, begun: float = math.inf) -> None:
        """Remove replaced vector indexes.

        :param before: infinite to erase, which must not fail.
        :param begun: unfinished indexes older than this time are removed too; by default all, since only the writer
            builds indexes in a folder.
        :raises OSError: when an index that is to be erased cannot be removed.
        """
        for folder in (self.cache / "vectors").glob("*"):
            if folder.name in keep or not _VECTORS.fullmatch(folder.name):
                continue
            with contextlib.suppress(OSError):  # another process was first
                if folder.stat().st_mtime < (begun if folder.name.startswith(".") else before):
                    shutil.rmtree(folder, ignore_errors=True)
            if math.isinf(before) and folder.exists():
                raise OSError(f"{folder} cannot be removed")


@contextlib.contextmanager
def reachable(path: object, remedy: str = "") -> Iterator[None]:
    """Turn errors of the file system about a folder into ours."""
    try:
        yield
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        usual = "free some space" if is_full else "give another folder, for an index with --index"
        raise StoreError(f"{path} cannot be used ({error.strerror or error}): {remedy or usual}") from error


def folder_size(folder: Path) -> int:
    """Count the bytes of all files below a folder; files that another process removes meanwhile count 0."""
    size = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                size += (Path(root) / name).stat().st_size
    return size


def unfinished_files(location: Location, names: Iterable[str]) -> bool:
    """Tell whether all these files are the remains of an unfinished index."""
    return all(_is_unfinished(location, name) for name in names)


def _is_unfinished(location: Location, name: str) -> bool:
    file = _SETTINGS if name in TABLES else name
    if file not in _UNFINISHED:
        return is_ticket(name)
    try:
        return re.fullmatch(_UNFINISHED[file], location.read(file)[0], re.DOTALL) is not None
    except OSError:
        return False


def now() -> str:
    """Return the local time as HH:MM:SS, for lock.json."""
    return time.strftime("%H:%M:%S")


def writer_since(moment: str) -> bytes:
    """Describe this process in lock.json, for the message of a refused writer; no two are alike."""
    writer = {"pid": os.getpid(), "host": socket.gethostname(), "since": moment}
    return json.dumps({**writer, "once": secrets.token_hex()}).encode()


def writer_at(folder: Path) -> str:
    """Name the process that holds the lock of an index in a folder; "" if none does, or the system does not say."""
    try:
        inode = (folder / "lock").stat().st_ino
        locks = Path("/proc/locks").read_text("utf-8").split()
    except OSError:
        return ""
    is_locked = any(field.endswith(f":{inode}") for field in locks)  # DEVICE:INODE
    return writer_in(folder / "lock.json") if is_locked else ""


def writer_in(file: Path | bytes) -> str:
    """Name the process that a lock.json describes, with the parts that it has."""
    try:
        record = json.loads(file if isinstance(file, bytes) else read_regular(file, LARGEST))
        return f"process {record['pid']} on {record['host']}, since {record['since']}"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "another process"
