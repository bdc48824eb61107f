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
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from ...core.errors import MissingExtraError
from ...core.files import expand_home
from ...core.words import encodable
from ..models.load import load_reranker
from ..models.reranker import Reranker, best
from ..search.mode import Mode
from .conversion.langchain_documents import passage_document, with_score
from .conversion.langchain_filters import BinocleTranslator, where_of
from .langchain_store import BinocleVectorStore
from .loading import read_files, temporary_file
from .opening import CALLS, SEARCH_OPTIONS, encoder_of, refuse_options, searched

try:
    from langchain_core.document_loaders import BaseBlobParser, BaseLoader
    from langchain_core.documents import BaseDocumentCompressor, Document
    from langchain_core.documents.base import Blob
    from langchain_core.embeddings import Embeddings
    from langchain_core.retrievers import BaseRetriever
    from pydantic import BeforeValidator, ConfigDict, Field
except ModuleNotFoundError as error:
    raise MissingExtraError("langchain-core", "langchain", "Binocle in LangChain") from error

if TYPE_CHECKING:
    from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun, Callbacks


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
        refuse_options(options, "filter", "k", *SEARCH_OPTIONS)
        defaults = {"k": self.k, "mode": self.mode, "rerank": self.rerank, "min_relevance": self.min_relevance}
        where = where_of(self.filter if filter is None else filter)
        return [passage_document(hit) for hit in self.index.search(query, where=where, **{**defaults, **options})]


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
        return [with_score(documents[position], relevance) for position, relevance in pairs]

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
