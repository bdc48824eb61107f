"""Split HTML into tags and runs of text with their positions, and list the elements that matter for text.

It takes linear time and any depth of nesting. Tree builders stop at some depth and lose the lines, and extracting text
needs no tree. The tokenizer of the HTML standard is followed where it matters for text: comments, quoted attributes,
and elements with content that is not markup.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import unescape
from typing import TYPE_CHECKING

from ..document_builder import name_set

if TYPE_CHECKING:
    from collections.abc import Iterator

# Elements that a browser shows as blocks: text in them and after them begins on a new line.
BLOCKS = name_set("""
    address article aside blockquote body caption center dd details dialog dir div dl dt fieldset figcaption figure
    footer form h1 h2 h3 h4 h5 h6 header hgroup hr html legend li main menu nav ol optgroup option p pre search
    section select summary table tbody td tfoot th thead tr ul listing plaintext xmp text desc
""")  # the last two in SVG
# Blocks without a blank line around them.
TIGHT = name_set("br li dt dd tr td th option summary thead tbody tfoot text desc tspan")
# Elements without text that a person sees.
DROPPED = name_set("""
    script style template noscript iframe object audio video canvas datalist noembed noframes head annotation
    annotation-xml rp textpath defs
""")
# Elements without an end tag.
VOID = name_set("area base br col embed hr img input link meta param source track wbr")
# Titles of sections.
HEADINGS = name_set("h1 h2 h3 h4 h5 h6")
# Elements that keep their white space.
PREFORMATTED = name_set("pre listing xmp")
# Any other element ends the head of a page.
ALLOWED_IN_HEAD = name_set("title meta link base style script noscript template head")
# The start tag of an element closes these, if one of them is the innermost open element.
CLOSED_BY: dict[str, frozenset[str]] = {
    **{name: name_set("p") for name in BLOCKS},
    **{name: HEADINGS | {"p"} for name in HEADINGS},
    "li": name_set("li p"),
    "dt": name_set("dt dd p"),
    "dd": name_set("dt dd p"),
    "tr": name_set("tr td th p"),
    "td": name_set("td th p"),
    "th": name_set("td th p"),
    "option": name_set("option"),
}
# Elements with content that is not markup, up to their end tag.
_RAW = name_set("script style xmp iframe noembed noframes textarea title")

_OPEN = re.compile(r"<(?:(/?)([a-zA-Z][^\s/>]*)|(!--)|[!?/])")
_ATTRIBUTE = re.compile(
    r"""[\s/]*(?:(>)|([^\s/>=][^\s/>=]*)(?:\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>"'][^\s>]*)?))?|=)"""
)
_COMMENT_END = re.compile(r"--!?>")
_RAW_END = {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in _RAW}


@dataclass(slots=True)
class Tag:
    """A start tag or an end tag; `position` is its offset in the source."""

    name: str
    position: int
    attributes: dict[str, str]
    is_end: bool  # an end tag
    self_closing: bool  # written as <name/>


@dataclass(slots=True)
class TextRun:
    """Text between tags, with character references decoded, and its offsets in the source."""

    text: str
    position: int
    end: int


def tokens(source: str) -> Iterator[Tag | TextRun]:
    """Every tag and every run of text, in order."""
    position = text_start = 0
    while match := _OPEN.search(source, position):
        if match.start() > text_start:
            yield TextRun(unescape(source[text_start : match.start()]), text_start, match.start())
        if not match[2]:
            position = _after_comment(source, match)
        else:
            tag, position = _tag(source, match)
            if tag:
                yield tag
            if tag and not tag.is_end and not tag.self_closing and tag.name in _RAW:
                raw = _raw_text(source, tag.name, position)
                if raw.end > position:
                    yield raw
                position = raw.end
        text_start = position
    if text_start < len(source):
        yield TextRun(unescape(source[text_start:]), text_start, len(source))


def _raw_text(source: str, name: str, position: int) -> TextRun:
    """The content of an element without tags inside, such as a script."""
    end_tag = _RAW_END[name].search(source, position)
    end = end_tag.start() if end_tag else len(source)
    content = source[position:end]
    return TextRun(unescape(content) if name in {"title", "textarea"} else content, position, end)


def _after_comment(source: str, match: re.Match[str]) -> int:
    """The end of a comment, doctype, processing instruction or CDATA section, which are all dropped."""
    if match[3]:
        if source.startswith((">", "->"), match.end()):
            return source.index(">", match.end()) + 1
        end_tag = _COMMENT_END.search(source, match.end())
        return end_tag.end() if end_tag else len(source)
    end = source.find(">", match.end())
    return end + 1 if end >= 0 else len(source)


def _tag(source: str, match: re.Match[str]) -> tuple[Tag | None, int]:
    """The tag and the position of its end; None for the tag if the file ends inside it."""
    attributes: dict[str, str] = {}
    position = match.end()
    while attribute := _ATTRIBUTE.match(source, position):
        position = attribute.end()
        if attribute[1]:
            self_closing = source[position - 2] == "/"
            return Tag(match[2].lower(), match.start(), attributes, bool(match[1]), self_closing), position
        if attribute[2] and len(attributes) < 64:
            value = attribute[3] or attribute[4] or attribute[5] or ""
            attributes.setdefault(attribute[2].lower(), unescape(value) if "&" in value else value)
        if source[position : position + 1] in {'"', "'"} and attribute[0][-1:] == "=":  # an unclosed quote
            break
        if source[position : position + 1] in {'"', "'"}:
            position += 1
    return None, len(source)
