"""Pack the best passages for a prompt: deduplicated, in reading order, with numbered citations."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from ...core.printable import printable, printable_path, visible
from ..documents.chunker import common
from ..documents.file_parts import file_of
from .hit import Hit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ..models.encoder import Encoder
    from ..models.identity import EncoderId
    from ..store.snapshot import Snapshot
    from .query import SearchRequest


@dataclass(frozen=True, slots=True)
class Passage:
    """One or more neighbouring hits of a document: `text` is the document's text[char_start:char_end].

    `heading` is the part that all their headings share.
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
    def visible_text(self) -> str:
        """The text as a person sees it: without hidden text, control characters and characters without a shape."""
        pieces = []
        position = 0
        for start, end in (span for hit in self.hits for span in hit.hidden):
            pieces.append(self.text[position : start - self.char_start])
            position = end - self.char_start
        pieces.append(self.text[position:])
        text = visible("".join(pieces))
        return re.sub(r"\s*\n\s*\n\s*", "\n\n", text).strip() if len(pieces) > 1 else text

    @property
    def citation(self) -> str:
        """`[1] guide.md:12-30 (Install > Linux)`, on one line, so that no file's name passes for another citation."""
        page = f" p. {self.page}" if self.page is not None else ""
        titles = printable(visible(" > ".join(self.heading))).strip()
        heading = f" ({titles})" if titles else ""
        return f"[{self.number}] {printable_path(file_of(self.path))}:{self.line_start}-{self.line_end}{page}{heading}"


@dataclass(frozen=True, slots=True)
class Context:
    """A text for a prompt, and its sources."""

    text: str
    passages: tuple[Passage, ...]
    tokens: int  # of the text, counted by the encoder


def find_context(
    snapshot: Snapshot, request: SearchRequest, encoder_of: Callable[[EncoderId], Encoder], max_tokens: int
) -> Context:
    """Search, and pack the hits into at most `max_tokens` of the encoder's tokens."""
    hits = request.hits(snapshot, encoder_of)
    encoder = encoder_of(snapshot.head.encoder)
    rows = snapshot.documents_by_id(sorted({hit.document for hit in hits}), ["text"])
    texts = {number: row["text"] for number, row in rows.items()}
    return pack(hits, texts, lambda text: len(encoder.offsets([text])[0]), max_tokens)


def pack(hits: Sequence[Hit], documents: Mapping[int, str], count: Callable[[str], int], max_tokens: int) -> Context:
    """Take hits, the best first, while they fit. Write them by document; documents come in the order of their best hit.

    A person who checks a citation must find what the model read. So hidden text is left out.
    The cost of a hit is estimated as that of a passage of its own. Neighbours cost less when joined; this saving is
    computed only when a hit does not fit.

    :param documents: document id -> text.
    :param count: counts the tokens of a text.
    """
    distinct: dict[str, Hit] = {}
    for hit in hits:
        if not hit.hidden or _passage(1, [hit], documents[hit.document]).visible_text:
            distinct.setdefault(" ".join(hit.text.split()), hit)
    chosen: list[Hit] = []
    room, is_exact = max_tokens, True
    for hit in distinct.values():
        cost = count(_write([_passage(1, [hit], documents[hit.document])]))
        if cost > room and not is_exact:
            room, is_exact = max_tokens - _join(chosen, documents, count).tokens, True
        if cost <= room:  # a later, shorter hit may still fit
            chosen.append(hit)
            room, is_exact = room - cost, False
    context = _join(chosen, documents, count)
    while context.tokens > max_tokens:  # a citation's number of two digits, or a separator, costs more than estimated
        chosen.pop()
        context = _join(chosen, documents, count)
    return context


def _join(hits: Sequence[Hit], documents: Mapping[int, str], count: Callable[[str], int]) -> Context:
    passages = tuple(_merge(hits, documents))
    text = _write(passages)
    return Context(text, passages, count(text) if passages else 0)


def _write(passages: Sequence[Passage]) -> str:
    return "\n\n".join(f"{passage.citation}\n{passage.visible_text}" for passage in passages)


def _merge(hits: Sequence[Hit], documents: Mapping[int, str]) -> Iterator[Passage]:
    """Join hits of one page with nothing but white space between them."""
    by_document: dict[int, list[Hit]] = {}
    for hit in hits:
        by_document.setdefault(hit.document, []).append(hit)
    number = 0
    for document, neighbours in by_document.items():
        run: list[Hit] = []
        for hit in sorted(neighbours, key=lambda hit: hit.char_start):
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
