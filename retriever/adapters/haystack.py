"""Binocle in Haystack: a document store, a retriever, embedders, a ranker, a converter and a splitter of documents.

    store = BinocleDocumentStore("my-index")
    store.write_documents([Document(content="Refunds take five days.", meta={"team": "billing"})])
    BinocleRetriever(store).run("when do I get my money back?")["documents"]

A document comes back unchanged. A file that the index was synced with comes back as its passages, with
a citation in `meta["citation"]`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.checks import is_whole, listed
from ...core.errors import InputError, MissingExtraError
from ..models.load import load_encoder, load_reranker
from ..models.reranker import best
from ..search.mode import Mode
from .haystack_store import BinocleDocumentStore, Filters
from .loading import read_files, temporary_file
from .opening import CALLS
from .splitting import heading_of, passages

try:
    from haystack import component, default_to_dict
    from haystack.dataclasses import ByteStream, Document
    from haystack.document_stores.types import FilterPolicy, apply_filter_policy
except ModuleNotFoundError as error:
    raise MissingExtraError("haystack-ai", "haystack", "Binocle in Haystack") from error

if TYPE_CHECKING:
    from ..models.encoder import Encoder, Kind
    from ..models.reranker import Reranker

__all__ = [
    "BinocleConverter",
    "BinocleDocumentEmbedder",
    "BinocleDocumentStore",
    "BinocleRanker",
    "BinocleRetriever",
    "BinocleSplitter",
    "BinocleTextEmbedder",
]


_NAMES = ("file_path", "file_name", "url")  # keys of the metadata of a byte stream with its name


@component
class BinocleRetriever:
    """The best documents and passages for a text, an embedding or both.

    A text is searched by words and meaning. An embedding, if there is one, replaces the vector of the text.
    """

    def __init__(
        self,
        document_store: BinocleDocumentStore,
        filters: Filters = None,
        top_k: int = 10,
        mode: Mode = "hybrid",
        rerank: str | None = None,
        min_relevance: float | None = None,
        filter_policy: FilterPolicy = FilterPolicy.REPLACE,
    ) -> None:
        """Search a store.

        :param mode: "hybrid" (words and meaning), "semantic" or "lexical".
        :param rerank: the folder or name of a cross-encoder that orders the hits.
        :param min_relevance: leave out what has less relevance, from 0 to 1.
        :param filter_policy: whether filters of a run replace those here, or are added to them.
        """
        if not isinstance(document_store, BinocleDocumentStore):
            raise InputError(f"expected a BinocleDocumentStore, not {document_store!r}")
        if not is_whole(top_k, 1):
            raise InputError(f"top_k is the number of documents, at least 1, not {top_k!r}")
        self.document_store = document_store
        self.filters = filters
        self.top_k = top_k
        self.mode = mode
        self.rerank = rerank
        self.min_relevance = min_relevance
        self.filter_policy = FilterPolicy.from_str(str(filter_policy))

    def to_dict(self) -> dict[str, Any]:
        """Return the settings for a stored pipeline."""
        names = ("filters", "top_k", "mode", "rerank", "min_relevance")
        settings = {name: getattr(self, name) for name in names}
        store = self.document_store.to_dict()
        return default_to_dict(self, document_store=store, filter_policy=self.filter_policy.value, **settings)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> BinocleRetriever:
        """Return the retriever of a stored pipeline."""
        settings = dict(data["init_parameters"])
        settings["document_store"] = BinocleDocumentStore.from_dict(settings["document_store"])
        return cls(**settings)

    @component.output_types(documents=list[Document])
    def run(
        self,
        query: str | None = None,
        query_embedding: list[float] | None = None,
        filters: Filters = None,
        top_k: int | None = None,
    ) -> dict[str, list[Document]]:
        """Return the best documents, best first, with their scores."""
        return {"documents": self.document_store.retrieve(**self._request(query, query_embedding, filters, top_k))}

    @component.output_types(documents=list[Document])
    async def run_async(
        self,
        query: str | None = None,
        query_embedding: list[float] | None = None,
        filters: Filters = None,
        top_k: int | None = None,
    ) -> dict[str, list[Document]]:
        """Await `run`."""
        request = self._request(query, query_embedding, filters, top_k)
        return {"documents": await self.document_store.retrieve_async(**request)}

    def _request(
        self, query: str | None, query_embedding: list[float] | None, filters: Filters, top_k: int | None
    ) -> dict[str, Any]:
        if query is None and query_embedding is None:
            raise InputError("there is nothing to search for: expected a query or a query_embedding")
        if query is None and self.rerank is not None:
            raise InputError(f"the reranker {self.rerank} reads the words of a query: expected a query too")
        if query_embedding is not None and self.mode == "lexical":
            raise InputError("mode 'lexical' searches by words alone: expected a query, and no query_embedding")
        return {
            "query": query,
            "query_embedding": query_embedding,
            "filters": apply_filter_policy(self.filter_policy, self.filters, filters),
            "top_k": self.top_k if top_k is None else top_k,
            "mode": "semantic" if query is None else self.mode,
            "rerank": self.rerank,
            "min_relevance": self.min_relevance,
        }


class _Encoding:
    """An encoder, loaded when it is first used."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._encoder: Encoder | None = None

    def load(self) -> Encoder:
        """Return the encoder."""
        self._encoder = self._encoder or load_encoder(self._model)
        return self._encoder

    def encode(self, texts: list[str], kind: Kind) -> list[list[float]]:
        """Return the vectors of texts."""
        vectors: list[list[float]] = self.load().encode(texts, kind=kind).tolist()
        return vectors


