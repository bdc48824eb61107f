"""The numbers that an OpenDocument program writes before headings and the items of lists: `4.3`, `(a)`.

They are not in the text: a list names a style, and the style has a start and a form for each level (OpenDocument 1.3,
part 3, 16.30 and 19.880).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..numerals import numeral
from .package import attribute, local_name, parse_digits

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_MAX_LEVELS = 10


@dataclass(frozen=True, slots=True)
class _Level:
    form: str = ""  # of the number; "" for a bullet, or nothing
    prefix: str = ""
    suffix: str = ""
    start: int = 1
    shown: int = 1  # number of levels to show, this one and the levels above it


@dataclass(slots=True)
class _List:
    """A list that is open, or may go on later: its style, and its numbers so far."""

    style: str
    counts: dict[int, int] = field(default_factory=dict)  # level -> the last number


class Numbering:
    """The styles of the lists of a document, and the lists that are open at the reader's position."""

    def __init__(self, roots: Iterable[Any]) -> None:
        """:param roots: the parts of the document with its styles; of two styles of one name the first counts."""
        self._styles: dict[str, dict[int, _Level]] = {}
        self._headings = _List("")
        for root in roots:
            for style in root.iter("{*}list-style", "{*}outline-style"):
                name = "" if local_name(style) == "outline-style" else attribute(style, "name") or ""
                self._styles.setdefault(name, dict(_levels(style)))
        self._open: list[_List] = []
        self._last: dict[str, _List] = {}  # by style, and by the id of the list

    def enter(self, element: Any) -> None:
        """Open a list; one in another continues its numbers on the next level."""
        style = attribute(element, "style-name") or (self._open[-1].style if self._open else "")
        if self._open and style == self._open[-1].style:
            self._open.append(self._open[-1])
            return
        continued = self._last.get(attribute(element, "continue-list") or "")
        if continued is None and attribute(element, "continue-numbering") == "true":
            continued = self._last.get(style)
        opened = _List(style, {} if continued is None else continued.counts)
        self._open.append(opened)
        for name in filter(None, [style, attribute(element, "id")]):
            self._last[name] = opened

    def leave(self) -> None:
        """Close the innermost list."""
        self._open.pop()

    def item(self, element: Any) -> str:
        """Count an item of the innermost list, and return its number; "" without one."""
        start = parse_digits(attribute(element, "start-value"))
        opened = self._open[-1]
        return self._count(opened, len(self._open), start) if opened.style else ""

    def heading(self, element: Any) -> str:
        """Count a heading outside of lists, and return its number; "" without one."""
        level = parse_digits(attribute(element, "outline-level")) or 1
        if attribute(element, "is-list-header") == "true":
            return ""
        start = parse_digits(attribute(element, "start-value"))
        return self._count(self._headings, level, start)

    def _count(self, counted: _List, level: int, start: int | None) -> str:
        levels, counts = self._styles.get(counted.style, {}), counted.counts
        own = levels.get(level, _Level())
        counts[level] = counts.get(level, own.start - 1) + 1 if start is None else start
        for deeper in [deeper for deeper in counts if deeper > level]:
            del counts[deeper]
        if not own.form:
            return ""
        first = max(1, level - own.shown + 1)
        forms = [(above, levels.get(above, _Level())) for above in range(first, level + 1)]
        numbers = [numeral(counts.get(above, form.start), form.form) for above, form in forms if form.form]
        return f"{own.prefix}{'.'.join(numbers)}{own.suffix}".strip()


def _levels(style: Any) -> Iterator[tuple[int, _Level]]:
    for child in style:
        level = parse_digits(attribute(child, "level")) or 0
        if 0 < level <= _MAX_LEVELS:
            is_bullet = local_name(child) not in {"list-level-style-number", "outline-level-style"}
            start, shown = (parse_digits(attribute(child, name)) for name in ("start-value", "display-levels"))
            yield (
                level,
                _Level(
                    "" if is_bullet else attribute(child, "num-format") or "",
                    attribute(child, "num-prefix") or "",
                    attribute(child, "num-suffix") or "",
                    1 if start is None else start,
                    shown or 1,
                ),
            )
