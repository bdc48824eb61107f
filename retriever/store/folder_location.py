"""A store in a folder of this machine, or of a file system that locks and renames as one."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.errors import LockedError, StoreError
from .location import ANY, TABLES, Location
from .tables import TableLocation

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator


_VECTORS = re.compile(r"\.[0-9a-f]{12}|\w+-\d+-[0-9a-f]{16}")  # a vector index that is being made, or is published


_SETTINGS = "settings.json"  # the first that is written, so that the tables beside it are ours


_UNFINISHED = {  # what an index that was never finished may have left, and what that holds
    "lock": rb"",
    "lock.json": rb'\{"pid": .*\}',
    ".gitignore": rb"\*\s*",
    _SETTINGS: rb'\{"format": \d+, "folder": .*\}',
    **dict.fromkeys((".lock.json", ".settings.json", ".HEAD.json"), rb".*"),  # cut short, perhaps
}


class FolderLocation:
    """A folder; several machines may share it if its file system locks and renames as one machine's does."""

    outlives = False

    def __init__(self, path: Path) -> None:
        self.cache = path

    def __str__(self) -> str:
        return str(self.cache)

    def table(self, name: str) -> TableLocation:
        return TableLocation(str(self.cache / f"{name}.lance"))

    def read(self, file: str) -> tuple[bytes, str]:
        return (self.cache / file).read_bytes(), ANY

    def write(self, file: str, data: bytes, *, over: str) -> str:  # noqa: ARG002 - the lock is what guards it
        aside = self.cache / f".{file}"
        aside.unlink(missing_ok=True)  # one writer at a time, so that this is what a killed one left
        with aside.open("xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        aside.replace(self.cache / file)
        return ANY

    def remove(self, beginning: str) -> None:
        for written in ("", "."):  # or that `write` was about to
            for file in self.cache.glob(f"{written}{beginning}*"):
                file.unlink(missing_ok=True)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        from filelock import FileLock, Timeout

        lock = FileLock(self.cache / "lock", timeout=0)
        with reachable(self):
            self.cache.mkdir(parents=True, exist_ok=True)
            self._refuse_links()
            try:
                lock.acquire()
            except Timeout:
                raise lock_owner(self, self.cache / "lock.json") from None
        try:
            with reachable(self):
                self.write("lock.json", writer_since(now()), over=ANY)
            yield
        finally:
            lock.release()

    def _refuse_links(self) -> None:
        for entry in self.cache.iterdir():
            if entry.is_symlink():
                raise StoreError(
                    f"{entry} is a symbolic link, and an index writes and removes only what is in its own folder: "
                    "put what it points to in its place, or remove it"
                )

    def is_free(self) -> bool:
        return not self.cache.exists() or unfinished_files(self, (entry.name for entry in self.cache.iterdir()))

    def prepare(self) -> None:
        (self.cache / ".gitignore").write_text("*\n", "utf-8")
        for name in TABLES:
            shutil.rmtree(self.cache / name, ignore_errors=True)

    def vectors(self, name: str) -> Path:
        return self.cache / "vectors" / name

    def has(self, name: str) -> bool:
        return self.vectors(name).exists()

    def keep(self, name: str) -> None:
        """It is there already."""

    def size(self) -> int:
        return folder_size(self.cache)

    def supersede(self, name: str) -> None:
        with contextlib.suppress(OSError):  # it is gone, or another user's
            os.utime(self.cache / "vectors" / name)

    def drop(self, name: str) -> None:
        shutil.rmtree(self.cache / "vectors" / name, ignore_errors=True)

    def tidy(self, keep: Container[str], before: float, *, begun: float = math.inf) -> None:
        """Of those that are not finished, `begun` says which go: all, where nobody but the writer makes any."""
        for folder in (self.cache / "vectors").glob("*"):
            if folder.name in keep or not _VECTORS.fullmatch(folder.name):
                continue
            with contextlib.suppress(OSError):  # another process was first
                if folder.stat().st_mtime < (begun if folder.name.startswith(".") else before):
                    shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def reachable(place: object, remedy: str = "give another folder, for an index with --index") -> Iterator[None]:
    """What the file system says against a folder, as ours."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{place} cannot be used ({error.strerror or error}): {remedy}") from error


def folder_size(folder: Path) -> int:
    """Bytes of all files below a folder; those that another process removes meanwhile have none."""
    size = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                size += (Path(root) / name).stat().st_size
    return size


def unfinished_files(place: Location, names: Iterable[str]) -> bool:
    """Whether these are nothing but what an index that was never finished has left there."""
    return all(_is_ours(place, name) for name in names)


def _is_ours(place: Location, name: str) -> bool:
    file = _SETTINGS if name in TABLES else name
    if file not in _UNFINISHED:
        return False
    try:
        return re.fullmatch(_UNFINISHED[file], place.read(file)[0], re.DOTALL) is not None
    except OSError:
        return False


def now() -> str:
    return time.strftime("%H:%M:%S")


def writer_since(moment: str) -> bytes:
    """Who writes since then, for those who would like to; no two are alike."""
    who = {"pid": os.getpid(), "host": socket.gethostname(), "since": moment}
    return json.dumps({**who, "once": os.urandom(8).hex()}).encode()


def lock_owner(place: Location, file: Path | bytes) -> LockedError:
    """The error that names the writer, as far as the file that it wrote says."""
    try:
        who = json.loads(file if isinstance(file, bytes) else file.read_bytes())
        whose = f"process {who['pid']} on {who['host']}, since {who['since']}"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        whose = "another process"
    killed = ", or in a minute if it was killed" if place.outlives else ""
    return LockedError(f"{place} is being written by {whose}: try again when it has finished{killed}")
