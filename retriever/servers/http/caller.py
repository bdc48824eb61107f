"""The indexes of a server, and a caller: the part of one index that its token reaches."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ....core.errors import InputError
from ...store.filters.filter import Within
from .refusal import Refusal

if TYPE_CHECKING:
    from ...models.reranker import Reranker
    from ...retriever import Retriever
    from ...scope import Scope
    from ...store.filters.filter import Filter
    from ...store.head import Head
    from ...store.snapshot import Snapshot
    from .access import Token


class ServedIndex:
    """An index under its name."""

    def __init__(self, name: str, retriever: Retriever) -> None:
        self.name = name
        self.retriever = retriever
        self._version: tuple[Head, str] | None = None

    def version(self, snapshot: Snapshot) -> str:
        """A text that changes with every commit."""
        last, head = self._version, snapshot.head
        if last is None or last[0] is not head:
            digest = hashlib.sha256(f"{self.name}\n{head!r}".encode()).hexdigest()[:24]
            last = self._version = head, digest
        return last[1]

    @property
    def commits(self) -> int:
        """The number of commits of the state that the last request read; 0 before the first request."""
        return 0 if self._version is None else self._version[0].commits


@dataclass(frozen=True, slots=True)
class Served:
    """The indexes of a server by name (the first is the default), its reranker, and whether it writes."""

    indexes: dict[str, ServedIndex]
    reranker: Reranker | None = None
    writable: bool = False

    @property
    def reranker_name(self) -> str | None:
        """The folder or name of the reranker."""
        return None if self.reranker is None else self.reranker.name

    def names(self, token: Token) -> list[str]:
        """The indexes that a token reaches."""
        return [name for name in self.indexes if token.indexes is None or name in token.indexes]

    def caller(self, token: Token, name: str | None) -> Caller:
        """The caller of an index.

        :param name: of the index; None: the first one that the token reaches.
        :raises Refusal: 404 when it reaches no index of this name.
        """
        names = self.names(token)
        if name is not None and name not in names:
            raise Refusal(404, f"there is no index {name[:200]!r} here: expected one of {', '.join(names)}")
        if not names:
            raise Refusal(403, "this token reaches no index of this server")
        return Caller(self, self.indexes[name or names[0]], token)


@dataclass(frozen=True)
class Caller:
    """One index for one request."""

    server: Served
    index: ServedIndex
    token: Token

    @property
    def retriever(self) -> Retriever:
        """The whole index."""
        return self.index.retriever

    @cached_property
    def documents(self) -> Retriever | Scope:
        """The documents that the token reaches."""
        return self.retriever if self.token.where is None else self.retriever.scope(self.token.where)

    @property
    def may_write(self) -> bool:
        """Whether documents may be added and removed."""
        return self.server.writable and self.token.write

    def inside(self, where: Filter | None) -> Filter | None:
        """A filter, limited to the documents that the token reaches."""
        return where if self.token.where is None else Within(self.token.where, where)

    def reranker(self, *, requested: bool) -> Reranker | None:
        """The reranker, if the request asks for it.

        :raises InputError: when the server has none.
        """
        if requested and self.server.reranker is None:
            raise InputError("this server has no reranker: start it with --rerank MODEL")
        return self.server.reranker if requested else None

    def counts(self, snapshot: Snapshot) -> tuple[dict[str, int], int]:
        """The number of documents by state, and of passages."""
        rows = snapshot.document_rows
        if self.token.where is not None:
            rows = rows.filter(snapshot.select(Within(self.token.where, None)))
        states, numbers = np.unique(rows["state"].to_numpy(), return_counts=True)
        counts = dict(zip(states.tolist(), numbers.tolist(), strict=True))
        return {"indexed": 0, "skipped": 0, "failed": 0} | counts, int(rows["chunks"].to_numpy().sum())
