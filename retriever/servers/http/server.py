"""Run the server: its start and its end."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING, Any

import uvicorn
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from .application import Server, application
from .work_queue import others_give_way

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Callable, Iterator

_LAST_SECONDS = 30  # for running requests when the server stops
_PATIENCE = 20.0  # seconds until a client that neither sends a request nor reads an answer is noticed
_HEAD = 2**16  # bytes of a request line and its headers beside those of the last read; httptools has no limit


def serve(server: Server, listener: socket.socket, started: Callable[[], None] = lambda: None) -> None:
    """Answer until SIGTERM or SIGINT; requests that run then are finished.

    :param started: called when requests are answered.
    """
    for index in server.served.indexes.values():
        index.retriever.warm_up()
    others_give_way()  # threads of the queue start later and call this too
    config = uvicorn.Config(
        application(server),
        http=BoundedHttp,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        lifespan="on",
        timeout_graceful_shutdown=_LAST_SECONDS,
    )
    runner = _Runner(config, started)
    with _signals_end_quietly():
        runner.run(sockets=[listener])


class BoundedHttp(HttpToolsProtocol):
    """A connection to a client, closed when bytes that are not of a body go on without end, or when the client waits.

    These bytes are a request line, headers, and what stands between and behind the chunks of a body. A client that
    sends nothing would keep the place of another one: a process has a limited number of open files.
    """

    _size = 0  # bytes since the last that were of a body or ended a head
    _heads = 0  # complete heads of requests
    _cycles: tuple[RequestResponseCycle, ...] = ()  # requests that wait for an answer, several if the client sent all
    _check: asyncio.TimerHandle

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.parser = _Parser(self)  # type: ignore[assignment]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to watch the progress of a client."""
        super().connection_made(transport)
        self._check = self.loop.call_later(_PATIENCE, self._check_progress, self._heads, 0)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the watch, and answer no request; Uvicorn would still answer one of several, and log an error."""
        self._check.cancel()
        for cycle in self._cycles:
            cycle.disconnected = True
        super().connection_lost(exc)

    def _check_progress(self, heads: int, unread: int) -> None:
        """Close the connection if its client has sent no request and read nothing since the last check.

        :param heads: the number of heads at the last check.
        :param unread: the bytes of answers that the client had to read then.
        """
        size = self.transport.get_write_buffer_size()
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if size >= unread > 0 or not (size or is_answering or self._heads > heads):
            self.transport.abort()
        else:
            self._check = self.loop.call_later(_PATIENCE, self._check_progress, self._heads, size)

    def data_received(self, data: bytes) -> None:
        """Parse the bytes of a client."""
        self._size += len(data)
        super().data_received(data)
        if self._size > _HEAD + len(data) and not self.transport.is_closing():
            self.send_400_response(f"Expected a request line and headers of at most {_HEAD:,} bytes.")

    def on_headers_complete(self) -> None:
        """End a head, and answer its request."""
        self._size = 0
        if self.parser.should_upgrade():
            return  # `_Parser` parses it again, without that
        self._heads += 1
        super().on_headers_complete()
        self._cycles = (*(cycle for cycle in self._cycles if not cycle.response_complete), self.cycle)

    def on_body(self, body: bytes) -> None:
        """Take a part of a body."""
        self._size = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request."""
        self._size = 0
        if not self.parser.should_upgrade():
            super().on_message_complete()


class _Parser:
    """The parser of httptools without the header `Upgrade`: this server speaks HTTP/1.1 alone.

    Java's client offers HTTP/2 with each request. httptools takes all bytes after such a head for the other protocol,
    so that the body and the next requests would be lost.
    """

    def __init__(self, protocol: HttpToolsProtocol) -> None:
        self._protocol = protocol
        self._begin()

    def _begin(self) -> None:
        self._parser = HttpRequestParser(self._protocol)
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as Uvicorn sets it

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)

    def feed_data(self, data: bytes) -> None:
        """Parse the bytes of a client.

        :raises HttpParserError: when they are no request, or one for a tunnel.
        """
        while True:
            try:
                self._parser.feed_data(data)
            except HttpParserUpgrade as upgrade:
                data = self._head_without_upgrade() + data[upgrade.args[0] :]
                self._begin()
            else:
                return

    def _head_without_upgrade(self) -> bytes:
        """Write the head that was parsed last, without the header `Upgrade`."""
        method, version = self._parser.get_method(), self._parser.get_http_version().encode()
        if method == b"CONNECT":
            raise HttpParserError("this server is no proxy")
        lines = [b"%s %s HTTP/%s" % (method, self._protocol.url, version)]
        lines += [b"%s: %s" % header for header in self._protocol.headers if header[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])


class _Runner(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_start = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_start()


@contextlib.contextmanager
def _signals_end_quietly() -> Iterator[None]:
    """Ignore the signal that Uvicorn raises once more after its end: it would end the process with an error."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signals = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, lambda *_: None) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
