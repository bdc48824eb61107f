"""Filters as programs write them: `F.tenant == "t1"`, `F.year.between(2020, 2024)`, `~F.draft.exists()`.

A filter compares the values that a document has under a key. Values are exact and typed: 1 is neither "1" nor True, and
no character of a text is special. A list passes if one of its members does. A document without the key passes no
comparison; `!=` and `~` pass exactly the documents that the opposite does not.

The built-in fields of documents are path, type (or format), modified, size and title; passages have symbol.
`F.metadata["path"]` is a key of the metadata with the name of a field; `F["any key"]` is any other key.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from ....core.errors import InputError
from ....core.words import encodable
from ...documents.metadata import plain
from . import fields
from .fields import shown

if TYPE_CHECKING:
    Scalar = Any  # a text, a number, a boolean or a date

MAX_DEPTH = 100  # of filters in each other
_MAX_BITS = 1_000  # of a number: Python's integers have no end
_MAX_CHARACTERS = 10_000  # of a key, and of a text that is a pattern

COMPARISONS = ("eq", "lt", "lte", "gt", "gte")
TEXTUAL = ("startswith", "glob", "like", "same", "like_lt", "like_lte", "like_gt", "like_gte")


class Filter:
    """A condition on documents. Filters are joined by `&` and `|`, and negated by `~`."""

    __slots__ = ()
    depth: int

    def __and__(self, right: Filter) -> Filter:
        return joined("and", [self, _filter(right)])

    def __or__(self, right: Filter) -> Filter:
        return joined("or", [self, _filter(right)])

    def __invert__(self) -> Filter:
        return Negation(self)

    def __bool__(self) -> bool:
        raise InputError("a filter is neither true nor false: join filters by & | ~, not by and, or, not")

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Filter:
        """Read a filter in the shape of OpenAI's vector stores.

        >>> Filter.from_json({"type": "eq", "key": "tenant", "value": "t1"})
        F['tenant'] == 't1'

        :raises InputError: naming the part that cannot be read.
        """
        from .json_form import from_json

        return from_json(value)

    def to_json(self) -> dict[str, Any]:
        """Return the filter as `from_json` reads it."""
        from .json_form import to_json

        return to_json(self)


@dataclass(frozen=True, slots=True, repr=False)
class Condition(Filter):
    """A comparison of the values under one key."""

    key: str  # a built-in field, or a key of metadata, with `metadata.` before it if the names clash
    operator: str
    value: Any = field(compare=False)
    typed: str = ""  # the value with its type: 1, "1" and True are different filters

    depth: ClassVar[int] = 1  # type: ignore[misc]

    def __repr__(self) -> str:
        signs = {"eq": "==", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
        if self.operator in signs:
            return f"F[{self.key!r}] {signs[self.operator]} {self.value!r}"
        value = "" if self.operator == "exists" else repr(self.value)
        return f"F[{self.key!r}].{'is_in' if self.operator == 'in' else self.operator}({value})"


@dataclass(frozen=True, slots=True, repr=False)
class Junction(Filter):
    """Filters that must all hold, or one at least."""

    operator: str  # "and" or "or"
    parts: tuple[Filter, ...]
    depth: int = field(compare=False)

    def __repr__(self) -> str:
        return f"({(' & ' if self.operator == 'and' else ' | ').join(map(repr, self.parts))})"


@dataclass(frozen=True, slots=True, repr=False)
class Negation(Filter):
    """A filter that must not hold."""

    part: Filter

    @property
    def depth(self) -> int:  # type: ignore[override]
        """The number of filters in each other."""
        return self.part.depth + 1

    def __invert__(self) -> Filter:
        return self.part

    def __repr__(self) -> str:
        return f"~({self.part!r})"


@dataclass(frozen=True, slots=True, repr=False)
class Within(Filter):
    """A caller's filter inside a scope. It cannot widen the scope, and knows only keys of the scope's documents."""

    scope: Filter
    part: Filter | None

    @property
    def depth(self) -> int:  # type: ignore[override]
        """The number of filters in each other."""
        return 1 + max(self.scope.depth, 0 if self.part is None else self.part.depth)

    def __repr__(self) -> str:
        return repr(self.scope if self.part is None else self.scope & self.part)


def joined(operator: str, parts: Iterable[Filter]) -> Filter:
    """Join filters by "and" or "or"; nested ones of the same operator become one."""
    flat: list[Filter] = []
    for part in parts:
        flat += part.parts if isinstance(part, Junction) and part.operator == operator else [part]
    if len(flat) == 1:
        return flat[0]
    depth = 1 + max((part.depth for part in flat), default=0)
    if depth > MAX_DEPTH:
        raise InputError(f"the filter has more than {MAX_DEPTH} filters in each other: expected fewer")
    return Junction(operator, tuple(flat), depth)


def _filter(value: Any) -> Filter:
    if not isinstance(value, Filter):
        raise InputError(f"a filter is joined with another filter, not with {shown(value)}: are brackets missing?")
    return value


def condition(key: str, operator: str, value: Any = None) -> Filter:
    """Check and return a comparison."""
    if not isinstance(key, str) or not 0 < len(key) <= _MAX_CHARACTERS:
        raise InputError(
            f"a filter names its key by a text of at most {_MAX_CHARACTERS:,} characters, not {shown(key)}"
        )
    key = encodable(key)
    if operator == "in":
        if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
            raise InputError(f"the filter on {shown(key)} is among several values: expected a list, not {shown(value)}")
        members = list(value)
        exact = tuple(_exact(key, "eq", member) for member in members if member is not None)
        within = Condition(key, "in", exact, repr(exact))
        return within if len(exact) == len(members) else within | ~condition(key, "exists")
    if operator == "between":
        if isinstance(value, str) or not isinstance(value, Sequence) or len(value) != 2:
            raise InputError(f"the filter on {shown(key)} is between two values, not {shown(value)}")
        bounds = tuple(_exact(key, "lte", bound) for bound in value)
        return Condition(key, "between", bounds, repr(bounds))
    if operator == "exists":
        return Condition(key, "exists", None)
    if operator == "eq" and value is None:
        return ~condition(key, "exists")
    exact = _exact(key, operator, value)
    return Condition(key, operator, exact, repr(exact))


def _exact(key: str, operator: str, value: Any) -> Any:
    """Return a value of a type that metadata have, or the text of a date."""
    result, label = plain(value), f"the filter on {shown(key)} compares"
    if isinstance(result, str):
        result = encodable(str.__str__(result))  # the store holds this form
    elif isinstance(result, int) and not isinstance(result, bool):
        result = int(result)
        if result.bit_length() > _MAX_BITS:
            raise InputError(f"{label} with a number of more than {_MAX_BITS:,} bits")
    elif not isinstance(result, (bool, float)) or (isinstance(result, float) and math.isnan(result)):
        raise InputError(f"{label} with {shown(value)}: expected a text, a number or a date")
    if operator in TEXTUAL and not (isinstance(result, str) and len(result) <= _MAX_CHARACTERS):
        expected = f"a text of at most {_MAX_CHARACTERS:,} characters"
        raise InputError(f"{label} with {shown(value)}: expected {expected}")
    if isinstance(result, bool) and operator not in ("eq", "in"):
        raise InputError(f"{label} the order with {result}: expected a text, a number or a date")
    fields.check(key, operator, result)
    return result


class Field:
    """A built-in field or a key of metadata, to be compared."""

    __slots__ = ("_key",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, key: str) -> None:
        self._key = key

    def __eq__(self, value: Scalar) -> Filter:  # type: ignore[override]
        return condition(self._key, "eq", value)

    def __ne__(self, value: Scalar) -> Filter:  # type: ignore[override]
        return ~condition(self._key, "eq", value)

    def __lt__(self, value: Scalar) -> Filter:
        return condition(self._key, "lt", value)

    def __le__(self, value: Scalar) -> Filter:
        return condition(self._key, "lte", value)

    def __gt__(self, value: Scalar) -> Filter:
        return condition(self._key, "gt", value)

    def __ge__(self, value: Scalar) -> Filter:
        return condition(self._key, "gte", value)

    def between(self, low: Scalar, high: Scalar) -> Filter:
        """From `low` to `high`, both included."""
        return condition(self._key, "between", (low, high))

    def is_in(self, values: Iterable[Scalar]) -> Filter:
        """Equal to one of these values."""
        return condition(self._key, "in", values)

    def contains(self, value: Scalar) -> Filter:
        """A list with this member, or this value itself."""
        return condition(self._key, "eq", value)

    def exists(self) -> Filter:
        """Any value: an empty list is none."""
        return condition(self._key, "exists")

    def startswith(self, prefix: str) -> Filter:
        """A text that begins with this one."""
        return condition(self._key, "startswith", prefix)

    def glob(self, pattern: str) -> Filter:
        """A text that matches a pattern: paths as in .gitignore, other texts as in `fnmatch`."""
        return condition(self._key, "glob", pattern)

    def __bool__(self) -> bool:
        raise InputError(f"F[{self._key!r}] is no condition: compare it with a value, or ask for .exists()")

    def __repr__(self) -> str:
        return f"F[{self._key!r}]"


class _Metadata:
    """The keys of metadata, also those with the name of a built-in field."""

    __slots__ = ()

    def __getitem__(self, key: str) -> Field:
        if not isinstance(key, str) or not key:
            raise InputError(f"a filter names its key by a text, not by {shown(key)}")
        return Field(fields.METADATA + key)

    def __repr__(self) -> str:
        return "F.metadata"


class Fields:
    """The fields of all documents: `F.tenant`, or `F["any key"]`."""

    __slots__ = ()

    @property
    def metadata(self) -> _Metadata:
        """The keys of metadata, also those with the name of a built-in field."""
        return _Metadata()

    def __getattr__(self, name: str) -> Field:
        if name.startswith("__"):
            raise AttributeError(name)
        return Field(name)

    def __getitem__(self, key: str) -> Field:
        if not isinstance(key, str) or not key:
            raise InputError(f"a filter names its key by a text, not by {shown(key)}")
        return Field(key)

    def __repr__(self) -> str:
        return "F"


F = Fields()
"""The fields of all documents, for filters: `F.tenant == "t1"`."""
