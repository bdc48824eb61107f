"""Documents of Haystack as documents of an index, and back."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from ....core.errors import InputError, MissingExtraError
from .citations import passage_id, passage_metadata, passage_text
from .embeddings import LENGTH, embedding_of, with_embedding
from .values import from_metadata, to_metadata

try:
    from haystack.dataclasses import ByteStream, Document, SparseEmbedding
except ModuleNotFoundError as error:
    raise MissingExtraError("haystack-ai", "haystack", "Binocle in Haystack") from error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...search.results.hit import Hit
    from ...store.records import Record

_FIELDS = "binocle_haystack"  # the metadata key of a document's other fields, as JSON
OWN = (_FIELDS, LENGTH)


def to_added(document: Document, dim: int | None) -> dict[str, Any]:
    """Return what `Retriever.add` takes.

    :param dim: of an index without an encoder. A document without embedding gets a vector that no search looks at.
    """
    added: dict[str, Any] = {"id": document.id, "text": document.content or ""}
    fields: dict[str, Any] = {}
    if document.content is None:
        fields["content"] = None
    if document.score is not None:
        fields["score"] = document.score
    if document.blob is not None:
        blob = document.blob
        data = base64.b64encode(blob.data).decode("ascii")
        fields["blob"] = {"data": data, "meta": blob.meta, "mime_type": blob.mime_type}
    if document.sparse_embedding is not None:
        fields["sparse_embedding"] = document.sparse_embedding.to_dict()
    own: dict[str, Any] = {_FIELDS: json.dumps(fields)} if fields else {}
    if taken := [name for name in OWN if name in document.meta]:
        raise InputError(f"metadata cannot have {taken[0]!r}: Binocle keeps parts of the document under this key")
    return with_embedding({**added, "metadata": to_metadata(document.meta) | own}, document.embedding, dim)


def whole_document(record: Record, vector: Any = None) -> Document:
    """Return a stored document, unchanged.

    :param vector: its direction, shape (dim,), if its embedding is to be returned.
    """
    metadata = dict(record.metadata)
    embedding, fields = embedding_of(record, vector), _fields(metadata.pop(_FIELDS, None))
    metadata.pop(LENGTH, None)
    blob, sparse = fields.get("blob"), fields.get("sparse_embedding")
    return Document(
        id=record.id,
        content=fields.get("content", record.text),
        blob=blob and ByteStream(base64.b64decode(blob["data"]), blob["meta"], blob["mime_type"]),
        meta=from_metadata(metadata),
        score=fields.get("score"),
        embedding=embedding,
        sparse_embedding=sparse and SparseEmbedding.from_dict(sparse),
    )


def passage_document(hit: Hit) -> Document:
    """Return a passage of a file."""
    return Document(id=passage_id(hit), content=passage_text(hit), meta=passage_metadata(hit), score=hit.score)


def _fields(encoded: Any) -> Mapping[str, Any]:
    try:
        fields = json.loads(encoded or "{}")
    except (TypeError, ValueError, RecursionError):  # an index may come from elsewhere
        return {}
    return fields if isinstance(fields, dict) else {}
