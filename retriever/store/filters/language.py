"""The filter language for people: `type in (pdf, html) and not path=/drafts/ or author="Ada"`.

A condition is a field, an operator and a value. Conditions are joined by `and`, `or`, `not` and brackets; `and` binds
more than `or`. The fields are:

    path      a glob as in .gitignore: `*.md` anywhere, `/docs/` below the root
    type      the format, or the extension of the file name
    modified  a date, meaning the whole day, or a date and time; in local time unless it has a zone
    size      bytes, or 10KB, 3MB
    title     and any key of the documents' own metadata

The operators are `=`, `!=`, `<`, `<=`, `>`, `>=`, `in (...)` and `not in (...)`. `=` ignores capitals and reads
numbers. Its value may be a glob; a value in quotes has no special characters. A glob of paths in quotes is refused,
unless a document has this very path. `metadata.path` is the key `path` of metadata.

The metadata of an added document may use the name of a field (`type`, `title`, …). Both values then count: a document
may have several types. `modified` in metadata is a date, or seconds since 1970.
"""

from __future__ import annotations

import re

from ....core.errors import InputError
from . import fields
from .fields import shown
from .filter import MAX_DEPTH, Filter, condition, joined

_MAX_CHARACTERS = 10_000
_QUOTED = r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'"""
_OPERATOR = r"!=|<=|>=|==?|<|>|:|(?:(?<=\s)not\s+)?(?<=\s)in(?=\s*\()"
_NAME = re.compile(rf"\s*({_QUOTED}|[\w.-]+)\s*({_OPERATOR})\s*", re.IGNORECASE)
_NOT = re.compile(r"\s*not(?=[\s(])(?!\s*(?:[!<>=:]|in\s*\())", re.IGNORECASE)
_WORDS = {word: re.compile(rf"\s*\b{word}(?=[\s(])", re.IGNORECASE) for word in ("and", "or")}
_VALUE_END = re.compile(r"[()]|(?<=\s)(?:and|or)(?=[\s(]|$)", re.IGNORECASE)
_CONDITION_IN_VALUE = re.compile(r"\s(\w[\w.-]*\s*(?:[!<>=]=|[<>=]).*)", re.DOTALL)
_QUOTED_VALUE = re.compile(_QUOTED, re.DOTALL)
_ITEM = re.compile(r"[^,()]*")
_SIGNS = {"<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}


def parse(text: str) -> Filter:
    """Read a filter as people write it.

    :raises InputError: naming the part that cannot be read.
    """
    if len(text) > _MAX_CHARACTERS:
        raise InputError(
            f"the filter {text[:40]!r}… has {len(text):,} characters: expected {_MAX_CHARACTERS:,} at most"
        )
    return _Reader(text).read()


class _Reader:
    """Reads one filter from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._depth = 0  # of open brackets
        self._steps = 0  # into brackets and negations

    def read(self) -> Filter:
        """Read the whole text."""
        result = self._either()
        if self._rest():
            raise self._refusal("expected 'and', 'or' or the end there")
        return result

    def _either(self) -> Filter:
        parts = [self._both()]
        while self._take(_WORDS["or"]):
            parts.append(self._both())
        return joined("or", parts)

    def _both(self) -> Filter:
        parts = [self._negated()]
        while self._take(_WORDS["and"]):
            parts.append(self._negated())
        return joined("and", parts)

    def _negated(self) -> Filter:
        self._steps += 1
        if self._steps > MAX_DEPTH:
            raise InputError(f"the filter has more than {MAX_DEPTH} filters in each other: expected fewer")
        try:
            if self._take(_NOT):
                return ~self._negated()
            if self._rest().startswith("("):
                return self._bracketed()
            return self._condition()
        finally:
            self._steps -= 1

    def _bracketed(self) -> Filter:
        self._position = self._text.index("(", self._position) + 1
        self._depth += 1
        inside = self._either()
        self._depth -= 1
        self._close()
        return inside

    def _condition(self) -> Filter:
        match = _NAME.match(self._text, self._position)
        if not match:
            raise self._refusal(
                "expected FIELD, one of = != < <= > >= in, and a value, such as path=docs/** or modified>=2026-01-01"
            )
        start, self._position = self._position, match.end()
        name, operator = _unquoted(match[1]), match[2].lower()
        if operator.endswith("in"):
            result = joined("or", [_compare(name, "=", *value) for value in self._list()])
            return ~result if operator.startswith("not") else result
        value, is_quoted = self._quoted() or (self._plain(), False)
        if not value and not is_quoted:
            self._position = start
            raise self._refusal("expected a value there, such as path=docs/** or modified>=2026-01-01")
        return _compare(name, operator, value, is_quoted)

    def _list(self) -> list[tuple[str, bool]]:
        self._position = self._text.index("(", self._position) + 1
        values = []
        while True:
            self._skip()
            quoted = self._quoted()
            if quoted is None:
                match = _ITEM.match(self._text, self._position)
                assert match
                self._position = match.end()
                quoted = match[0].strip(), False
                if not quoted[0]:
                    raise self._refusal("expected values between the brackets, such as type in (pdf, html)")
            values.append(quoted)
            if not self._rest().startswith(","):
                self._close()
                return values
            self._position = self._text.index(",", self._position) + 1

    def _quoted(self) -> tuple[str, bool] | None:
        if self._text[self._position : self._position + 1] not in ('"', "'"):
            return None
        match = _QUOTED_VALUE.match(self._text, self._position)
        if not match:
            raise self._refusal("the quote there has no end")
        self._position = match.end()
        return _unquoted(match[0]), True

    def _plain(self) -> str:
        """Read a value up to `and`, `or`, or the end of the bracket around it. It may have brackets of its own."""
        start, end, open_brackets = self._position, len(self._text), 0
        for match in _VALUE_END.finditer(self._text, start):
            if match[0] == "(":
                open_brackets += 1
            elif match[0] == ")" and open_brackets:
                open_brackets -= 1
            elif open_brackets or (match[0] == ")" and not self._depth):
                continue
            else:
                end = match.start()
                break
        value = self._text[start:end].strip()
        if second := _CONDITION_IN_VALUE.search(value):
            self._position = start + self._text[start:end].index(second[0]) + 1
            raise self._refusal(
                "expected 'and' or 'or' before another condition; quote a value that contains an operator"
            )
        self._position = end
        return value

    def _close(self) -> None:
        if not self._rest().startswith(")"):
            raise self._refusal("expected ')' there")
        self._position = self._text.index(")", self._position) + 1

    def _take(self, word: re.Pattern[str]) -> bool:
        match = word.match(self._text, self._position)
        if match:
            self._position = match.end()
        return bool(match)

    def _skip(self) -> None:
        self._position = len(self._text) - len(self._rest())

    def _rest(self) -> str:
        return self._text[self._position :].lstrip()

    def _refusal(self, expected: str) -> InputError:
        rest = self._rest()
        at = f" at {shown(rest)}" if rest and rest != self._text.strip() else ""
        return InputError(f"cannot read the filter {shown(self._text)}{at}: {expected}")


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL) if text[:1] in ('"', "'") else text


def _compare(name: str, operator: str, value: str, is_quoted: bool) -> Filter:
    if operator == "!=":
        return ~_compare(name, "=", value, is_quoted)
    sign = _SIGNS.get(operator, "eq")
    if name == "size":
        return condition(name, sign, fields.size(value))
    if name in ("modified", "type", "format"):
        return condition(name, sign, value)
    if sign == "eq":
        return condition(name, "same" if is_quoted else "like", value)
    return condition(name, f"like_{sign}", value)
