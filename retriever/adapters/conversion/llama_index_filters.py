"""Filters of LlamaIndex as filters of Binocle: its 14 operators, nested to any depth.

They pass the nodes that LlamaIndex's `SimpleVectorStore` passes, with one difference: 1 is not True.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from ....core.errors import InputError, MissingExtraError
from ...store.filters.filter import F, Filter, condition, joined
from .values import NOTHING, contains, equals, exists, is_list, known

try:
    from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters
except ModuleNotFoundError as error:
    raise MissingExtraError("llama-index-core", "llama_index", "Binocle in LlamaIndex") from error


def where_of(
    filters: MetadataFilters | None, node_ids: Sequence[str] | None = None, doc_ids: Sequence[str] | None = None
) -> Filter | None:
    """Join a filter with limits to some nodes, and to nodes of some documents; None if there is no limit."""
    parts = [] if filters is None or not filters.filters else [_junction(filters)]
    if node_ids is not None:
        parts.append(F.path.is_in(node_ids))
    if doc_ids is not None:
        parts.append(known("ref_doc_id", F.metadata["ref_doc_id"].is_in(doc_ids)))
    return joined("and", parts) if parts else None


def _junction(filters: MetadataFilters) -> Filter:
    parts = [_junction(part) if isinstance(part, MetadataFilters) else _comparison(part) for part in filters.filters]
    if filters.condition == FilterCondition.NOT:  # of all of them
        return ~joined("or", parts)
    return joined("or" if filters.condition == FilterCondition.OR else "and", parts)


def _comparison(part: MetadataFilter) -> Filter:
    return _COMPARISONS[part.operator](part.key, part.value)


def _ordered(operator: str) -> Callable[[str, Any], Filter]:
    def compare(key: str, value: Any) -> Filter:
        if value is None or isinstance(value, list):
            raise InputError(f"{value!r} has no order: expected a number or a text to compare {key!r} with")
        return known(key, condition(f"metadata.{key}", operator, value)) & ~is_list(key)

    return compare


def _among(key: str, values: Any) -> Filter:
    if not isinstance(values, list):
        raise InputError(f"the filter on {key!r} is among several values: expected a list, not {values!r}")
    return known(key, F.metadata[key].is_in(values)) & ~is_list(key)


def _has(key: str, value: Any) -> Filter:
    """A list with this member, or a text with this part."""
    member = contains(key, value)
    return member | _part(key, value) if isinstance(value, str) else member


def _each(operator: str) -> Callable[[str, Any], Filter]:
    def compare(key: str, values: Any) -> Filter:
        if isinstance(values, (int, float)) or values is None:
            raise InputError(f"the filter on {key!r} is about several values: expected a list, not {values!r}")
        return exists(key) & joined(operator, [_has(key, value) for value in values])

    return compare


def _part(key: str, text: Any, operator: str = "glob") -> Filter:
    if not isinstance(text, str):
        raise InputError(f"the filter on {key!r} looks for a part of a text: expected a text, not {text!r}")
    glob = re.sub(r"([*?\[])", r"[\1]", text)
    return known(key, condition(f"metadata.{key}", operator, f"*{glob}*")) & ~is_list(key)


_COMPARISONS: dict[FilterOperator, Callable[[str, Any], Filter]] = {
    FilterOperator.EQ: lambda key, value: equals(key, value) if value is not None else NOTHING,
    FilterOperator.NE: lambda key, value: ~equals(key, value) if value is not None else ~NOTHING,
    FilterOperator.GT: _ordered("gt"),
    FilterOperator.GTE: _ordered("gte"),
    FilterOperator.LT: _ordered("lt"),
    FilterOperator.LTE: _ordered("lte"),
    FilterOperator.IN: _among,
    FilterOperator.NIN: lambda key, values: ~_among(key, values),
    FilterOperator.ANY: _each("or"),
    FilterOperator.ALL: _each("and"),
    FilterOperator.CONTAINS: _has,
    FilterOperator.TEXT_MATCH: _part,
    FilterOperator.TEXT_MATCH_INSENSITIVE: lambda key, text: _part(key, text, "like"),
    FilterOperator.IS_EMPTY: lambda key, _: ~exists(key) | equals(key, "") | equals(key, []),
}
