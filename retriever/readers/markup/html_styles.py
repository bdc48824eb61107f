"""Tell which text of a page a person does not see, by the styles in the page itself.

Attributes of elements and rules for a tag, a class or an id count. A style sheet in another file is not read. If one
could set a background, light text counts as visible.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING

from ..document_builder import name_set

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .html_tokens import Tag

    Declarations = dict[str, str]
    Colour = tuple[int, int, int]

_BRACE = re.compile("[{}]")
_SELECTOR = re.compile(r"[a-z][a-z0-9]*|(?:[a-z][a-z0-9]*)?[.#][\w-]+", re.IGNORECASE)
_NUMBER = r"[-+]?(?:\d++(?:\.\d*+)?|\.\d++)"
_LENGTH = re.compile(rf"({_NUMBER})(px|pt|em|rem|ex|ch|vw|vh|%)?+")
_PIXELS = {"pt": 4 / 3, "em": 16.0, "rem": 16.0, "ex": 8.0, "ch": 8.0, "vw": 10.0, "vh": 10.0, "%": 0.16}  # about
_TINY = 2.0  # pixels: smaller letters cannot be read
_FAR = -500.0  # pixels: further to the left or above, nothing can be scrolled to
_NEAR = 12  # of 255: closer colours cannot be told apart
_TRANSPARENT = "transparent"
_WHITE = (255, 255, 255)
_NAMES = {
    "white": _WHITE,
    "black": (0, 0, 0),
    "snow": (255, 250, 250),
    "ivory": (255, 255, 240),
    "ghostwhite": (248, 248, 255),
    "whitesmoke": (245, 245, 245),
    "red": (255, 0, 0),
    "green": (0, 128, 0),
    "blue": (0, 0, 255),
    "yellow": (255, 255, 0),
    "gray": (128, 128, 128),
    "grey": (128, 128, 128),
    "silver": (192, 192, 192),
}
_STYLING = name_set("style bgcolor background color aria-hidden")
_NAMING = name_set("class id")
_POSITIONS = name_set("left top margin-left margin-top text-indent")
_PAGE = name_set("html body")  # a script shows a page that is hidden as a whole
_FONT = re.compile(rf"(?:^|\s)({_LENGTH.pattern})(?=[\s/])")
_MAX_RULES = 5_000
_MAX_BLOCK = 5_000  # characters of a rule's declarations


@dataclass(frozen=True, slots=True)
class Look:
    """The look of an element's text, as far as its children inherit it."""

    size: float = 16.0  # pixels
    colour: Colour | str | None = None  # None: not set, "transparent", or one that is not known
    background: Colour | str | None = "page"  # None: not known; "page": white, unless a rule says otherwise
    is_concealed: bool = False  # nothing inside can be seen again


@dataclass(slots=True)
class StyleSheet:
    """The rules of a page that name a tag, a class or an id."""

    rules: dict[str, list[str]] = field(default_factory=dict)  # selector -> declarations of each of its rules
    is_whole: bool = True  # no other rule sets a background
    _parsed: dict[str, Declarations] = field(default_factory=dict)

    def hides(self, look: Look) -> bool:
        """Whether a person does not see text of this look."""
        if look.is_concealed or look.size < _TINY or look.colour == _TRANSPARENT:
            return True
        background = _WHITE if look.background == "page" and self.is_whole else look.background
        if not isinstance(background, tuple) or not isinstance(look.colour, tuple):
            return False
        return all(abs(front - back) <= _NEAR for front, back in zip(look.colour, background, strict=True))

    def add(self, source: str) -> None:
        """Add the rules of a `style` element."""
        source = _without_comments(source)
        for selectors, block in islice(_rules(source), _MAX_RULES):
            for name in {selector.strip().lower() for selector in selectors.split(",")}:
                if _SELECTOR.fullmatch(name):
                    self.rules.setdefault(name, []).append(block[:_MAX_BLOCK])
                elif "background" in block:
                    self.is_whole = False
        self._parsed.clear()
        self.is_whole = self.is_whole and "@import" not in source

    def declarations(self, tag: Tag) -> Declarations:
        """Return the declarations of rules and attributes for an element, the most specific last."""
        attributes = tag.attributes
        merged = self._by_rules(tag.name, attributes) if self.rules else {}
        if "bgcolor" in attributes:
            merged["background-color"] = attributes["bgcolor"]
        if "background" in attributes:
            merged["background"] = "url()"
        if "color" in attributes and tag.name == "font":
            merged["color"] = attributes["color"]
        if "style" in attributes:
            merged |= _declarations(attributes["style"])
        return merged

    def _by_rules(self, name: str, attributes: Mapping[str, str]) -> Declarations:
        merged = dict(self._declared(name))
        marks = [f".{mark}" for mark in attributes.get("class", "").lower().split()[:50]]
        marks += [f"#{attributes['id'].lower()}"] if "id" in attributes else []
        for mark in marks:
            merged |= self._declared(mark) | self._declared(name + mark)
        return merged

    def _declared(self, selector: str) -> Declarations:
        if selector not in self.rules:
            return {}
        if selector not in self._parsed:
            self._parsed[selector] = _declarations(";".join(self.rules[selector]))
        return self._parsed[selector]