@component
class BinocleTextEmbedder:
    """The vector of a query, by one of Binocle's encoders."""

    def __init__(self, model: str) -> None:
        """:param model: the folder or name of an encoder."""
        self.model = model
        self._encoding = _Encoding(model)

    def warm_up(self) -> None:
        """Load the encoder."""
        self._encoding.load()

    @component.output_types(embedding=list[float])
    def run(self, text: str) -> dict[str, list[float]]:
        """Return the vector of a text."""
        if not isinstance(text, str):
            raise TypeError(f"expected a text, not {text!r}: BinocleDocumentEmbedder embeds documents")
        return {"embedding": self._encoding.encode([text], "query")[0]}

    @component.output_types(embedding=list[float])
    async def run_async(self, text: str) -> dict[str, list[float]]:
        """Await `run`."""
        return await CALLS.run(self.run, text)


@component
class BinocleDocumentEmbedder:
    """Documents with vectors of one of Binocle's encoders."""

    def __init__(
        self, model: str, meta_fields_to_embed: list[str] | None = None, embedding_separator: str = "\n"
    ) -> None:
        """Set up an embedder.

        :param model: the folder or name of an encoder.
        :param meta_fields_to_embed: fields of the metadata that stand before the text, such as a title.
        """
        self.model = model
        self.meta_fields_to_embed = meta_fields_to_embed or []
        self.embedding_separator = embedding_separator
        self._encoding = _Encoding(model)

    def warm_up(self) -> None:
        """Load the encoder."""
        self._encoding.load()

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, list[Document]]:
        """Return copies of the documents with their embeddings."""
        _check(documents)
        texts = [_text(document, self.meta_fields_to_embed, self.embedding_separator) for document in documents]
        vectors = self._encoding.encode(texts, "document") if texts else []
        pairs = zip(documents, vectors, strict=True)
        return {"documents": [replace(document, embedding=vector) for document, vector in pairs]}

    @component.output_types(documents=list[Document])
    async def run_async(self, documents: list[Document]) -> dict[str, list[Document]]:
        """Await `run`."""
        return await CALLS.run(self.run, documents)


