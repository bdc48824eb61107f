"""RemoteRetriever: the methods and results of `Retriever`, as far as a server offers them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, overload

from numpy.typing import ArrayLike

from ....core.checks import is_real, is_whole, listed
from ....core.errors import BinocleError, InputError
from ...asynchronous import AsyncWrites, CallPool, from_now
from ...indexing.report import Report
from ...reads import facet_keys, first_and_last
from ...search.arguments import check_queries
from ...search.context import Context
from ...search.deadline import Deadline
from ...search.results.hits import Hits
from ...search.search_options import ChoiceOptions, PackingOptions
from ...store.filters.where import Where, among
from ...store.records import Facet, Record, name_of
from ..limits import MAX_DOCUMENTS
from . import responses
from .connections import Connections, address_of, check_token
from .requests import (
    batches,
    document_batches,
    document_fields,
    encodable_values,
    filter_fields,
    filter_in_url,
    metadata_fields,
    quoted,
    search_body,
    seconds_left,
)

if TYPE_CHECKING:
    from ...store.records import Id

_THREADS = 32  # of async calls, which wait for the server


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
        :param seconds: to wait for each answer, its last byte included.
        :raises InputError: when one of them cannot be used.
        """
        address = address_of(url)
        check_token(token)
        if index is not None and (not isinstance(index, str) or not index):
            raise InputError(f"index is the name of an index of the server, not {index!r}")
        if not is_real(seconds) or seconds <= 0:
            raise InputError(f"seconds is the time to wait for an answer, a number above 0, not {seconds!r}")
        self.url = url.rstrip("/")
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        prefix = address.path.rstrip("/") + (f"/indexes/{quoted(index)}" if index is not None else "")
        self._connections = Connections(self.url, address, prefix, headers, seconds)
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
        body = {
            "query": encodable_values(query),
            "vector": vector,
            **search_body(k, where, ids, rerank, deadline, options),
        }
        return self._connections.ask(responses.hits, "POST", "/search", body)

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
        """Return the hits of each query, the same as `search` returns; many queries take several requests.

        :param vectors: the vector of each query, shape (queries, dim), with the texts or instead of them.
        :param deadline: the seconds that the server may take for all of them together.
        """
        pairs, end = list(check_queries(texts, vectors)), Deadline.after(deadline)
        body = search_body(k, where, ids, rerank, None, options)
        hits: list[Hits] = []
        for batch_texts, batch_vectors in batches(pairs, body):
            queries = {"queries": batch_texts, "vectors": batch_vectors, "deadline": seconds_left(end)}
            hits += self._connections.ask(responses.all_hits, "POST", "/search/many", body | queries)
        return hits

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
        return self._connections.ask(
            responses.hits, "POST", "/similar", {"path": path, "line": line, "k": k, "where": filter_fields(where)}
        )

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
        body = {"query": encodable_values(query), "where": filter_fields(where), "rerank": rerank, **options}
        body |= {"deadline": seconds_left(options.get("deadline"))}
        return self._connections.ask(partial(responses.context, query=query), "POST", "/context", body)

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
            return self._connections.ask(responses.record, "GET", f"/documents/{quoted(name_of(ids))}")
        names = [name_of(name) for name in ids]
        return [self.get(name) for name in names]

    def count(self, where: Where = None) -> int:
        """Count the documents, or only documents that pass a filter."""
        return self._connections.ask(
            lambda answer: int(answer["count"]), "GET", "/count", query={"where": filter_in_url(where)}
        )

    def __contains__(self, name: object) -> bool:
        return isinstance(name, (str, os.PathLike)) and self.count(among(None, [name])) > 0

    def __len__(self) -> int:
        return self.count()

    def __bool__(self) -> bool:
        return True  # an index without documents is an index

    def text(self, path: str | os.PathLike[str], *, lines: tuple[int, int] | None = None) -> str:
        """Return the text of a document, or its lines from the first to the last, counted from 1.

        :raises NotFoundError: when the document is not there.
        :raises InputError: when it has no text, or not these lines.
        """
        query = None if lines is None else {"lines": "{}-{}".format(*first_and_last(lines))}
        return self._connections.ask(
            lambda answer: str(answer["text"]), "GET", f"/documents/{quoted(name_of(path))}", query=query
        )

    def iterate(self, where: Where = None, *, after: str | None = None, limit: int | None = None) -> Iterator[Record]:
        """Yield the documents that pass a filter, in order of id, with a page of 1,000 in memory at a time.

        :param after: begin after this id.
        :param limit: the number of documents at most.
        """
        if limit is not None and not is_whole(limit, 0):
            raise InputError(f"limit is the number of documents, a whole number from 0, not {limit!r}")
        if after is not None and not isinstance(after, str):
            raise InputError(f"after is the id of a document, not {after!r}")
        return self._pages(where, after, float("inf") if limit is None else limit)

    def _pages(self, where: Where, after: str | None, remaining: float) -> Iterator[Record]:
        while remaining > 0:
            query = {
                "limit": min(MAX_DOCUMENTS, remaining),
                "text": "true",
                "after": after,
                "where": filter_in_url(where),
            }
            page, after = self._connections.ask(responses.page, "GET", "/documents", query=query)
            yield from page
            remaining -= len(page)
            if after is None:
                return

    def facets(self, fields: str | Iterable[str], where: Where = None) -> dict[str, Facet]:
        """Return the values that documents have under some keys, with counts, as `Retriever.facets` does.

        :param where: count only documents that pass this filter.
        :raises InputError: when no document has a key.
        """
        query = {"facets": facet_keys(fields), "where": filter_in_url(where)}
        return self._connections.ask(responses.facets, "GET", "/facets", query=query)

    def add(
        self,
        documents: Iterable[Mapping[str, Any]],
        *,
        if_exists: Literal["replace", "skip", "fail"] = "replace",
        on_error: Literal["stop", "skip"] = "stop",
    ) -> Report:
        """Add documents, or replace documents with the same id; the server must allow it.

        Many documents are several requests. The report has no counts of passages and no seconds.

        :param documents: as in `Retriever.add`, and `if_exists` and `on_error` too. Values that JSON cannot have, such
            as bytes, and other things than mappings refuse all documents, also with `on_error="skip"`.
        :raises InputError: naming the first invalid document.
        :raises UntrustedError: when the server or the token only reads.
        :raises BinocleError: when a request is refused; its message says how many documents were sent before.
        """
        rows = [document_fields(number, row) for number, row in enumerate(listed(documents, "documents"))]
        report, sent = Report(), 0
        for batch in document_batches(rows):
            try:
                part = self._write("POST", {"documents": batch, "if_exists": if_exists, "on_error": on_error})
            except BinocleError as error:
                if not sent:
                    raise
                raise type(error)(
                    f"of the documents after the first {sent:,}, which were sent before: {error}"
                ) from None
            report = responses.joined(report, part, sent)
            sent += len(batch)
        return report

    def update(
        self,
        ids: Iterable[str | os.PathLike[str]] | None = None,
        *,
        metadata: Mapping[str, Any],
        where: Where = None,
        mode: Literal["merge", "replace"] = "merge",
    ) -> Report:
        """Change the metadata of added documents, as `Retriever.update` does.

        :param ids: the documents to change. With `where`, documents that pass the filter change too.
        :param metadata: new values. None removes a key.
        :param mode: "merge" keeps the other keys, "replace" does not.
        :raises NotFoundError: naming the first id that is not there.
        :raises UntrustedError: when the server or the token only reads.
        """
        names = [] if ids is None else listed(ids, "documents")
        body = {"ids": names, "metadata": metadata_fields(metadata), "where": filter_fields(where), "mode": mode}
        return self._write("PATCH", body)

    def delete(
        self, *ids: str | os.PathLike[str], where: Where = None, erase: bool | Literal["later"] = False
    ) -> Report:
        """Remove documents by id or by a filter. An id that is not there is no error.

        :param erase: erase texts and vectors from the server's disk: now, or "later", as in `Retriever.delete`.
        """
        return self._write("DELETE", {"ids": list(ids), "where": filter_fields(where), "erase": erase or None})

    def status(self) -> dict[str, Any]:
        """Return the name of the index, its version, documents by state, passages and encoder."""
        return self._connections.ask(dict, "GET", "/status")

    # The connection

    def close(self) -> None:
        """Wait for async calls, and close the connections; a later call opens another one."""
        self._calls.close()
        self._connections.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_calls": None}  # another process has its own threads

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _calls=CallPool(_THREADS))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<RemoteRetriever of {self.url}>"

    def _write(self, method: str, body: Mapping[str, Any]) -> Report:
        return self._connections.ask(responses.report, method, "/documents", body, is_write=True)
