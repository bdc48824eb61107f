"""Read the best hits of a question, and cite the span that answers it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .results.hit import (
    CitedText,
    Hit,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..models.heads.reader import Reader, Span


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Answer(CitedText):
    """A span of a document that answers a question: `text` is the document's text[char_start:char_end]."""

    score: float  # of the span, less the score of "no answer": answers of different passages compare by it
    probability: float  # of a right answer, if the passage is about the question
    hit: Hit  # the passage that has it


def answers(question: str, hits: Sequence[Hit], reader: Reader) -> list[Answer]:
    """Return the best answer of each hit that has one, the surest first; [] if no hit answers the question.

    The reader also reads hidden text, but a span in it is no answer.
    """
    passages = [passage for hit in hits for passage in hit.parts or (hit,)]
    spans = reader.read(question, [passage.text for passage in passages])
    marked = [
        _answer(hit, span)
        for hit, span in zip(passages, spans, strict=True)
        if span is not None and span.score >= reader.settings.threshold and not _is_hidden(hit, span)
    ]
    return sorted(marked, key=lambda answer: -answer.score)


def _answer(hit: Hit, span: Span) -> Answer:
    counts_lines = hit.line_end - hit.line_start == hit.text.count("\n")  # of the text, not of its source
    first = hit.line_start + hit.text.count("\n", 0, span.start)
    last = first + span.text.count("\n")
    return Answer(
        path=hit.path,
        line_start=first if counts_lines else hit.line_start,
        line_end=last if counts_lines else hit.line_end,
        page=hit.page,
        heading=hit.heading,
        text=span.text,
        sha256=hit.sha256,
        char_start=hit.char_start + span.start,
        char_end=hit.char_start + span.end,
        score=span.score,
        probability=span.probability,
        hit=hit,
    )


def _is_hidden(hit: Hit, span: Span) -> bool:
    start, end = hit.char_start + span.start, hit.char_start + span.end
    return any(left < end and right > start for left, right in hit.hidden)
