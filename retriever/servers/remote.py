"""A client of `binocle serve`, for programs that search an index of another process or machine.

Its methods and their results are those of `Retriever`, as far as the server offers them.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import ssl
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, overload
from urllib.parse import SplitResult, quote, urlsplit

import numpy as np
from numpy.typing import ArrayLike

from ...core.checks import is_real, is_whole, listed
from ...core.errors import (
    BinocleError,
    DeadlineError,
    InputError,
    LockedError,
    NotFoundError,
    StoreError,
    UntrustedError,
)
from ...core.version import __version__
from ...core.words import encodable
from ..asynchronous import AsyncWrites, CallPool, from_now
from ..documents.metadata import plain
from ..indexing.report import Failure, Report
from ..reads import facet_keys, first_and_last
from ..search.arguments import check_queries
from ..search.context import Context
from ..search.deadline import Deadline
from ..search.options import ChoiceOptions, PackingOptions
from ..search.results.hit import Copy, Hit
from ..search.results.hits import Hits
from ..search.results.passage import Passage
from ..store.filters.where import Where, among, parse
from ..store.records import Facet, Record, name_of
from .limits import MAX_BODY, MAX_DEPTH, MAX_QUERIES

if TYPE_CHECKING:
    from ..store.records import Id

_T = TypeVar("_T")

_THREADS = 32  # of async calls, which wait for the server
_UNKNOWN = -1  # the row ids of a hit, which a server keeps to itself
_PAGE = 1_000  # documents of one request
_ERRORS: dict[int, type[BinocleError]] = {
    404: NotFoundError,
    409: LockedError,
    401: UntrustedError,
    403: UntrustedError,
}


class RemoteSearchOptions(ChoiceOptions, total=False):
    """The options of one query to a server, except its filter."""

    vector: ArrayLike | None
    ids: Iterable[str | os.PathLike[str]] | None
    rerank: bool
    deadline: float | None


class RemoteContextOptions(PackingOptions, total=False):
    """The options of a context from a server, except its filter."""

    rerank: bool


class RemoteRetriever(AsyncWrites):
    """An index that a server answers for. Threads and forked processes may share it.

    >>> remote = RemoteRetriever("http://127.0.0.1:8420")  # doctest: +SKIP
    >>> remote.search("how do I cancel a task?", k=3)  # doctest: +SKIP

    Each method raises the errors of `Retriever`: `InputError` for a bad argument, `NotFoundError`, `LockedError`,
    `UntrustedError` when the token does not allow it, `DeadlineError` when no answer comes in time, and `StoreError`
    when no server answers.
    """

    def __init__(self, url: str, *, token: str | None = None, index: str | None = None, seconds: float = 60.0) -> None:
        """Name a server; nothing is sent yet.

        :param url: its address, such as `http://127.0.0.1:8420`.
        :param token: one of the file that `binocle serve --tokens` names.
        :param index: the name of one of its indexes; by default the first one.
        :param seconds: to wait for each answer.
        :raises InputError: when one of them cannot be used.
        """
        parts = _address(url)
        _check_token(token)
        if index is not None and (not isinstance(index, str) or not index):
            raise InputError(f"index is the name of an index of the server, not {index!r}")
        if not is_real(seconds) or seconds <= 0:
            raise InputError(f"seconds is the time to wait for an answer, a number above 0, not {seconds!r}")
        self.url = url.rstrip("/")
        self._parts = parts
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        self._prefix = parts.path.rstrip("/") + (f"/indexes/{_quoted(index)}" if index is not None else "")
        self._seconds = seconds
        self._idle: deque[http.client.HTTPConnection] = deque()  # connections that no call uses
        self._process = os.getpid()
        self._calls = CallPool(_THREADS)

    # Searching

    def search(
        self,
        query: str | None = None,
        k: int = 10,
        *,
        vector: ArrayLike | None = None,
        where: Where = None,
        ids: Iterable[str | os.PathLike[str]] | None = None,
        rerank: bool = False,
        deadline: float | None = None,
        **options: Unpack[ChoiceOptions],
    ) -> Hits:
        """Return the k best passages, as `Retriever.search` does.

        :param rerank: with the server's reranker.
        :param deadline: the seconds that the server may take; its own deadline still holds.
        :param options: as in `Retriever.search`.
        """
        body = {"query": _encodable(query), "vector": vector, **_search_body(k, where, ids, rerank, deadline, options)}
        return self._ask(_hits, "POST", "/search", body)

    def search_many(
        self,
        texts: Iterable[str] | None = None,
        k: int = 10,
        *,
        vectors: ArrayLike | None = None,
        where: Where = None,
        ids: Iterable[str | os.PathLike[str]] | None = None,
        rerank: bool = False,
        deadline: float | None = None,
        **options: Unpack[ChoiceOptions],
    ) -> list[Hits]:
        """Return the hits of each query, the same as `search` returns; many queries are several requests.

        :param vectors: the vector of each query, with the texts or instead of them.
        :param deadline: the seconds that the server may take for all of them together.
        """
        pairs, end = list(check_queries(texts, vectors)), Deadline.after(deadline)
        body = _search_body(k, where, ids, rerank, None, options)
        answers: list[Hits] = []
        for some_texts, some_vectors in _requests(pairs, body):
            queries = {"queries": some_texts, "vectors": some_vectors, "deadline": _seconds_left(end)}
            answers += self._ask(_all_hits, "POST", "/search/many", body | queries)
        return answers

    async def asearch(
        self, query: str | None = None, k: int = 10, *, where: Where = None, **options: Unpack[RemoteSearchOptions]
    ) -> Hits:
        """Await `search` in a thread; the wait for a thread counts towards the `deadline`."""
        return await self._calls.run(self.search, query, k, where=where, **from_now(options))

    async def acontext(self, query: str, *, where: Where = None, **options: Unpack[RemoteContextOptions]) -> Context:
        """Await `context` in a thread; the wait for a thread counts towards the `deadline`."""
        return await self._calls.run(self.context, query, where=where, **from_now(options))

    def similar(self, path: str | os.PathLike[str], line: int, k: int = 10, *, where: Where = None) -> Hits:
        """Return the k passages most similar to the passage at a line of a document, without itself."""
        return self._ask(_hits, "POST", "/similar", {"path": path, "line": line, "k": k, "where": _sent(where)})

    def context(
        self,
        query: str,
        *,
        where: Where = None,
        rerank: bool = False,
        **options: Unpack[PackingOptions],
    ) -> Context:
        """Pack the best passages for a prompt, as `Retriever.context` does; its passages do not name their hits.

        :param rerank: with the server's reranker.
        :param options: as in `Retriever.context`; the tokens are those of the encoder.
        """
        body = {"query": _encodable(query), "where": _sent(where), "rerank": rerank, **options}
        body |= {"deadline": _seconds_left(options.get("deadline"))}
        return self._ask(partial(_context, query=query), "POST", "/context", body)

    # Documents

    @overload
    def get(self, ids: Id) -> Record: ...  # type: ignore[overload-overlap]

    @overload
    def get(self, ids: Iterable[Id]) -> list[Record]: ...

    def get(self, ids: Id | Iterable[Id]) -> Record | list[Record]:
        """Return a document by its id or path, or several in the order of their ids, with a request for each.

        :raises NotFoundError: when one is not there.
        """
        if isinstance(ids, (str, os.PathLike)) or not isinstance(ids, Iterable):
            return self._ask(_record, "GET", f"/documents/{_quoted(name_of(ids))}")
        names = [name_of(name) for name in ids]
        return [self.get(name) for name in names]

    def count(self, where: Where = None) -> int:
        """Count the documents, or only documents that pass a filter."""
        return self._ask(lambda answer: int(answer["count"]), "GET", "/count", query={"where": _in_url(where)})

    def __contains__(self, name: object) -> bool:
        return isinstance(name, (str, os.PathLike)) and self.count(among(None, [name])) > 0

    def __len__(self) -> int:
        return self.count()

    def __bool__(self) -> bool:
        return True  # an index without documents is an index

    def text(self, path: str | os.PathLike[str], *, lines: tuple[int, int] | None = None) -> str:
        """Return the text of a document, or its lines from the first to the last, counted from 1."""
        query = None if lines is None else {"lines": "{}-{}".format(*first_and_last(lines))}
        return self._ask(lambda answer: str(answer["text"]), "GET", f"/documents/{_quoted(name_of(path))}", query=query)

    def iterate(self, where: Where = None, *, after: str | None = None, limit: int | None = None) -> Iterator[Record]:
        """Yield the documents that pass a filter, in order of id, with a page of them in memory at a time."""
        if limit is not None and not is_whole(limit, 0):
            raise InputError(f"limit is the number of documents, a whole number from 0, not {limit!r}")
        if after is not None and not isinstance(after, str):
            raise InputError(f"after is the id of a document, not {after!r}")
        return self._pages(where, after, float("inf") if limit is None else limit)

    def _pages(self, where: Where, after: str | None, remaining: float) -> Iterator[Record]:
        while remaining > 0:
            query = {"limit": min(_PAGE, remaining), "text": "true", "after": after, "where": _in_url(where)}
            page, after = self._ask(_page, "GET", "/documents", query=query)
            yield from page
            remaining -= len(page)
            if after is None:
                return

    def facets(self, fields: str | Iterable[str], where: Where = None) -> dict[str, Facet]:
        """Return the values that documents have under some keys, with counts."""
        query = {"facets": facet_keys(fields), "where": _in_url(where)}
        return self._ask(_facets, "GET", "/facets", query=query)

    def add(
        self,
        documents: Iterable[Mapping[str, Any]],
        *,
        if_exists: Literal["replace", "skip", "fail"] = "replace",
        on_error: Literal["stop", "skip"] = "stop",
    ) -> Report:
        """Add documents, or replace documents with the same id; the server must allow it."""
        rows = [_document(number, row) for number, row in enumerate(listed(documents, "documents"))]
        body = {"documents": rows, "if_exists": if_exists, "on_error": on_error}
        return self._write("POST", body)

    def update(
        self,
        ids: Iterable[str | os.PathLike[str]] | None = None,
        *,
        metadata: Mapping[str, Any],
        where: Where = None,
        mode: Literal["merge", "replace"] = "merge",
    ) -> Report:
        """Change the metadata of added documents."""
        names = [] if ids is None else listed(ids, "documents")
        body = {"ids": names, "metadata": _plain_values(metadata), "where": _sent(where), "mode": mode}
        return self._write("PATCH", body)

    def delete(
        self, *ids: str | os.PathLike[str], where: Where = None, erase: bool | Literal["later"] = False
    ) -> Report:
        """Remove documents by id or by a filter.

        :param erase: erase texts and vectors from the server's disk: now, or "later", as in `Retriever.delete`.
        """
        return self._write("DELETE", {"ids": list(ids), "where": _sent(where), "erase": erase or None})

    def status(self) -> dict[str, Any]:
        """Return the name of the index, its version, documents by state, passages and encoder."""
        return self._ask(dict, "GET", "/status")

    # The connection

    def close(self) -> None:
        """Wait for async calls, and close the connections; a later call opens another one."""
        self._calls.close()
        while self._idle:
            self._idle.pop().close()

    def __del__(self) -> None:
        while hasattr(self, "_idle") and self._idle:
            self._idle.pop().close()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_idle": deque(), "_calls": None}  # another process has its own connections and threads

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _calls=CallPool(_THREADS))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<RemoteRetriever of {self.url}>"

    def _write(self, method: str, body: Mapping[str, Any]) -> Report:
        return self._ask(_report, method, "/documents", body, is_write=True)

    def _ask(
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
        """
        pairs = [(name, value) for name, values in (query or {}).items() for value in _values(values)]
        url = (
            self._prefix + path + ("?" + "&".join(f"{name}={_quoted(value)}" for name, value in pairs) if pairs else "")
        )
        values = None if body is None else {name: value for name, value in body.items() if value is not None}
        content = None if values is None else _json(values)
        try:
            status, answer, is_late = self._exchange(method, url, content, is_write=is_write)
        except TimeoutError:
            raise DeadlineError(f"{self.url} gave no answer within {self._seconds:g} seconds") from None
        except (OSError, http.client.HTTPException) as error:
            raise StoreError(f"no server answers at {self.url}: {error}: is 'binocle serve' running there?") from None
        fields = _checked(self.url, status, answer, is_late=is_late)
        try:
            return read(fields)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise StoreError(
                f"{self.url} answered {method} {path} with other fields: expected the address of 'binocle serve', of "
                f"version {__version__}"
            ) from None

    def _exchange(self, method: str, url: str, content: str | None, *, is_write: bool) -> tuple[int, bytes, bool]:
        """Send a request; on a new connection if the server had closed the old one, as it does after some seconds.

        A write always has a new connection and is sent once: where an old one breaks, the server may have written.
        """
        if self._process != os.getpid():  # forked: the answers on the connections are for the other process
            self._process, self._idle = os.getpid(), deque()
        while self._idle and not is_write:
            with contextlib.suppress(ConnectionError, http.client.RemoteDisconnected):
                return self._exchange_over(self._idle.pop(), method, url, content)
        return self._exchange_over(self._connect(), method, url, content)

    def _exchange_over(
        self, connection: http.client.HTTPConnection, method: str, url: str, content: str | None
    ) -> tuple[int, bytes, bool]:
        try:
            connection.request(method, url, content, self._headers)
            response = connection.getresponse()
            is_late = response.status == 503 and response.getheader("Retry-After") is not None
            answer = response.status, response.read(), is_late
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        return answer

    def _connect(self) -> http.client.HTTPConnection:
        host, port = str(self._parts.hostname), self._parts.port
        if self._parts.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=self._seconds)
        return http.client.HTTPSConnection(host, port, timeout=self._seconds, context=ssl.create_default_context())


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


