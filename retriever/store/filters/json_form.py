"""Filters as other programs send them: the JSON of OpenAI's vector stores, with a type for each operator.

    {"type": "and", "filters": [{"type": "eq", "key": "tenant", "value": "t1"}, ...]}

OpenAI's types are and, or, eq, ne, gt, gte, lt, lte, in and nin. Binocle adds not (with `filter`), exists (without
`value`), between, startswith, glob, and the comparisons of the filter language.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....core.errors import InputError
from .fields import shown
from .filter import (
    COMPARISONS,
    MAX_DEPTH,
    TEXTUAL,
    Condition,
    Filter,
    Junction,
    Negation,
    Within,
    condition,
    joined,
)

_NEGATED = {"ne": "eq", "nin": "in"}
_TYPES = (*COMPARISONS, *TEXTUAL, "in", "between", "exists")
_EXPECTED = '{"type": "eq", "key": "tenant", "value": "t1"} or {"type": "and", "filters": [...]}'


def from_json(record: Mapping[str, Any], depth: int = 1) -> Filter:
    """Read a filter.

    :raises InputError: naming the part that cannot be read.
    """
    if not isinstance(record, Mapping) or "type" not in record:
        raise InputError(f"a filter in JSON is an object such as {_EXPECTED}, not {shown(record)}")
    if depth > MAX_DEPTH:
        raise InputError(f"the filter has more than {MAX_DEPTH} filters in each other: expected fewer")
    kind = record["type"]
    if kind in ("and", "or"):
        _check_names(record, "type", "filters")
        parts = record["filters"]
        if isinstance(parts, (str, Mapping)) or not isinstance(parts, Sequence) or not parts:
            raise InputError(f"{kind!r} joins a list of filters: expected some in 'filters', not {shown(parts)}")
        return joined(kind, [from_json(part, depth + 1) for part in parts])
    if kind == "not":
        _check_names(record, "type", "filter")
        return ~from_json(record["filter"], depth + 1)
    if kind == "exists":
        _check_names(record, "type", "key")
        return condition(record["key"], kind)
    if isinstance(kind, str) and kind in _NEGATED:
        _check_names(record, "type", "key", "value")
        return ~condition(record["key"], _NEGATED[kind], record["value"])
    if not isinstance(kind, str) or kind not in _TYPES:
        names = ", ".join(("and", "or", "not", "ne", "nin", *_TYPES))
        raise InputError(f"there is no filter of type {shown(kind)}: expected one of {names}")
    _check_names(record, "type", "key", "value")
    return condition(record["key"], kind, record["value"])


def _check_names(record: Mapping[str, Any], *names: str) -> None:
    if set(record) != set(names):
        expected = ", ".join(map(repr, names))
        raise InputError(f"a filter of type {record['type']!r} has {expected}, but {shown(dict(record))} came")


def to_json(where: Filter) -> dict[str, Any]:
    """Return a filter as `from_json` reads it."""
    if isinstance(where, Junction):
        return {"type": where.operator, "filters": list(map(to_json, where.parts))}
    if isinstance(where, Within):
        return to_json(where.scope if where.part is None else where.scope & where.part)
    if isinstance(where, Negation):
        part = to_json(where.part)
        opposite = {"eq": "ne", "in": "nin"}.get(part["type"])
        return part | {"type": opposite} if opposite else {"type": "not", "filter": part}
    assert isinstance(where, Condition)
    if where.operator == "exists":
        return {"type": "exists", "key": where.key}
    value = list(where.value) if isinstance(where.value, tuple) else where.value
    return {"type": where.operator, "key": where.key, "value": value}
