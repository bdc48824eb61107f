"""Binocle in LangChain: a vector store, a retriever, embeddings, a reranker, a loader and a parser of files.

    store = BinocleVectorStore("my-index")
    store.add_texts(["Refunds take five days."], [{"team": "billing"}])
    store.similarity_search("when do I get my money back?", k=3, filter={"team": "billing"})

An added document comes back unchanged. A file that the index was synced with comes back as its passages, with a
citation in `metadata["citation"]`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np

from ...core.checks import listed
from ...core.errors import InputError, MissingExtraError, NoIndexError
from ...core.files import expand_home
from ...core.words import encodable
from ..models.load import load_reranker
from ..models.reranker import Reranker, best
from ..search.mode import Mode
from .conversion.citations import passage_id, passage_metadata, passage_text
from .conversion.langchain_filters import BinocleTranslator, where_of
from .conversion.values import NOTHING, from_metadata, to_metadata
from .loading import read_files, temporary_file
from .opening import (
    CALLS,
    added_records,
    encoder_of,
    opened,
    present,
    refuse_options,
    retriever_of,
    search_documents,
    searched,
)

try:
    from langchain_core.document_loaders import BaseBlobParser, BaseLoader
    from langchain_core.documents import BaseDocumentCompressor, Document
    from langchain_core.documents.base import Blob
    from langchain_core.embeddings import Embeddings
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.vectorstores import VectorStore
    from langchain_core.vectorstores.utils import maximal_marginal_relevance
    from pydantic import BeforeValidator, ConfigDict, Field
except ModuleNotFoundError as error:
    raise MissingExtraError("langchain-core", "langchain", "Binocle in LangChain") from error

if TYPE_CHECKING:
    from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun, Callbacks

    from ..search.results.hit import Hit
    from ..store.records import Record


__all__ = [
    "BinocleEmbeddings",
    "BinocleLoader",
    "BinocleParser",
    "BinocleReranker",
    "BinocleRetriever",
    "BinocleTranslator",
    "BinocleVectorStore",
]


class BinocleEmbeddings(Embeddings):
    """The vectors of one of Binocle's encoders."""

    def __init__(self, model: Any) -> None:
        """Load an encoder.

        :param model: its folder or name, an encoder, or a `Retriever`, for the encoder of its index.
        """
        self.encoder = encoder_of(model)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return the vectors of texts to be found."""
        vectors: list[list[float]] = self.encoder.encode(texts).tolist()
        return vectors

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a query."""
        vector: list[float] = self.encoder.encode([text], kind="query")[0].tolist()
        return vector

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """Await `embed_documents`."""
        return await CALLS.run(self.embed_documents, texts)

    async def aembed_query(self, text: str) -> list[float]:
        """Await `embed_query`."""
        return await CALLS.run(self.embed_query, text)


class BinocleRetriever(BaseRetriever):
    """The best passages of an index, each with a citation in `metadata["citation"]`.

    >>> BinocleRetriever(index="docs", k=3).invoke("how do I cancel a task?")  # doctest: +SKIP
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    index: Annotated[Any, BeforeValidator(searched)]  # a `Retriever`, a scope of one, a `RemoteRetriever`, or a path
    k: Annotated[int, Field(ge=0)] = 4
    filter: Any = None  # see `where_of`
    mode: Mode = "hybrid"
    rerank: Any = None  # a cross-encoder, as in `Retriever.search`; True for that of a server
    min_relevance: Annotated[float | None, Field(ge=0, le=1)] = None  # from 0 to 1: passages below are left out

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **options: Any
    ) -> list[Document]:
        return self._documents(query, **options)

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **options: Any
    ) -> list[Document]:
        return await CALLS.run(self._documents, query, **options)

    def _documents(self, query: str, *, filter: Any = None, **options: Any) -> list[Document]:  # noqa: A002 - their word
        defaults = {"k": self.k, "mode": self.mode, "rerank": self.rerank, "min_relevance": self.min_relevance}
        where = where_of(self.filter if filter is None else filter)
        return [_passage(hit) for hit in self.index.search(query, where=where, **{**defaults, **options})]


class BinocleReranker(BaseDocumentCompressor):
    """A cross-encoder that orders documents by how well they answer a query, and keeps the best.

    Each has its `metadata["relevance_score"]`, from 0 to 1.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    model: Annotated[Reranker, BeforeValidator(load_reranker)]  # a `Reranker`, or the folder or name of a cross-encoder
    top_n: Annotated[int, Field(ge=0)] = 3

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """Return the best documents, best first, and change none."""
        pairs = best(self.model, query, [document.page_content for document in documents], self.top_n)
        return [_with_score(documents[position], relevance) for position, relevance in pairs]

    async def acompress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """Await `compress_documents`."""
        return await CALLS.run(self.compress_documents, documents, query, callbacks)


