"""A hit: a passage with its scores, its citation (its document and place there), and how it was found."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from ....core.arrays import Floats  # noqa: TC001 - type hints of a public class resolve
from ....core.errors import DamagedError
from ....core.printable import printable, printable_path, visible
from ...documents.document import context_of, hidden_spans, metadata_of, take_internal, visible_text
from ...documents.file_parts import file_of
from ...documents.sections import common
from ...store.derived.symbols import symbols_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ....core.arrays import Ids
    from ...store.snapshot import Snapshot
    from ..mode import Mode
    from ..ranking.fusion import Candidates


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """The place of a passage. Lines count in the file if it is made of lines, else in the extracted text."""

    path: str
    line_start: int
    line_end: int
    page: int | None
    heading: tuple[str, ...]

    @staticmethod
    def fields_of(chunk: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
        """These fields, from the rows of a passage and of its document."""
        return {
            "path": document["path"],
            "line_start": chunk["line_start"],
            "line_end": chunk["line_end"],
            "page": chunk["page"],
            "heading": tuple(chunk["heading"]),
        }


_SHOWN = 60  # characters of a text in a repr


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CitedText(Citation):
    """A text with its citation: `text` is the document's text[char_start:char_end]."""

    text: str
    sha256: str  # of the document
    char_start: int
    char_end: int
    hidden: tuple[tuple[int, int], ...] = ()  # spans of the document that a person does not see there, in order

    def __repr__(self) -> str:
        lines = f"{self.line_start}-{self.line_end}" if self.line_end > self.line_start else self.line_start
        text = self.text if len(self.text) <= _SHOWN else f"{self.text[:_SHOWN]}…"
        return f"<{type(self).__name__} {self.path}:{lines} {text!r}>"

    @property
    def visible_text(self) -> str:
        """The text as a person sees it: without hidden text, control characters and characters without a shape."""
        return visible_text(self.text, self.char_start, self.hidden)

    @property
    def citation(self) -> str:
        """`guide.md:12-30 p. 3 (Linux)`: path, lines, page and the last of the headings, in one line."""
        return place_of(self)

    @staticmethod
    def joined_fields(run: Sequence[CitedText], text: str) -> dict[str, Any]:
        """These fields of the text from the first of some neighbours to the last, and the heading that all share.

        :param run: on one page of one document, in its order.
        """
        first, last = run[0], run[-1]
        return {
            "path": first.path,
            "line_start": first.line_start,
            "line_end": last.line_end,
            "page": first.page,
            "heading": reduce(common, (passage.heading for passage in run)),
            "text": text,
            "sha256": first.sha256,
            "char_start": first.char_start,
            "char_end": last.char_end,
            "hidden": tuple(span for passage in run for span in passage.hidden),
        }


