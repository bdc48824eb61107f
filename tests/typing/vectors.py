"""An example for type checkers: an index of vectors that another program computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from binocle import DeadlineError, EncoderMismatchError, Hit, Hits, Record, Report, Retriever

Embed = Callable[[Sequence[str]], NDArray[np.float32]]


def open_index(path: str, dim: int) -> Retriever | None:
    """Open or make an index without an encoder."""
    try:
        return Retriever.open(path, encoder=None, dim=dim)
    except EncoderMismatchError:
        return None


def fill(retriever: Retriever, texts: Sequence[str], embed: Embed) -> Report:
    """Add texts with their vectors."""
    pairs = zip(texts, embed(texts), strict=True)
    return retriever.add({"text": text, "embedding": vector} for text, vector in pairs)


def nearest(retriever: Retriever, query: str, embed: Embed) -> NDArray[np.float32] | None:
    """Return the vector of the best passage."""
    hits: Hits = retriever.search(query, vector=embed([query])[0], with_vectors=True)
    return vector_of(hits[0]) if hits else None


def vector_of(hit: Hit) -> NDArray[np.float32] | None:
    """Return the stored vector of a hit."""
    return hit.vector


def different(retriever: Retriever, query: str) -> Hits | None:
    """Return passages of different documents that differ, in time."""
    try:
        return retriever.search(query, 5, group_by="document", mmr=0.5, deadline=2)
    except DeadlineError:
        return None


def answers(retriever: Retriever, vectors: list[list[float]]) -> list[Hits]:
    """Search for several vectors by meaning."""
    return retriever.search_many(vectors=vectors, k=5)


def export(retriever: Retriever) -> dict[str, NDArray[np.float32] | None]:
    """Return the vectors of all documents."""
    records: list[Record] = list(retriever.iterate(vectors=True))
    return {record.id: record.vectors for record in records}
