"""Settle new files before a commit names them: private as the index folder is, and safe from a power cut."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from typing import TYPE_CHECKING

from ....core.runtime.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

_THREADS = 8  # the file system writes concurrent syncs together: 20 files take 7 ms, one after another 100 ms
_OVERWRITTEN = frozenset({"latest_version_hint.json"})  # Lance replaces it with each version
_NO_NAMES: frozenset[str] = frozenset()
_FULL_SYNC = getattr(fcntl, "F_FULLFSYNC", None)  # macOS: elsewhere fsync reaches the disk itself


class NewFiles:
    """The files of an index folder that no commit has settled yet.

    Files do not change once they are written, so a name that was settled stays so.
    """

    def __init__(self, folder: Path, parts: Collection[str], *, durable: bool) -> None:
        """
        :param parts: the subfolders to look at.
        :param durable: also sync the files, and the folders with changed names.
        """
        self._folder = folder
        self._parts = parts
        self._durable = durable
        self._settled: dict[Path, frozenset[str]] = {}  # names by folder; a subfolder's ends in "/"

    def trust(self) -> None:
        """Note all present files as settled."""
        self._settled = self._list()

    def settle(self, *files: Path) -> None:
        """Settle these files and all new ones, then the folders with changed names.

        :raises OSError: when the disk does not take them.
        """
        names = self._list()
        new = [
            folder / name
            for folder, present in names.items()
            for name in present - self._settled.get(folder, _NO_NAMES)
            if not name.endswith("/")
        ]
        changed = [folder for folder, present in names.items() if present != self._settled.get(folder)]
        with Threads(_THREADS) as pool:
            _each(pool.map(self.settle_file, [*files, *new]))
            _each(pool.map(self.settle_folder, changed))
        self._settled = {folder: present - _OVERWRITTEN for folder, present in names.items()}

    def settle_file(self, file: Path) -> None:
        """Give a file the permissions of the index folder, and flush it to the disk; a removed file is ignored."""
        with contextlib.suppress(FileNotFoundError):
            self._settle(file, os.O_NOFOLLOW | os.O_NONBLOCK, self._mode() & 0o666)

    def settle_folder(self, folder: Path) -> None:
        """Give a folder the permissions of the index folder, and write the names in it to the disk."""
        self._settle(folder, os.O_DIRECTORY, self._mode())

    def settle_parents(self) -> None:
        """Flush the folders above to the disk, so that the name of each is durable; unreadable ones are left out."""
        parents = self._folder.absolute().parents
        mount = next(number for number, parent in enumerate(parents) if parent.is_mount())
        for parent in parents[: mount + 1]:
            with contextlib.suppress(PermissionError):
                self._settle(parent, os.O_DIRECTORY)

    def _mode(self) -> int:
        return stat.S_IMODE(self._folder.stat().st_mode)

    def _settle(self, path: Path, flags: int, mode: int | None = None) -> None:
        descriptor = os.open(path, os.O_RDONLY | flags)
        try:
            if mode not in (None, stat.S_IMODE(os.fstat(descriptor).st_mode)):
                with contextlib.suppress(PermissionError):  # it belongs to another user
                    os.fchmod(descriptor, mode)
            if self._durable:
                _sync(descriptor)
        finally:
            os.close(descriptor)

    def _list(self) -> dict[Path, frozenset[str]]:
        parts = [part for part in self._parts if (self._folder / part).is_dir()]
        names = {self._folder: frozenset(f"{part}/" for part in parts)}
        waiting = [self._folder / part for part in parts]
        while waiting:
            folder = waiting.pop()
            with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
                names[folder] = frozenset(entry.name + _ending(entry) for entry in entries if not entry.is_symlink())
                waiting += [folder / name for name in names[folder] if name.endswith("/")]
        return names


def _ending(entry: os.DirEntry[str]) -> str:
    return "/" if entry.is_dir() else ""


def _each(results: Iterable[None]) -> None:
    list(results)  # raises the first error


def _sync(descriptor: int) -> None:
    try:
        if _FULL_SYNC is None:
            os.fsync(descriptor)
        else:
            fcntl.fcntl(descriptor, _FULL_SYNC)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems do not sync folders
            raise
