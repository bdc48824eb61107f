"""Filters of LangChain as filters of Binocle."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ....core.errors import InputError, MissingExtraError
from ...store.filters.filter import F, Filter, joined
from ...store.filters.where import parse
from .values import contains, equals, exists, known

try:
    from langchain_core.structured_query import Comparison, FilterDirective, Operation, Visitor
except ModuleNotFoundError as error:
    raise MissingExtraError("langchain-core", "langchain", "Binocle in LangChain") from error


def where_of(where: Any) -> Filter | None:
    """Return a filter of LangChain's as one of Binocle's.

    A mapping has keys with values that must be equal, or with operators as in `{"year": {"$gte": 2020}}`, and `$and`,
    `$or`, `$not`. A self-query retriever makes directives. Filters of Binocle stay unchanged.

    :raises InputError: naming the part that cannot be read.
    """
    if isinstance(where, FilterDirective):
        directive: Filter = where.accept(BinocleTranslator())
        return directive
    if isinstance(where, Mapping):
        return _mapping(where) if where else None
    if callable(where):
        raise InputError("a filter cannot be a function here: expected a mapping such as {'year': {'$gte': 2020}}")
    return parse(where)


def _mapping(where: Any) -> Filter:
    if not isinstance(where, Mapping):
        raise InputError(f"a part of a filter is a mapping such as {{'year': {{'$gte': 2020}}}}, not {where!r}")
    return joined("and", [_part(key, value) for key, value in where.items()])


def _part(key: str, value: Any) -> Filter:
    if key in ("$and", "$or"):
        if isinstance(value, (str, Mapping)) or not isinstance(value, Sequence) or not value:
            raise InputError(f"{key} joins a list of filters: expected some, not {value!r}")
        return joined(key[1:], [_mapping(part) for part in value])
    if key == "$not":
        return ~_mapping(value)
    if str(key).startswith("$"):
        raise InputError(f"there is no operator {key}: expected $and, $or, $not or a key of metadata")
    if isinstance(value, Mapping) and any(str(name).startswith("$") for name in value):
        return joined("and", [_compare(key, str(name), bound) for name, bound in value.items()])
    return equals(key, value)


def _like(key: str, pattern: str) -> Filter:
    """Match a text as SQL's LIKE does; one without % and _ anywhere in it."""
    if not isinstance(pattern, str):
        raise InputError(f"$like compares {key!r} with a text, not with {pattern!r}")
    escaped = re.sub(r"([*?\[])", r"[\1]", pattern)
    glob = escaped.replace("%", "*").replace("_", "?") if re.search("[%_]", pattern) else f"*{escaped}*"
    return known(key, F.metadata[key].glob(glob))


def _between(key: str, bounds: Any) -> Filter:
    if not isinstance(bounds, (list, tuple)) or len(bounds) != 2:
        raise InputError(f"$between compares {key!r} with a list of two bounds, not with {bounds!r}")
    return known(key, F.metadata[key].between(*bounds))


_COMPARISONS: dict[str, Callable[[str, Any], Filter]] = {
    "$eq": equals,
    "$ne": lambda key, value: ~equals(key, value),
    "$gt": lambda key, value: known(key, F.metadata[key] > value),
    "$gte": lambda key, value: known(key, F.metadata[key] >= value),
    "$lt": lambda key, value: known(key, F.metadata[key] < value),
    "$lte": lambda key, value: known(key, F.metadata[key] <= value),
    "$in": lambda key, values: known(key, F.metadata[key].is_in(values)),
    "$nin": lambda key, values: ~known(key, F.metadata[key].is_in(values)),
    "$between": _between,
    "$contain": contains,
    "$contains": contains,
    "$like": _like,
    "$exists": lambda key, value: exists(key) if value else ~exists(key),
}


def _compare(key: str, operator: str, value: Any) -> Filter:
    if operator not in _COMPARISONS:
        raise InputError(f"there is no operator {operator}: expected one of {', '.join(_COMPARISONS)}")
    return _COMPARISONS[operator](key, value)


class BinocleTranslator(Visitor):
    """Filters of a self-query retriever."""

    def visit_operation(self, operation: Operation) -> Filter:
        """Join or negate filters."""
        parts: list[Filter] = [argument.accept(self) for argument in operation.arguments]
        return ~joined("and", parts) if operation.operator == "not" else joined(operation.operator.value, parts)

    def visit_comparison(self, comparison: Comparison) -> Filter:
        """Compare the values under a key."""
        return _compare(comparison.attribute, f"${comparison.comparator.value}", comparison.value)

    def visit_structured_query(self, structured_query: Any) -> tuple[str, dict[str, Any]]:
        """Return the query, and the options of a search."""
        where = structured_query.filter
        options = {} if where is None else {"filter": where.accept(self)}
        return structured_query.query, options
