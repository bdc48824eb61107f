"""Binocle in LlamaIndex: a vector store, a retriever, an embedding, a reranker, a reader of files and a node parser.

    store = BinocleVectorStore("my-index", embedding_dim=384)
    index = VectorStoreIndex.from_vector_store(store, embed_model=embedding)

A node comes back unchanged, with its relations. A file that the index was synced with comes back as its passages,
with a citation in `metadata["citation"]`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ...core.errors import InputError, MissingExtraError
from ..models.load import load_reranker
from ..models.reranker import best
from ..search.mode import Mode
from .conversion.llama_index_filters import where_of
from .llama_index_store import BinocleVectorStore, nodes_of
from .loading import read_files
from .opening import CALLS, encoder_of, searched
from .splitting import heading_of, passages

try:
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.bridge.pydantic import ConfigDict, Field, PrivateAttr
    from llama_index.core.node_parser import NodeParser
    from llama_index.core.node_parser.node_utils import build_nodes_from_splits
    from llama_index.core.postprocessor.types import BaseNodePostprocessor
    from llama_index.core.readers.base import BaseReader
    from llama_index.core.schema import BaseNode, Document, MetadataMode, NodeWithScore, QueryBundle, TextNode
    from llama_index.core.utils import get_tqdm_iterable
    from llama_index.core.vector_stores.types import MetadataFilters
except ModuleNotFoundError as error:
    raise MissingExtraError("llama-index-core", "llama_index", "Binocle in LlamaIndex") from error

if TYPE_CHECKING:
    from ..models.encoder import Encoder, Kind

__all__ = [
    "BinocleEmbedding",
    "BinocleNodeParser",
    "BinocleReader",
    "BinocleReranker",
    "BinocleRetriever",
    "BinocleVectorStore",
]


class BinocleRetriever(BaseRetriever):
    """The best passages of an index, each with a citation in `metadata["citation"]`.

    >>> BinocleRetriever("docs", similarity_top_k=3).retrieve("how do I cancel a task?")  # doctest: +SKIP
    """

    def __init__(
        self,
        index: Any,
        *,
        similarity_top_k: int = 10,
        filters: MetadataFilters | None = None,
        mode: Mode = "hybrid",
        rerank: Any = None,
        min_relevance: float | None = None,
        **options: Any,
    ) -> None:
        """Search an index.

        :param index: a `Retriever`, a scope of one, a `RemoteRetriever`, or the path of an index.
        :param mode: "hybrid" (words and meaning), "semantic" or "lexical".
        :param rerank: a cross-encoder, as in `Retriever.search`; True for that of a server.
        :param min_relevance: leave out what has less relevance, from 0 to 1.
        :param options: of LlamaIndex's `BaseRetriever`.
        """
        super().__init__(**options)
        self._index = searched(index)
        self._search = {"k": similarity_top_k, "mode": mode, "rerank": rerank, "min_relevance": min_relevance}
        self._search["where"] = where_of(filters)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        hits = self._index.search(query_bundle.query_str, **self._search)
        best: dict[str, NodeWithScore] = {}  # by id: several passages of a node may be hits
        for node, hit in zip(nodes_of(self._index, hits), hits, strict=True):
            best.setdefault(node.node_id, NodeWithScore(node=node, score=hit.score))
        return list(best.values())

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await CALLS.run(self._retrieve, query_bundle)


class BinocleEmbedding(BaseEmbedding):
    """The vectors of one of Binocle's encoders."""

    model_config = ConfigDict(extra="forbid")

    _encoder: Any = PrivateAttr()

    def __init__(self, model: Any, **options: Any) -> None:
        """Load an encoder.

        :param model: its folder or name, an encoder, or a `Retriever`, for the encoder of its index.
        :param options: of LlamaIndex's `BaseEmbedding`.
        """
        encoder: Encoder = encoder_of(model)
        super().__init__(**{"model_name": encoder.name, **options})
        self._encoder = encoder

    @classmethod
    def class_name(cls) -> str:
        """Return the name of the class."""
        return "BinocleEmbedding"

    def _encode(self, texts: list[str], kind: Kind) -> list[list[float]]:
        vectors: list[list[float]] = self._encoder.encode(texts, kind=kind).tolist()
        return vectors

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._encode([query], "query")[0]

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await CALLS.run(self._get_query_embedding, query)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._encode([text], "document")[0]

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return await CALLS.run(self._get_text_embedding, text)

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self._encode(texts, "document")

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return await CALLS.run(self._get_text_embeddings, texts)


