"""The ASGI application: check the caller, read the input, answer in a thread, write JSON.

A refusal is problem details (RFC 9457) with one line for people. Below /v1/ and /v2/ it also has this line in
the fields that clients of OpenAI and Cohere read.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ....core.errors import BinocleError
from ....core.version import __version__
from ...search.deadline import Deadline
from ..limits import MAX_BODY, MAX_BODY_OF_DOCUMENTS
from . import prometheus
from .access import Access
from .api import cohere, openai
from .api.openapi import describe
from .api.operations import OPERATIONS, Operation, to_json
from .originals import pdf
from .page import search_page
from .refusal import Refusal, invalid, refusal_of
from .work_queue import WorkQueue

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from .caller import Served

    Endpoint = Callable[[Request], Awaitable[Response]]

_LOG = logging.getLogger("binocle")
_LISTS = ("facets", "ids", "vector")  # parameters of URLs that may come several times
_EVERY_ANSWER = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Vary": "Authorization, Origin"}


@dataclass(frozen=True)
class Server:
    """The parts of a server: its indexes, its rules, its queue of work and its metrics."""

    served: Served
    access: Access = field(default_factory=Access)
    queue: WorkQueue = field(default_factory=WorkQueue)
    metrics: prometheus.Metrics = field(default_factory=prometheus.Metrics)


def _operations_by_path() -> dict[str, dict[str, Operation]]:
    """All operations by path and method; those of one index also below the path of a named index."""
    by_path: dict[str, dict[str, Operation]] = {}
    for operation in (*OPERATIONS, *openai.OPERATIONS, *cohere.OPERATIONS):
        by_path.setdefault(operation.path, {})[operation.method] = operation
        if operation.is_of_index:
            by_path.setdefault(f"/indexes/{{index}}{operation.path}", {})[operation.method] = operation
    return by_path


def application(server: Server) -> ASGIApp:
    """Return the application of a server, for any ASGI host."""
    by_path = _operations_by_path()
    page_text, page_headers = search_page()
    endpoints = {
        "/": _constant(page_text, "text/html", page_headers),
        "/health": _constant(b'{"status":"ok"}', "application/json"),
        "/openapi.json": _constant(json.dumps(describe(by_path)).encode(), "application/json"),
        "/metrics": _metrics_endpoint(server),
        "/files/{id:anything}": _original_endpoint(server),
        "/indexes/{index}/files/{id:anything}": _original_endpoint(server),
    }
    routes = [_route(server, path, methods) for path, methods in by_path.items()]
    routes += [Route(path, endpoint, methods=["GET"]) for path, endpoint in endpoints.items()]

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        server.queue.close()
        server.served.maps.close()

    routed = Starlette(routes=routes, exception_handlers=_ANSWERS, lifespan=lifespan)
    return _Gate(routed, server)


def _constant(content: str | bytes, media_type: str, headers: Mapping[str, str] | None = None) -> Endpoint:
    async def endpoint(_: Request) -> Response:
        return Response(content, media_type=media_type, headers=headers)

    return endpoint


def _metrics_endpoint(server: Server) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        names = server.served.names(server.access.token_of(request.headers))
        return Response(_metrics(server, names), media_type=None, headers={"Content-Type": prometheus.CONTENT_TYPE})

    return endpoint


def _original_endpoint(server: Server) -> Endpoint:
    """Serve the original file of a document, if it is a PDF."""

    async def endpoint(request: Request) -> Response:
        named = request.path_params
        caller = server.served.caller(server.access.token_of(request.headers), named.get("index"))
        body = await server.queue.run(lambda: pdf(caller, named["id"]), lambda: _disconnected(request))
        headers = {"Content-Disposition": "inline", "Cache-Control": "private, no-cache"}
        return Response(body, media_type="application/pdf", headers=headers)

    return endpoint


def _route(server: Server, path: str, methods: dict[str, Operation]) -> Route:
    async def endpoint(request: Request) -> Response:
        return await _answer(server, methods["GET" if request.method == "HEAD" else request.method], request)

    # The id of a document may have slashes; no other path goes on behind it.
    return Route(path.replace("{id}", "{id:anything}") if path.endswith("{id}") else path, endpoint, methods=[*methods])


class _Anything(PathConvertor):
    """A part of a path that may have slashes and line ends, as ids of documents may."""

    regex = r"[\s\S]*"


register_url_convertor("anything", _Anything())


async def _answer(server: Server, operation: Operation, request: Request) -> Response:
    token = server.access.token_of(request.headers)
    deadline = Deadline.after(server.queue.deadline)
    caller = server.served.caller(token, request.path_params.get("index"), deadline)
    if operation.writes and not server.served.writable:
        raise Refusal(403, "this server only reads: start it with --write to change documents")
    if operation.writes and not caller.may_write:
        raise Refusal(403, "this token only reads")
    arguments = await _input(server, operation, request)
    known = request.headers.get("if-none-match", "") if operation.method == "GET" else ""

    def work() -> tuple[int, str, bytes]:
        # Read before the answer: if the index changes meanwhile, the answer is newer than its ETag, never older.
        etag = f'W/"{caller.etag(caller.retriever.snapshot())}"'
        if known and any(part.strip() in (etag, "*") for part in known.split(",")):
            return 304, etag, b""
        try:
            return 200, etag, to_json(operation.call(caller, arguments))
        except UnicodeEncodeError:
            raise Refusal(400, "a text of the request has half of a character (a lone surrogate)") from None

    status, etag, body = await server.queue.run(work, lambda: _disconnected(request))
    headers = {"ETag": etag, "Cache-Control": "private, no-cache"} if operation.method == "GET" else {}
    return Response(body, status, headers, media_type="application/json" if body else None)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _input(server: Server, operation: Operation, request: Request) -> Any:
    """Read and check the input of an operation.

    :raises Refusal: when it is too large, no JSON, or of another shape.
    """
    named = {name: value for name, value in request.path_params.items() if name != "index"}
    try:
        if operation.method == "GET":
            return operation.input.model_validate({**_from_url(request), **named})
        takes_body = operation.method != "DELETE" or not named
        if takes_body:
            _check_no_fields_in_url(operation, request)
        limit = MAX_BODY_OF_DOCUMENTS if operation.writes else MAX_BODY
        body = await asyncio.wait_for(_body(request, limit), server.queue.deadline)
        if not takes_body:
            if body.strip() not in (b"", b"{}"):
                raise Refusal(400, f"{operation.method} {operation.path} takes no body: the path names the document")
            return operation.input.model_validate({**_from_url(request), **named})
        if not named:
            return operation.input.model_validate_json(body or b"{}", strict=True)
        value = json.loads(body or b"{}")
        return operation.input.model_validate({**value, **named} if isinstance(value, dict) else value, strict=True)
    except ValidationError as error:
        raise invalid(error) from None
    except TimeoutError:
        raise Refusal(408, f"the body did not come within {server.queue.deadline:g} s") from None
    except (ValueError, RecursionError):
        raise Refusal(400, "the body is not JSON") from None


def _check_no_fields_in_url(operation: Operation, request: Request) -> None:
    """Refuse fields in the URL of an operation that reads them from the body."""
    names = {"query" if name == "q" else name for name in request.query_params}
    if misplaced := names.intersection(operation.input.model_fields):
        raise Refusal(400, f"{min(misplaced)} stands in the URL: {operation.method} reads it from the body")
    if names and operation.is_of_index:  # clients of OpenAI may send the version of its API
        raise Refusal(400, f"{min(names)} stands in the URL, and {operation.method} has no such field")


def _from_url(request: Request) -> dict[str, Any]:
    """Read the parameters of a URL; `q` is short for `query`, and JSON begins with `{`."""
    values: dict[str, Any] = {}
    for name, text in request.query_params.multi_items():
        name = "query" if name == "q" else name  # noqa: PLW2901
        if name == "where":
            values.setdefault(name, []).append(_filter_in_url(text))
        elif name in _LISTS:
            values.setdefault(name, []).append(text)
        elif name in values:
            raise Refusal(400, f"{name} came twice: expected one value")
        else:
            values[name] = text
    return values


def _filter_in_url(text: str) -> Any:
    if not text.lstrip().startswith("{"):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise Refusal(400, "where begins with '{' but is not JSON") from None


async def _body(request: Request, limit: int) -> bytes:
    """Read a body of at most `limit` bytes."""
    length = request.headers.get("content-length", "0")
    too_large = Refusal(413, f"the body is larger than {limit:,} bytes", {"Connection": "close"})
    if length.isdecimal() and int(length) > limit:
        raise too_large
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > limit:
            raise too_large
        pieces.append(piece)
    return b"".join(pieces)


def _metrics(server: Server, names: Iterable[str]) -> str:
    """Write the metrics of the server and of these indexes."""
    queue, indexes = server.queue, server.served.indexes
    commits = [({"index": name}, float(indexes[name].commits)) for name in names]
    gauges: list[tuple[str, str, list[tuple[dict[str, str], float]]]] = [
        ("binocle_requests_pending", "Requests at work and waiting.", [({}, queue.pending)]),
        ("binocle_requests_refused_total", "Requests refused because too many wait.", [({}, queue.refused)]),
        ("binocle_requests_late_total", "Requests that passed their deadline.", [({}, queue.late)]),
        ("binocle_index_commits", "Commits of the state of each index that the last request read.", commits),
        ("binocle_info", "The version of Binocle.", [({"version": __version__}, 1)]),
    ]
    return server.metrics.write(gauges)


# Refusals


def _path(request: Request) -> str:
    """The path of a request, without the prefix that an outer application serves this server under."""
    path: str = request.scope["path"]
    return path.removeprefix(request.scope.get("root_path", ""))


async def _refused(request: Request, refusal: Refusal) -> Response:
    return problem(refusal.status, refusal.detail, refusal.headers, path=_path(request))


async def _refused_by_engine(request: Request, error: BinocleError) -> Response:
    return await _refused(request, refusal_of(error))


async def _not_routed(request: Request, error: HTTPException) -> Response:
    path = " ".join(_path(request)[:200].split())
    detail = {404: f"there is no {path}: /openapi.json lists what there is"}.get(error.status_code)
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        detail = f"{path} does not take {request.method}: expected one of {allowed}"
    return problem(error.status_code, detail or error.detail, dict(error.headers or {}), path=path)


async def _gone(request: Request, _: ClientDisconnect) -> Response:
    return problem(400, "the client closed the connection", {}, path=_path(request))


async def _failed(request: Request, _: Exception) -> Response:
    return problem(500, "this request failed: the server's log says why", {}, path=_path(request))


_ANSWERS: Mapping[Any, Any] = {  # to each kind of error
    Refusal: _refused,
    HTTPException: _not_routed,
    BinocleError: _refused_by_engine,
    ClientDisconnect: _gone,
    Exception: _failed,
}


def problem(status: int, detail: str, headers: Mapping[str, str], *, path: str) -> Response:
    """Return a refusal as problem details, with the fields that clients of OpenAI or Cohere read."""
    phrase = "Client Closed Request" if status == 499 else HTTPStatus(status).phrase
    body: dict[str, Any] = {"type": "about:blank", "title": phrase, "status": status, "detail": detail}
    if path.startswith("/v1/"):
        kind = "server_error" if status >= 500 else "invalid_request_error"
        body["error"] = {"message": detail, "type": kind, "param": None, "code": None}
    if path.startswith("/v2/"):
        body["message"] = detail
    return JSONResponse(body, status, headers, media_type="application/problem+json")


class _Gate:
    """Check the host and the origin of every request, and add headers and metrics; an error never shows a traceback."""

    def __init__(self, routed: Starlette, server: Server) -> None:
        self._routed = routed
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._routed(scope, receive, send)
            return
        start, status, request = time.perf_counter(), 0, Request(scope)
        extra = [(name.encode(), value.encode()) for name, value in self._headers(request).items()]

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *extra]
            await send(message)

        try:
            await self._guarded(request, receive, answer)
        finally:
            route = scope.get("route")
            path = route.path.replace("{id:anything}", "{id}") if route else "other"
            self._server.metrics.count(path, status or 499, time.perf_counter() - start)

    async def _guarded(self, request: Request, receive: Receive, answer: Send) -> None:
        try:
            self._server.access.check_site(request.headers)
            if request.method == "OPTIONS" and "origin" in request.headers:
                await Response(status_code=204)(request.scope, receive, answer)
                return
            await self._routed(request.scope, receive, answer)
        except Refusal as refusal:
            await (await _refused(request, refusal))(request.scope, receive, answer)
        except Exception:  # noqa: BLE001 - its answer, `_failed`, was sent
            _LOG.exception("a request to %s failed", request.url.path)

    def _headers(self, request: Request) -> dict[str, str]:
        origin = request.headers.get("origin", "")
        if origin not in self._server.access.origins:
            return _EVERY_ANSWER
        return _EVERY_ANSWER | {
            "Access-Control-Allow-Origin": origin,
            "Access-Control-Allow-Methods": "GET, POST, PATCH, DELETE",
            "Access-Control-Allow-Headers": "Authorization, Content-Type, If-None-Match",
            "Access-Control-Expose-Headers": "ETag, Retry-After",
            "Access-Control-Max-Age": "600",
        }
