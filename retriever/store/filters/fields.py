"""The built-in fields: their operators, and how dates, sizes and types are read."""

from __future__ import annotations

import contextlib
import math
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from ....core.errors import InputError
from ....core.printable import first_of_repr
from ....core.words import composed
from ...documents.file_parts import file_of
from ...documents.gitignore import Pattern

METADATA = "metadata."  # before a key of metadata that has the name of a field
SYMBOL = "symbol"  # of passages; all other fields are of documents
NAMES = ("path", "type", "modified", "size", "title")
BUILT_IN = (*NAMES, "format", SYMBOL)
_EQUALITY = ("eq", "in", "exists")
_OPERATORS = {
    "path": (*_EQUALITY, "startswith", "glob", "like", "same"),
    "type": _EQUALITY,
    "format": _EQUALITY,
    "modified": (*_EQUALITY, "lt", "lte", "gt", "gte", "between"),
    "size": (*_EQUALITY, "lt", "lte", "gt", "gte", "between"),
}
GLOB_SIGNS = frozenset("*?[")
_SHOWN = 80  # characters of a value in a message
_NUMBER = re.compile(r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*")
_DAY = re.compile(r"\d{4}-?\d{2}-?\d{2}")
_SIZES = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def check(key: str, operator: str, value: Any) -> None:
    """Check that a field can be compared with a value in this way.

    :raises InputError: naming the field, the value and the expected one.
    """
    if operator not in _OPERATORS.get(key, (operator,)):
        raise InputError(f"{key} can be compared with = and != only, not by {operator!r}")
    if key in ("path", "type", "format", "title") and not isinstance(value, str):
        raise InputError(f"{key} is a text: expected one to compare it with, not {value!r}")
    if key == "size" and (isinstance(value, (str, bool))):
        raise InputError(f"size is a number of bytes: expected one to compare it with, not {value!r}")
    if key == "modified":
        moments(value)
    if key == "path" and operator in ("glob", "like"):
        pattern(value)


def shown(value: object) -> str:
    """Return a value for a message, cut if it is long."""
    try:
        return first_of_repr(value, _SHOWN)
    except ValueError:  # a number of more digits than Python writes
        return "a number without end"


def pattern(glob: str) -> Pattern:
    """Read a glob of paths as in .gitignore."""
    text = glob.removeprefix("./")
    parsed = Pattern.parse("\\" + text if text.startswith(("#", "!")) else text)
    if parsed is None:
        raise InputError(f"cannot read the path filter {shown(glob)}: expected a glob such as docs/** or *.md")
    return parsed


def escaped(path: str) -> str:
    """Escape the special characters of a path for a glob."""
    return re.sub(r"([*?\[\]\\ ])", r"\\\1", path)


def moments(value: Any) -> tuple[float, float]:
    """Return the start and the end of a time in seconds since 1970: a date alone is the whole day.

    :param value: a date or a date and time as text, in local time unless it has a zone, or seconds.
    """
    if isinstance(value, str):
        start = moment(value)
        return start, _day_after(value) if _DAY.fullmatch(value) else start
    if isinstance(value, bool):
        raise InputError(f"{value} is not a date: expected YYYY-MM-DD, or YYYY-MM-DDTHH:MM")
    try:
        return float(value), float(value)
    except OverflowError:
        return math.inf, math.inf


def moment(text: str) -> float:
    """Read a date, or a date and time."""
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        raise InputError(f"{shown(text)} is not a date: expected YYYY-MM-DD, or YYYY-MM-DDTHH:MM") from None
    try:
        return date.timestamp()
    except (ValueError, OverflowError, OSError):  # local time on the first or last day of the calendar
        return date.replace(tzinfo=UTC).timestamp()


def _day_after(day: str) -> float:
    """Return the end of a day in local time: a day with a change of clocks has 23 or 25 hours."""
    try:
        return (datetime.fromisoformat(day) + timedelta(days=1)).astimezone().timestamp()
    except (ValueError, OverflowError, OSError):  # the last day of the calendar
        return math.inf


def stated_moment(value: Any) -> float:
    """Return the seconds since 1970 that a document's metadata state; NaN if they state none."""
    if is_number(value):
        with contextlib.suppress(OverflowError):
            return float(value)
        return math.nan
    try:
        return math.nan if value is None else moment(str(value))
    except InputError:
        return math.nan


def size(text: str) -> float:
    """Read a number of bytes, such as `5000` or `5 KB`."""
    match = re.fullmatch(r"([\d.]+)\s*([A-Za-z]*)", text)
    factor = _SIZES.get(match[2].upper()) if match else None
    count = number(match[1]) if match else None
    if factor is None or count is None:
        raise InputError(f"{shown(text)} is not a size: expected bytes, or a number with KB, MB or GB")
    return count * factor


def extension(path: str) -> str:
    """Return the ending of a file's name, in small letters without the dot."""
    name = file_of(path).rsplit("/", 1)[-1]
    return name.rsplit(".", 1)[-1].lower() if "." in name else ""


def type_name(value: object) -> str:
    """Return a type in the form for comparison: `.MD` gives `md`."""
    return folded(value).lstrip(".")


def folded(value: object) -> str:
    """Return a value as people compare it: in small letters, with letters and marks joined."""
    return composed(str(value)).lower()


def number(text: str) -> float | None:
    """Read a number; None if the text is no number. Python reads nan and 2_020 as numbers, this function does not."""
    if not _NUMBER.fullmatch(text):
        return None
    with contextlib.suppress(ValueError):  # int first: a float has only 53 bits of a whole number
        return int(text)
    return float(text)


def is_number(value: object) -> bool:
    """Whether a value is a number, which a boolean is not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)