class BinocleReranker(BaseNodePostprocessor):
    """A cross-encoder that orders nodes by how well they answer a query, with a score from 0 to 1."""

    model_config = ConfigDict(extra="forbid")

    top_n: int = Field(default=3, ge=0)
    _model: Any = PrivateAttr()

    def __init__(self, model: Any, top_n: int = 3, **options: Any) -> None:
        """Load a cross-encoder.

        :param model: its folder or name, or a `Reranker`.
        :param top_n: the number of nodes to keep.
        """
        super().__init__(**{"top_n": top_n, **options})
        self._model = load_reranker(model)

    @classmethod
    def class_name(cls) -> str:
        """Return the name of the class."""
        return "BinocleReranker"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if query_bundle is None:
            raise InputError("there is no query to rank by: expected a query_bundle or a query_str")
        texts = [node.node.get_content(MetadataMode.NONE) for node in nodes]
        pairs = best(self._model, query_bundle.query_str, texts, self.top_n)
        return [NodeWithScore(node=nodes[position].node, score=relevance) for position, relevance in pairs]

    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return await CALLS.run(self._postprocess_nodes, nodes, query_bundle)


class BinocleReader(BaseReader):
    """The files of a folder as whole documents, by Binocle's readers: also attachments and members of archives.

    It reads the files that an index of the folder would have, and makes no index. Text that a person does not see is
    left out.

    >>> BinocleReader("docs", exclude=["*.log"]).load_data()  # doctest: +SKIP
    """

    def __init__(self, path: str | os.PathLike[str], *, exclude: Sequence[str] = ()) -> None:
        """Name the files to read.

        :param path: a folder or a file.
        :param exclude: patterns of files to leave out, as in `.gitignore`.
        """
        self.path, self.exclude = path, exclude

    def lazy_load_data(self) -> Iterator[Document]:
        """Read the files in order of path; a file that cannot be read gives a warning."""
        for source, text, metadata in read_files(self.path, self.exclude):
            yield Document(id_=source, text=text, metadata=metadata)


class BinocleNodeParser(NodeParser):
    """Nodes cut as an index cuts passages: at headings, paragraphs, sentences and definitions, to fit the encoder.

    A node has the headings above it in `metadata["heading"]`. Nodes are shorter where their metadata are embedded with
    them.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    model_name: str = Field(description="The encoder: its tokens measure the nodes.")
    _encoder: Any = PrivateAttr()

    def __init__(self, model: Any, **options: Any) -> None:
        """Load an encoder, for its tokens.

        :param model: its folder or name, an encoder, or a `Retriever`, for the encoder of its index.
        :param options: of LlamaIndex's `NodeParser`.
        """
        encoder: Encoder = encoder_of(model)
        super().__init__(**{"model_name": encoder.name, **options})
        self._encoder = encoder

    @classmethod
    def class_name(cls) -> str:
        """Return the name of the class."""
        return "BinocleNodeParser"

    def _parse_nodes(self, nodes: Sequence[BaseNode], show_progress: bool = False, **options: Any) -> list[BaseNode]:
        documents = get_tqdm_iterable(nodes, show_progress, "Parsing nodes")
        return [piece for document in documents for piece in self._pieces(document)]

    async def _aparse_nodes(
        self, nodes: Sequence[BaseNode], show_progress: bool = False, **options: Any
    ) -> list[BaseNode]:
        return await CALLS.run(self._parse_nodes, nodes, show_progress, **options)

    def _pieces(self, document: BaseNode) -> Iterator[TextNode]:
        text = document.get_content(MetadataMode.NONE)
        beside = document.get_metadata_str(MetadataMode.EMBED) if self.include_metadata else ""
        taken = len(self._encoder.offsets([f"{beside}\nheading: "])[0])
        pieces = passages(text, document.metadata, self._encoder, taken=taken)
        nodes = build_nodes_from_splits([piece.text for piece in pieces], document, id_func=self.id_func)
        for piece, node in zip(pieces, nodes, strict=True):
            if piece.heading:
                node.metadata["heading"] = heading_of(piece)
            if text[piece.start : piece.end] == piece.text:
                node.start_char_idx, node.end_char_idx = piece.start, piece.end
            yield node

    def _postprocess_parsed_nodes(self, nodes: list[BaseNode], parent_doc_map: dict[str, Document]) -> list[BaseNode]:
        """Set relations and metadata, but keep the spans: LlamaIndex finds a repeated text where it stands first."""
        spans = [(node, node.start_char_idx, node.end_char_idx) for node in nodes if isinstance(node, TextNode)]
        nodes = super()._postprocess_parsed_nodes(nodes, parent_doc_map)
        for node, start, end in spans:
            if start is not None:
                node.start_char_idx, node.end_char_idx = start, end
        return nodes
