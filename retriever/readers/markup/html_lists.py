"""The numbers that a browser shows before the items of ordered lists."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..numerals import numeral

if TYPE_CHECKING:
    from .html_tokens import Tag

_LISTS = frozenset({"ol", "ul", "menu", "dir"})
_NO_NUMBERS = re.compile(r"list-style(?:-type)?\s*:[^;]*none", re.IGNORECASE)


class HtmlLists:
    """The lists that are open at the reader's position. Elements that nobody sees are not told to it."""

    def __init__(self) -> None:
        self._open: list[tuple[str, int]] = []  # the form of the numbers, "" for none, and the next number
        self._label = ""  # of an item without text so far

    def start(self, tag: Tag, *, is_navigation: bool) -> None:
        """Note an element that opens.

        :param is_navigation: whether it is in a menu: on most pages lists have no numbers there.
        """
        if tag.name in _LISTS:
            # A list that counts down needs the number of its items, and they come later.
            is_numbered = tag.name == "ol" and not is_navigation and "reversed" not in tag.attributes
            is_numbered = is_numbered and not _NO_NUMBERS.search(tag.attributes.get("style", ""))
            form = tag.attributes.get("type") or "1"
            self._open.append((form if is_numbered else "", _integer(tag, "start", 1)))
        elif tag.name == "li" and self._open:
            form, number = self._open[-1]
            number = _integer(tag, "value", number)
            self._open[-1] = form, number + 1
            self._label = " ".join(filter(None, [self._label, f"{numeral(number, form)}." if form else ""]))

    def end(self, name: str) -> None:
        """Note that an element has closed."""
        if name in _LISTS and self._open:
            self._open.pop()
        elif name == "li":
            self._label = ""

    def take_label(self) -> str:
        """The number to show before the text that comes now; "" for none."""
        label, self._label = self._label, ""
        return label


def _integer(tag: Tag, name: str, default: int) -> int:
    value = tag.attributes.get(name, "").strip()
    return int(value) if re.fullmatch("-?[0-9]{1,9}", value) else default