def place_of(passage: Citation) -> str:
    """Return path, lines, page and the last of the headings, in one line without control characters."""
    first, last = passage.line_start, passage.line_end
    lines = str(first) if first == last else f"{first}-{last}"
    page = f" p. {passage.page}" if passage.page is not None else ""
    title = printable(visible(passage.heading[-1])).strip() if passage.heading else ""
    return f"{printable_path(file_of(passage.path))}:{lines}{page}{f' ({title})' if title else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy(Citation):
    """The citation of a passage with the same text as a hit, or nearly the same."""

    passage: int  # its row id
    source: str  # "file" or "added"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Hit(CitedText):
    """A passage and its citation, or neighbouring passages that were joined: then their best one gives the scores.

    `score` orders the hits of one query and does not compare between queries. It is the fused score, the cosine or
    BM25, as the mode says, or the score of a reranker; passages that hold an identifier of the query are lifted
    above the others. `scores` has the score of each stage, None if the stage did not find or reach the passage.
    """

    rank: int  # from 1
    score: float
    scores: dict[str, float | None] = field(hash=False)
    title: str
    format: str
    metadata: dict[str, Any] = field(hash=False)
    source: str  # "file" or "added"
    document_row: int  # its row id
    passage: int  # its row id
    symbols: tuple[str, ...] = ()  # qualified names of the definitions in source code
    parts: tuple[Hit, ...] = ()  # the passages that were joined, in the order of the document
    copies: tuple[Copy, ...] = ()  # the same or nearly the same text elsewhere, among the candidates of this search
    explanation: dict[str, Any] = field(default_factory=dict, compare=False)
    relevance: float = 0.0  # from 0 to 1, comparable between queries of one index: see `search.ranking.relevance`
    weak: bool = False  # probably no answer; always False if the index was not measured, or is often wrong about this
    vector: Floats | None = field(default=None, compare=False)  # the stored one, shape (dim,), if asked for

    @property
    def document(self) -> str:
        """The id of its document, as `get` takes it: the path of a file, or the id that it was added with."""
        return self.path

    @property
    def best(self) -> Hit:
        """The best passage of a joined hit; otherwise the hit itself."""
        return min(self.parts, key=lambda part: part.rank, default=self)

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
    mode: Mode,
    seconds: Mapping[str, float],
) -> list[Hit]:
    """Make hits of candidates, in their order.

    :param copies: ids of the passages that become hits, each with the ids of its copies.
    :param relevance: the relevance of the candidates, up to the last hit.
    :param line: a hit of less relevance is weak.
    :param seconds: stage -> its duration.
    :raises DamagedError: when the document of a passage is missing.
    """
    chunks = snapshot.passages.of(number for first in copies for number in (first, *copies[first]))
    documents = snapshot.cited_documents.of([row["document"] for row in chunks.values()])
    if missing := {row["document"] for row in chunks.values()} - documents.keys():
        raise DamagedError(
            f"{snapshot.store.location} has passages of document {min(missing)}, but no such document: "
            "'binocle verify' says more"
        )
    evidence = _Evidence(candidates, relevance, line, mode, seconds)
    hits = [chunks[number] for number in copies]
    symbols = symbols_of(hits, [documents[chunk["document"]]["format"] for chunk in hits])
    return [
        Hit(
            rank=rank,
            **_passage_fields(chunks[number], documents[chunks[number]["document"]]),
            **evidence.fields_of(number),
            symbols=names,
            copies=tuple(_copy(chunks[copy], documents[chunks[copy]["document"]]) for copy in copies[number]),
        )
        for rank, (number, names) in enumerate(zip(copies, symbols, strict=True), 1)
    ]


def _passage_fields(chunk: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a hit that the index has stored."""
    metadata = metadata_of(document)
    concealed = take_internal(metadata) if document["source"] == "file" else None
    return Citation.fields_of(chunk, document) | {
        "text": chunk["text"],
        "sha256": document["sha256"],
        "char_start": chunk["char_start"],
        "char_end": chunk["char_end"],
        "hidden": hidden_spans(concealed, chunk["char_start"], chunk["text"]),
        "title": document["title"],
        "format": document["format"],
        "metadata": metadata,
        "source": document["source"],
        "document_row": document["id"],
        "passage": chunk["id"],
    }


def _copy(chunk: Mapping[str, Any], document: Mapping[str, Any]) -> Copy:
    return Copy(**Citation.fields_of(chunk, document), passage=chunk["id"], source=document["source"])


class _Evidence:
    """The fields of hits that the stages of the search gave."""

    def __init__(
        self,
        candidates: Candidates,
        relevance: NDArray[np.float64],
        line: float,
        mode: Mode,
        seconds: Mapping[str, float],
    ) -> None:
        self._rows = {number: row for row, number in enumerate(candidates.ids.tolist())}
        self._score = candidates.score
        self._stages = candidates.stages()
        self._ranks = {stage: _ranks(scores, candidates.ids) for stage, scores in self._stages.items()}
        self._relevance = relevance
        self._line = line
        self._explanation: dict[str, Any] = {"mode": mode}
        if candidates.reranker is not None:
            self._explanation["reranked"] = int((~np.isnan(candidates.reranker)).sum())
        self._milliseconds = {stage: round(1e3 * duration, 2) for stage, duration in seconds.items()}

    def fields_of(self, number: int) -> dict[str, Any]:
        """The score of a passage, and its parts."""
        row = self._rows[number]
        return {
            "score": float(self._score[row]),
            "scores": {stage: _number(scores[row]) for stage, scores in self._stages.items()},
            "explanation": {
                **self._explanation,
                "ranks": {stage: int(ranks[row]) or None for stage, ranks in self._ranks.items()},
                "milliseconds": self._milliseconds.copy(),
            },
            "relevance": round(float(self._relevance[row]), 4),
            "weak": bool(self._relevance[row] < self._line),
        }


def _ranks(scores: Floats, ids: Ids) -> NDArray[np.int64]:
    """The rank of each row by its score, from 1; 0 without a score."""
    order = np.lexsort((ids, -scores))[: int((~np.isnan(scores)).sum())]  # NaN comes last
    ranks = np.zeros(len(ids), np.int64)
    ranks[order] = np.arange(1, len(order) + 1)
    return ranks


def _number(score: np.float32) -> float | None:
    return None if np.isnan(score) else float(score)
