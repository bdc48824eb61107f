"""The indexes of a server, and a caller: the part of one index that its token reaches."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ....core.errors import InputError
from ....core.version import __version__
from ...models.encoder import encode_finite
from ...search.deadline import Deadline
from ...search.words.documents_language import unread_language
from ...store.filters.filter import Within
from .maps import Maps
from .refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ....core.arrays import Floats
    from ...inspection.collection_map import CollectionMap
    from ...models.encoder import Kind
    from ...models.reranker import Reranker
    from ...retriever import Retriever
    from ...scope import Scope
    from ...store.filters.filter import Filter
    from ...store.head import Head
    from ...store.snapshot import Snapshot
    from .access import Token


_BATCH = 64  # texts that a model reads between two looks at the clock
_VISIBLE_COLUMNS = [  # columns of a document that its reader sees, or filters by
    *("path", "source", "state", "reason", "size", "mtime_ns", "sha256", "format", "title", "metadata", "chunks")
]


class ServedIndex:
    """An index under its name."""

    def __init__(self, name: str, retriever: Retriever) -> None:
        self.name = name
        self.retriever = retriever
        self._versions: tuple[Head | None, dict[bytes, str]] = (None, {})  # of one state, by token
        self._language: tuple[Head | None, str | None] = (None, None)  # of one state

    def unread_language(self, snapshot: Snapshot) -> str | None:
        """The language of most of the text if the encoder does not read it; a state is measured once."""
        head, language = self._language
        if head is not snapshot.head:
            language = unread_language(snapshot)
            self._language = snapshot.head, language
        return language

    def version(self, snapshot: Snapshot, token: Token) -> str:
        """A text that changes with every commit; for a token with a scope, only with its documents and the encoder.

        So nobody learns by it when others work.
        """
        head, versions = self._versions
        if head is not snapshot.head:
            self._versions = head, versions = snapshot.head, {}
        where, key = token.where, b"" if token.where is None else token.digest
        if key not in versions:
            content = repr(head) if where is None else f"{head.encoder!r}\n{_digest(snapshot, where)}"
            versions[key] = hashlib.sha256(f"{self.name}\n{content}".encode()).hexdigest()
        return versions[key]

    @property
    def commits(self) -> int:
        """The number of commits of the state that the last request read; 0 before the first request."""
        head = self._versions[0]
        return 0 if head is None else head.commits


def _digest(snapshot: Snapshot, where: Filter) -> str:
    """A checksum of the documents that pass a filter, in order of path."""
    rows = snapshot.document_rows.select(_VISIBLE_COLUMNS).filter(snapshot.select(Within(where, None)))
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, rows.schema) as writer:
        writer.write_table(rows.sort_by([("path", "ascending"), ("source", "ascending")]).combine_chunks())
    return hashlib.sha256(stream.getvalue()).hexdigest()


@dataclass(frozen=True, slots=True)
class Served:
    """The indexes of a server by name (the first is the default), its reranker, whether it writes, and its maps."""

    indexes: dict[str, ServedIndex]
    reranker: Reranker | None = None
    writable: bool = False
    maps: Maps = field(default_factory=Maps)

    @property
    def reranker_name(self) -> str | None:
        """The folder or name of the reranker."""
        return None if self.reranker is None else self.reranker.name

    def names(self, token: Token) -> list[str]:
        """The indexes that a token reaches."""
        return [name for name in self.indexes if token.indexes is None or name in token.indexes]

    def caller(self, token: Token, name: str | None, deadline: Deadline | None = None) -> Caller:
        """The caller of an index.

        :param name: of the index; None: the first one that the token reaches.
        :param deadline: the moment after which nobody waits for the answer.
        :raises Refusal: 404 when it reaches no index of this name.
        """
        names = self.names(token)
        if name is not None and name not in names:
            raise Refusal(404, f"there is no index {name[:200]!r} here: expected one of {', '.join(names)}")
        if not names:
            raise Refusal(403, "this token reaches no index of this server")
        return Caller(self, self.indexes[name or names[0]], token, deadline)


@dataclass(frozen=True)
class Caller:
    """One index for one request."""

    server: Served
    index: ServedIndex
    token: Token
    deadline: Deadline | None = None

    def version(self, snapshot: Snapshot) -> str:
        """A text that changes with everything that an answer depends on: the documents, the server, the token."""
        server, token = self.server, self.token
        options = (__version__, server.reranker_name, self.may_write, server.names(token))
        version = self.index.version(snapshot, token)
        return hashlib.sha256(f"{version}\n{options!r}".encode()).hexdigest()[:24]

    def etag(self, snapshot: Snapshot) -> str:
        """A text that changes with the version, and when the map of the collection is there."""
        return f"{self.version(snapshot)}-{self.server.maps.version(self.map_key)[:8]}"

    @property
    def map_key(self) -> tuple[str, bytes]:
        """The key of the map of the documents that the token reaches."""
        return self.index.name, b"" if self.token.where is None else self.token.digest

    def map(self, *, draw: bool = False) -> tuple[CollectionMap | None, Snapshot, bool]:
        """The map of the documents that the token reaches, if it is there, and the state of the index now.

        :param draw: otherwise draw it in the background.
        :returns: the map, the state, and whether the map is of this state.
        :raises BinocleError: when it could not be drawn.
        """
        maps, snapshot = self.server.maps, self.retriever.snapshot()
        version = self.index.version(snapshot, self.token)
        if draw:
            maps.request(self.map_key, version, snapshot, self.inside(None))
        return maps.get(self.map_key, snapshot), snapshot, maps.version(self.map_key) == version

    def seconds(self, stage: str) -> float | None:
        """The seconds that are left; None if there is no deadline.

        :raises DeadlineError: when there are none.
        """
        if self.deadline is None:
            return None
        self.deadline.check(stage)
        return self.deadline.remaining

    def search_deadline(self, seconds: float | None) -> Deadline | None:
        """The deadline of a search: that of the server, or the request's own if that is sooner; None without any.

        :param seconds: of the request, from its arrival.
        :raises DeadlineError: when the time is over.
        """
        deadline = Deadline.after(seconds) if self.deadline is None else self.deadline.or_sooner(seconds)
        if deadline:
            deadline.check("search")
        return deadline

    def batches(self, texts: list[str]) -> Iterator[list[str]]:
        """Divide texts for a model, as long as there is time.

        :raises DeadlineError: when there is none.
        """
        for start in range(0, len(texts), _BATCH):
            self.seconds("models")
            yield texts[start : start + _BATCH]

    def encode(self, texts: list[str], kind: Kind = "document") -> Floats:
        """Encode texts with the encoder of the index; shape (texts, dim)."""
        encoder = self.retriever.encoder
        return np.concatenate([encode_finite(encoder, part, kind=kind) for part in self.batches(texts)])

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
