"""Evaluate a filter for all documents at once: each condition gives a mask, and the masks are joined."""

from __future__ import annotations

import contextlib
import fnmatch
import re
from bisect import bisect_left, bisect_right
from functools import lru_cache, partial, reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ....core.errors import InputError
from ....core.words import composed
from ...documents.gitignore import holds
from . import fields
from .filter import Condition, Filter, Junction, Negation, Within

if TYPE_CHECKING:
    from collections.abc import Callable

    from ....core.arrays import Doubles, Mask
    from ...documents.gitignore import Pattern
    from ..derived.symbols import PassageSymbols
    from .sorted_values import Column, DocumentColumns

_LISTED_KEYS = 20  # most keys of metadata that a message lists
_ROUNDING = 1e-6  # seconds: `os.stat` rounds nanoseconds


def is_of_passages(where: Filter | None) -> bool:
    """Whether a filter compares a field of passages."""
    if isinstance(where, Condition):
        return where.key == fields.SYMBOL
    if where is None:
        return False
    inner = (where.scope, where.part) if isinstance(where, Within) else _parts(where)
    return any(map(is_of_passages, inner))


def select(where: Filter, documents: DocumentColumns) -> Mask:
    """Return which documents pass a filter, shape (documents,).

    :raises InputError: when it names a key that no document has.
    """
    check_keys(where, documents)
    return evaluate(where, documents)


def select_passages(where: Filter, documents: DocumentColumns, passages: PassageSymbols) -> Mask:
    """Return which passages pass a filter, shape (passages,).

    :raises InputError: when it names a key that no document has.
    """
    check_keys(where, documents)
    return evaluate(where, documents, passages)


def evaluate(where: Filter, documents: DocumentColumns, passages: PassageSymbols | None = None) -> Mask:
    """Return which documents pass a filter, shape (documents,); unknown keys have no values.

    :param passages: evaluate these instead, shape (passages,). A passage has the fields of its document too.
    """
    if isinstance(where, Condition):
        mask = _compare(where, documents)
        if passages is None:
            return mask
        symbols = where.key == fields.SYMBOL and _COMPARISONS[where.operator](passages.column, where.value)
        return mask[passages.owners] | symbols
    if isinstance(where, Negation):
        return ~evaluate(where.part, documents, passages)
    if isinstance(where, Within):
        inside = evaluate(where.scope, documents, passages)
        return inside if where.part is None else inside & evaluate(where.part, documents, passages)
    assert isinstance(where, Junction)
    masks = (evaluate(part, documents, passages) for part in where.parts)
    count = documents.count if passages is None else len(passages.owners)
    if where.operator == "and":
        return reduce(np.logical_and, masks, np.ones(count, np.bool_))
    return reduce(np.logical_or, masks, np.zeros(count, np.bool_))


def check_keys(
    where: Filter, documents: DocumentColumns, inside: Mask | None = None, optional: frozenset[str] = frozenset()
) -> None:
    """Refuse a filter on a key that no document has, unless it also asks whether the key exists.

    So `F.team == "a"` may be refused, and `F.team.exists() & (F.team == "a")` passes nothing instead.

    :param inside: the documents that the caller may know of; all by default.
    :param optional: keys that may be missing everywhere, since a filter around this one asks whether they exist.
    :raises InputError: naming the key, and keys like it.
    """
    if isinstance(where, Within):
        mask = evaluate(where.scope, documents)
        inside = mask if inside is None else mask & inside
    if isinstance(where, Condition) and where.operator != "exists" and where.key not in optional:
        check_key(where.key, documents, inside)
        _check_quoted_glob(where, documents, inside)
    if isinstance(where, Junction) and where.operator == "and":
        optional |= {part.key for part in where.parts if isinstance(part, Condition) and part.operator == "exists"}
    for part in _parts(where):
        check_keys(part, documents, inside, optional)


def _parts(where: Filter) -> tuple[Filter, ...]:
    """The filters in a filter that may come from a caller."""
    if isinstance(where, Junction):
        return where.parts
    return (where.part,) if isinstance(where, (Negation, Within)) and where.part is not None else ()


