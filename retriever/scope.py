"""A part of an index that no caller can widen, such as the documents of one tenant."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import pyarrow as pa

from ..core.errors import InputError, NotFoundError
from .admission import completed_change, completed_document, faults_outside, stored_columns
from .asynchronous import AsyncCalls
from .indexing.add import Addition, AddPolicy, IfExists, OnError, check_documents
from .indexing.batch import Batch
from .indexing.delete import Erase, delete
from .indexing.report import DocumentError
from .indexing.update import Change, MetadataChange, update
from .reads import DocumentReads
from .search.results.currency import Currency, check_cited, check_passage
from .search.similar import check, similar
from .store import records
from .store.filters.fields import shown
from .store.filters.filter import Filter, Within
from .store.filters.where import parse

if TYPE_CHECKING:
    import os

    from numpy.typing import ArrayLike

    from ..core.arrays import Mask
    from .indexing.report import Report
    from .models.encoder import Encoder
    from .models.heads.reader import Reader
    from .retriever import Retriever
    from .search.answers import Answer
    from .search.context import Context
    from .search.results.hit import Hit
    from .search.results.hits import Hits
    from .search.results.passage import Passage
    from .search.search_options import ContextOptions, HitOptions, SearchOptions
    from .store.filters.where import Where
    from .store.records import Id
    from .store.snapshot import Snapshot
    from .store.writer import Writer

    Choice = Callable[[Snapshot], list[dict[str, Any]]]

_BATCH_SIZE = 1_000  # documents checked together


class Scope(DocumentReads, AsyncCalls):
    """The documents of an index that pass a filter, as if the index had no others.

    Searches and reads return only these documents. Other ids count as missing, and a caller's filter may name only keys
    that these documents have. An added document gets the values that the filter demands, or is refused. The scores of
    words still depend on their frequency in the whole index.
    """

    _inside: Filter

    def __init__(self, retriever: Retriever, where: Where) -> None:
        """Limit a retriever; `Retriever.scope` does.

        :raises InputError: when `where` has no condition.
        """
        inside = parse(where)
        if inside is None:
            raise InputError(f"a scope needs a filter such as F.tenant == 't1', not {shown(where)}")
        self._retriever = retriever
        self._index = retriever._index  # noqa: SLF001 - as below
        self._inside = inside
        self._calls = retriever._calls  # noqa: SLF001 - a scope is a part of the retriever

    def scope(self, where: Where) -> Scope:
        """Return a part of this part: the documents that pass `where` too."""
        inner = parse(where)
        return Scope(self._retriever, self._inside if inner is None else self._inside & inner)

    def search(
        self, query: str | None = None, k: int = 10, *, where: Where = None, **options: Unpack[SearchOptions]
    ) -> Hits:
        """Return the k best passages; options as in `Retriever.search`."""
        return self._retriever.search(query, k, where=self._where(where), **options)

    def answer(
        self,
        question: str,
        *,
        reader: str | os.PathLike[str] | Reader,
        k: int = 10,
        where: Where = None,
        **options: Unpack[SearchOptions],
    ) -> list[Answer]:
        """Return the spans of passages that answer a question; options as in `Retriever.answer`, without `hits`."""
        return self._retriever.answer(question, reader=reader, k=k, where=self._where(where), **options)

    def similar(self, path: str | os.PathLike[str], line: int, k: int = 10, *, where: Where = None) -> Hits:
        """Return the k passages most similar to the passage at a line of a document, without itself.

        :raises NotFoundError: when the document is not there.
        """
        check(path, line, k)
        conditions = self._where(where)
        inside = self._inside
        return self._index.read(lambda snapshot: similar(snapshot, path, line, k, where=conditions, inside=inside))

    def search_many(
        self,
        texts: Iterable[str] | None = None,
        k: int = 10,
        *,
        vectors: ArrayLike | None = None,
        where: Where = None,
        ids: Iterable[str | os.PathLike[str]] | None = None,
        deadline: float | None = None,
        **options: Unpack[HitOptions],
    ) -> list[Hits]:
        """Return the hits of each query, as `Retriever.search_many` does."""
        return self._retriever.search_many(
            texts, k, vectors=vectors, where=self._where(where), ids=ids, deadline=deadline, **options
        )

    def check(self, passage: Hit | Passage) -> Currency:
        """Tell whether a passage is still current, as `Retriever.check` does; "gone" outside of the scope."""
        check_cited(passage)

        def answer(snapshot: Snapshot) -> Currency:
            records.check_inside(snapshot, passage.path, self._inside)
            return check_passage(snapshot, self._index.folder, passage)

        try:
            return self._index.read(answer)
        except NotFoundError:
            return "gone"

    def context(self, query: str, *, where: Where = None, **options: Unpack[ContextOptions]) -> Context:
        """Pack the best passages for a prompt; options as in `Retriever.context`."""
        return self._retriever.context(query, where=self._where(where), **options)

    def add(self, documents: Iterable[Mapping[str, Any]], **options: Any) -> Report:
        """Add documents, as `Retriever.add` does, with the values that the scope demands.

        :raises InputError: naming the first document that has other or several values, or the id of a document
            outside.
        """
        check_documents(documents)
        report = self._retriever.add(self._admitted(documents), **options)
        return _inside(report, self._retriever.snapshot(), self._inside)

    def update(
        self,
        ids: Iterable[Id] | None = None,
        *,
        metadata: Mapping[str, Any],
        where: Where = None,
        mode: Change = "merge",
        wait: float | None = None,
    ) -> Report:
        """Change the metadata of documents of the scope, as `Retriever.update` does.

        :raises NotFoundError: naming the first id that is not there.
        :raises InputError: when a document would no longer have the values that the scope demands, or several values
            under a key that it compares.
        """
        choose = self._chosen(ids or (), where, must_exist=True)
        change = MetadataChange.of(completed_change(metadata, mode, self._inside), mode)
        with self._writing(wait) as writer:
            return _inside(update(writer, choose, change, self._check_changed), writer.snapshot(), self._inside)

    def delete(self, *ids: Id, where: Where = None, erase: Erase = False, wait: float | None = None) -> Report:
        """Remove documents of the scope, by id or by a filter. Ids outside of it are ignored.

        :param erase: as in `Retriever.delete`.
        """
        with self._writing(wait) as writer:
            report = delete(writer, self._chosen(ids, where), erase=erase)
            return _inside(report, writer.snapshot(), self._inside)

    def clear(self, *, erase: Erase = False, wait: float | None = None) -> Report:
        """Remove all documents of the scope.

        :param erase: as in `Retriever.delete`.
        """
        with self._writing(wait) as writer:
            report = delete(
                writer, lambda snapshot: _rows(snapshot, snapshot.select(Within(self._inside, None))), erase=erase
            )
            return _inside(report, writer.snapshot(), self._inside)

    @contextlib.contextmanager
    def batch(
        self, *, if_exists: IfExists = "replace", on_error: OnError = "stop", wait: float | None = None
    ) -> Iterator[Batch]:
        """Collect writes to documents of the scope, and do all of them in one commit, as `Retriever.batch` does."""
        batch = _ScopeBatch(AddPolicy(if_exists, on_error).check(), self)
        with self._retriever._committed(batch, wait):  # noqa: SLF001 - as above
            yield batch

    @contextlib.contextmanager
    def _writing(self, wait: float | None) -> Iterator[Writer]:
        with self._index.patient(wait), self._index.writer() as writer:
            yield writer

    def _chosen(
        self, ids: Iterable[Id], where: Where = None, *, folder: Id | None = None, must_exist: bool = False
    ) -> Choice:
        """Return a function that finds the documents of the scope with these ids, or that pass a filter.

        :param where: None, or a filter without conditions, to find only these ids.
        """
        if isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable):
            raise InputError(f"ids is a list of documents, not {shown(ids)}")
        if folder is not None:
            raise InputError("a scope has no folders: choose documents by a filter, such as F.path.glob('notes/**')")
        names = list(map(records.name_of, ids))
        conditions = None if parse(where) is None else self._where(where)
        if must_exist and not names and conditions is None:
            raise InputError("nothing is chosen: give ids, or a filter as where")

        def choose(snapshot: Snapshot) -> list[dict[str, Any]]:
            if must_exist:
                records.get(snapshot, names, inside=self._inside)  # raises for the first that is not there
            mask = np.zeros(snapshot.document_rows.num_rows, np.bool_)
            mask |= False if conditions is None else snapshot.select(conditions)
            mask[[at for at in records.positions(snapshot, names, self._inside) if at is not None]] = True
            return _rows(snapshot, mask)

        return choose

    def _check_changed(self, rows: list[dict[str, Any]]) -> None:
        """Refuse a change after which a document would not pass the filter of the scope."""
        if fault := next(filter(None, faults_outside([repr(row["path"]) for row in rows], rows, self._inside)), None):
            raise InputError(fault)

    def __repr__(self) -> str:
        return f"<part of {self._index.location}: {self._inside!r}>"

    def _admitted(self, documents: Iterable[Mapping[str, Any]], first: int = 0) -> Iterator[Any]:
        """Yield each document with the values that the scope demands, or the error that refuses it.

        The caller takes the first when the index is locked for writing, so that no other writer takes an id meanwhile.

        :param first: the number of the first document.
        """
        numbered = enumerate(documents, first)
        while batch := list(itertools.islice(numbered, _BATCH_SIZE)):
            admitted: dict[int, Any] = {}
            rows: dict[int, dict[str, Any]] = {}
            for number, document in batch:
                if isinstance(document, DocumentError):  # a server has refused it
                    admitted[number] = document
                    continue
                try:
                    admitted[number] = completed_document(number, document, self._inside)
                    rows[number] = stored_columns(number, admitted[number])
                except InputError as error:
                    admitted[number] = DocumentError(number, _id_of(document), str(error))
            refused = faults_outside([f"{number}" for number in rows], list(rows.values()), self._inside)
            faults = {number: fault for number, fault in zip(rows, refused, strict=True) if fault}
            faults |= self._faults_of_ids([(number, _id_of(admitted[number])) for number in rows])
            for number, fault in faults.items():
                admitted[number] = DocumentError(number, _id_of(admitted[number]), fault)
            yield from admitted.values()

    def _faults_of_ids(self, ids: list[tuple[int, str | None]]) -> dict[int, str]:
        """Say which of these documents, by number, have the id of a document outside."""
        named = [(number, name) for number, name in ids if name is not None]
        snapshot, names = self._retriever.snapshot(), [name for _, name in named]
        inside = records.positions(snapshot, names, self._inside)
        anywhere = records.positions(snapshot, names, None)
        return {
            number: f"document {number} has id {name!r}, which cannot be used here: give it another id"
            for (number, name), known, taken in zip(named, inside, anywhere, strict=True)
            if taken is not None and taken != known
        }


class _ScopeBatch(Batch):
    """Writes to the documents of a scope, checked when they are collected, and again when the index is locked."""

    def __init__(self, policy: AddPolicy, scope: Scope) -> None:
        super().__init__(policy, scope._chosen, scope._check_changed)  # noqa: SLF001 - it is a part of the scope
        self._inside = scope._inside  # noqa: SLF001 - as above
        self._admitted, self._faults_of_ids = scope._admitted, scope._faults_of_ids  # noqa: SLF001 - as above

    def add(self, documents: Iterable[Mapping[str, Any]]) -> None:
        self._check_open()
        check_documents(documents)
        super().add(self._admitted(documents, len(self._additions)))

    def update(
        self,
        *,
        metadata: Mapping[str, Any],
        ids: Iterable[str] | None = None,
        where: Where = None,
        mode: Change = "merge",
    ) -> None:
        super().update(metadata=completed_change(metadata, mode, self._inside), ids=ids, where=where, mode=mode)

    def commit(self, writer: Writer, encoder: Encoder | None) -> None:
        names: list[tuple[int, str | None]] = [
            (item.number, item.name) for item in self._additions if isinstance(item, Addition)
        ]
        faults = self._faults_of_ids(names)
        for position, item in enumerate(self._additions):
            if isinstance(item, Addition) and item.number in faults:
                self._additions[position] = DocumentError(item.number, item.name, faults[item.number])
        super().commit(writer, encoder)
        if self.report:
            self.report = _inside(self.report, writer.snapshot(), self._inside)


def _inside(report: Report, snapshot: Snapshot, inside: Filter) -> Report:
    """Return the report of a write with the passages of the scope, and not of the whole index, as its total."""
    chunks = snapshot.document_rows["chunks"].to_numpy()[snapshot.select(Within(inside, None))]
    return replace(report, chunks_total=int(chunks.sum()))


def _rows(snapshot: Snapshot, mask: Mask) -> list[dict[str, Any]]:
    """Return the rows of the documents of a mask, without their texts."""
    return snapshot.document_rows.filter(pa.array(mask)).to_pylist()  # type: ignore[no-any-return]


def _id_of(document: Any) -> str | None:
    name = document.get("id") if hasattr(document, "keys") else None
    return name if isinstance(name, str) else None
