"""Filters of Haystack as filters of Binocle.

    {"operator": "AND", "conditions": [{"field": "meta.year", "operator": ">=", "value": 2020}, ...]}

They pass the same documents as Haystack's own `document_matches_filter`, with one difference: dates are compared as
texts, so all dates under a key must be written in one way, as `isoformat` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from ....core.errors import InputError, MissingExtraError
from ...documents.metadata import is_plain, plain
from ...store.filters.filter import F, Filter, condition, joined
from .values import NOTHING, equals, is_list, known

try:
    from haystack.errors import FilterError
except ModuleNotFoundError as error:
    raise MissingExtraError("haystack-ai", "haystack", "Binocle in Haystack") from error

_FIELDS = ("content", "blob", "score", "embedding", "sparse_embedding")  # which no filter can compare here
_SHAPE = '{"field": "meta.year", "operator": ">=", "value": 2020}'


def where_of(filters: Mapping[str, Any] | None) -> Filter | None:
    """Read a filter; None if there is none.

    :raises FilterError: naming the part that cannot be read.
    """
    if not filters:
        return None
    try:
        return _filter(filters)
    except InputError as error:
        raise FilterError(str(error)) from None


def _filter(filters: Mapping[str, Any]) -> Filter:
    if not isinstance(filters, Mapping):
        raise FilterError(f"a filter is a mapping such as {_SHAPE}, not {filters!r}")
    if "field" in filters:
        return _comparison(filters)
    _check_keys(filters, "operator", "conditions")
    operator, conditions = filters["operator"], filters["conditions"]
    if not isinstance(conditions, (list, tuple)):
        raise FilterError(f"conditions are a list of filters, not {conditions!r}")
    parts = list(map(_filter, conditions))
    if operator not in ("AND", "OR", "NOT"):
        raise FilterError(f"there is no operator {operator!r} for conditions: expected AND, OR or NOT")
    return ~joined("and", parts) if operator == "NOT" else joined(operator.lower(), parts)


def _comparison(filters: Mapping[str, Any]) -> Filter:
    _check_keys(filters, "operator", "value")
    name, operator, value = filters["field"], filters["operator"], filters["value"]
    if not isinstance(name, str):
        raise FilterError(f"a field has a name such as meta.year, not {name!r}")
    if not isinstance(operator, str) or operator not in _COMPARISONS:
        raise FilterError(f"there is no operator {operator!r}: expected one of {', '.join(_COMPARISONS)}")
    if operator in ("in", "not in") and not isinstance(value, list):
        raise FilterError(f"{operator!r} compares with a list of values, not with {value!r}")
    if name == "id":
        return _identity(operator, value)
    if name in _FIELDS:
        raise FilterError(
            f"a filter cannot compare {name!r}: expected a field of the metadata, such as meta.year, or id"
        )
    return _COMPARISONS[operator](name.removeprefix("meta."), value)


def _check_keys(filters: Mapping[str, Any], *names: str) -> None:
    if missing := [name for name in names if name not in filters]:
        raise FilterError(f"{missing[0]!r} is missing in {dict(filters)!r}: expected a filter such as {_SHAPE}")


def _identity(operator: str, value: Any) -> Filter:
    if operator in ("==", "!="):
        same = condition("path", "eq", value) if isinstance(value, str) else NOTHING
        return same if operator == "==" else ~same
    if operator in ("in", "not in"):
        among = condition("path", "in", [name for name in value if isinstance(name, str)])
        return among if operator == "in" else ~among
    raise FilterError(f"ids can be compared with ==, !=, in and not in only, not by {operator!r}")


def _ordered(operator: str) -> Callable[[str, Any], Filter]:
    def compare(key: str, value: Any) -> Filter:
        if value is None:
            return NOTHING
        if isinstance(value, (list, dict)) or (isinstance(value, str) and not _is_date(value)):
            raise FilterError(f"{value!r} has no order: expected a number or a date in ISO form")
        return known(key, condition(f"metadata.{key}", operator, value)) & ~is_list(key)

    return compare


def _is_date(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _among(key: str, values: list[Any]) -> Filter:
    scalars = [value for value in map(plain, values) if is_plain(value)]
    parts = [equals(key, value) for value in values if not is_plain(plain(value))]
    return joined("or", [known(key, F.metadata[key].is_in(scalars)) & ~is_list(key), *parts])


_COMPARISONS: dict[str, Callable[[str, Any], Filter]] = {
    "==": equals,
    "!=": lambda key, value: ~equals(key, value),
    ">": _ordered("gt"),
    ">=": _ordered("gte"),
    "<": _ordered("lt"),
    "<=": _ordered("lte"),
    "in": _among,
    "not in": lambda key, values: ~_among(key, values),
}
