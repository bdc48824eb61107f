"""Pack the best passages for a prompt: deduplicated, in reading order, with numbered citations."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from ..documents.chunker import common
from .hit import Hit
from .snippet import printable, printable_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Passage:
    """One or more neighbouring hits of a document: `text` is the document's text[char_start:char_end].

    `heading` is what the headings of all of them have in common.
    """

    number: int  # of the citation, from 1
    text: str
    path: str
    sha256: str
    char_start: int
    char_end: int
    line_start: int
    line_end: int
    page: int | None
    heading: tuple[str, ...]
    hits: tuple[Hit, ...]

    @property
    def citation(self) -> str:
        """`[1] guide.md:12-30 (Install > Linux)`, in one line, for no file's name may pass for another citation."""
        page = f" p. {self.page}" if self.page is not None else ""
        heading = f" ({printable(' > '.join(self.heading))})" if self.heading else ""
        return f"[{self.number}] {printable_path(self.path)}:{self.line_start}-{self.line_end}{page}{heading}"


@dataclass(frozen=True, slots=True)
class Context:
    """`text` is ready for a prompt; `passages` say where each part of it came from. `tokens` are the encoder's."""

    text: str
    passages: tuple[Passage, ...]
    tokens: int


def pack(hits: Sequence[Hit], documents: Mapping[int, str], count: Callable[[str], int], max_tokens: int) -> Context:
    """Take hits from the best down while they fit, then write them by document, in the order of its best hit.

    A hit is reckoned as a passage of its own; what joining neighbours has spared is found out when one does not fit.

    :param documents: document id -> text.
    :param count: tokens of a text.
    """
    distinct: dict[str, Hit] = {}
    for hit in hits:
        distinct.setdefault(" ".join(hit.text.split()), hit)
    chosen: list[Hit] = []
    room, is_exact = max_tokens, True
    for hit in distinct.values():
        cost = count(_written([_passage(1, [hit], documents[hit.document])]))
        if cost > room and not is_exact:
            room, is_exact = max_tokens - _packed(chosen, documents, count).tokens, True
        if cost <= room:  # after one that is too long a shorter one still may be
            chosen.append(hit)
            room, is_exact = room - cost, False
    packed = _packed(chosen, documents, count)
    while packed.tokens > max_tokens:  # a number of two digits in a citation, a separator
        chosen.pop()
        packed = _packed(chosen, documents, count)
    return packed


def _packed(hits: Sequence[Hit], documents: Mapping[int, str], count: Callable[[str], int]) -> Context:
    passages = tuple(_merged(hits, documents))
    written = _written(passages)
    return Context(written, passages, count(written) if passages else 0)


def _written(passages: Sequence[Passage]) -> str:
    return "\n\n".join(f"{passage.citation}\n{passage.text}" for passage in passages)


def _merged(hits: Sequence[Hit], documents: Mapping[int, str]) -> Iterator[Passage]:
    of_document: dict[int, list[Hit]] = {}
    for hit in hits:
        of_document.setdefault(hit.document, []).append(hit)
    number = 0
    for document, found in of_document.items():
        run: list[Hit] = []
        for hit in sorted(found, key=lambda hit: hit.char_start):
            if run and (run[-1].page != hit.page or documents[document][run[-1].char_end : hit.char_start].strip()):
                number += 1
                yield _passage(number, run, documents[document])
                run = []
            run.append(hit)
        number += 1
        yield _passage(number, run, documents[document])


def _passage(number: int, run: Sequence[Hit], text: str) -> Passage:
    first, last = run[0], run[-1]
    return Passage(
        number=number,
        text=text[first.char_start : last.char_end],
        path=first.path,
        sha256=first.sha256,
        char_start=first.char_start,
        char_end=last.char_end,
        line_start=first.line_start,
        line_end=last.line_end,
        page=first.page,
        heading=reduce(common, (hit.heading for hit in run)),
        hits=tuple(run),
    )