def check_key(key: str, documents: DocumentColumns, inside: Mask | None = None) -> None:
    """Refuse a key that no document has, if there are any.

    :param inside: the documents that the caller may know of; all by default.
    :raises InputError: naming keys like it.
    """
    if key in fields.BUILT_IN or not (documents.count if inside is None else inside.any()):
        return
    owners = documents.column(key).owners
    if not (len(owners) if inside is None else inside[owners].any()):
        name, known = key.removeprefix(fields.METADATA), documents.keys(inside)
        if name not in known:  # a key may have empty lists only
            raise InputError(_unknown(key, known))


def _check_quoted_glob(where: Condition, documents: DocumentColumns, inside: Mask | None) -> None:
    """Refuse a quoted glob of paths that is no document's path: in quotes, a glob is a plain path."""
    if (where.key, where.operator) != ("path", "same") or not fields.GLOB_SIGNS.intersection(where.value):
        return
    mask = _paths(where, documents)
    if documents.count and not (mask if inside is None else mask & inside).any():
        raise InputError(
            f"no document has the path {fields.shown(where.value)}: in quotes it is no glob, so leave the quotes out"
        )


def _unknown(key: str, known: list[str]) -> str:
    import difflib

    names = [*fields.NAMES, *(name for name in known if name not in fields.NAMES)]
    name = key.removeprefix(fields.METADATA)
    near = difflib.get_close_matches(name, names if name == key else known, 3)
    hint = f" (did you mean {' or '.join(map(repr, near))}?)" if near else ""
    where = "" if name == key else " in its metadata"
    shown = names[: len(fields.NAMES) + _LISTED_KEYS]
    rest = ", …" * (len(names) > len(shown))
    return f"no document has {fields.shown(name)}{where}{hint}: a filter may ask for {', '.join(shown)}{rest}"


def _compare(where: Condition, documents: DocumentColumns) -> Mask:
    if where.key == "modified":
        return _timed(where, documents.moments)
    if where.key == "path" and where.operator in ("glob", "like", "same"):
        return _paths(where, documents)
    value = where.value
    if where.key in ("type", "format") and value is not None:
        value = tuple(map(fields.type_name, value)) if where.operator == "in" else fields.type_name(value)
    column = documents.column(where.key)
    mask = _COMPARISONS[where.operator](column, value)
    if where.key == "path" and where.operator in ("eq", "in"):
        files = {value} if where.operator == "eq" else set(value)
        if parts := [code for code, file in column.files_of_parts if file in files]:
            mask |= column.mask_of(parts)
    return mask


def _glob(column: Column, pattern: str) -> Mask:
    matches = re.compile(fnmatch.translate(pattern)).match
    return column.mask_of([code for code in range(*column.kinds.texts) if matches(column.values[code])])


def _like(column: Column, text: str, globs: bool = True) -> Mask:
    """Compare as people do: capitals do not count, numbers compare as numbers, and a text may be a glob."""
    texts, codes = column.folded
    folded = fields.folded(text)
    mask = column.mask_of(codes[bisect_left(texts, folded) : bisect_right(texts, folded)])
    if (number := fields.number(text)) is not None:
        mask |= column.mask([column.equal(number)])
    if globs and fields.GLOB_SIGNS.intersection(text):
        matches = re.compile(fnmatch.translate(folded)).match
        mask |= column.mask_of(codes[[position for position, value in enumerate(texts) if matches(value)]])
    return mask


def _ordered(operator: str, column: Column, bound: Any) -> Mask:
    return column.mask([column.ordered(operator, bound)])


def _like_ordered(operator: str, column: Column, text: str) -> Mask:
    """Compare numbers with a number, and other values as texts in lower case."""
    texts, codes = column.folded
    bisect = bisect_left if operator in ("lt", "gte") else bisect_right
    border = bisect(texts, fields.folded(text))
    passing = codes[:border] if operator in ("lt", "lte") else codes[border:]
    number = fields.number(text)
    if number is None:
        return column.mask_of(passing)
    first, end = column.kinds.booleans[0], column.kinds.numbers[1]
    mask = column.mask_of(passing[(passing < first) | (passing >= end)])
    truths = [column.equal(truth) for truth in (False, True) if _is_ordered(operator, truth, number)]
    return mask | column.mask([column.ordered(operator, number), *truths])