def _address(url: Any) -> SplitResult:
    """Return the parts of a server's address.

    :raises InputError: when it is none, or has parts that no request would send; it may hold a password.
    """
    parts = urlsplit(url) if isinstance(url, str) else None
    if parts is not None and (parts.username is not None or parts.query or parts.fragment):
        raise InputError("the address of a server has no user, password, ? or #: who may ask is said by token=")
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname or not _has_port(parts):
        raise InputError(f"{url!r} is not the address of a server: expected one such as http://127.0.0.1:8420")
    return parts


def _check_token(token: Any) -> None:
    """Check a token, which no message may show."""
    if token is not None and not (isinstance(token, str) and token.isascii() and token.isprintable()):
        raise InputError("token is a text of ASCII letters, digits and signs in one line, and this one is not")


def _has_port(address: SplitResult) -> bool:
    """Whether an address has a port that can be, or none."""
    try:
        return address.port is None or address.port > 0
    except ValueError:
        return False


def _document(number: int, document: Any) -> dict[str, Any]:
    """Return a document as JSON has it: dates as texts. The id stays: another one might be that of a document."""
    if not isinstance(document, Mapping):
        raise InputError(f"document {number} is of type {type(document).__name__}: expected a mapping with 'text'")
    fields = {name: value if name == "id" else _encodable(value) for name, value in document.items()}
    metadata = document.get("metadata")
    return fields | ({"metadata": _plain_values(metadata)} if isinstance(metadata, Mapping) else {})


