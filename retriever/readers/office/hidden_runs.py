"""Mark the text that a person does not see in Word, PowerPoint and OpenDocument files, before it is read.

Only properties in the file count: hidden or tiny letters, and white letters where nothing coloured can lie below them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..document_builder import hide, name_set
from .package import attribute, local_name, parse_digits

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .package import Package

    Look = dict[str, str]  # property -> value, with an own name for each format's properties

_WHITE = re.compile(r"#?(?:f[3-9a-f]){3}|white", re.IGNORECASE)
_OFF = ("0", "false", "off")
_PLAIN_TABLES = ("TableGrid", "TableNormal")
_HALF_POINTS = 3  # letters of up to 1.5 points cannot be read
_MAX_BASES = 20  # styles that a style is derived from, one from the other


# Word


def mark_word(root: Any, styles_root: Any | None) -> None:
    """Mark the hidden runs of a part of a Word document.

    :param styles_root: the part with its styles.
    """
    styles = _WordStyles(styles_root)
    runs = [run for run in _holders(root) if local_name(run) == "r"]
    hiding = styles.hiding()
    for element in root.iter("{*}pStyle", "{*}rStyle") if hiding else ():
        if attribute(element, "val") in hiding:
            runs += [run for holder in _holder(element) for run in holder.iter("{*}r")]
    is_plain = next(root.iter("{*}background"), None) is None
    for run in runs:
        look = {**_paragraph_look(run, styles), **_word_look(run, styles)}
        if _is_hidden_run(look) or (is_plain and _is_white_run(look) and not _lies_on_colour(run)):
            _hide(run.iterchildren("{*}t"))


class _WordStyles:
    """The styles of a Word document. Only the few that are asked for are read."""

    def __init__(self, root: Any | None) -> None:
        self._root = root
        self._looks: dict[str, Look] = {}
        self._elements: dict[str, Any] = {}
        self._bases: dict[str, str] = {}
        for style in root.iterchildren("{*}style") if root is not None else ():
            self._elements[attribute(style, "styleId") or ""] = style
        for base in root.iter("{*}basedOn") if root is not None else ():
            self._bases[attribute(base.getparent(), "styleId") or ""] = attribute(base, "val") or ""

    def hiding(self) -> set[str]:
        """The ids of styles that may hide text by a property of their own, or of a style that they are derived from."""
        holders = _holders(self._root) if self._root is not None else ()
        names = {attribute(style, "styleId") or "" for style in holders if local_name(style) == "style"}
        for _ in range(_MAX_BASES if names else 0):
            derived = {name for name, base in self._bases.items() if base in names} - names
            if not derived:
                break
            names |= derived
        return names

    def look(self, name: str) -> Look:
        """The properties of letters of a style, its own and inherited."""
        if name not in self._looks:
            look: Look = {}
            ancestor = name
            for _ in range(_MAX_BASES):
                if ancestor not in self._elements:
                    break
                look = {**_word_look(self._elements[ancestor], None), **look}
                ancestor = self._bases.get(ancestor, "")
            self._looks[name] = look
        return self._looks[name]


def _holders(root: Any) -> Iterator[Any]:
    """The runs and styles with a property that may hide their text: few, if any."""
    for element in root.iter("{*}vanish", "{*}sz", "{*}color"):
        look = {local_name(element): attribute(element, "val") or ""}
        if _is_hidden_run(look) or _is_white_run(look):
            yield from _holder(element)


def _holder(element: Any) -> list[Any]:
    """The element that has a property, two levels above it."""
    properties = element.getparent()
    holder = None if properties is None else properties.getparent()
    return [] if holder is None else [holder]


def _word_look(element: Any, styles: _WordStyles | None) -> Look:
    look: Look = {}
    for properties in element.iterchildren("{*}rPr", "{*}pPr"):
        for child in properties:
            name = local_name(child)
            value = _shade(child) if name == "shd" else attribute(child, "val") or ""
            if name == "rStyle" and styles:
                look = {**styles.look(value), **look}
            elif name in {"vanish", "sz", "color", "shd", "highlight"}:
                look[name] = value
    return look


def _paragraph_look(run: Any, styles: _WordStyles) -> Look:
    paragraph = next(run.iterancestors("{*}p"), None)
    style = None if paragraph is None else paragraph.find("{*}pPr/{*}pStyle")
    return {} if style is None else styles.look(attribute(style, "val") or "")


def _is_hidden_run(look: Look) -> bool:
    size = parse_digits(look.get("sz"))
    return look.get("vanish", "0") not in _OFF or (size is not None and size <= _HALF_POINTS)


def _is_white_run(look: Look) -> bool:
    is_shaded = "highlight" in look or _is_coloured(look.get("shd", "auto"))
    return bool(_WHITE.fullmatch(look.get("color", ""))) and not is_shaded


def _shade(element: Any) -> str:
    """The colour of a background; a pattern counts as one."""
    has_pattern = attribute(element, "val") not in {None, "clear", "nil"}
    return "pattern" if has_pattern else attribute(element, "fill") or "auto"


def _is_coloured(shade: str) -> bool:
    return shade != "auto" and not _WHITE.fullmatch(shade)


def _lies_on_colour(run: Any) -> bool:
    """Whether a paragraph, cell, table or box around a run may have a background of its own."""
    for element in run.iterancestors("{*}p", "{*}tc", "{*}tbl", "{*}txbxContent"):
        if local_name(element) == "txbxContent":
            return True
        for name in ("pPr", "tcPr", "tblPr"):
            if any(_is_coloured(_shade(shade)) for shade in element.iterfind(f"{{*}}{name}/{{*}}shd")):
                return True
        styles = (attribute(style, "val") for style in element.iterfind("{*}tblPr/{*}tblStyle"))
        if any(style not in _PLAIN_TABLES for style in styles):
            return True
    return False


# PowerPoint

_SLIDE_STYLING = re.compile(rb'hidden="(?:1|true)"|sz="\d{1,3}"|noFill|val="[fF][0-9a-fA-F][fF]')
_FILLS = ("{*}pic", "{*}solidFill", "{*}gradFill", "{*}blipFill", "{*}pattFill")
_FILLED = name_set("spPr tcPr spTree grpSp")  # the parents of a fill, except letters and lines
_TINY = 150  # hundredths of a point


def mark_slide(root: Any, package: Package, part: str, size: tuple[int, int]) -> None:
    """Mark the hidden text of a slide.

    :param size: width and height of the slides.
    """
    _hide(text for shape in _shapes_outside(root, size) for text in shape.iter("{*}t"))
    if not _SLIDE_STYLING.search(package.read(part)):
        return
    for properties in root.iter("{*}cNvPr"):
        if properties.get("hidden") in {"1", "true"}:
            _hide(text for holder in _holder(properties) for text in holder.iter("{*}t"))
    white = []
    for run in root.iter("{*}r"):
        for properties in run.iterchildren("{*}rPr"):
            size_of_letters = parse_digits(properties.get("sz"))
            is_tiny = size_of_letters is not None and size_of_letters <= _TINY
            if is_tiny or next(properties.iterchildren("{*}noFill"), None) is not None:
                _hide(run.iterchildren("{*}t"))
            elif any(_WHITE.fullmatch(fill.get("val", "")) for fill in properties.iterfind("{*}solidFill/{*}srgbClr")):
                white.append(run)
    if white and _is_plain_slide(root, package, part):
        _hide(text for run in white for text in run.iterchildren("{*}t"))


def _shapes_outside(root: Any, size: tuple[int, int]) -> Iterable[Any]:
    """The shapes that lie beside their slide."""
    for shape in root.iterfind("{*}cSld/{*}spTree/{*}sp"):
        offset, extent = shape.find("{*}spPr/{*}xfrm/{*}off"), shape.find("{*}spPr/{*}xfrm/{*}ext")
        if offset is not None and extent is not None:
            left, top = _whole(offset.get("x")), _whole(offset.get("y"))
            right, bottom = left + _whole(extent.get("cx")), top + _whole(extent.get("cy"))
            if left >= size[0] or top >= size[1] or right < 0 or bottom < 0:
                yield shape


def _whole(value: str | None) -> int:
    return int(value) if value and re.fullmatch(r"-?\d{1,15}", value) else 0


def _is_plain_slide(root: Any, package: Package, part: str) -> bool:
    """Whether only white can lie below the text of a slide, by its own shapes, its layout, its master and its theme."""
    layout = next(package.related(part, "slideLayout"), "")
    master = next(package.related(layout, "slideMaster"), "")
    theme = package.xml(next(package.related(master, "theme"), ""))
    lightest = next(theme.iter("{*}lt1"), ()) if theme is not None else ()
    colours = [attribute(colour, "lastClr") or attribute(colour, "val") or "" for colour in lightest]
    if not all(map(_WHITE.fullmatch, colours)):
        return False
    for tree in (root, package.xml(layout), package.xml(master)):
        if tree is None:
            continue
        names = (attribute(name, "val") for name in tree.iterfind("{*}cSld/{*}bg/{*}bgRef/{*}schemeClr"))
        if any(name != "bg1" for name in names) or tree.find("{*}cSld/{*}bg/{*}bgPr") is not None:
            return False
        fills = (local_name(fill.getparent()) for fill in tree.iter(*_FILLS))
        if not _FILLED.isdisjoint(fills) or any(_whole(fill.get("idx")) for fill in tree.iter("{*}fillRef")):
            return False
    return True


# OpenDocument

_ODF_LOOKS = ("display", "font-size", "color", "background-color")
_ODF_AREAS = ("{*}table-cell", "{*}text-box", "{*}custom-shape", "{*}page")  # may have a background of their own
_LENGTH = re.compile(r"(\d++(?:\.\d*+)?|\.\d++)(pt|px|in|cm|mm|%)")
_POINTS = {"pt": 1.0, "px": 0.75, "in": 72.0, "cm": 28.3, "mm": 2.83, "%": 0.12}


def mark_odf(body: Any, roots: Iterable[Any]) -> None:
    """Mark the hidden text of an OpenDocument file.

    :param roots: the parts with its styles.
    """
    looks = _odf_styles(roots)
    if not any(_is_hidden_odf(look) for look in looks.values()):
        return
    for paragraph in body.iter("{*}p", "{*}h"):
        is_inside = next(paragraph.iterancestors(*_ODF_AREAS), None) is not None
        _mark_odf_element(paragraph, {"background-color": "unknown"} if is_inside else {}, looks)


def _odf_styles(roots: Iterable[Any]) -> dict[str, Look]:
    own: dict[str, Look] = {}
    base: dict[str, str] = {}
    for root in roots:
        for style in root.iter("{*}style"):
            name = attribute(style, "name") or ""
            base[name] = attribute(style, "parent-style-name") or ""
            own[name] = {
                key: value
                for properties in style.iterchildren("{*}text-properties", "{*}paragraph-properties")
                for key in _ODF_LOOKS
                if (value := attribute(properties, key))
            }
    return {name: _with_bases(name, own, base) for name in own}


def _with_bases(name: str, own: dict[str, Look], base: dict[str, str]) -> Look:
    look: Look = {}
    for _ in range(_MAX_BASES):
        if name not in own:
            break
        look, name = {**own[name], **look}, base.get(name, "")
    return look


def _mark_odf_element(element: Any, outer: Look, looks: dict[str, Look]) -> None:
    look = {**outer, **looks.get(attribute(element, "style-name") or "", {})}
    is_hidden = _is_hidden_odf(look)
    if is_hidden:
        _hide([element])
    for child in element:
        if local_name(child) in {"span", "a", "ruby", "ruby-base"}:
            _mark_odf_element(child, look, looks)
        if is_hidden and child.tail:
            child.tail = hide(child.tail)


def _is_hidden_odf(look: Look) -> bool:
    size = _LENGTH.fullmatch(look.get("font-size", ""))
    if look.get("display") == "none" or (size and float(size[1]) * _POINTS[size[2]] <= _HALF_POINTS / 2):
        return True
    background = look.get("background-color", "transparent")
    is_plain = background == "transparent" or bool(_WHITE.fullmatch(background))
    return is_plain and bool(_WHITE.fullmatch(look.get("color", "")))


def _hide(elements: Iterable[Any]) -> None:
    for element in elements:
        if element.text:
            element.text = hide(element.text)
