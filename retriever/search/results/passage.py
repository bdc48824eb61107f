r"""A passage of a context, and its citation, which no document can forge.

    [1] guide.md:12-30 (Linux)
    Install the package …

In the text of a context, some numbers in brackets get backslashes: at the start of a line, `\[2\] faq.md:4`, and
anywhere before a path and its lines. So the lines that begin with a number in brackets are the citations, and no
others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .hit import CitedText, Hit, place_of

if TYPE_CHECKING:
    from collections.abc import Sequence


_BREAKS = "\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029"
_NUMBER = rf"[\[\uff3b][^\S{_BREAKS}]*\d+[^\S{_BREAKS}]*[\]\uff3d]"
_HEADER = re.compile(
    rf"(?P<before>(?:^|(?<=[{_BREAKS}]))[^\w{_BREAKS}]*?)(?P<number>{_NUMBER})|(?P<cited>\[\d+\])(?=[ \t]+\S+:\d)"
)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Passage(CitedText):
    """Neighbouring hits of a document.

    Passages of the same section, which are no hits, may extend it. `heading` is the part that all headings share.
    """

    number: int  # of the citation, from 1
    hits: tuple[Hit, ...]

    @classmethod
    def join(cls, number: int, run: Sequence[Hit], text: str) -> Passage:
        """Return a passage of neighbours, in their order.

        :param text: the document's, from the start of the first to the end of the last.
        """
        return cls(number=number, hits=tuple(hit for hit in run if hit.rank), **CitedText.joined_fields(run, text))

    @property
    def citation(self) -> str:
        """`[1] guide.md:12-30 (Linux)`: one line, with the last of the headings."""
        return f"[{self.number}] {_without_headers(place_of(self))}"

    def write(self) -> str:
        """The citation, and below it the text as a person sees it; nothing in the text looks like a citation."""
        return f"{self.citation}\n{_without_headers(self.visible_text)}"


def _without_headers(text: str) -> str:
    r"""Put backslashes into numbers in brackets that look like citations: `\[2\]`."""
    return _HEADER.sub(_escape, text) if "]" in text or "\uff3d" in text else text


def _escape(match: re.Match[str]) -> str:
    header = match["cited"] or match["number"]
    return rf"{match['before'] or ''}\{header[:-1]}\{header[-1]}"
