"""The different values under a key, and the types of all keys, read from the columns of an index."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from ...store.filters.condition_masks import evaluate
from .values import JSON_VALUES, is_list

if TYPE_CHECKING:
    from ....core.arrays import Mask
    from ...store.filters.filter import Filter
    from ...store.filters.sorted_values import Column
    from ...store.snapshot import Snapshot


def unique_values(index: Any, key: str, where: Filter | None = None) -> list[Any]:
    """Return the different values that documents have under a key of their metadata; 1, 1.0, "1" and True are four.

    :param index: a `Retriever` or a scope of one.
    """
    inside = index._where(where)  # noqa: SLF001 - what an index reads with

    def answer(snapshot: Snapshot) -> list[Any]:
        columns = snapshot.columns
        mask = np.ones(columns.count, np.bool_) if inside is None else snapshot.select(inside)
        prefix = f"[{json.dumps(key)}, "
        encoded = [text for text in _values(columns.column(JSON_VALUES), mask) if str(text).startswith(prefix)]
        nested = [value for value in map(_decoded, encoded) if isinstance(value, (list, dict))]
        return _values(columns.column(f"metadata.{key}"), mask & ~evaluate(is_list(key), columns)) + nested

    values: list[Any] = index._index.read(answer)  # noqa: SLF001 - as above
    return values


def value_types(index: Any) -> dict[str, type]:
    """Return the keys of the metadata, each with the type of a value: the first one's, in order of type."""
    inside = index._where(None)  # noqa: SLF001 - what an index reads with

    def answer(snapshot: Snapshot) -> dict[str, type]:
        columns = snapshot.columns
        mask = np.ones(columns.count, np.bool_) if inside is None else snapshot.select(inside)
        values = {key: _values(columns.column(f"metadata.{key}"), mask) for key in columns.keys(mask)}
        return {key: type(members[0]) for key, members in values.items() if members}

    types: dict[str, type] = index._index.read(answer)  # noqa: SLF001 - as above
    return types


def _decoded(text: str) -> Any:
    """Return the value of a key, as `to_metadata` encodes both; None if this is no such text."""
    try:
        return json.loads(text)[1]
    except (ValueError, IndexError, RecursionError):  # an index may come from elsewhere
        return None


def _values(column: Column, mask: Mask) -> list[Any]:
    """Return the values of a column that one of these documents has."""
    codes = np.repeat(np.arange(len(column.values)), np.diff(column.starts))[mask[column.owners]]
    return [column.values[code] for code in np.unique(codes).tolist()]
