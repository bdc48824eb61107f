"""Binocle as a vector store of LangChain: its documents are those of an index."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ...core.checks import listed
from ...core.errors import InputError, MissingExtraError, NoIndexError
from ..search.mode import Mode
from .conversion.langchain_documents import passage_document, whole_document
from .conversion.langchain_filters import where_of
from .conversion.values import NOTHING, to_metadata
from .opening import (
    CALLS,
    SEARCH_OPTIONS,
    added_records,
    opened,
    present,
    refuse_options,
    retriever_of,
    search_documents,
)

try:
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_core.vectorstores import VectorStore
    from langchain_core.vectorstores.utils import maximal_marginal_relevance
except ModuleNotFoundError as error:
    raise MissingExtraError("langchain-core", "langchain", "Binocle in LangChain") from error

if TYPE_CHECKING:
    from ..search.results.hit import Hit


class BinocleVectorStore(VectorStore):
    """Documents in an index; the first that is added makes a new index."""

    def __init__(self, index: Any, embedding: Embeddings | None = None, *, mode: Mode = "hybrid") -> None:
        """Open an index.

        :param index: a `Retriever`, a scope of one, or the path of an index.
        :param embedding: gives the vectors of documents and queries, instead of the encoder of the index. A new index
            at a path then has no encoder.
        :param mode: "hybrid" (words and meaning), "semantic" or "lexical".
        """
        self.index = opened(index, None if embedding is None else lambda: len(embedding.embed_query("a text")))
        self.mode: Mode = mode
        self._embedding = embedding

    @property
    def embeddings(self) -> Embeddings | None:
        """The source of the vectors; None for the encoder of the index."""
        return self._embedding

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings | None = None,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        index: Any = None,
        **options: Any,
    ) -> Self:
        """Return a store with these texts.

        :param index: a `Retriever`, or the path of an index.
        """
        if index is None:
            raise InputError("a BinocleVectorStore is a folder or a Retriever: expected one as index=")
        store = cls(index, embedding, **options)
        store.add_texts(texts, metadatas, ids=ids)
        return store

    # Writing

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        **options: Any,
    ) -> list[str]:
        """Add texts in one commit; a text with an id that is there replaces it.

        :param options: `batch_size`, which LangChain's `index` passes, has no effect on one commit.
        :returns: their ids, by default made from text and metadata.
        """
        refuse_options(options, "ids", "batch_size")
        contents = listed(texts, "texts")
        rows = list(_rows(contents, metadatas, ids))
        documents: list[dict[str, Any]] = [
            {"text": text, "metadata": to_metadata(values or {}), "id": name} for text, values, name in rows
        ]
        if self._embedding:
            for document, vector in zip(documents, self._embedding.embed_documents(contents), strict=True):
                document["embedding"] = vector
        return list(self.index.add(documents).ids)

    async def aadd_texts(
        self, texts: Iterable[str], metadatas: list[dict[str, Any]] | None = None, **options: Any
    ) -> list[str]:
        """Await `add_texts`."""
        return await CALLS.run(self.add_texts, texts, metadatas, **options)

    def delete(self, ids: list[str] | None = None, **options: Any) -> bool | None:
        """Remove documents, all of them if no ids are given; an id that is not there is no error."""
        refuse_options(options)
        with contextlib.suppress(NoIndexError):  # nothing was added yet
            if ids is None:
                self.index.delete(where=~NOTHING)
            elif names := listed(ids, "ids"):
                self.index.delete(*names)
        return True

    async def adelete(self, ids: list[str] | None = None, **options: Any) -> bool | None:
        """Await `delete`."""
        return await CALLS.run(self.delete, ids, **options)

    # Reading

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return whole documents in the order of their ids, without missing ones."""
        names = listed(ids, "ids")
        records = present(self.index, names)
        return [whole_document(records[name]) for name in names if name in records]

    async def aget_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Await `get_by_ids`."""
        return await CALLS.run(self.get_by_ids, ids)

    def similarity_search(self, query: str, k: int = 4, **options: Any) -> list[Document]:
        """Return the k best documents, best first; `filter` is what `where_of` reads."""
        return [document for document, _ in self._pairs(query, k, **options)]

    async def asimilarity_search(self, query: str, k: int = 4, **options: Any) -> list[Document]:
        """Await `similarity_search`."""
        return await CALLS.run(self.similarity_search, query, k, **options)

    def similarity_search_with_score(self, query: str, k: int = 4, **options: Any) -> list[tuple[Document, float]]:
        """Return the k best documents with their scores, which order the answers to one query: higher is better."""
        return [(document, hit.score) for document, hit in self._pairs(query, k, **options)]

    async def asimilarity_search_with_score(
        self, query: str, k: int = 4, **options: Any
    ) -> list[tuple[Document, float]]:
        """Await `similarity_search_with_score`."""
        return await CALLS.run(self.similarity_search_with_score, query, k, **options)

    def _similarity_search_with_relevance_scores(
        self, query: str, k: int = 4, **options: Any
    ) -> list[tuple[Document, float]]:
        return [(document, hit.relevance) for document, hit in self._pairs(query, k, **options)]

    async def _asimilarity_search_with_relevance_scores(
        self, query: str, k: int = 4, **options: Any
    ) -> list[tuple[Document, float]]:
        return await CALLS.run(self._similarity_search_with_relevance_scores, query, k, **options)

    def similarity_search_by_vector(self, embedding: list[float], k: int = 4, **options: Any) -> list[Document]:
        """Return the k documents nearest to a vector."""
        return [document for document, _ in self._pairs(None, k, vector=embedding, **options)]

    async def asimilarity_search_by_vector(self, embedding: list[float], k: int = 4, **options: Any) -> list[Document]:
        """Await `similarity_search_by_vector`."""
        return await CALLS.run(self.similarity_search_by_vector, embedding, k, **options)

    def max_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **options: Any
    ) -> list[Document]:
        """Return k of the `fetch_k` nearest documents that are near the query and unlike each other."""
        if self._embedding:
            vector = self._embedding.embed_query(query)
        else:
            vector = retriever_of(self.index).encoder.encode([query], kind="query")[0].tolist()
        return self.max_marginal_relevance_search_by_vector(vector, k, fetch_k, lambda_mult, **options)

    async def amax_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **options: Any
    ) -> list[Document]:
        """Await `max_marginal_relevance_search`."""
        return await CALLS.run(self.max_marginal_relevance_search, query, k, fetch_k, lambda_mult, **options)

    def max_marginal_relevance_search_by_vector(
        self, embedding: list[float], k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **options: Any
    ) -> list[Document]:
        """Return k of the `fetch_k` documents nearest to a vector that are unlike each other.

        Source: Carbonell and Goldstein 1998, by LangChain's own function.
        """
        pairs = self._pairs(None, fetch_k, vector=embedding, with_vectors=True, **options)
        vectors = [hit.vector.tolist() for _, hit in pairs if hit.vector is not None]
        rows = maximal_marginal_relevance(np.array(embedding, np.float32), vectors, lambda_mult, k) if pairs else []
        return [pairs[position][0] for position in rows]

    async def amax_marginal_relevance_search_by_vector(
        self, embedding: list[float], k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **options: Any
    ) -> list[Document]:
        """Await `max_marginal_relevance_search_by_vector`."""
        search = self.max_marginal_relevance_search_by_vector
        return await CALLS.run(search, embedding, k, fetch_k, lambda_mult, **options)

    def _pairs(
        self,
        query: str | None,
        k: int,
        *,
        filter: Any = None,  # noqa: A002 - their word
        **options: Any,
    ) -> list[tuple[Document, Hit]]:
        """Search for documents, each once, however many of its passages match."""
        refuse_options(options, "filter", "where", *SEARCH_OPTIONS)
        if filter is not None and "where" in options:
            raise InputError("there are two filters: expected filter= or where=, not both")
        search = {"mode": "semantic" if query is None else self.mode, "where": where_of(filter), **options}
        if self._embedding and query is not None and search["mode"] != "lexical":
            search["vector"] = self._embedding.embed_query(query)
        hits = search_documents(self.index, k, query=query, **search)
        records = added_records(self.index, hits)
        return [
            (whole_document(records[hit.path]) if hit.path in records else passage_document(hit), hit) for hit in hits
        ]


def _rows(
    texts: Sequence[str], metadatas: Sequence[dict[str, Any]] | None, ids: Sequence[str | None] | None
) -> Iterable[tuple[str, dict[str, Any] | None, str | None]]:
    """Join texts, metadata and ids.

    :raises InputError: when there are more of one than of the others.
    """
    for name, values in (("metadatas", metadatas), ("ids", ids)):
        if values is not None and len(listed(values, name)) != len(texts):
            raise InputError(f"there are {len(texts)} texts and {len(values)} {name}: expected as many of both")
    none = [None] * len(texts)
    return zip(texts, metadatas or none, ids or none, strict=True)