def _plain_values(metadata: Any) -> dict[str, Any]:
    if not isinstance(metadata, Mapping):
        raise InputError(f"metadata is a mapping of keys to values, not {metadata!r:.80}")
    for key in metadata:
        if not isinstance(key, str):
            raise InputError(f"metadata has the key {key!r:.80}: expected texts as keys")
    return {encodable(key): _encodable(plain(value)) for key, value in metadata.items()}


def _encodable(value: Any) -> Any:
    """Replace half characters in a text or a list of texts, as `Retriever` does; return any other value unchanged."""
    if isinstance(value, list):
        return [_encodable(member) for member in value]
    return encodable(value) if isinstance(value, str) else value


def _quoted(text: str) -> str:
    """A text as a part of a URL."""
    return quote(text, safe="", errors="surrogatepass")


def _search_body(
    k: int,
    where: Where,
    ids: Iterable[str | os.PathLike[str]] | None,
    rerank: bool,
    deadline: float | None,
    options: ChoiceOptions,
) -> dict[str, Any]:
    fields = {"k": k, "where": _sent(among(where, ids)), "rerank": rerank, "explain": True}
    return {**fields, **options, "deadline": _seconds_left(deadline)}


def _seconds_left(deadline: float | Deadline | None) -> float | None:
    """Return the seconds to send.

    :raises DeadlineError: when they are over, because the call waited for a thread or for other requests.
    """
    if not isinstance(deadline, Deadline):
        return deadline
    deadline.check("request")
    return deadline.remaining


