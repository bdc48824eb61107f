"""Binocle in LlamaIndex: a vector store, a retriever, an embedding, a reranker, a reader of files and a node parser.

    store = BinocleVectorStore("my-index", embedding_dim=384)
    index = VectorStoreIndex.from_vector_store(store, embed_model=embedding)

A node comes back unchanged, with its relations. A file that the index was synced with comes back as its passages,
with a citation in `metadata["citation"]`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ...core.errors import InputError, MissingExtraError, NoIndexError, NotFoundError
from ..models.load import load_reranker
from ..models.reranker import best
from ..search.mode import Mode
from .conversion.citations import passage_id, passage_metadata, passage_text
from .conversion.embeddings import EMBEDDED, embedding_of, with_embedding
from .conversion.llama_index_filters import where_of
from .conversion.values import NOTHING, from_metadata, to_metadata
from .loading import read_files
from .opening import (
    CALLS,
    added_records,
    dim_without_encoder,
    encoder_of,
    opened,
    present,
    refuse_options,
    search_documents,
    searched,
)
from .splitting import heading_of, passages

try:
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.bridge.pydantic import ConfigDict, Field, PrivateAttr
    from llama_index.core.indices.query.embedding_utils import get_top_k_mmr_embeddings
    from llama_index.core.node_parser import NodeParser
    from llama_index.core.node_parser.node_utils import build_nodes_from_splits
    from llama_index.core.postprocessor.types import BaseNodePostprocessor
    from llama_index.core.readers.base import BaseReader
    from llama_index.core.schema import (
        BaseNode,
        Document,
        MetadataMode,
        NodeRelationship,
        NodeWithScore,
        QueryBundle,
        RelatedNodeInfo,
        TextNode,
    )
    from llama_index.core.utils import get_tqdm_iterable
    from llama_index.core.vector_stores.types import (
        BasePydanticVectorStore,
        MetadataFilters,
        VectorStoreQuery,
        VectorStoreQueryMode,
        VectorStoreQueryResult,
    )
    from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict
except ModuleNotFoundError as error:
    raise MissingExtraError("llama-index-core", "llama_index", "Binocle in LlamaIndex") from error

if TYPE_CHECKING:
    from ..models.encoder import Encoder, Kind
    from ..search.results.hit import Hit
    from ..store.records import Record

_MODES: dict[VectorStoreQueryMode, Mode] = {
    VectorStoreQueryMode.DEFAULT: "semantic",
    VectorStoreQueryMode.MMR: "semantic",
    VectorStoreQueryMode.SPARSE: "lexical",
    VectorStoreQueryMode.TEXT_SEARCH: "lexical",
    VectorStoreQueryMode.HYBRID: "hybrid",
    VectorStoreQueryMode.SEMANTIC_HYBRID: "hybrid",
}
_FETCHED = 4  # candidates for each node that MMR chooses


class BinocleVectorStore(BasePydanticVectorStore):
    """Nodes in an index; the first that is added makes a new index."""

    stores_text: bool = True
    is_embedding_query: bool = True
    _index: Any = PrivateAttr()

    def __init__(self, index: Any, *, embedding_dim: int | None = None) -> None:
        """Open an index.

        :param index: a `Retriever`, a scope of one, or the path of an index.
        :param embedding_dim: of the embeddings of nodes, for a new index without an encoder.
        """
        super().__init__(stores_text=True)
        self._index = opened(index, None if embedding_dim is None else lambda: embedding_dim)

    @classmethod
    def class_name(cls) -> str:
        """Return the name of the class."""
        return "BinocleVectorStore"

    @property
    def client(self) -> Any:
        """The `Retriever`, or the scope of one."""
        return self._index

    def add(self, nodes: Sequence[BaseNode], **options: Any) -> list[str]:
        """Add nodes in one commit, and return their ids; a node with an id that is there replaces it."""
        refuse_options(options)
        if nodes:
            dim = dim_without_encoder(self._index)
            self._index.add([_added(node, dim) for node in nodes])
        return [node.node_id for node in nodes]

    async def async_add(self, nodes: Sequence[BaseNode], **options: Any) -> list[str]:
        """Await `add`."""
        return await CALLS.run(self.add, nodes, **options)

    def delete(self, ref_doc_id: str, **options: Any) -> None:
        """Delete the nodes of a document."""
        refuse_options(options)
        self._delete(where_of(None, doc_ids=[ref_doc_id]))

    async def adelete(self, ref_doc_id: str, **options: Any) -> None:
        """Await `delete`."""
        await CALLS.run(self.delete, ref_doc_id, **options)

    def delete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **options: Any
    ) -> None:
        """Delete the nodes with these ids that pass a filter."""
        refuse_options(options)
        where = where_of(filters, node_ids)
        if where is None:
            raise InputError("there are neither node_ids nor filters: clear() deletes all nodes")
        self._delete(where)

    async def adelete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **options: Any
    ) -> None:
        """Await `delete_nodes`."""
        await CALLS.run(self.delete_nodes, node_ids, filters, **options)

    def clear(self) -> None:
        """Delete all nodes."""
        self._delete(~NOTHING)

    async def aclear(self) -> None:
        """Await `clear`."""
        await CALLS.run(self.clear)

    def _delete(self, where: Any) -> None:
        with contextlib.suppress(NoIndexError):  # nothing was added yet
            self._index.delete(where=where)

    def get(self, text_id: str) -> list[float]:
        """Return the embedding of a node.

        :raises NotFoundError: when it is not there, or has neither a text nor an embedding.
        """
        record = self._index.get(text_id, vectors=True)
        if not len(record.vectors):
            raise NotFoundError(f"{text_id!r} has no embedding, and no text that gives one")
        embedding = embedding_of(record, record.vectors[0])
        return record.vectors[0].tolist() if embedding is None else embedding

    def get_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None) -> list[BaseNode]:
        """Return the nodes with these ids that pass a filter, with their embeddings, in order of id."""
        where = where_of(filters, node_ids)
        try:
            names = [record.id for record in self._index.iterate(where)]
        except NoIndexError:
            return []
        records = present(self._index, names, vectors=True)
        nodes = [(_node(record), record) for record in records.values()]
        for node, record in nodes:
            vectors = record.vectors
            node.embedding = embedding_of(record, vectors[0] if vectors is not None and len(vectors) else None)
        return [node for node, _ in nodes]

    async def aget_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """Await `get_nodes`."""
        return await CALLS.run(self.get_nodes, node_ids, filters)

    def query(self, query: VectorStoreQuery, **options: Any) -> VectorStoreQueryResult:
        """Return the best nodes for an embedding, a text or both, best first.

        Hybrid search has weights of its own, so `alpha` is 0 for words, 1 for the meaning, or .5 for both.

        :param options: `mmr_threshold`, from 0 for diverse nodes to 1 for near ones, and `mmr_prefetch_k`.
        """
        refuse_options(options, "mmr_threshold", "mmr_prefetch_k")
        mode = _mode(query)
        text = query.query_str if mode != "semantic" or query.query_embedding is None else None
        where = where_of(query.filters, query.node_ids or None, query.doc_ids or None)  # [] is LlamaIndex's no limit
        search: dict[str, Any] = {"mode": mode, "where": where}
        if query.query_embedding is not None and mode != "lexical":
            search["vector"] = query.query_embedding
        if mode == "semantic":
            search["where"] = EMBEDDED if where is None else where & EMBEDDED
        count = query.hybrid_top_k if mode == "hybrid" and query.hybrid_top_k else query.similarity_top_k
        if query.mode == VectorStoreQueryMode.MMR:
            hits, scores = self._diverse(query, {**search, "query": text}, options)
        else:
            hits = search_documents(self._index, count, query=text, **search) if count else []
            scores = [hit.score for hit in hits]
        nodes = _nodes(self._index, hits)
        return VectorStoreQueryResult(nodes=nodes, similarities=scores, ids=[node.node_id for node in nodes])

    async def aquery(self, query: VectorStoreQuery, **options: Any) -> VectorStoreQueryResult:
        """Await `query`."""
        return await CALLS.run(self.query, query, **options)

    def _diverse(
        self, query: VectorStoreQuery, search: dict[str, Any], options: dict[str, Any]
    ) -> tuple[list[Hit], list[float]]:
        """Choose nodes that are unlike each other, with their scores: Carbonell and Goldstein 1998."""
        if query.query_embedding is None:
            raise InputError("a diverse choice needs an embedding of the query: expected a query_embedding")
        count = query.similarity_top_k
        fetched = options.get("mmr_prefetch_k") or _FETCHED * count
        hits = search_documents(self._index, fetched, with_vectors=True, **search)
        threshold = options.get("mmr_threshold", query.mmr_threshold)
        vectors = [hit.vector.tolist() for hit in hits if hit.vector is not None]
        scores, positions = get_top_k_mmr_embeddings(
            query.query_embedding, vectors, similarity_top_k=count, mmr_threshold=threshold
        )
        return [hits[position] for position in positions], scores


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
        for node, hit in zip(_nodes(self._index, hits), hits, strict=True):
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


def _mode(query: VectorStoreQuery) -> Mode:
    if query.mode not in _MODES:
        names = ", ".join(mode.value for mode in _MODES)
        raise InputError(f"a search in mode {query.mode.value!r} is not possible here: expected one of {names}")
    mode = _MODES[query.mode]
    if mode == "hybrid" and query.alpha not in (None, 0.5):
        if query.alpha not in (0, 1):
            raise InputError(f"alpha is 0 for words, 1 for the meaning or .5 for both, not {query.alpha}")
        return "semantic" if query.alpha else "lexical"
    return mode


def _added(node: BaseNode, dim: int | None) -> dict[str, Any]:
    metadata = to_metadata(node_to_metadata_dict(node, remove_text=True))
    added = {"id": node.node_id, "text": node.get_content(MetadataMode.NONE), "metadata": metadata}
    return with_embedding(added, node.embedding, dim)


def _nodes(index: Any, hits: Iterable[Hit]) -> list[BaseNode]:
    """Return the nodes of hits: nodes that were added, and passages of anything else."""
    hits = list(hits)
    records = added_records(index, [hit for hit in hits if "_node_content" in hit.metadata])
    return [_node(records[hit.path]) if hit.path in records else _passage(hit) for hit in hits]


def _node(record: Record) -> BaseNode:
    if "_node_content" in record.metadata:
        return metadata_dict_to_node(record.metadata, record.text or None)
    return TextNode(id_=record.id, text=record.text, metadata=from_metadata(record.metadata))


def _passage(hit: Hit) -> TextNode:
    hidden = ["citation", "relevance"]  # from the model: `source` is enough for it
    return TextNode(
        id_=passage_id(hit),
        text=passage_text(hit),
        metadata=passage_metadata(hit),
        excluded_llm_metadata_keys=hidden,
        excluded_embed_metadata_keys=hidden,
        start_char_idx=hit.char_start,
        end_char_idx=hit.char_end,
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=hit.path)},
    )
