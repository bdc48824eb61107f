"""Read a filter in any of its forms."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ....core.errors import InputError
from .fields import shown
from .filter import Filter, condition, joined

Where = Filter | str | Sequence[str | Filter] | Mapping[str, Any] | None


def parse(where: Where) -> Filter | None:
    """Read a filter; None if it has no conditions.

    :param where: a `Filter`; a text in the filter language; a list of these, which must all hold; or a mapping of keys
        to a value or to a list of alternatives, which are compared exactly.
    :raises InputError: naming the condition that cannot be read.
    """
    if where is None or isinstance(where, Filter):
        return where
    if isinstance(where, str):
        return _spoken(where)
    if isinstance(where, Collection) and not where:
        return None
    if isinstance(where, Mapping):
        return joined("and", [_equal(where, key, value) for key, value in where.items()])
    if not isinstance(where, Sequence) or not all(isinstance(part, (str, Filter)) for part in where):
        raise InputError(f"a filter is a text, a list of texts, a mapping or built from F, not {shown(where)}")
    return joined("and", [part if isinstance(part, Filter) else _spoken(part) for part in where])


def _spoken(text: str) -> Filter:
    from .language import parse as parse_text

    return parse_text(text)


def among(where: Where, ids: Iterable[str | os.PathLike[str]] | None) -> Filter | None:
    """Read a caller's filter, and limit it to documents with these ids or paths, if any are named."""
    conditions = parse(where)
    if ids is None:
        return conditions
    if isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable):
        raise InputError(f"ids is a list of ids or paths, not {shown(ids)}")
    names = list(ids)
    if not all(isinstance(name, (str, os.PathLike)) for name in names):
        raise InputError(f"ids is a list of ids or paths, not {shown(names)}")
    named = condition("path", "in", [os.fspath(name) for name in names])
    return named if conditions is None else conditions & named


def _equal(where: Mapping[str, Any], key: str, value: Any) -> Filter:
    if not isinstance(key, str):
        raise InputError(f"a filter names its fields by texts, such as 'type', not as {shown(where)} does")
    members = value if isinstance(value, (list, tuple, set, frozenset)) else [value]
    if any(member is None for member in members):
        raise InputError(f"the filter on {key!r} compares with None: F[{key!r}] == None passes documents without it")
    return condition(key, "in" if members is value else "eq", value)