@component
class BinocleRanker:
    """A cross-encoder that orders documents by how well they answer a query, with a score from 0 to 1."""

    def __init__(
        self,
        model: str,
        top_k: int = 10,
        meta_fields_to_embed: list[str] | None = None,
        embedding_separator: str = "\n",
    ) -> None:
        """Set up a ranker.

        :param model: the folder or name of a cross-encoder.
        :param meta_fields_to_embed: fields of the metadata that stand before the text, such as a title.
        """
        self.model = model
        self.top_k = top_k
        self.meta_fields_to_embed = meta_fields_to_embed or []
        self.embedding_separator = embedding_separator
        self._reranker: Reranker | None = None

    def warm_up(self) -> None:
        """Load the cross-encoder."""
        self._reranker = self._reranker or load_reranker(self.model)

    @component.output_types(documents=list[Document])
    def run(self, query: str, documents: list[Document], top_k: int | None = None) -> dict[str, list[Document]]:
        """Return the best documents, best first."""
        _check(documents)
        self.warm_up()
        assert self._reranker
        texts = [_text(document, self.meta_fields_to_embed, self.embedding_separator) for document in documents]
        pairs = best(self._reranker, query, texts, self.top_k if top_k is None else top_k)
        return {"documents": [replace(documents[position], score=relevance) for position, relevance in pairs]}

    @component.output_types(documents=list[Document])
    async def run_async(
        self, query: str, documents: list[Document], top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Await `run`."""
        return await CALLS.run(self.run, query, documents, top_k)


def _check(documents: Sequence[Document]) -> None:
    """:raises TypeError: when it is no list of documents, as Haystack's own components do."""
    if not isinstance(documents, (list, tuple)) or not all(isinstance(document, Document) for document in documents):
        raise TypeError(f"expected a list of documents, not {documents!r:.60}")


def _text(document: Document, fields: Iterable[str], separator: str) -> str:
    values = [str(document.meta[name]) for name in fields if document.meta.get(name) is not None]
    return separator.join([*values, document.content or ""])


@component
class BinocleConverter:
    """Files and folders as whole documents, by Binocle's readers: also attachments and members of archives.

    It reads the files of a folder that an index would have, without text that a person does not see. The id of a
    document is the path of its file, so that it replaces the document of an earlier run.
    """

    def __init__(self, exclude: list[str] | None = None) -> None:
        """Choose the files to read.

        :param exclude: patterns of files to leave out, as in `.gitignore`.
        """
        self.exclude = exclude

    @component.output_types(documents=list[Document])
    def run(self, sources: list[str | Path | ByteStream]) -> dict[str, list[Document]]:
        """Return the documents of files, folders and byte streams; a file that cannot be read gives a warning."""
        for source in listed(sources, "sources"):
            if not isinstance(source, (str, Path, ByteStream)):
                raise InputError(f"a source is a path or a ByteStream, not {type(source).__name__}")
        return {"documents": [document for source in sources for document in _documents(source, self.exclude or ())]}

    @component.output_types(documents=list[Document])
    async def run_async(self, sources: list[str | Path | ByteStream]) -> dict[str, list[Document]]:
        """Await `run`."""
        return await CALLS.run(self.run, sources)


def _documents(source: str | Path | ByteStream, exclude: Sequence[str]) -> Iterator[Document]:
    if not isinstance(source, ByteStream):
        for name, text, meta in read_files(source, exclude):
            yield Document(id=name, content=text, meta=meta)
        return
    address = next((str(source.meta[key]) for key in _NAMES if source.meta.get(key)), "")
    stream = address or "a byte stream"
    with temporary_file(source.data, stream, source.mime_type) as file:
        for name, text, meta in read_files(file, name=stream):
            meta |= {**source.meta, "source": name}
            yield Document(id=name if address else "", content=text, meta=meta)


@component
class BinocleSplitter:
    """Documents cut as an index cuts passages: at headings, paragraphs, sentences and definitions, to fit the encoder.

    A passage has the headings above it in `meta["heading"]`. An embedder with `meta_fields_to_embed=["heading"]` embeds
    them too.
    """

    def __init__(self, model: str) -> None:
        """:param model: the folder or name of an encoder. Its tokens measure the passages."""
        self.model = model
        self._encoding = _Encoding(model)

    def warm_up(self) -> None:
        """Load the encoder."""
        self._encoding.load()

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, list[Document]]:
        """Return the passages of all documents, in order, with `source_id`, `split_id` and `split_idx_start`."""
        _check(documents)
        return {"documents": [passage for document in documents for passage in self._passages(document)]}

    @component.output_types(documents=list[Document])
    async def run_async(self, documents: list[Document]) -> dict[str, list[Document]]:
        """Await `run`."""
        return await CALLS.run(self.run, documents)

    def _passages(self, document: Document) -> Iterator[Document]:
        if document.content is None:
            raise InputError(f"the document {document.id!r} has no text: expected documents with content")
        for number, passage in enumerate(passages(document.content, document.meta, self._encoding.load())):
            meta = {**document.meta, "source_id": document.id, "split_id": number}
            if passage.heading:
                meta["heading"] = heading_of(passage)
            if document.content[passage.start : passage.end] == passage.text:  # not if line ends were changed
                meta["split_idx_start"] = passage.start
            yield Document(content=passage.text, meta=meta)
