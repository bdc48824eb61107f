"""Keep an index within its folder: one from a stranger may lead to files elsewhere.

A symbolic link in it would let Lance read, replace or delete files elsewhere; a FIFO would stop a reader for ever.
Git and tar carry both. A table can name other folders and buckets for its files, and a column of blobs other files.
Lance reads those only after it has opened the table. It takes every other name in its files as one below the table.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING

import pyarrow as pa

from ....core.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path

    import lance

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
            folders += _folders_in(folder)
        except (FileNotFoundError, NotADirectoryError):  # another process removed it meanwhile
            continue
        except OSError as error:
            raise StoreError(f"{folder} cannot be used ({error.strerror or error})") from error


def _folders_in(folder: str) -> list[str]:
    """Check the entries of a folder, and return the folders among them."""
    folders = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            elif not entry.is_file(follow_symlinks=False):
                _refuse(entry)
    return folders


def _refuse(entry: os.DirEntry[str]) -> None:
    with contextlib.suppress(FileNotFoundError):  # another process removed it meanwhile
        mode = stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode)
        if mode == stat.S_IFLNK:
            raise StoreError(
                f"{entry.path} is a symbolic link, and {_REGULAR}: put what it points to in its place, or remove it"
            )
        raise StoreError(f"{entry.path} is a {_KINDS.get(mode, 'special file')}, and {_REGULAR}: remove it")


def check_table(table: lance.LanceDataset) -> None:
    """Check that an open table has all its data in its own folder.

    :raises StoreError: when it names another folder or storage, or has a column of another type than ours have.
    """
    if bases := table.base_paths():
        elsewhere = ", ".join(sorted(base.path for base in bases.values()))
        raise StoreError(f"{table.uri} keeps data outside of the index, in {elsewhere}: {_INDEX_AGAIN}")
    for field in table.schema:
        if not _is_plain(field):
            raise StoreError(f"{table.uri} has a column {field.name!r} that may hold references: {_INDEX_AGAIN}")


_INDEX_AGAIN = "remove the index and index again"
_PLAIN = (pa.int64(), pa.int32(), pa.bool_(), pa.float32(), pa.string(), pa.large_string(), pa.binary())


def _is_plain(field: pa.Field) -> bool:
    """Tell whether a column holds its values itself; Lance marks a column of blobs in its metadata."""
    if field.metadata:
        return False
    kind = field.type
    is_list = pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind)
    return _is_plain(kind.value_field) if is_list else kind in _PLAIN
