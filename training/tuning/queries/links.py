"""Links between documents: the text of a link is a query for its target.

Only Markdown keeps links in its text, as `[text](target)` and `[text][name]`. Readers of other formats drop the target.
"""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from ....core.sentences import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ...data.source_documents import Source

_INLINE = re.compile(r"(?<!!)\[([^\[\]]{3,200})\]\(<?([^()\s<>]{1,300})>?(?:\s[^()]{0,200})?\)")
_REFERENCE = re.compile(r"(?<!!)\[([^\[\]]{3,200})\](?:\[([^\[\]]{0,200})\])?(?![(:\[])")
_NAMED = re.compile(r"^ {0,3}\[([^\[\]]{1,200})\]:[ \t]*<?([^\s<>]{1,300})", re.MULTILINE)
_LIMIT = 200_000  # links kept in memory


def collect(documents: Iterable[Source]) -> dict[str, list[tuple[str, str]]]:
    """Map the `page` of each document to the (text, fragment) of links to it, each once."""
    links: dict[str, dict[tuple[str, str], None]] = {}
    count = 0
    for source in documents:
        text = "\n".join(passage.text for passage in source.passages)
        for anchor, target in _links(text) if "](" in text or "]:" in text else ():
            path, _, fragment = target.partition("#")
            if not path or "://" in path or path.startswith(("mailto:", "/")) or count >= _LIMIT:
                continue
            target_path = posixpath.normpath(posixpath.join(posixpath.dirname(source.id), unquote(path)))
            to = page(target_path)
            if to != page(source.id):
                links.setdefault(to, {})[(plain(anchor), fragment)] = None
                count += 1
    return {to: list(anchors) for to, anchors in links.items()}


def page(path: str) -> str:
    """Return a path without its extension, since a link to page.html means page.md where pages are generated."""
    return posixpath.splitext(path)[0]


def slug(heading: str) -> str:
    """Return the fragment of a link to a heading, as most generators of pages write it."""
    return re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", heading.casefold()).strip())


def _links(text: str) -> Iterator[tuple[str, str]]:
    for match in _INLINE.finditer(text):
        yield match[1], match[2]
    named = {" ".join(match[1].casefold().split()): match[2] for match in _NAMED.finditer(text)}
    for match in _REFERENCE.finditer(text) if named else ():
        target = named.get(" ".join((match[2] or match[1]).casefold().split()))
        if target:
            yield match[1], target
