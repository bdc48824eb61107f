"""Filters on documents: `path=docs/**`, `type=pdf`, `modified>=2026-01-01`, `author=Ada`.

A condition is a field, an operator and a value. Several conditions must all hold. The fields are:

    path      a glob as in .gitignore: `*.md` anywhere, `/docs/` below the root
    type      the format, or the extension of the file name
    modified  a date, meaning the whole day, or a date and time; in local time unless it has a zone
    size      bytes, or 10KB, 3MB
    title     and any key of the documents' own metadata

The operators are `=`, `!=`, `<`, `<=`, `>`, `>=`. On text `=` ignores case, and its value may be a glob.

The metadata of an added document may use the name of a field (`type`, `title`, …). Both values then count: a document
may have several types. `modified` in metadata is a date, or seconds since 1970.

A mapping is for programs: a value of `title` or of metadata must be equal, with the same type and the same capitals.
Only a path may be a glob.
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
from ..documents.file_parts import file_of
from ..documents.gitignore import Pattern, holds
from ..documents.metadata import plain

if TYPE_CHECKING:
    from collections.abc import Callable

    Row = Mapping[str, Any]

_CONDITION = re.compile(r"\s*([\w.-]+)\s*(!=|<=|>=|==?|<|>|:)\s*(.*?)\s*", re.DOTALL)
_MAX_CHARACTERS = 1_000  # of a condition: the time to read one may grow with the square of its length
_DAY = re.compile(r"\d{4}-?\d{2}-?\d{2}")
_SIZES = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_FIELDS = ("path", "type", "modified", "size", "title")
_LISTED_KEYS = 20  # most keys of metadata, or types, that a message lists
COLUMNS = (
    "path",
    "source",
    "size",
    "mtime_ns",
    "format",
    "title",
    "metadata",
)  # that conditions read


@dataclass(frozen=True, slots=True)
class Filter:
    """Conditions on a document row, which must all hold. Filters with the same source are equal."""

    source: tuple[str | tuple[str, tuple[str, ...]], ...]  # conditions as written, or fields and their quoted values
    conditions: tuple[Callable[[Row], bool], ...] = field(compare=False)

    def passes(self, row: Row) -> bool:
        """Tell whether a document row with at least `COLUMNS` meets every condition."""
        return all(condition(row) for condition in self.conditions)


def parse(where: str | Sequence[str] | Mapping[str, Any] | None) -> Filter | None:
    """Read a filter; None if it has no conditions.

    :param where: a condition, a list of conditions, or a mapping of field to a value or to a list of alternatives.
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
        raise InputError(f"a filter names its fields by texts, such as 'type', not as {where!r} does")
    fields = {name: _members(name, value) for name, value in where.items()}
    source = tuple((name, tuple(map(repr, members))) for name, members in fields.items())  # "1" is not 1, nor is True
    return Filter(source, tuple(_equal_any(name, members) for name, members in fields.items()))


def unknown_fields(where: Sequence[str], rows: Sequence[Row]) -> str:
    """Return a message if a condition names a field that no document has, with the fields that there are; else ""."""
    known = {key for row in rows for key in json.loads(row["metadata"])}.difference(_FIELDS)
    missing = sorted(_fields(where).difference(known, _FIELDS, ("format",)))
    if not missing:
        return ""
    fields = [*_FIELDS, *sorted(known)[:_LISTED_KEYS], *["…"] * (len(known) > _LISTED_KEYS)]
    return f"no document has {', '.join(map(repr, missing))}: a filter may ask for {', '.join(fields)}"


def unmet_conditions(where: Sequence[str], rows: Sequence[Row]) -> str:
    """Return a message if none of these documents passes, for a filter on types with the types; else ""."""
    conditions = parse(where)
    if conditions is None or any(map(conditions.passes, rows)):
        return ""
    types = sorted({row["format"] for row in rows}) if _fields(where) & {"type", "format"} else []
    here = f" (types here: {', '.join(types[:_LISTED_KEYS])}{', …' * (len(types) > _LISTED_KEYS)})" if types else ""
    return f"no document passes {' and '.join(where)}{here}"


def _fields(where: Sequence[str]) -> set[str]:
    return {match[1] for text in where if (match := _CONDITION.fullmatch(text))}


def _members(name: str, value: Any) -> Sequence[Any]:
    members = [plain(member) for member in (value if isinstance(value, (list, tuple, set)) else [value])]
    if not all(isinstance(member, (str, int, float)) for member in members):
        raise InputError(
            f"the filter on {name!r} compares with {value!r}: expected a text, a number, a date or a list of them"
        )
    if any(isinstance(member, int) and member.bit_length() > _MAX_CHARACTERS for member in members):
        raise InputError(f"the filter on {name!r} compares with a number of more than {_MAX_CHARACTERS:,} bits")
    return members


