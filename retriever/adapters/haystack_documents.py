"""Documents of Haystack as documents of an index, and back."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.errors import InputError, MissingExtraError
from ..store.filters.filter import F
from .citations import passage_id, passage_metadata, passage_text
from .values import from_metadata, known, to_metadata

try:
    from haystack.dataclasses import ByteStream, Document, SparseEmbedding
except ModuleNotFoundError as error:
    raise MissingExtraError("haystack-ai", "haystack", "Binocle in Haystack") from error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..search.hit import Hit
    from ..store.records import Record

_FIELDS = "binocle_haystack"  # the key of metadata with the fields of a document that are no metadata, as JSON
_LENGTH = "binocle_length"  # of the embedding, for the index keeps its direction; -1 if there is none
OWN = (_FIELDS, _LENGTH)

EMBEDDED = known(_LENGTH, F.metadata[_LENGTH] > 0) | ~F.metadata[_LENGTH].exists()
"""Passes documents that have a vector of their own, or one of the index's encoder."""


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
    if document.embedding is not None or dim is not None:
        embedding = np.zeros(dim or 0) if document.embedding is None else np.asarray(document.embedding, np.float64)
        length = float(np.linalg.norm(embedding))
        own[_LENGTH] = -1.0 if document.embedding is None else length
        added["embedding"] = embedding if length else np.eye(1, len(embedding))[0]
    if taken := [name for name in OWN if name in document.meta]:
        raise InputError(f"metadata cannot have {taken[0]!r}: Binocle keeps parts of the document under this key")
    return {**added, "metadata": to_metadata(document.meta) | own}


def has_embedding(record: Record) -> bool:
    """Tell whether a document was written with an embedding."""
    length = record.metadata.get(_LENGTH)
    return isinstance(length, (int, float)) and length >= 0


def whole_document(record: Record, score: float | None = None, vector: Any = None) -> Document:
    """Return a stored document as it was written.

    :param score: of a search.
    :param vector: its direction, shape (dim,), if its embedding is to be returned.
    """
    metadata = dict(record.metadata)
    length, fields = metadata.pop(_LENGTH, 0.0), _fields(metadata.pop(_FIELDS, None))
    blob, sparse = fields.get("blob"), fields.get("sparse_embedding")
    return Document(
        id=record.id,
        content=fields.get("content", record.text),
        blob=blob and ByteStream(base64.b64decode(blob["data"]), blob["meta"], blob["mime_type"]),
        meta=from_metadata(metadata),
        score=fields.get("score") if score is None else score,
        embedding=None if vector is None else (np.asarray(vector, np.float64) * length).tolist(),
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
