"""Binocle as a vector store of LlamaIndex: its nodes are the documents of an index."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ...core.errors import InputError, MissingExtraError, NoIndexError, NotFoundError
from ..search.mode import Mode
from .conversion.embeddings import EMBEDDED, embedding_of
from .conversion.llama_index_filters import where_of
from .conversion.llama_index_nodes import node_of, passage_node, to_added
from .conversion.values import NOTHING
from .opening import CALLS, added_records, dim_without_encoder, opened, present, refuse_options, search_documents

try:
    from llama_index.core.bridge.pydantic import PrivateAttr
    from llama_index.core.indices.query.embedding_utils import get_top_k_mmr_embeddings
    from llama_index.core.schema import BaseNode
    from llama_index.core.vector_stores.types import (
        BasePydanticVectorStore,
        MetadataFilters,
        VectorStoreQuery,
        VectorStoreQueryMode,
        VectorStoreQueryResult,
    )
except ModuleNotFoundError as error:
    raise MissingExtraError("llama-index-core", "llama_index", "Binocle in LlamaIndex") from error

if TYPE_CHECKING:
    from ..search.results.hit import Hit

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
            self._index.add([to_added(node, dim) for node in nodes])
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
        nodes = [(node_of(record), record) for record in records.values()]
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
        nodes = nodes_of(self._index, hits)
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


def nodes_of(index: Any, hits: Iterable[Hit]) -> list[BaseNode]:
    """Return the nodes of hits: nodes that were added, and passages of anything else."""
    hits = list(hits)
    records = added_records(index, [hit for hit in hits if "_node_content" in hit.metadata])
    return [node_of(records[hit.path]) if hit.path in records else passage_node(hit) for hit in hits]