def _equal_any(name: str, members: Sequence[Any]) -> Callable[[Row], bool]:
    if name in ("path", "type", "format", "modified", "size"):
        timed = name == "modified"
        tests = [_at(value) if timed and _is_number(value) else _test(name, "=", str(value)) for value in members]
        return lambda row: any(test(row) for test in tests)
    value_of = _value_of(name)
    return lambda row: any(_is_same(value, member) for value in _listed(value_of(row)) for member in members)


def _is_same(value: Any, member: Any) -> bool:
    """Tell whether two values are equal and of one type; 1.0 equals 1, True does not."""
    return isinstance(value, bool) == isinstance(member, bool) and bool(value == member)


def _condition(text: str) -> Callable[[Row], bool]:
    if len(text) > _MAX_CHARACTERS:
        raise InputError(
            f"the filter {text[:40]!r}… has {len(text):,} characters: expected {_MAX_CHARACTERS:,} at most"
        )
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
        extension = value.lower().lstrip(".")
        return _negated(operator, name, lambda row: extension in _types(row, name))
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
    """Return the values that an added document's metadata has under the name of a field."""
    return [] if row["source"] == "file" else _listed(json.loads(row["metadata"]).get(name))


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _types(row: Row, name: str) -> set[str]:
    return {row["format"].lower(), _extension(row["path"]), *map(_plain, _stated(row, name))}


def _path(operator: str, value: str) -> Callable[[Row], bool]:
    glob = value.removeprefix("./")
    pattern = Pattern.parse("\\" + glob if glob.startswith(("#", "!")) else glob)
    if pattern is None:
        raise InputError(f"cannot read the path filter {value!r}: expected a glob such as docs/** or *.md")
    around = lru_cache(maxsize=256)(
        lambda folder: holds(pattern, folder)
    )  # most files share the folder of the one before

    def matches(path: str) -> bool:
        folder = path[: path.rfind("/") + 1]
        return path in (value, glob) or pattern.matches(path) or (folder != "" and around(folder))

    return _negated(operator, "path", lambda row: any(map(matches, [row["path"], *map(str, _stated(row, "path"))])))


def _negated(operator: str, name: str, test: Callable[[Row], bool]) -> Callable[[Row], bool]:
    if operator not in ("=", "!="):
        raise InputError(f"{name} can be compared with = and != only, not {operator}")
    return test if operator == "=" else lambda row: not test(row)


def below_folder(path: str) -> str:
    """Write the condition that a document lies below a folder, with special characters escaped."""
    return "path=/" + re.sub(r"([*?\[\]\\ ])", r"\\\1", path) + "/"


def _timed(operator: str, value: str) -> Callable[[Row], bool]:
    """Compare with a time; a date alone stands for the whole day."""
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
    """Compare with a time as `os.stat` returns it, which rounds nanoseconds."""

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
    """Compare with the documents' own metadata. One member of a list suffices; numbers compare as numbers."""
    text, number = value.lower(), _number(value)
    matches = re.compile(fnmatch.translate(text)).match

    def is_equal(member: Any) -> bool:
        if _is_number(member) and member == number:
            return True
        plain = _plain(member)
        return plain == text or bool(matches(plain))

    def passes(member: Any) -> bool:
        if operator in ("=", "!="):
            return is_equal(member) == (operator == "=")
        if isinstance(member, (int, float)) and number is not None:
            return _COMPARE[operator](member, number)
        return _COMPARE[operator](_plain(member), text)

    def holds(row: Row) -> bool:
        members = _listed(value_of(row))
        return all(map(passes, members)) if operator == "!=" else any(map(passes, members))

    return holds


def _plain(value: Any) -> str:
    return str(value).lower()


def _number(text: str) -> float | None:
    for read in (int, float):  # int first: a float has only 53 bits of a whole number
        with contextlib.suppress(ValueError):
            return read(text)
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _extension(path: str) -> str:
    name = file_of(path).rsplit("/", 1)[-1]
    return name.rsplit(".", 1)[-1].lower() if "." in name else ""


def _modified(row: Row) -> float | None:
    """Return the seconds since 1970 of a file, or of the `modified` metadata of an added document."""
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
    """Return the end of a day in local time: a day with a change of clocks has 23 or 25 hours."""
    try:
        return (datetime.fromisoformat(day) + timedelta(days=1)).astimezone().timestamp()
    except (ValueError, OverflowError, OSError):  # the last day of the calendar
        return math.inf


def _size(text: str) -> float:
    match = re.fullmatch(r"([\d.]+)\s*([A-Za-z]*)", text)
    factor = _SIZES.get(match[2].upper()) if match else None
    number = _number(match[1]) if match else None
    if factor is None or number is None:
        raise InputError(f"{text!r} is not a size: expected bytes, or a number with KB, MB or GB")
    return number * factor
