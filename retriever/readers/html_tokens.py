"""HTML cut into tags and text with their places, in linear time and at any depth of nesting.

Tree builders give up at some depth and forget the lines; text extraction needs no tree. This follows the tokenizer of
the HTML standard where it matters for text: comments, quoted attributes, and elements whose content is not markup.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import unescape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_OPEN = re.compile(r"<(?:(/?)([a-zA-Z][^\s/>]*)|(!--)|[!?/])")
_ATTRIBUTE = re.compile(
    r"""[\s/]*(?:(>)|([^\s/>=][^\s/>=]*)(?:\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>"'][^\s>]*)?))?|=)"""
)
_COMMENT_END = re.compile(r"--!?>")
_RAW = {"script", "style", "xmp", "iframe", "noembed", "noframes", "textarea", "title"}
_RAW_END = {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in _RAW}


@dataclass(slots=True)
class Tag:
    name: str
    position: int
    attributes: dict[str, str]
    closes: bool  # an end tag
    empty: bool  # written as <name/>


@dataclass(slots=True)
class Run:
    """Text between tags, its character references decoded; `position` is where it begins in the source."""

    text: str
    position: int


def tokens(source: str) -> Iterator[Tag | Run]:
    position = text_start = 0
    while found := _OPEN.search(source, position):
        if found.start() > text_start:
            yield Run(unescape(source[text_start : found.start()]), text_start)
        if not found[2]:
            position = _after_comment(source, found)
        else:
            tag, position = _tag(source, found)
            if tag:
                yield tag
            if tag and not tag.closes and not tag.empty and tag.name in _RAW:
                ended = _RAW_END[tag.name].search(source, position)
                end = ended.start() if ended else len(source)
                if end > position:
                    content = source[position:end]
                    yield Run(unescape(content) if tag.name in {"title", "textarea"} else content, position)
                position = end
        text_start = position
    if text_start < len(source):
        yield Run(unescape(source[text_start:]), text_start)


def _after_comment(source: str, found: re.Match[str]) -> int:
    """The end of a comment, doctype, processing instruction or CDATA section; they all are dropped."""
    if found[3]:
        if source.startswith((">", "->"), found.end()):
            return source.index(">", found.end()) + 1
        ended = _COMMENT_END.search(source, found.end())
        return ended.end() if ended else len(source)
    end = source.find(">", found.end())
    return end + 1 if end >= 0 else len(source)


def _tag(source: str, found: re.Match[str]) -> tuple[Tag | None, int]:
    """The tag, None when the file ends inside it, and where it ends."""
    attributes: dict[str, str] = {}
    position = found.end()
    while matched := _ATTRIBUTE.match(source, position):
        position = matched.end()
        if matched[1]:
            empty = source[position - 2] == "/"
            return Tag(found[2].lower(), found.start(), attributes, bool(found[1]), empty), position
        if matched[2] and len(attributes) < 64:
            value = matched[3] or matched[4] or matched[5] or ""
            attributes.setdefault(matched[2].lower(), unescape(value) if "&" in value else value)
        if source[position : position + 1] in {'"', "'"} and matched[0][-1:] == "=":  # a quote that never closes
            break
        if source[position : position + 1] in {'"', "'"}:
            position += 1
    return None, len(source)