def _requests(
    pairs: Sequence[tuple[str | None, Any]], body: Mapping[str, Any]
) -> Iterator[tuple[list[Any] | None, list[Any] | None]]:
    """Yield the texts and the vectors of one request after another, as many as a server takes at once.

    :param body: the other fields of each request.
    """
    depths: list[Any] = [body["k"], body.get("offset")]
    depth = sum(number for number in depths if is_whole(number, 1))
    limit = max(1, min(MAX_QUERIES, MAX_DEPTH // max(1, depth)))
    room = MAX_BODY - len(_json(body)) - 1_000  # of the names of fields
    batch: list[tuple[Any, Any]] = []
    size = 0
    for text, vector in pairs:
        pair = _encodable(text), vector
        characters = len(_json(pair))
        if batch and (len(batch) == limit or size + characters > room):
            yield _columns(batch)
            batch, size = [], 0
        batch.append(pair)
        size += characters
    if batch:
        yield _columns(batch)


def _columns(pairs: Sequence[tuple[Any, Any]]) -> tuple[list[Any] | None, list[Any] | None]:
    """The texts and the vectors, or None for a column that has none."""
    texts, vectors = ([pair[column] for pair in pairs] for column in (0, 1))
    return (
        None if all(text is None for text in texts) else texts,
        None if all(vector is None for vector in vectors) else vectors,
    )


def _json(value: Any) -> str:
    """:raises InputError: when a value cannot be written as JSON."""
    try:
        return json.dumps(value, default=_plain_value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"the request cannot be written as JSON: {error}") from None


def _plain_value(value: Any) -> Any:
    """Return a path, or a number or an array of numpy or of a library like it, as JSON has it."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if not hasattr(value, "tolist"):
        raise TypeError(f"it has a value of type {type(value).__name__}")
    return value.tolist()


def _sent(where: Where) -> dict[str, Any] | None:
    conditions = parse(where)
    return None if conditions is None else conditions.to_json()


def _in_url(where: Where) -> str | None:
    value = _sent(where)
    return None if value is None else json.dumps(value)


def _values(value: Any) -> list[str]:
    """The values of a parameter in a URL; none for None."""
    return [] if value is None else list(value) if isinstance(value, list) else [str(value)]


def _hits(answer: Mapping[str, Any]) -> Hits:
    hits = [_hit(row) for row in answer["hits"]]
    return Hits(
        hits,
        answerable=answer["answerable"],
        corrections=answer["corrections"],
        version=answer["commits"] or 0,
        total=answer["total"],
    )


def _all_hits(answer: Mapping[str, Any]) -> list[Hits]:
    return list(map(_hits, answer["results"]))


def _hit(row: Mapping[str, Any]) -> Hit:
    copies = tuple(Copy(**{**copy, "heading": tuple(copy["heading"])}, passage=_UNKNOWN) for copy in row["copies"])
    tuples = {name: tuple(row[name]) for name in ("heading", "symbols")}
    tuples |= {"hidden": tuple(map(tuple, row["hidden"])), "copies": copies, "parts": tuple(map(_hit, row["parts"]))}
    fields = {name: value for name, value in row.items() if name != "highlights"} | tuples
    if row.get("vector") is not None:
        fields["vector"] = np.array(row["vector"], np.float32)
    return Hit(**{**fields, "explanation": row.get("explanation") or {}}, document_row=_UNKNOWN, passage=_UNKNOWN)


def _passage(source: Mapping[str, Any]) -> Passage:
    fields = {name: value for name, value in source.items() if name != "citation"}
    tuples = {"heading": tuple(source["heading"]), "hidden": tuple(map(tuple, source["hidden"]))}
    return Passage(**fields | tuples, hits=())


def _context(answer: Mapping[str, Any], query: str) -> Context:
    passages = tuple(map(_passage, answer["sources"]))
    return Context(answer["text"], passages, answer["tokens"], query, answer.get("answerable"))


def _page(answer: Mapping[str, Any]) -> tuple[list[Record], str | None]:
    return [_record(row) for row in answer["documents"]], answer["next_after"]


def _facets(answer: Mapping[str, Any]) -> dict[str, Facet]:
    return {key: _facet(facet) for key, facet in answer["facets"].items()}


def _record(row: Mapping[str, Any]) -> Record:
    return Record(**{**row, "text": row.get("text") or ""})


def _facet(row: Mapping[str, Any]) -> Facet:
    return Facet(**{**row, "counts": tuple((count["value"], count["count"]) for count in row["counts"])})


def _report(row: Mapping[str, Any]) -> Report:
    return Report(**{**row, "failures": [Failure(**failure) for failure in row["failures"]]})
