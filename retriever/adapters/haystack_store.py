"""Haystack's document store over an index."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from ...core.checks import listed
from ...core.errors import InputError, MissingExtraError, NoIndexError
from ..retriever import Retriever
from ..store.filters.filter import F, Filter
from .conversion.embeddings import EMBEDDED, has_embedding
from .conversion.haystack_documents import OWN, passage_document, to_added, whole_document
from .conversion.haystack_filters import where_of
from .conversion.stored_values import unique_values, value_types
from .conversion.values import JSON_VALUES, NOTHING, from_metadata, to_metadata
from .opening import CALLS, WAIT, added_records, dim_without_encoder, present, reads_of, search_documents

try:
    from haystack import default_from_dict, default_to_dict
    from haystack.dataclasses import Document
    from haystack.document_stores.errors import DuplicateDocumentError
    from haystack.document_stores.types import DuplicatePolicy
    from haystack.errors import FilterError
except ModuleNotFoundError as error:
    raise MissingExtraError("haystack-ai", "haystack", "Binocle in Haystack") from error

if TYPE_CHECKING:
    from ..store.records import Record

_T = TypeVar("_T")
Filters = dict[str, Any] | None


class BinocleDocumentStore:
    """Documents in an index; the first that is written makes a new index.

    Methods with the ending `_async` run in a few threads and leave the event loop free.
    """

    def __init__(
        self,
        index: Any,
        *,
        model: str | None = None,
        embedding_dim: int | None = None,
        return_embedding: bool = True,
    ) -> None:
        """Open an index.

        :param index: the path of an index, a `Retriever`, or a scope of one.
        :param model: the folder or name of the encoder of a new index.
        :param embedding_dim: of the embeddings that documents bring, for a new index without an encoder. It finds
            documents without an embedding by their words alone.
        :param return_embedding: return documents with the embedding that they were written with.
        """
        self.model = model
        self.embedding_dim = embedding_dim
        self.return_embedding = return_embedding
        if not isinstance(index, (str, os.PathLike)):
            self.index = reads_of(index)
        elif embedding_dim is None:
            self.index = Retriever.open(index, model=model, wait=WAIT)
        else:
            self.index = Retriever.open(index, encoder=None, dim=embedding_dim, wait=WAIT)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings for a stored pipeline.

        :raises InputError: for a scope: its filter is a right, which no file may grant.
        """
        if not isinstance(self.index, Retriever):
            raise InputError("a store of a scope cannot be written to a file: open the scope where the pipeline runs")
        return default_to_dict(
            self,
            index=str(self.index.location),
            model=self.model,
            embedding_dim=self.embedding_dim,
            return_embedding=self.return_embedding,
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> BinocleDocumentStore:
        """Open the store of a stored pipeline."""
        store: BinocleDocumentStore = default_from_dict(cls, data)
        return store

    # Reading

    def count_documents(self) -> int:
        """Return the number of documents."""
        return self._read(self.index.count, 0)

    def count_documents_by_filter(self, filters: dict[str, Any]) -> int:
        """Return the number of documents that pass a filter."""
        return self._read(lambda: self.index.count(where_of(filters)), 0)

    def filter_documents(self, filters: Filters = None) -> list[Document]:
        """Return the documents that pass a filter, in order of id."""
        where = where_of(filters)
        records: list[Record] = self._read(lambda: list(self.index.iterate(where)), [])
        return self._documents(records)

    def count_unique_metadata_by_filter(self, filters: dict[str, Any], metadata_fields: list[str]) -> dict[str, int]:
        """Return how many different values documents that pass a filter have in each of these fields."""
        where = where_of(filters)
        keys = [name.removeprefix("meta.") for name in metadata_fields]
        return self._read(
            lambda: {key: len(unique_values(self.index, key, where)) for key in keys}, dict.fromkeys(keys, 0)
        )

    def get_metadata_fields_info(self) -> dict[str, dict[str, str]]:
        """Return the type of each field of the metadata: keyword, int, float or boolean."""
        types: dict[str, type] = self._read(lambda: value_types(self.index), {})
        names = {bool: "boolean", int: "int", float: "float"}
        return {
            key: {"type": names.get(kind, "keyword")} for key, kind in types.items() if key not in (*OWN, JSON_VALUES)
        }

    def get_metadata_field_min_max(self, metadata_field: str) -> dict[str, Any]:
        """Return the least and the greatest number of a field, or the first and last text in order."""
        key = f"metadata.{metadata_field.removeprefix('meta.')}"
        try:
            facet = self.index.facets(key, F[key].exists())[key]
        except (NoIndexError, InputError):  # no document has the field
            return {"min": None, "max": None}
        return {"min": facet.min, "max": facet.max}

    def get_metadata_field_unique_values(
        self,
        metadata_field: str,
        search_term: str | None = None,
        from_: int = 0,
        size: int = 10,
        filters: Filters = None,
    ) -> tuple[list[Any], int]:
        """Return a page of the different values of a field, in order of their texts, and the number of all.

        :param search_term: only values with this in their text, in small or capital letters.
        """
        key, where = metadata_field.removeprefix("meta."), where_of(filters)
        values: list[Any] = self._read(lambda: unique_values(self.index, key, where), [])
        if search_term:
            values = [value for value in values if search_term.lower() in str(value).lower()]
        values.sort(key=lambda value: (str(value), type(value).__name__))
        return values[from_ : from_ + size], len(values)

    def retrieve(
        self,
        query: str | None = None,
        query_embedding: list[float] | None = None,
        *,
        filters: Filters = None,
        top_k: int = 10,
        **search: Any,
    ) -> list[Document]:
        """Return the best documents for a text, an embedding or both, best first, with their scores.

        :param search: the other options of `Retriever.search`.
        """
        where = where_of(filters)
        if query is None:
            where = EMBEDDED if where is None else where & EMBEDDED
        if query_embedding is not None:
            search = {**search, "vector": query_embedding}
        hits = search_documents(self.index, top_k, query=query, where=where, **search) if top_k else []
        records = added_records(self.index, hits)
        whole = self._documents([records[hit.path] for hit in hits if hit.path in records])
        documents = {document.id: document for document in whole}
        return [
            replace(documents[hit.path], score=hit.score) if hit.path in records else passage_document(hit)
            for hit in hits
        ]

    def _documents(self, records: Sequence[Record]) -> list[Document]:
        """Return stored documents, with the embeddings that they were written with."""
        embedded = [record.id for record in records if self.return_embedding and has_embedding(record)]
        stored = present(self.index, embedded, vectors=True)
        vectors = {name: record.vectors[0] for name, record in stored.items() if record.vectors is not None}
        return [whole_document(record, vector=vectors.get(record.id)) for record in records]

    def _read(self, read: Callable[[], _T], empty: _T) -> _T:
        """Read from the index; a missing index has no documents."""
        try:
            return read()
        except NoIndexError:
            return empty

    # Writing

    def write_documents(self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE) -> int:
        """Write documents in one commit.

        :param policy: OVERWRITE or SKIP documents with an id that exists, or FAIL, the default, and write none.
        :returns: the number of documents written.
        """
        if not isinstance(policy, DuplicatePolicy):
            raise InputError(f"policy is a DuplicatePolicy, such as DuplicatePolicy.OVERWRITE, not {policy!r}")
        documents = listed(documents, "documents")
        for document in documents:
            if not isinstance(document, Document):
                raise InputError(f"expected a list of documents, but one of them is {document!r}")
        if policy in (DuplicatePolicy.NONE, DuplicatePolicy.FAIL):
            self._check_new(documents)
        if policy == DuplicatePolicy.SKIP:
            documents = self._new(documents)
        if documents:
            dim = dim_without_encoder(self.index)
            self.index.add([to_added(document, dim) for document in documents])
        return len(documents)

    def _existing(self, documents: Sequence[Document]) -> set[str]:
        where = F.path.is_in([document.id for document in documents])
        return self._read(lambda: {record.id for record in self.index.iterate(where)}, set())

    def _check_new(self, documents: Sequence[Document]) -> None:
        existing = self._existing(documents)
        for document in documents:
            if document.id in existing:
                raise DuplicateDocumentError(
                    f"there is a document {document.id!r}: DuplicatePolicy.OVERWRITE replaces it"
                )
            existing.add(document.id)

    def _new(self, documents: Sequence[Document]) -> list[Document]:
        existing = self._existing(documents)
        first = {document.id: document for document in reversed(documents)}
        return [document for name, document in reversed(first.items()) if name not in existing]

    def delete_documents(self, document_ids: list[str]) -> None:
        """Delete documents; an id that is not there is no error."""
        if names := listed(document_ids, "ids"):
            self._read(lambda: self.index.delete(*names), None)

    def delete_all_documents(self, recreate_index: bool = False) -> None:
        """Delete all documents.

        :param recreate_index: also erase their texts and vectors from the disk now, not with later writes.
        """
        self._read(lambda: self.index.delete(where=~NOTHING, erase=recreate_index), None)

    def delete_by_filter(self, filters: dict[str, Any]) -> int:
        """Delete the documents that pass a filter, and return their number."""
        where = _demanded(filters)
        return self._read(lambda: int(self.index.delete(where=where).removed), 0)

    def update_by_filter(self, filters: dict[str, Any], meta: dict[str, Any]) -> int:
        """Give the documents that pass a filter new values in their metadata, and return their number."""
        where = _demanded(filters)
        if not isinstance(self.index, Retriever):
            raise InputError("documents of a scope cannot be updated: update them in the Retriever of the scope")
        records: list[Record] = self._read(lambda: list(self.index.iterate(where)), [])
        if records:
            with self.index.batch() as batch:
                for record in records:
                    values = {key: value for key, value in record.metadata.items() if key not in OWN}
                    own = {key: record.metadata[key] for key in OWN if key in record.metadata}
                    metadata = to_metadata({**from_metadata(values), **meta}) | own
                    batch.update(ids=[record.id], metadata=metadata, mode="replace")
        return len(records)

    # The same for asyncio

    async def count_documents_async(self) -> int:
        """Await `count_documents`."""
        return await CALLS.run(self.count_documents)

    async def count_documents_by_filter_async(self, filters: dict[str, Any]) -> int:
        """Await `count_documents_by_filter`."""
        return await CALLS.run(self.count_documents_by_filter, filters)

    async def filter_documents_async(self, filters: Filters = None) -> list[Document]:
        """Await `filter_documents`."""
        return await CALLS.run(self.filter_documents, filters)

    async def count_unique_metadata_by_filter_async(
        self, filters: dict[str, Any], metadata_fields: list[str]
    ) -> dict[str, int]:
        """Await `count_unique_metadata_by_filter`."""
        return await CALLS.run(self.count_unique_metadata_by_filter, filters, metadata_fields)

    async def get_metadata_fields_info_async(self) -> dict[str, dict[str, str]]:
        """Await `get_metadata_fields_info`."""
        return await CALLS.run(self.get_metadata_fields_info)

    async def get_metadata_field_min_max_async(self, metadata_field: str) -> dict[str, Any]:
        """Await `get_metadata_field_min_max`."""
        return await CALLS.run(self.get_metadata_field_min_max, metadata_field)

    async def get_metadata_field_unique_values_async(
        self,
        metadata_field: str,
        search_term: str | None = None,
        from_: int = 0,
        size: int = 10,
        filters: Filters = None,
    ) -> tuple[list[Any], int]:
        """Await `get_metadata_field_unique_values`."""
        return await CALLS.run(self.get_metadata_field_unique_values, metadata_field, search_term, from_, size, filters)

    async def retrieve_async(
        self, query: str | None = None, query_embedding: list[float] | None = None, **search: Any
    ) -> list[Document]:
        """Await `retrieve`."""
        return await CALLS.run(self.retrieve, query, query_embedding, **search)

    async def write_documents_async(
        self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE
    ) -> int:
        """Await `write_documents`."""
        return await CALLS.run(self.write_documents, documents, policy)

    async def delete_documents_async(self, document_ids: list[str]) -> None:
        """Await `delete_documents`."""
        return await CALLS.run(self.delete_documents, document_ids)

    async def delete_all_documents_async(self, recreate_index: bool = False) -> None:
        """Await `delete_all_documents`."""
        return await CALLS.run(self.delete_all_documents, recreate_index)

    async def delete_by_filter_async(self, filters: dict[str, Any]) -> int:
        """Await `delete_by_filter`."""
        return await CALLS.run(self.delete_by_filter, filters)

    async def update_by_filter_async(self, filters: dict[str, Any], meta: dict[str, Any]) -> int:
        """Await `update_by_filter`."""
        return await CALLS.run(self.update_by_filter, filters, meta)


def _demanded(filters: dict[str, Any]) -> Filter:
    """Read a filter of documents to change; one without a condition would choose all of them.

    :raises FilterError: when it, or a part of it, has no condition.
    """
    where = where_of(filters)
    if where is None or _lacks_conditions(filters):
        raise FilterError("expected a filter with conditions, and none came: delete_all_documents deletes all")
    return where


def _lacks_conditions(filters: Mapping[str, Any]) -> bool:
    parts = filters.get("conditions")
    return parts is not None and (not parts or any(map(_lacks_conditions, parts)))
