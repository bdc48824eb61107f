"""Embeddings that documents bring: an index keeps their directions, and their lengths are metadata.

A document without an embedding, in an index without an encoder, gets a direction that no search by meaning looks at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ....core.vectors import finite
from ...store.filters.filter import F
from .values import known

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ....core.arrays import Floats
    from ...store.records import Record

LENGTH = "binocle_length"  # the key of the length; -1 if there is no embedding

EMBEDDED = known(LENGTH, F.metadata[LENGTH] >= 0) | ~F.metadata[LENGTH].exists()
"""Passes documents that have a vector of their own, or one of the index's encoder."""


def with_embedding(added: dict[str, Any], embedding: Sequence[float] | None, dim: int | None) -> dict[str, Any]:
    """Return a document that is added, with its embedding.

    :param dim: of an index without an encoder, else None.
    :raises InputError: when the embedding is no list of finite numbers.
    """
    if embedding is None and dim is None:
        return added
    label = f"the embedding of document {added['id']!r}"
    vector = np.zeros(dim or 0) if embedding is None else finite(embedding, label)
    length = float(np.linalg.norm(vector))
    metadata = {**added.get("metadata", {}), LENGTH: -1.0 if embedding is None else length}
    return {**added, "metadata": metadata, "embedding": vector if length else np.eye(1, len(vector))[0]}


def has_embedding(record: Record) -> bool:
    """Tell whether a document was added with an embedding."""
    length = record.metadata.get(LENGTH)
    return isinstance(length, (int, float)) and length >= 0


def embedding_of(record: Record, vector: Floats | None) -> list[float] | None:
    """Return the embedding of a document from its direction, shape (dim,)."""
    if vector is None or not has_embedding(record):
        return None
    embedding: list[float] = (np.asarray(vector, np.float64) * record.metadata[LENGTH]).tolist()
    return embedding
