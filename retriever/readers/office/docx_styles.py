"""Find the styles of headings and their levels, in Word templates of any language."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Self

from .package import attribute, local_name, parse_digits, property_of

_HEADING_NAME = re.compile(r"head(?:ing)?[ _-]?(?:(\d)|([A-F]))$", re.IGNORECASE)
_CHAPTER_NAME = re.compile(r"chapter[ _-]?title$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Styles:
    """The styles of headings and titles."""

    levels: dict[str, int]  # style id -> heading level from 1, its own or inherited
    titles: frozenset[str]  # ids of styles for the title of a document

    @classmethod
    def read(cls, root: Any | None) -> Self:
        """Read the part of a package with its styles."""
        styles = [style for style in (root if root is not None else ()) if local_name(style) == "style"]
        own: dict[str, int] = {}
        base: dict[str, str] = {}
        titles: set[str] = set()
        for style in styles:
            identity = attribute(style, "styleId") or ""
            values = {local_name(child): attribute(child, "val") or "" for child in style}
            base[identity] = values.get("basedOn", "")
            if values.get("name", "").lower() == "title":
                titles.add(identity)
            level = _own_level(style, values.get("name", ""))
            if level is not None:
                own[identity] = level
        levels = {style: level for style in base if (level := _inherited(style, own, base))}
        return cls(levels, frozenset(titles))


def _own_level(style: Any, name: str) -> int | None:
    """The heading level that a style sets itself: 0 for body text, None if it sets none."""
    level = parse_digits(paragraph_property(style, "outlineLvl"))
    if level is not None:
        return level + 1 if level < 9 else 0
    if _CHAPTER_NAME.match(name):
        return 1
    match = _HEADING_NAME.match(name)
    if not match:
        return None
    # Word numbers its headings; publishers' templates letter them, below the chapter's title.
    return int(match[1]) if match[1] else ord(match[2].upper()) - ord("A") + 2


def _inherited(style: str, own: dict[str, int], base: dict[str, str]) -> int:
    for _ in range(20):
        if style in own or not style:
            break
        style = base.get(style, "")
    return own.get(style, 0)


def paragraph_property(element: Any, name: str) -> str | None:
    """The value of a property of a paragraph; "" for a property without a value, None without the property."""
    return property_of(element, "pPr", name)
