"""Describe in one line why a pydantic model refused some input."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

    Path = tuple[int | str, ...]

_SHOWN = 80  # characters of a value
_EXPECTED = {  # type of error -> expected input; the context of the error fills in the limits
    "greater_than_equal": "a number from {ge}",
    "less_than_equal": "a number up to {le}",
    "finite_number": "a finite number",
    "int_from_float": "a whole number",
    "literal_error": "{expected}",
    "string_pattern_mismatch": "a text that matches {pattern}",
    "string_too_long": "a text of at most {max_length} characters",
    "string_too_short": "a text of at least {min_length} characters",
    "too_long": "a list of at most {max_length}",
    "too_short": "a list of at least {min_length}",
}
_PATTERNS = {  # of texts in `request_shapes` and `access`
    "^[!-~]+$": "a text of ASCII characters without spaces",
    "^[0-9]{1,9}-[0-9]{1,9}$": "two numbers with a hyphen, such as 12-30",
}
_KINDS = {  # other types of errors begin with one of these: `int_parsing`, `list_type`
    "bool": "true or false",
    "dict": "an object",
    "float": "a number",
    "int": "a whole number",
    "list": "a list",
    "model": "an object",
    "none": "null",
    "string": "a text",
}
# Types that a union tries, in the location of their errors.
_TAGS = {"str", "constrained-str", "int", "float", "bool", "none"}


def describe(error: ValidationError, *, whole: str = "the body", names: str = "", shows_value: bool = True) -> str:
    """Describe the first fault of the input, and count those of other fields.

    :param whole: the name of the whole input.
    :param names: where the names of fields are listed, as the end of a sentence.
    """
    faults = error.errors(include_url=False)
    paths = [_path(fault) for fault in faults]
    inside = [path for path in paths if path[: len(paths[0])] == paths[0]]  # several where a union tried several types
    deepest = max(inside, key=len)
    same = [fault for fault, path in zip(faults, paths, strict=True) if path == deepest]
    remainder = len(set(paths) - set(inside))
    field = ".".join(map(str, deepest)) or whole
    return field + _what(same, names, shows_value=shows_value) + f" (and {remainder} more)" * bool(remainder)


def _path(fault: ErrorDetails) -> Path:
    """The location of a fault without the types that a union tried; an unknown name may look like one."""
    location = fault["loc"]
    name = location[-1:] if fault["type"] == "extra_forbidden" else ()
    return *filter(_is_part, location[: len(location) - len(name)]), *name


def _is_part(part: int | str) -> bool:
    return not isinstance(part, str) or not (part in _TAGS or "[" in part)


def _what(same: Sequence[ErrorDetails], names: str, *, shows_value: bool) -> str:
    """Return the end of the message, which follows the name of the field."""
    first = same[0]
    if first["type"] == "missing":
        return " is missing: give it a value"
    if first["type"] == "extra_forbidden":
        return f" is unknown: leave it out{names}"
    if first["type"] == "json_invalid":
        error = first["ctx"]["error"]
        return (
            " has a text with half of a character (a lone surrogate)"
            if "hex escape" in error
            else f" is not JSON: {error}"
        )
    *kinds, last = dict.fromkeys(map(_expected, same))
    expected = f"{', '.join(kinds)} or {last}" if kinds else last
    return f": expected {expected}" + f", but {_shown(first['input'])} came" * shows_value


def _expected(fault: ErrorDetails) -> str:
    kind, limits = fault["type"], fault.get("ctx", {})
    if limits.get("min_length") == 1:
        return "a text that is not empty" if kind == "string_too_short" else "a list that is not empty"
    if limits.get("pattern") in _PATTERNS:
        return _PATTERNS[limits["pattern"]]
    if kind in _EXPECTED:
        return _EXPECTED[kind].format_map({name: _shown_limit(limit) for name, limit in limits.items()})
    return _KINDS.get(kind.partition("_")[0]) or f"another value ({fault['msg'].removeprefix('Value error, ')})"


def _shown_limit(limit: object) -> str:
    return f"{limit:,}" if isinstance(limit, (int, float)) else str(limit)


def _shown(value: object) -> str:
    text = json.dumps(value) if value is None or isinstance(value, bool) else repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