def _is_ordered(operator: str, value: float, bound: float) -> bool:
    return {"lt": value < bound, "lte": value <= bound, "gt": value > bound, "gte": value >= bound}[operator]


_COMPARISONS: dict[str, Callable[[Column, Any], Mask]] = {
    "eq": lambda column, value: column.mask([column.equal(value)]),
    "in": lambda column, values: column.mask(map(column.equal, values)),
    "exists": lambda column, _: column.mask([(0, len(column.values))]),
    "between": lambda column, bounds: column.mask([column.between(*bounds)]),
    "startswith": lambda column, prefix: column.mask([column.starting(prefix)]),
    "glob": _glob,
    "like": _like,
    "same": lambda column, text: _like(column, text, globs=False),
}
for _operator in ("lt", "lte", "gt", "gte"):
    _COMPARISONS[_operator] = partial(_ordered, _operator)
    _COMPARISONS[f"like_{_operator}"] = partial(_like_ordered, _operator)


def _timed(where: Condition, at: Doubles) -> Mask:
    """Compare with times; a date alone stands for the whole day."""
    if where.operator == "exists":
        return ~np.isnan(at)
    if where.operator == "in":
        return reduce(np.logical_or, (_at("eq", value, at) for value in where.value), np.zeros(len(at), np.bool_))
    if where.operator == "between":
        low, high = where.value
        return _at("gte", low, at) & _at("lte", high, at)
    return _at(where.operator, where.value, at)


def _at(operator: str, value: Any, at: Doubles) -> Mask:
    start, end = fields.moments(value)
    within: Mask = (at >= start) & (at < end) if end > start else at == start
    if operator == "eq":
        return within if isinstance(value, str) else np.abs(at - start) < _ROUNDING
    before: Mask = at < start
    return {
        "lt": before,
        "lte": before | within,
        "gt": (at >= end) & ~within,
        "gte": at >= start,
    }[operator]


def _paths(where: Condition, documents: DocumentColumns) -> Mask:
    """Compare paths with a glob. People also mean the paths that added documents state in their metadata.

    For people, é as one character equals é as a letter with a mark; a program's `glob` is exact.
    """
    columns, globs, value = [documents.column("path")], where.operator != "same", where.value
    if where.operator != "glob":
        columns.append(documents.stated_paths)
        if not value.isascii():
            columns, value = [column.composed for column in columns], composed(value)
    plain = value.removeprefix("./")
    masks = [column.mask([column.equal(value), column.equal(plain)]) for column in columns]
    masks += [_globbed(column, value) for column in columns if globs]
    return reduce(np.logical_or, masks)


def _globbed(column: Column, glob: str) -> Mask:
    """Match paths, or any folder above them."""
    pattern = fields.pattern(glob)
    if expression := _linear(pattern):
        with contextlib.suppress(pa.ArrowInvalid):  # too large for RE2
            return column.mask_of(np.flatnonzero(pc.match_substring_regex(column.encoded, expression)))
    above = lru_cache(maxsize=256)(lambda folder: holds(pattern, folder))  # neighbours share their folder

    def matches(path: str) -> bool:
        folder = path[: path.rfind("/") + 1]
        return pattern.matches(path) or (folder != "" and above(folder))

    return column.mask_of([code for code, path in enumerate(column.values) if matches(path)])


def _linear(pattern: Pattern) -> str:
    """Return a pattern for Arrow's RE2, to look for in bytes of paths; "" if RE2 cannot express it.

    RE2 takes linear time without atomic groups, so they become plain ones.
    """
    expression = pattern.regex.pattern.replace("(?>", "(?:").replace("*+", "*")
    if not expression.isascii() or "(?!" in expression:
        return ""
    start, end = r"\A" if pattern.anchored else r"(?:\A|/)", "/" if pattern.folders_only else r"(?:/|\z)"
    return f"(?s){start}(?:{expression}){end}"
