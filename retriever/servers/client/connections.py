"""Connections to a server: each request takes an idle one or opens one, and its answer is read and checked."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import os
import ssl
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import SplitResult, urlsplit

from ....core.errors import (
    BinocleError,
    DeadlineError,
    InputError,
    LockedError,
    NotFoundError,
    StoreError,
    UntrustedError,
)
from ....core.version import __version__
from ..limits import MAX_ANSWER
from .requests import json_text, quoted, url_values

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping

_T = TypeVar("_T")
_PART = 2**16  # bytes to read at once

_ERRORS: dict[int, type[BinocleError]] = {
    404: NotFoundError,
    409: LockedError,
    401: UntrustedError,
    403: UntrustedError,
}


class Connections:
    """The connections to one server. Threads and forked processes may share them.

    :param url: as messages name the server.
    :param prefix: of every path.
    :param headers: of every request.
    :param seconds: to wait for each answer, its last byte included.
    """

    def __init__(self, url: str, address: SplitResult, prefix: str, headers: dict[str, str], seconds: float) -> None:
        self.url = url
        self.headers = headers
        self._address = address
        self._prefix = prefix
        self._seconds = seconds
        self.idle: deque[http.client.HTTPConnection] = deque()
        self._process = os.getpid()

    def ask(
        self,
        read: Callable[[dict[str, Any]], _T],
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, Any] | None = None,
        *,
        is_write: bool = False,
    ) -> _T:
        """Send a request, and read its answer.

        :param read: makes the result of the answer's fields.
        :param body: fields; those of None are left out.
        :param query: the parameters of the URL; those of None are left out.
        :raises BinocleError: with the line of a refusal, or when no answer of a Binocle server comes in time.
        """
        pairs = [(name, value) for name, values in (query or {}).items() for value in url_values(values)]
        url = (
            self._prefix + path + ("?" + "&".join(f"{name}={quoted(value)}" for name, value in pairs) if pairs else "")
        )
        fields = None if body is None else {name: value for name, value in body.items() if value is not None}
        content = None if fields is None else json_text(fields)
        try:
            status, answer, is_late = self._exchange(method, url, content, is_write=is_write)
        except TimeoutError:
            raise DeadlineError(f"{self.url} gave no answer within {self._seconds:g} seconds") from None
        except (OSError, http.client.HTTPException) as error:
            raise StoreError(f"no server answers at {self.url}: {error}: is 'binocle serve' running there?") from None
        answered = _checked(self.url, status, answer, is_late=is_late)
        try:
            return read(answered)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise StoreError(
                f"{self.url} answered {method} {path} with other fields: expected the address of 'binocle serve', of "
                f"version {__version__}"
            ) from None

    def close(self) -> None:
        """Close the idle connections; a later request opens another one."""
        while self.idle:
            self.idle.pop().close()

    def __del__(self) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "idle": deque()}  # another process has its own connections

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)

    def _exchange(self, method: str, url: str, content: str | None, *, is_write: bool) -> tuple[int, bytes, bool]:
        """Send a request; on a new connection if the server had closed the old one, as it does after some seconds.

        A write always has a new connection and is sent once: where an old one breaks, the server may have written.
        """
        if self._process != os.getpid():  # forked: the answers on the connections are for the other process
            self._process, self.idle = os.getpid(), deque()
        while self.idle and not is_write:
            with contextlib.suppress(ConnectionError, http.client.RemoteDisconnected):
                return self._exchange_over(self.idle.pop(), method, url, content)
        return self._exchange_over(self._connect(), method, url, content)

    def _exchange_over(
        self, connection: http.client.HTTPConnection, method: str, url: str, content: str | None
    ) -> tuple[int, bytes, bool]:
        try:
            if connection.sock is not None:
                connection.sock.settimeout(self._seconds)
            connection.request(method, url, content, self.headers)
            end = time.monotonic() + self._seconds
            connection.response_class = partial(_Response, end=end)  # type: ignore[assignment] # no class, but called
            response = connection.getresponse()
            is_late = response.status == 503 and response.getheader("Retry-After") is not None
            answer = response.status, self._read(response), is_late
        except BaseException:
            connection.close()
            raise
        self.idle.append(connection)
        return answer

    def _read(self, response: http.client.HTTPResponse) -> bytes:
        """Read an answer, of an address that may be anything, such as an endless stream."""
        content = bytearray()
        while part := response.read1(_PART):
            content += part
            if len(content) > MAX_ANSWER:
                raise StoreError(f"{self.url} answers with over {MAX_ANSWER:,} bytes: expected 'binocle serve' there")
        response.close()  # `read1` does not, so that the connection would take no other request
        if response.length:
            raise http.client.IncompleteRead(bytes(content), response.length)
        return bytes(content)

    def _connect(self) -> http.client.HTTPConnection:
        host, port = str(self._address.hostname), self._address.port
        if self._address.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=self._seconds)
        return http.client.HTTPSConnection(host, port, timeout=self._seconds, context=ssl.create_default_context())


class _Response(http.client.HTTPResponse):
    """An answer with a time limit for its last byte, also if each header comes byte by byte.

    :param end: the moment, on the clock of `time.monotonic`.
    """

    def __init__(self, sock: socket.socket, *arguments: Any, end: float, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self.fp = io.BufferedReader(_Timed(self.fp.detach(), sock, end))


class _Timed(io.RawIOBase):
    """The bytes of a socket until a moment.

    :param raw: the file of the socket.
    """

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, end: float) -> None:
        self._raw, self._socket, self._end = raw, sock, end

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        """:raises TimeoutError: when the moment has passed."""
        seconds = self._end - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        self._socket.settimeout(seconds)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _checked(url: str, status: int, content: bytes, *, is_late: bool) -> dict[str, Any]:
    """Return the answer of a server.

    :raises BinocleError: with the line of its refusal.
    """
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise StoreError(f"{url} answered {status} without JSON: expected the address of 'binocle serve'")
    if status < 300:
        return answer
    detail = str(answer.get("detail", f"{url} answered {status}"))
    if is_late:
        raise DeadlineError(detail)
    if status >= 500 or status == 429:
        raise StoreError(detail)
    raise _ERRORS.get(status, InputError)(detail)


def address_of(url: object) -> SplitResult:
    """Return the parts of a server's address.

    :raises InputError: when it is none, or has parts that no request would send; it may hold a password.
    """
    parts = urlsplit(url) if isinstance(url, str) else None
    if parts is not None and (parts.username is not None or parts.query or parts.fragment):
        raise InputError("the address of a server has no user, password, ? or #: who may ask is said by token=")
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname or not _has_port(parts):
        raise InputError(f"{url!r} is not the address of a server: expected one such as http://127.0.0.1:8420")
    return parts


def check_token(token: object) -> None:
    """Check a token, which no message may show."""
    if token is not None and not (isinstance(token, str) and token.isascii() and token.isprintable()):
        raise InputError("token is a text of ASCII letters, digits and signs in one line, and this one is not")


def _has_port(address: SplitResult) -> bool:
    """Whether the port of an address is valid or absent."""
    try:
        return address.port is None or address.port > 0
    except ValueError:
        return False
