"""Filters on documents: `path=docs/**`, `type=pdf`, `modified>=2026-01-01`, `author=Ada`.

A condition is a field, an operator and a value. Fields are `path` (a glob in .gitignore's manner: `*.md` anywhere,
`/docs/` below the root), `type` (the format or the file name's ending), `modified` (a date, meaning the whole day, or a
date and time, in local time unless it carries a zone), `size` (bytes, or 10KB, 3MB), `title`, and any key of the
documents' own metadata. Operators are `=`, `!=`, `<`, `<=`, `>`, `>=`; `=` on text is without regard to case, and what
is not equal may still match as a glob. Several conditions must all hold.

What an added document's metadata says under the name of a field (`type`, `title`, …) is found as well: a document may
have several types. `modified` in it is a date, or seconds since 1970.

A mapping is for programs: a value of `title` or of metadata is found by that very value alone, a text by the same text
with the same capitals, a number by a number, a boolean by a boolean. Only a path may be a glob.
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ...core.errors import InputError
from ..documents.gitignore import Pattern, holds
from ..documents.metadata import plain

if TYPE_CHECKING:
    from collections.abc import Callable

    Row = Mapping[str, Any]

_CONDITION = re.compile(r"\s*([\w.-]+)\s*(!=|<=|>=|==?|<|>|:)\s*(.*?)\s*", re.DOTALL)
_DAY = re.compile(r"\d{4}-?\d{2}-?\d{2}")
_SIZES = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_FIELDS = ("path", "type", "modified", "size", "title")
_TOLD = 20  # keys of metadata
COLUMNS = ("path", "source", "size", "mtime_ns", "format", "title", "metadata")  # that conditions look at


@dataclass(frozen=True, slots=True)
class Filter:
    """All of these conditions on a document row. Filters that ask for the same are equal."""

    asked: tuple[str | tuple[str, tuple[str, ...]], ...]  # a condition as written, or a field and its values, quoted
    conditions: tuple[Callable[[Row], bool], ...] = field(compare=False)

    def passes(self, row: Row) -> bool:
        return all(condition(row) for condition in self.conditions)


def parse(where: str | Sequence[str] | Mapping[str, Any] | None) -> Filter | None:
    """
    :param where: a condition, several of them, or a mapping of field to value (equal) or list of values (any equal).
    :raises InputError: naming the condition that cannot be read.
    """
    if isinstance(where, str):
        where = [where]
    if where is None or (isinstance(where, Collection) and not where):
        return None
    if not isinstance(where, Mapping):
        if not isinstance(where, Sequence) or not all(isinstance(text, str) for text in where):
            raise InputError(f"a filter is a text, a list of texts or a mapping, not {where!r}")
        return Filter(tuple(where), tuple(map(_condition, where)))
    if not all(isinstance(name, str) for name in where):
        raise InputError(f"a filter names what it looks at by a text, such as 'type', not as {where!r} does")
    fields = {name: _members(name, value) for name, value in where.items()}
    asked = tuple((name, tuple(map(repr, members))) for name, members in fields.items())  # "1" is not 1, nor is True
    return Filter(asked, tuple(_equal_any(name, members) for name, members in fields.items()))


def unknown(where: Sequence[str], rows: Sequence[Row]) -> str:
    """A line that says so where conditions ask for what no document has, and what they may ask for; else ""."""
    known = {key for row in rows for key in json.loads(row["metadata"])}.difference(_FIELDS)
    missing = sorted(_fields(where).difference(known, _FIELDS, ("format",)))
    if not missing:
        return ""
    some = [*_FIELDS, *sorted(known)[:_TOLD], *["…"] * (len(known) > _TOLD)]
    return f"no document has {', '.join(map(repr, missing))}: a filter may ask for {', '.join(some)}"


def unmet(where: Sequence[str], rows: Sequence[Row]) -> str:
    """A line that says so where none of these documents passes; of types also those that there are; else ""."""
    wanted = parse(where)
    if wanted is None or any(map(wanted.passes, rows)):
        return ""
    types = sorted({row["format"] for row in rows}) if _fields(where) & {"type", "format"} else []
    here = f" (types here: {', '.join(types[:_TOLD])}{', …' * (len(types) > _TOLD)})" if types else ""
    return f"no document passes {' and '.join(where)}{here}"


def _fields(where: Sequence[str]) -> set[str]:
    return {match[1] for text in where if (match := _CONDITION.fullmatch(text))}


def _members(name: str, value: Any) -> Sequence[Any]:
    members = [plain(member) for member in (value if isinstance(value, (list, tuple, set)) else [value])]
    if not all(isinstance(member, (str, int, float)) for member in members):
        raise InputError(
            f"the filter on {name!r} compares with {value!r}: expected a text, a number, a date or a list of them"
        )
    return members


def _equal_any(name: str, members: Sequence[Any]) -> Callable[[Row], bool]:
    if name in ("path", "type", "format", "modified", "size"):
        timed = name == "modified"
        choices = [_at(one) if timed and _is_number(one) else _test(name, "=", str(one)) for one in members]
        return lambda row: any(choice(row) for choice in choices)
    value_of = _value_of(name)
    return lambda row: any(_is_same(found, member) for found in _listed(value_of(row)) for member in members)


def _is_same(found: Any, wanted: Any) -> bool:
    """Equal, and of one type, but that 1.0 is 1."""
    return isinstance(found, bool) == isinstance(wanted, bool) and bool(found == wanted)


def _condition(text: str) -> Callable[[Row], bool]:
    match = _CONDITION.fullmatch(text)
    if not match or not match[3]:
        raise InputError(
            f"cannot read the filter {text!r}: expected FIELD, one of = != < <= > >=, and a value, "
            "such as path=docs/** or modified>=2026-01-01"
        )
    return _test(match[1], "=" if match[2] in (":", "==") else match[2], match[3])


def _test(name: str, operator: str, value: str) -> Callable[[Row], bool]:
    if name == "path":
        return _path(operator, value)
    if name in ("type", "format"):
        wanted = value.lower().lstrip(".")
        return _negated(operator, name, lambda row: wanted in _types(row, name))
    if name == "modified":
        return _timed(operator, value)
    if name == "size":
        return _ordered(operator, _size(value), lambda row: [row["size"], *filter(_is_number, _stated(row, name))])
    return _textual(operator, value, _value_of(name))


def _value_of(name: str) -> Callable[[Row], Any]:
    if name == "title":
        return lambda row: [row["title"], *_stated(row, name)]
    return lambda row: json.loads(row["metadata"]).get(name)


def _stated(row: Row, name: str) -> list[Any]:
    """What the metadata of a document that is no file says under the name of a field."""
    return [] if row["source"] == "file" else _listed(json.loads(row["metadata"]).get(name))


def _listed(found: Any) -> list[Any]:
    return found if isinstance(found, list) else [] if found is None else [found]


def _types(row: Row, name: str) -> set[str]:
    return {row["format"].lower(), _ending(row["path"]), *map(_plain, _stated(row, name))}


def _path(operator: str, value: str) -> Callable[[Row], bool]:
    glob = value.removeprefix("./")
    pattern = Pattern.parse("\\" + glob if glob.startswith(("#", "!")) else glob)
    if pattern is None:
        raise InputError(f"cannot read the path filter {value!r}: expected a glob such as docs/** or *.md")
    around = lru_cache(maxsize=256)(lambda folder: holds(pattern, folder))  # most files lie beside the one before

    def matches(path: str) -> bool:
        folder = path[: path.rfind("/") + 1]
        return path in (value, glob) or pattern.matches(path) or (folder != "" and around(folder))

    return _negated(operator, "path", lambda row: any(map(matches, [row["path"], *map(str, _stated(row, "path"))])))


def _negated(operator: str, name: str, test: Callable[[Row], bool]) -> Callable[[Row], bool]:
    if operator not in ("=", "!="):
        raise InputError(f"{name} can be compared with = and != only, not {operator}")
    return test if operator == "=" else lambda row: not test(row)


def folder(path: str) -> str:
    """The condition that a document lies below a folder, whatever characters its name has."""
    return "path=/" + re.sub(r"([*?\[\]\\ ])", r"\\\1", path) + "/"


def _timed(operator: str, value: str) -> Callable[[Row], bool]:
    """A date alone stands for the whole day."""
    start = _moment(value)
    end = _day_after(value) if _DAY.fullmatch(value) else start

    def holds(row: Row) -> bool:
        at = _modified(row)
        if at is None:
            return operator == "!="
        within = start <= at < end if end > start else at == start
        return {
            "=": within,
            "!=": not within,
            "<": at < start,
            "<=": at < start or within,
            ">": at >= end and not within,
            ">=": at >= start,
        }[operator]

    return holds


def _at(seconds: float) -> Callable[[Row], bool]:
    """As `os.stat` gives it, which rounds nanoseconds in its own way."""

    def holds(row: Row) -> bool:
        at = _modified(row)
        return at is not None and abs(at - seconds) < 1e-6

    return holds


def _ordered(operator: str, bound: float, values_of: Callable[[Row], list[float]]) -> Callable[[Row], bool]:
    compare, quantity = _COMPARE[operator], all if operator == "!=" else any
    return lambda row: quantity(compare(value, bound) for value in values_of(row))


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def _textual(operator: str, value: str, value_of: Callable[[Row], Any]) -> Callable[[Row], bool]:
    """Own metadata: a list passes when one of its members does; numbers compare as numbers."""
    wanted, number = value.lower(), _number(value)
    matches = re.compile(fnmatch.translate(wanted)).match

    def same(found: Any) -> bool:
        if _is_number(found) and found == number:
            return True
        plain = _plain(found)
        return plain == wanted or bool(matches(plain))

    def one(found: Any) -> bool:
        if operator in ("=", "!="):
            return same(found) == (operator == "=")
        if isinstance(found, (int, float)) and number is not None:
            return _COMPARE[operator](found, number)
        return _COMPARE[operator](_plain(found), wanted)

    def holds(row: Row) -> bool:
        members = _listed(value_of(row))
        return all(map(one, members)) if operator == "!=" else any(map(one, members))

    return holds


def _plain(value: Any) -> str:
    return str(value).lower()


def _number(text: str) -> float | None:
    for read in (int, float):  # a float has no more than 53 bits of a whole number
        with contextlib.suppress(ValueError):
            return read(text)
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _ending(path: str) -> str:
    return path.rsplit(".", 1)[-1].lower() if "." in path.rsplit("/", 1)[-1] else ""


def _modified(row: Row) -> float | None:
    """Seconds since 1970: of the file, or, for an added document, of its `modified` metadata."""
    if row["source"] == "file":
        return float(row["mtime_ns"]) / 1e9
    stated = json.loads(row["metadata"]).get("modified")
    if _is_number(stated):
        return float(stated)
    try:
        return None if stated is None else _moment(str(stated))
    except InputError:
        return None


def _moment(text: str) -> float:
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except (ValueError, OverflowError, OSError):
        raise InputError(f"{text!r} is not a date: expected YYYY-MM-DD, or YYYY-MM-DDTHH:MM") from None


def _day_after(day: str) -> float:
    """When the day ends where this computer is: one in which the clocks are changed has 23 or 25 hours."""
    try:
        return (datetime.fromisoformat(day) + timedelta(days=1)).astimezone().timestamp()
    except (ValueError, OverflowError, OSError):  # no calendar goes on after it
        return math.inf


def _size(text: str) -> float:
    match = re.fullmatch(r"([\d.]+)\s*([A-Za-z]*)", text)
    factor = _SIZES.get(match[2].upper()) if match else None
    number = _number(match[1]) if match else None
    if factor is None or number is None:
        raise InputError(f"{text!r} is not a size: expected bytes, or a number with KB, MB or GB")
    return number * factor
