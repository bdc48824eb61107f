"""Listen at an address or at a Unix socket, or say in one line why that cannot be."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from typing import TYPE_CHECKING

from ...core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_BACKLOG = 1_024  # connections that wait to be accepted


def listen(host: str, port: int) -> socket.socket:
    """Listen at an address.

    :param port: 0 for any that is free.
    :raises InputError: when the address cannot be used.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        raise InputError(f"cannot listen at {host}:{port}: {error.strerror or error}") from None
    except UnicodeError:
        raise InputError(f"cannot listen at {host[:100]!r}: it is not the name of a host") from None


@contextlib.contextmanager
def listen_at(path: Path) -> Iterator[socket.socket]:
    """Listen at a Unix socket that this user alone can reach; a socket that nobody listens at is replaced.

    :raises InputError: when the path cannot be used.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        try:
            _remove_dead_socket(path)
            mask = os.umask(0o177)
            try:
                listener.bind(str(path))
            finally:
                os.umask(mask)
            listener.listen(_BACKLOG)
        except OSError as error:
            raise InputError(f"cannot listen at {path}: {error.strerror or error}") from None
        inode = path.stat().st_ino
        try:
            yield listener
        finally:
            with contextlib.suppress(OSError):
                if path.stat().st_ino == inode:
                    path.unlink()


def _remove_dead_socket(path: Path) -> None:
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            kind = "folder" if path.is_dir() else "file"
            raise InputError(f"cannot listen at {path}: it is a {kind}, and no socket")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        try:
            client.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise InputError(f"cannot listen at {path}: another server does")
