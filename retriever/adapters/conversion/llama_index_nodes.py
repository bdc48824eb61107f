"""LlamaIndex's nodes: as added documents, and from records and hits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....core.errors import MissingExtraError
from .citations import passage_id, passage_metadata, passage_text
from .embeddings import with_embedding
from .values import from_metadata, to_metadata

try:
    from llama_index.core.schema import BaseNode, MetadataMode, NodeRelationship, RelatedNodeInfo, TextNode
    from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict
except ModuleNotFoundError as error:
    raise MissingExtraError("llama-index-core", "llama_index", "Binocle in LlamaIndex") from error

if TYPE_CHECKING:
    from ...search.results.hit import Hit
    from ...store.records import Record


def to_added(node: BaseNode, dim: int | None) -> dict[str, Any]:
    """Return what `Retriever.add` takes.

    :param dim: of an index without an encoder, else None.
    """
    metadata = to_metadata(node_to_metadata_dict(node, remove_text=True))
    added = {"id": node.node_id, "text": node.get_content(MetadataMode.NONE), "metadata": metadata}
    return with_embedding(added, node.embedding, dim)


def node_of(record: Record) -> BaseNode:
    """Return the node that was added as this document, or a node of any other document."""
    if "_node_content" in record.metadata:
        return metadata_dict_to_node(record.metadata, record.text or None)
    return TextNode(id_=record.id, text=record.text, metadata=from_metadata(record.metadata))


def passage_node(hit: Hit) -> TextNode:
    """Return a passage as a node with a citation."""
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
