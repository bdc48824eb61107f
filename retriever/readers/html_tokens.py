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
    is_end: bool  # an end tag
    self_closing: bool  # written as <name/>


@dataclass(slots=True)
class TextRun:
    """Text between tags, its character references decoded; `position` is where it begins in the source."""

    text: str
    position: int


def tokens(source: str) -> Iterator[Tag | TextRun]:
    position = text_start = 0
    while match := _OPEN.search(source, position):
        if match.start() > text_start:
            yield TextRun(unescape(source[text_start : match.start()]), text_start)
        if not match[2]:
            position = _after_comment(source, match)
        else:
            tag, position = _tag(source, match)
            if tag:
                yield tag
            if tag and not tag.is_end and not tag.self_closing and tag.name in _RAW:
                end_tag = _RAW_END[tag.name].search(source, position)
                end = end_tag.start() if end_tag else len(source)
                if end > position:
                    content = source[position:end]
                    yield TextRun(unescape(content) if tag.name in {"title", "textarea"} else content, position)
                position = end
        text_start = position
    if text_start < len(source):
        yield TextRun(unescape(source[text_start:]), text_start)


def _after_comment(source: str, match: re.Match[str]) -> int:
    """The end of a comment, doctype, processing instruction or CDATA section; they all are dropped."""
    if match[3]:
        if source.startswith((">", "->"), match.end()):
            return source.index(">", match.end()) + 1
        end_tag = _COMMENT_END.search(source, match.end())
        return end_tag.end() if end_tag else len(source)
    end = source.find(">", match.end())
    return end + 1 if end >= 0 else len(source)


def _tag(source: str, match: re.Match[str]) -> tuple[Tag | None, int]:
    """The tag, None when the file ends inside it, and where it ends."""
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
        if source[position : position + 1] in {'"', "'"} and attribute[0][-1:] == "=":  # a quote that never closes
            break
        if source[position : position + 1] in {'"', "'"}:
            position += 1
    return None, len(source)
