"""The numbers that Word writes before headings, clauses and items of lists: `4.3`, `(a)`, `Article 5`.

They are not in the text: a paragraph names a list and a level, and the list has a start, a format and a pattern for
each level (ECMA-376, part 1, 17.9).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any, Self

from ..numerals import numeral
from .package import attribute, local_name, parse_digits

_MAX_LEVELS = 9
_LEVEL_FIELD = re.compile(r"%([1-9])")
_FORMS = {"lowerLetter": "a", "upperLetter": "A", "lowerRoman": "i", "upperRoman": "I"}


@dataclass(frozen=True, slots=True)
class _Level:
    start: int = 1
    form: str = "decimal"
    pattern: str = ""  # with %1 for the number of the first level; "" for a bullet
    restarts: bool = True  # after a paragraph of a level above
    is_decimal: bool = False  # the numbers of the levels above too
    style: str = ""  # of paragraphs on this level


@dataclass(slots=True)
class _List:
    """A list as paragraphs name it; several may count together."""

    group: str
    levels: dict[int, _Level]
    starts: dict[int, int] = field(default_factory=dict)  # level -> number with which it begins anew


@dataclass(slots=True)
class Numbering:
    """The lists of a document, and their numbers so far. Paragraphs are counted in the order of the document."""

    _lists: dict[str, _List] = field(default_factory=dict)
    _of_styles: dict[str, tuple[str, int]] = field(default_factory=dict)  # style -> list and level
    _counts: dict[str, dict[int, int]] = field(default_factory=dict)  # group -> level -> the last number
    _begun: set[tuple[str, int]] = field(default_factory=set)  # lists and levels that began anew

    @classmethod
    def read(cls, root: Any | None, styles: Any | None) -> Self:
        """Read the parts of a package with its lists and its styles."""
        of_styles = _read_styles(styles)
        groups: dict[str, dict[int, _Level]] = {}
        links: dict[str, str] = {}  # a group that has its levels in the list of a style
        numbers = []
        for element in root if root is not None else ():
            if local_name(element) == "abstractNum":
                name = attribute(element, "abstractNumId") or ""
                groups[name] = dict(_read_levels(element))
                links[name] = _value(element, "numStyleLink")
            elif local_name(element) == "num":
                numbers.append(element)
        group_of = {attribute(number, "numId") or "": _value(number, "abstractNumId") for number in numbers}
        for name, style in links.items():
            if style and not groups[name]:
                groups[name] = groups.get(group_of.get(of_styles.get(style, ("", 0))[0], ""), {})
        lists = {}
        for number in numbers:
            name = attribute(number, "numId") or ""
            lists[name] = _List(group_of[name], dict(groups.get(group_of[name], {})))
            _override(lists[name], number)
        for style, (name, _) in of_styles.items():
            levels = lists[name].levels if name in lists else {}
            own = next((level for level, form in levels.items() if form.style == style), None)
            of_styles[style] = name, of_styles[style][1] if own is None else own
        return cls(lists, of_styles)

    def label(self, paragraph: Any, style: str) -> str:
        """Count a paragraph, and return its number as Word shows it; "" without one."""
        name, level = self._list_and_level(paragraph, style)
        chosen = self._lists.get(name)
        if chosen is None or level not in chosen.levels:
            return ""
        counts = self._counts.setdefault(chosen.group, {})
        if level in chosen.starts and (name, level) not in self._begun:
            self._begun.add((name, level))
            counts[level] = chosen.starts[level]
        else:
            counts[level] = counts[level] + 1 if level in counts else chosen.levels[level].start
        for deeper in [deeper for deeper in counts if deeper > level]:
            if deeper not in chosen.levels or chosen.levels[deeper].restarts:
                del counts[deeper]
        return _shown(chosen.levels, level, counts)

    def _list_and_level(self, paragraph: Any, style: str) -> tuple[str, int]:
        """The list and the level of a paragraph."""
        name, level = self._of_styles.get(style, ("", 0))
        own = next((own for own in paragraph.iterfind("{*}pPr/{*}numPr")), None)
        if own is not None:
            name = _value(own, "numId") or name
            level = _digits(own, "ilvl", level)
        return name, level


def _shown(levels: dict[int, _Level], level: int, counts: dict[int, int]) -> str:
    own = levels[level]

    def number(match: re.Match[str]) -> str:
        above = int(match[1]) - 1
        form = levels.get(above, _Level())
        return _formatted(counts.get(above, form.start), "decimal" if own.is_decimal else form.form)

    return " ".join(_LEVEL_FIELD.sub(number, own.pattern).split())


def _formatted(number: int, form: str) -> str:
    if form in {"none", "bullet"}:
        return ""
    return f"{number:02}" if form == "decimalZero" else numeral(number, _FORMS.get(form, "1"))


def _read_levels(element: Any) -> list[tuple[int, _Level]]:
    levels = []
    for child in element:
        number = parse_digits(attribute(child, "ilvl")) if local_name(child) == "lvl" else None
        if number is not None and number < _MAX_LEVELS:
            form = _value(child, "numFmt") or "decimal"
            level = _Level(
                start=_digits(child, "start", 1),
                form=form,
                pattern="" if form == "bullet" else _value(child, "lvlText"),
                restarts=_digits(child, "lvlRestart", 1) > 0,
                is_decimal=any(
                    local_name(node) == "isLgl" and attribute(node, "val") not in {"0", "false"} for node in child
                ),
                style=_value(child, "pStyle"),
            )
            levels.append((number, level))
    return levels


def _override(own: _List, element: Any) -> None:
    """Apply the settings of a list that differ from its group."""
    for child in element:
        level = parse_digits(attribute(child, "ilvl")) if local_name(child) == "lvlOverride" else None
        if level is not None:
            own.levels.update(_read_levels(child))
            if (start := _digits(child, "startOverride", -1)) >= 0:
                own.starts[level] = start
                own.levels[level] = replace(own.levels.get(level, _Level()), start=start)


def _read_styles(root: Any | None) -> dict[str, tuple[str, int]]:
    """The list and the level of each style, its own or inherited."""
    own: dict[str, tuple[str, int]] = {}
    base: dict[str, str] = {}
    for style in root if root is not None else ():
        identity = attribute(style, "styleId") or ""
        base[identity] = _value(style, "basedOn")
        for properties in style.iterfind("{*}pPr/{*}numPr"):
            own[identity] = _value(properties, "numId"), _digits(properties, "ilvl", 0)
    numbered = {}
    for style in base:
        ancestor, level = style, own.get(style, ("", 0))[1]
        for _ in range(20):
            if own.get(ancestor, ("",))[0] or not ancestor:
                break
            ancestor = base.get(ancestor, "")
        if ancestor in own:
            numbered[style] = own[ancestor][0], level if style in own else own[ancestor][1]
    return numbered


def _value(element: Any, name: str) -> str:
    return next((attribute(child, "val") or "" for child in element if local_name(child) == name), "")


def _digits(element: Any, name: str, default: int) -> int:
    number = parse_digits(_value(element, name))
    return default if number is None else number