def look_of(tag: Tag, outer: Look, sheet: StyleSheet) -> Look:
    """Return the look of an element's text inside an element with the look `outer`."""
    attributes, rules = tag.attributes, sheet.rules
    if _STYLING.isdisjoint(attributes) and not (rules and (tag.name in rules or not _NAMING.isdisjoint(attributes))):
        return outer
    declarations = sheet.declarations(tag)
    is_aria_hidden = attributes.get("aria-hidden", "").lower() == "true"
    if not declarations:
        return replace(outer, is_concealed=True) if is_aria_hidden else outer
    return Look(
        _size(declarations, outer.size),
        _colour(declarations["color"]) if "color" in declarations else outer.colour,
        _background(declarations, outer.background),
        outer.is_concealed or is_aria_hidden or (tag.name not in _PAGE and _conceals(declarations)),
    )


def _rules(source: str) -> Iterator[tuple[str, str]]:
    """Yield the selectors and the declarations of each rule, but not of rules for print and for small screens."""
    depth = start = begin = 0
    for brace in _BRACE.finditer(source):
        if brace[0] == "{":
            begin = brace.end() if depth == 0 else begin
            depth += 1
        elif depth:
            depth -= 1
            selectors = source[start : begin - 1].rpartition(";")[2]
            if depth == 0 and "@" not in selectors:
                yield selectors, source[begin : brace.start()]
        if depth == 0:
            start = brace.end()


def _without_comments(source: str) -> str:
    before, *parts = source.split("/*")
    return before + "".join(part.partition("*/")[2] for part in parts)


def _declarations(style: str) -> Declarations:
    """Parse `name: value; …`."""
    pairs = (part.partition(":") for part in style.lower().split(";"))
    return {name.strip(): value.partition("!")[0].strip() for name, colon, value in pairs if colon}


def _conceals(declarations: Declarations) -> bool:
    get = declarations.get
    if get("display") == "none" or get("visibility") in {"hidden", "collapse"}:
        return True
    opacity = _LENGTH.match(get("opacity", ""))
    if opacity and float(opacity[1]) * (0.01 if opacity[2] == "%" else 1) < 0.05:
        return True
    if any(_pixels(value) <= _FAR for name, value in declarations.items() if name in _POSITIONS):
        return True
    if any(_pixels(part) <= _FAR or part.startswith("0)") for part in _transforms(get("transform", ""))):
        return True
    is_cut = re.search(r"hidden|clip", get("overflow", ""))
    if is_cut and any(_pixels(get(name, "auto"), 99) <= 1 for name in ("width", "height", "max-height", "max-width")):
        return True
    return bool(re.match(r"rect\((?:\s*+[01](?:px)?+[\s,]*+){4}\)", get("clip", ""))) or bool(
        re.match(r"inset\((?:50|[6-9]\d|100)%", get("clip-path", ""))
    )


def _transforms(value: str) -> Iterator[str]:
    """The first and second length of each shift, and `0)` for a scale of nothing."""
    for name, lengths in re.findall(r"(translate[xy]?|scale[xy]?)\(([^()]*)\)", value):
        if name.startswith("translate"):
            yield from (part.strip() for part in lengths.split(","))
        elif any(_pixels(part.strip(), 1) == 0 for part in lengths.split(",")):
            yield "0)"


def _pixels(value: str, default: float = 0.0) -> float:
    match = _LENGTH.match(value)
    return float(match[1]) * _PIXELS.get(match[2] or "", 1.0) if match else default


def _size(declarations: Declarations, outer: float) -> float:
    font = _FONT.search(declarations.get("font", ""))
    value = declarations.get("font-size", "") or (font[1] if font else "")
    match = _LENGTH.match(value)
    if not match:
        return outer
    if match[2] in {"em", "%"}:
        return float(match[1]) * outer / (100 if match[2] == "%" else 1)
    return _pixels(value)


def _background(declarations: Declarations, outer: Colour | str | None) -> Colour | str | None:
    if "url(" in declarations.get("background-image", "") or "gradient" in declarations.get("background-image", ""):
        return None
    value = declarations.get("background-color") or declarations.get("background", "")
    if value in {"", "none", "inherit", _TRANSPARENT}:
        return outer
    colour = _colour(value.split(" ")[0] if "(" not in value else value)
    return None if "url(" in declarations.get("background", "") or not isinstance(colour, tuple) else colour


def _colour(value: str) -> Colour | str | None:
    """Parse a colour; None if it is not known."""
    if value in _NAMES or value == _TRANSPARENT:
        return _NAMES.get(value, _TRANSPARENT)
    if match := re.fullmatch(r"#([0-9a-f]{3,4}|[0-9a-f]{6}|[0-9a-f]{8})", value):
        digits = match[1] if len(match[1]) > 4 else "".join(2 * digit for digit in match[1])
        red, green, blue, *alpha = (int(digits[index : index + 2], 16) for index in range(0, len(digits), 2))
        return _TRANSPARENT if alpha and alpha[0] < 13 else (red, green, blue)
    if match := re.fullmatch(
        rf"rgba?\(\s*+(\d{{1,3}})[\s,]++(\d{{1,3}})[\s,]++(\d{{1,3}})(?:[\s,/]++({_NUMBER})(%)?)?\s*+\)", value
    ):
        alpha_share = float(match[4]) * (0.01 if match[5] else 1) if match[4] else 1.0
        return _TRANSPARENT if alpha_share < 0.05 else (int(match[1]), int(match[2]), int(match[3]))
    return None