class BinocleLoader(BaseLoader):
    """The files of a folder as whole documents, by Binocle's readers: also attachments and members of archives.

    It reads the files that an index of the folder would have, and makes no index. Text that a person does not see is
    left out.

    >>> BinocleLoader("docs", exclude=["*.log"]).load()  # doctest: +SKIP
    """

    def __init__(self, path: str | os.PathLike[str], *, exclude: Sequence[str] = ()) -> None:
        """Name the files to read.

        :param path: a folder or a file.
        :param exclude: patterns of files to leave out, as in `.gitignore`.
        """
        self.path = expand_home(path)
        self.exclude = list(exclude)

    def lazy_load(self) -> Iterator[Document]:
        """Read the files in order of path; a file that cannot be read gives a warning."""
        for source, text, metadata in read_files(self.path, self.exclude):
            yield Document(page_content=text, metadata=metadata, id=source)


class BinocleParser(BaseBlobParser):
    """The text of a file that another loader brings, by Binocle's readers: of all formats, and of the files in it.

    Each file is read in a process with limits on memory and time. Text that a person does not see is left out.

    >>> BinocleParser().parse(Blob.from_data(data, path="mail.eml"))  # doctest: +SKIP
    """

    def lazy_parse(self, blob: Blob) -> Iterator[Document]:
        """Yield a document for the file, after its attachments or members; a file that cannot be read gives a warning.

        Metadata of the blob replace the same keys of the file.
        """
        name = blob.source or "a blob"
        with contextlib.ExitStack() as stack:
            path = blob.path
            if path is None or blob.data is not None:
                data = encodable(blob.data).encode() if isinstance(blob.data, str) else blob.as_bytes()
                path = stack.enter_context(temporary_file(data, name, blob.mimetype))
            for source, text, metadata in read_files(path, name=name):
                metadata |= {**blob.metadata, "source": source}
                yield Document(page_content=text, metadata=metadata, id=source if blob.source else None)


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
        return [_whole(records[name]) for name in names if name in records]

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
        vector = (self._embedding or BinocleEmbeddings(retriever_of(self.index))).embed_query(query)
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
        if filter is not None and "where" in options:
            raise InputError("there are two filters: expected filter= or where=, not both")
        search = {"mode": "semantic" if query is None else self.mode, "where": where_of(filter), **options}
        if self._embedding and query is not None and search["mode"] != "lexical":
            search["vector"] = self._embedding.embed_query(query)
        hits = search_documents(self.index, k, query=query, **search)
        records = added_records(self.index, hits)
        return [(_whole(records[hit.path]) if hit.path in records else _passage(hit), hit) for hit in hits]


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


def _whole(record: Record) -> Document:
    return Document(page_content=record.text, metadata=from_metadata(record.metadata), id=record.id)


def _passage(hit: Hit) -> Document:
    metadata = {**passage_metadata(hit), "score": hit.score}
    return Document(page_content=passage_text(hit), metadata=metadata, id=passage_id(hit))


def _with_score(document: Document, score: float) -> Document:
    metadata = {**document.metadata, "relevance_score": score}
    return document.model_copy(update={"metadata": metadata})
