"""Read DrawingML, which Word, PowerPoint and Excel share: text bodies, charts, SmartArt and pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..numerals import numeral
from .equations import equation
from .package import attribute, local_name, parse_digits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..pictures import Pictures
    from .package import Package


# An element that shows another part: its attribute with the id of that relation. VML has `imagedata`.
_REFERENCES = {"chart": "id", "relIds": "dm", "blip": "embed", "imagedata": "id"}


# The kinds of numbers, such as alphaLcParenR: "a)".
_FORMS = {"alphaLc": "a", "alphaUc": "A", "romanLc": "i", "romanUc": "I"}
_AROUND = {"ParenBoth": "({})", "ParenR": "{})", "Plain": "{}"}

Counts = dict[int, tuple[str, int, int]]  # level -> kind, first and last number of the items so far


def paragraphs(element: Any) -> Iterator[str]:
    """The text of each a:p below an element, behind its number in a numbered list."""
    body, counts = None, Counts()
    for paragraph in element.iter("{*}p"):
        if paragraph.getparent() is not body:
            body, counts = paragraph.getparent(), Counts()
        pieces = []
        for node in paragraph.iter():
            name = local_name(node)
            if name == "oMath":
                pieces.append(equation(node))
            elif name == "t" and "/math}" not in node.tag:
                pieces.append(node.text or "")
            elif name == "br":
                pieces.append("\n")
            elif name == "tab" and not len(node):
                pieces.append("\t")
        text = "".join(pieces).strip()
        if text:
            yield " ".join(filter(None, [_number(paragraph, counts), text]))


def _number(paragraph: Any, counts: Counts) -> str:
    """Count a paragraph with text, and return the number that PowerPoint shows before it; "" for none."""
    properties = next((child for child in paragraph if local_name(child) == "pPr"), None)
    level = 0 if properties is None else parse_digits(properties.get("lvl")) or 0
    automatic = None if properties is None else properties.find("{*}buAutoNum")
    for deeper in [deeper for deeper in counts if deeper > level]:
        del counts[deeper]
    if automatic is None:
        counts.pop(level, None)
        return ""
    kind, start = automatic.get("type", "arabicPeriod"), parse_digits(automatic.get("startAt")) or 1
    last = counts.get(level, ("", 0, 0))
    number = last[2] + 1 if last[:2] == (kind, start) else start
    counts[level] = kind, start, number
    form = next((sign for name, sign in _FORMS.items() if kind.startswith(name)), "1")
    around = next((signs for name, signs in _AROUND.items() if kind.endswith(name)), "{}.")
    return around.format(numeral(number, form))


def chart_text(package: Package, part: str) -> list[str]:
    """The titles, series and categories of a chart, in order, each once; its numbers are left out."""
    root = package.xml(part)
    lines = [] if root is None else list(paragraphs(root))
    for element in root.iter("{*}tx", "{*}cat") if root is not None else ():
        lines.extend((value.text or "").strip() for value in element.iter("{*}v"))
    return [line for line in dict.fromkeys(lines) if line]


def diagram_text(package: Package, part: str) -> list[str]:
    """The words in a SmartArt graphic."""
    root = package.xml(part)
    return [] if root is None else list(paragraphs(root))


def graphics_text(package: Package, part: str, element: Any, pictures: Pictures) -> list[str]:
    """The words in charts, SmartArt and pictures below an element of a part."""
    relations = package.relations(part)
    lines: list[str] = []
    for node in element.iter(*(f"{{*}}{name}" for name in _REFERENCES)):
        kind, target = relations.get(attribute(node, _REFERENCES[local_name(node)]) or "", ("", ""))
        if kind.lower().startswith("chart"):
            lines.extend(chart_text(package, target))
        elif kind == "diagramData":
            lines.extend(diagram_text(package, target))
        elif kind == "image" and (text := pictures.text_in(package, target).strip()):
            lines.append(text)
    return lines
