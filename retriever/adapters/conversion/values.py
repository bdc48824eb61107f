"""Metadata of any JSON value in an index, which has texts, numbers, booleans and lists of them; and filters on them.

Values of these types are stored unchanged. Lists, mappings and null are stored as JSON as well, all in one list
under the key `JSON_VALUES`: they come back as they were, and a filter can tell `["a"]` from "a". The values in a
mapping also stand under a key with dots, such as `author.name`, where a filter finds them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ....core.errors import InputError
from ...documents.metadata import is_plain, plain
from ...store.filters.filter import F, Filter, joined

JSON_VALUES = "binocle_values"
NOTHING = joined("or", [])  # passes no document
_NESTED = 3  # members of the entry of a value in a mapping; others have two: the key and the value


def to_metadata(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values as metadata of an added document.

    :raises InputError: when it is no mapping, a key is no text, or JSON has no such value.
    """
    if not isinstance(values, Mapping):
        raise InputError(f"metadata are a mapping of names to values, not {values!r:.60}")
    for key in values:
        if not isinstance(key, str):
            raise InputError(f"a key of metadata is a text, not {key!r:.60}")
    if JSON_VALUES in values:
        raise InputError(f"metadata cannot have {JSON_VALUES!r}: Binocle keeps lists and mappings under this key")
    metadata, encoded = {}, []
    for key, value in ((key, plain(value)) for key, value in values.items()):
        if _is_stored(value):
            metadata[key] = value
        if not is_plain(value) or "." in key:
            encoded.append(_encoded(key, value))
        if isinstance(value, Mapping):
            nested = {path: inner for path, inner in _nested(key, value).items() if path not in values}
            metadata.update({path: inner for path, inner in nested.items() if _is_stored(inner)})
            encoded += [_encoded(path, inner, nested=True) for path, inner in nested.items() if not is_plain(inner)]
    return metadata | ({JSON_VALUES: encoded} if encoded else {})


def from_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of `to_metadata`; other metadata stay unchanged."""
    values = dict(metadata)
    encoded = values.pop(JSON_VALUES, None)
    try:
        entries = [json.loads(entry) for entry in encoded or ()]
        decoded = dict(entry for entry in entries if len(entry) != _NESTED)
    except (TypeError, ValueError, RecursionError):  # an index may come from elsewhere
        return dict(metadata)
    for key, value in decoded.items():
        if isinstance(value, Mapping):
            for path in _nested(key, value):
                values.pop(path, None)
    return values | decoded


def exists(key: str) -> Filter:
    """Pass documents that have a value other than null under a key."""
    return F.metadata[key].exists() | (_any_encoded(key) & ~_has_encoded(key, None))


def equals(key: str, value: Any) -> Filter:
    """Pass documents with exactly this value: a list is not one of its members."""
    value = plain(value)
    if value is None:
        return ~exists(key)
    if not is_plain(value):
        return _has_encoded(key, value)
    return known(key, F.metadata[key] == value) & ~is_list(key)


def contains(key: str, value: Any) -> Filter:
    """Pass documents with a list that has this member."""
    return known(key, F.metadata[key] == value) & is_list(key)


def is_list(key: str) -> Filter:
    """Pass documents that have a list under a key."""
    return _any_encoded(key, "[")


def known(key: str, where: Filter) -> Filter:
    """Return a filter on a key that passes nothing, rather than being refused, while no document has the key."""
    return F.metadata[key].exists() & where


def _any_encoded(key: str, start: str = "") -> Filter:
    return known(JSON_VALUES, F.metadata[JSON_VALUES].startswith(f"[{json.dumps(key)}, {start}"))


def _has_encoded(key: str, value: Any) -> Filter:
    return known(JSON_VALUES, F.metadata[JSON_VALUES].is_in([_encoded(key, value), _encoded(key, value, nested=True)]))


def _encoded(key: str, value: Any, *, nested: bool = False) -> str:
    try:
        return json.dumps([key, value, 0] if nested else [key, value], sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        kind = type(value).__name__
        raise InputError(f"metadata {key!r} of type {kind} cannot be kept: expected a value that JSON has") from None


def _is_stored(value: Any) -> bool:
    return all(map(is_plain, value)) if isinstance(value, list) else is_plain(value)


def _nested(key: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values in a mapping, and in mappings in it, by their keys, joined with dots."""
    result: dict[str, Any] = {}
    for name, inner in value.items():
        path = f"{key}.{name}"
        result[path] = inner
        if isinstance(inner, Mapping):
            result |= _nested(path, inner)
    return result
