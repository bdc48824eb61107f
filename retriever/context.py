"""Pack the best passages for a prompt: deduplicated, in reading order, with numbered citations."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from .chunker import common
from .passage import printable, printable_path
from .query import Hit

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

    :param documents: document id -> text.
    :param count: tokens of a text.
    """
    chosen: list[Hit] = []
    seen: set[str] = set()
    tokens = 0
    text = ""
    passages: tuple[Passage, ...] = ()
    for hit in hits:
        plain = " ".join(hit.text.split())
        if plain in seen:
            continue
        if tokens + count(hit.text) > max_tokens and chosen:
            continue  # a shorter one further down may still fit
        trial = tuple(_merged([*chosen, hit], documents))
        written = _written(trial)
        length = count(written)
        if length > max_tokens:
            continue
        chosen.append(hit)
        seen.add(plain)
        text, passages, tokens = written, trial, length
    return Context(text, passages, tokens)


def _written(passages: Sequence[Passage]) -> str:
    return "\n\n".join(f"{passage.citation}\n{passage.text}" for passage in passages)


def _merged(hits: Sequence[Hit], documents: Mapping[int, str]) -> Iterator[Passage]:
    number = 0
    for document in dict.fromkeys(hit.document for hit in hits):
        run: list[Hit] = []
        for hit in sorted((hit for hit in hits if hit.document == document), key=lambda hit: hit.char_start):
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
