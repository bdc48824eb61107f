"""Passages that are similar to one of the index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.errors import InputError
from ..store.documents import chunk_at
from ..store.records import name_of
from .arguments import check_count
from .query import Query

if TYPE_CHECKING:
    import os

    from ..store.filters.filter import Filter
    from ..store.snapshot import Snapshot
    from .results.hits import Hits


def check(path: Any, line: int, k: int) -> None:
    """Check the arguments of a search for similar passages."""
    name_of(path)
    check_count(k)
    if isinstance(line, bool) or not isinstance(line, (int, np.integer)):
        raise InputError(f"a line is a whole number from 1, not {line!r}")


def similar(
    snapshot: Snapshot,
    path: str | os.PathLike[str],
    line: int,
    k: int,
    *,
    where: Filter | None,
    inside: Filter | None = None,
) -> Hits:
    """Return the k passages most similar to the one at a line of a document, which is left out.

    :param inside: the filter of a scope: the document must pass it too.
    """
    if inside is not None:
        from ..store.records import check_inside

        check_inside(snapshot, path, inside)
    chunk = chunk_at(snapshot, path, line)
    vector = np.array([chunk["vector"]], np.float32)
    query = Query(snapshot, "", lambda: vector)
    hits = query.hits(int(k), mode="semantic", where=where, without=chunk["id"])
    hits.answerable, hits.version = None, snapshot.head.commits  # there is no question to answer
    return hits
