"""A hit: a passage with its scores, its citation, and how it was found."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..documents.chunker import context_of
from ..documents.document import HIDDEN, hidden_spans

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ...core.arrays import Floats, Ids
    from ..store.snapshot import Snapshot
    from .fusion import Candidates

_CHUNK_COLUMNS = ("document", "char_start", "char_end", "line_start", "line_end", "page", "heading", "text")
_DOCUMENT_COLUMNS = ("id", "path", "sha256", "title", "format", "metadata", "source")


@dataclass(frozen=True, slots=True)
class Copy:
    """The citation of a passage with the same text as a hit, or nearly the same."""

    path: str
    line_start: int
    line_end: int
    page: int | None
    heading: tuple[str, ...]
    passage: int  # its row id
    source: str  # "file" or "added"


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage and its citation: `text` is the document's text[char_start:char_end].

    Lines count in the file if it is made of lines, else in the extracted text. `score` orders the hits of
    one query and does not compare between queries. It is the fused score, the cosine or BM25, as the mode says, or what
    a reranker made of it; passages that hold an identifier of the query are lifted above the others. `scores` has
    the score of each stage, None if the stage did not find or reach the passage.
    """

    rank: int  # from 1
    score: float
    scores: dict[str, float | None] = field(hash=False)
    path: str
    sha256: str
    char_start: int
    char_end: int
    line_start: int
    line_end: int
    page: int | None
    heading: tuple[str, ...]
    text: str
    title: str
    format: str
    metadata: dict[str, Any] = field(hash=False)
    source: str  # "file" or "added"
    document: int  # its row id
    passage: int  # its row id
    hidden: tuple[tuple[int, int], ...] = ()  # spans of the document that a person does not see there, in order
    copies: tuple[Copy, ...] = ()  # the same text elsewhere, or nearly the same, as far as this search saw
    explanation: dict[str, Any] = field(default_factory=dict, compare=False)
    relevance: float = 0.0  # from 0 to 1, comparable between queries of one index: see `search.relevance`
    weak: bool = False  # probably no answer; never where nothing promises that this is seldom wrong

    @property
    def context(self) -> str:
        """The text that the encoder and a reranker read: the heading path on a line of its own, then the passage."""
        return context_of(self.heading, self.text)


def cite(
    snapshot: Snapshot,
    candidates: Candidates,
    copies: Mapping[int, Sequence[int]],
    relevance: NDArray[np.float64],
    line: float,
    *,
    mode: str,
    seconds: Mapping[str, float],
) -> list[Hit]:
    """Make hits of candidates, in their order.

    :param copies: their ids, each with the ids of its copies.
    :param relevance: of the candidates up to the last one that is a hit.
    :param line: a hit of less relevance is weak.
    :param seconds: stage -> how long it took.
    """
    chunks = snapshot.chunks_by_id([number for first in copies for number in (first, *copies[first])], _CHUNK_COLUMNS)
    documents = snapshot.documents_by_id(sorted({row["document"] for row in chunks.values()}), _DOCUMENT_COLUMNS)
    stages = candidates.stages()
    ranks = {stage: _ranks(scores, candidates.ids) for stage, scores in stages.items()}
    explanation: dict[str, Any] = {"mode": mode}
    if candidates.reranker is not None:
        explanation["reranked"] = int((~np.isnan(candidates.reranker)).sum())
    milliseconds = {stage: round(1e3 * duration, 2) for stage, duration in seconds.items()}
    rows = {number: row for row, number in enumerate(candidates.ids.tolist())}
    hits = []
    for rank, number in enumerate(copies, 1):
        row, chunk = rows[number], chunks[number]
        document = documents[chunk["document"]]
        metadata = json.loads(document["metadata"])
        concealed = metadata.pop(HIDDEN, None) if document["source"] == "file" else None
        hits.append(
            Hit(
                rank=rank,
                score=float(candidates.score[row]),
                scores={stage: _number(scores[row]) for stage, scores in stages.items()},
                path=document["path"],
                sha256=document["sha256"],
                char_start=chunk["char_start"],
                char_end=chunk["char_end"],
                line_start=chunk["line_start"],
                line_end=chunk["line_end"],
                page=chunk["page"],
                heading=tuple(chunk["heading"]),
                text=chunk["text"],
                title=document["title"],
                format=document["format"],
                metadata=metadata,
                source=document["source"],
                document=document["id"],
                passage=number,
                hidden=hidden_spans(concealed, chunk["char_start"], chunk["text"]),
                copies=tuple(_copy(chunks[copy], documents[chunks[copy]["document"]]) for copy in copies[number]),
                explanation={
                    **explanation,
                    "ranks": {stage: ranks[stage].get(number) for stage in stages},
                    "milliseconds": milliseconds.copy(),
                },
                relevance=round(float(relevance[row]), 4),
                weak=bool(relevance[row] < line),
            )
        )
    return hits


def _copy(chunk: Mapping[str, Any], document: Mapping[str, Any]) -> Copy:
    return Copy(
        path=document["path"],
        line_start=chunk["line_start"],
        line_end=chunk["line_end"],
        page=chunk["page"],
        heading=tuple(chunk["heading"]),
        passage=chunk["id"],
        source=document["source"],
    )


def _ranks(scores: Floats, ids: Ids) -> dict[int, int]:
    """Map the ids that have a score to their rank, from 1."""
    order = np.lexsort((ids, -scores))[: int((~np.isnan(scores)).sum())]  # NaN comes last
    return {number: rank for rank, number in enumerate(ids[order].tolist(), 1)}


def _number(score: np.float32) -> float | None:
    return None if np.isnan(score) else float(score)
