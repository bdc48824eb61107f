"""Keep an index within its folder: it may come from elsewhere, and lead to files of others.

A symbolic link in it would let Lance read, replace or delete files elsewhere; a FIFO would stop a reader for ever.
Git and tar carry both.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import TYPE_CHECKING

from ...core.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path

_REGULAR = "an index holds only files and folders of its own"
_KINDS = {stat.S_IFIFO: "FIFO", stat.S_IFSOCK: "socket", stat.S_IFCHR: "device", stat.S_IFBLK: "device"}


def check_files(index: Path) -> None:
    """Check that an index folder holds files and folders alone. It lists the folders, and opens no file.

    :raises StoreError: naming the first symbolic link, FIFO, socket or device.
    """
    folders = [os.fspath(index)]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    elif not entry.is_file(follow_symlinks=False):
                        _refuse(entry)
        except (FileNotFoundError, NotADirectoryError):  # another process removed it meanwhile
            continue
        except OSError as error:
            raise StoreError(f"{folder} cannot be listed: {(error.strerror or str(error)).lower()}") from error


def _refuse(entry: os.DirEntry[str]) -> None:
    with contextlib.suppress(FileNotFoundError):  # another process removed it meanwhile
        mode = stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode)
        if mode == stat.S_IFLNK:
            raise StoreError(
                f"{entry.path} is a symbolic link, and {_REGULAR}: put what it points to in its place, or remove it"
            )
        raise StoreError(f"{entry.path} is a {_KINDS.get(mode, 'special file')}, and {_REGULAR}: remove it")


def read_file(file: Path) -> bytes:
    """Read a regular file whole; never through a symbolic link, and never waiting for a FIFO.

    :raises OSError: when it is missing, or something else.
    """
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(file))
        return stream.read()
