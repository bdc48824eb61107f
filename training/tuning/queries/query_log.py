"""Read a log of real queries, without labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....core.errors import InputError
from ...data.sources import rows
from .query_generation import SyntheticPair
from .term_weights import normalised

if TYPE_CHECKING:
    from pathlib import Path

_COLUMNS = ("query", "question", "text")
_LONGEST = 2_000  # characters


def read_log(file: Path) -> list[SyntheticPair]:
    """Return the different queries of a log, without a passage: text lines, or a table with a column of queries.

    :raises InputError: naming the line that has no query.
    """
    if not file.is_file():
        raise InputError(f"there is no file {file}: expected a log, one query a line or a table with a column 'query'")
    queries: dict[str, str] = {}
    for where, row in rows(file):
        query = next((row[name] for name in _COLUMNS if isinstance(row.get(name), str)), None)
        if query is None:
            raise InputError(f"{where}: expected a query in a column 'query' or 'text'")
        query = " ".join(query.split())[:_LONGEST]
        if normalised(query):
            queries.setdefault(normalised(query), query)
    if not queries:
        raise InputError(f"{file} holds no queries")
    return [SyntheticPair(query, "", "log", "", 1.0) for query in queries.values()]
