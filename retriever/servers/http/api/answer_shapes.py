"""The shapes of answers: their fields and descriptions, for OpenAPI."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field


class Output(BaseModel):
    """An answer."""


class CopyOf(Output):
    """The place of a copy of a passage."""

    path: str
    line_start: int
    line_end: int
    page: int | None
    heading: list[str]
    source: Literal["file", "added"]


Answerable = Annotated[
    bool | None, Field(description="Whether the index seems to answer the query; null where this was not judged.")
]


class SearchHit(Output):
    """A passage, its citation and its scores. `text` is the document's text[char_start:char_end]."""

    rank: int
    score: float
    scores: dict[str, float | None]
    path: str
    sha256: str
    char_start: int
    char_end: int
    line_start: int
    line_end: int
    page: int | None
    heading: list[str]
    text: str
    hidden: Annotated[list[list[int]], Field(description="Spans of the document that a person does not see there.")]
    title: str
    metadata: dict[str, Any]
    format: str
    source: Literal["file", "added"]
    symbols: Annotated[list[str], Field(description="Names of the definitions in source code.")]
    relevance: float
    weak: bool
    copies: list[CopyOf]
    parts: Annotated[list[SearchHit], Field(description="The passages that `join` made one, in order.")]
    vector: Annotated[list[float] | None, Field(description="The stored vector, if the request asks for it.")] = None
    highlights: Annotated[
        list[list[int]] | None, Field(description="Spans of `text`, in code points, with words of the query.")
    ] = None
    explanation: dict[str, Any] | None = None
    position: Annotated[
        list[float] | None, Field(description="Its x and y in the map of the collection, once that is drawn.")
    ] = None


class FacetCount(Output):
    """A value and its documents."""

    value: Any
    count: int


class FacetCounts(Output):
    """The values under a key, in the documents that pass the filter."""

    documents: int
    distinct: int
    counts: list[FacetCount]
    min: Any
    max: Any


class FacetsOutput(Output):
    """The values under each key."""

    facets: dict[str, FacetCounts]


class SearchOutput(Output):
    """The hits of one query."""

    query: str
    answerable: Answerable
    corrections: dict[str, str]
    total: Annotated[int, Field(description="Passages that were searched: all that pass the filter.")]
    commits: Annotated[
        int | None, Field(description="Of the index; grows with each change. Null for a token with a filter.")
    ]
    hits: list[SearchHit]
    facets: dict[str, FacetCounts] | None = None


class SearchManyOutput(Output):
    """The hits of several queries, in their order."""

    results: list[SearchOutput]


class SourceOfContext(Output):
    """A numbered passage of a context, and its place. `text` is the document's text[char_start:char_end]."""

    number: int
    citation: str
    path: str
    sha256: str
    char_start: int
    char_end: int
    line_start: int
    line_end: int
    page: int | None
    heading: list[str]
    text: str
    hidden: Annotated[list[list[int]], Field(description="Spans of the document that a person does not see there.")]


class ContextOutput(Output):
    """A text for a prompt, and its sources."""

    text: str
    tokens: int
    answerable: Answerable
    sources: list[SourceOfContext]
    messages: list[dict[str, str]]


class DocumentOutput(Output):
    """A stored document."""

    id: str
    title: str
    metadata: dict[str, Any]
    format: str
    source: Literal["file", "added"]
    state: str
    reason: str
    size: int
    passages: int
    text: str | None = None


class CountOutput(Output):
    """A number of documents."""

    count: int


class PageOutput(Output):
    """Documents in order of id."""

    documents: list[DocumentOutput]
    next_after: Annotated[str | None, Field(description="Give this as `after` for more; null at the end.")]


class ReportOutput(Output):
    """The changes of a write."""

    indexed: int
    unchanged: int
    removed: int
    skipped: Annotated[int, Field(description="Documents without text.")]
    failed: int
    ids: list[str]
    failures: list[dict[str, Any]]
    note: str


class MapFolder(Output):
    """A folder of documents; "" has the documents that are in no other folder."""

    name: str
    shown: int


class MapPoints(Output):
    """Passages: a column for each property."""

    x: Annotated[list[float], Field(description="From 0 to 1.")] = []
    y: Annotated[list[float], Field(description="From 0 to 1.")] = []
    folder: Annotated[list[int], Field(description="The index of its folder.")] = []
    document: Annotated[list[int], Field(description="The index of its document.")] = []
    char_start: list[int] = []
    char_end: list[int] = []
    line_start: list[int] = []


class MapOutput(Output):
    """A point for each of at most 3,000 passages, near ones for texts of like meaning."""

    ready: Annotated[bool, Field(description="False: it is drawn now, which takes seconds. Ask again.")]
    current: Annotated[bool, Field(description="False: documents have changed since it was drawn.")]
    passages: Annotated[int, Field(description="All passages, also those that are not shown.")]
    folders: list[MapFolder]
    documents: Annotated[list[str | None], Field(description="Paths; null after 500,000 characters.")]
    points: MapPoints


class StatusOutput(Output):
    """The contents of an index."""

    index: str
    version: Annotated[str, Field(description="Changes with every change of the index.")]
    documents: dict[str, int]
    passages: int
    encoder: str
    reranker: str | None
    writable: bool
    indexes: Annotated[list[str], Field(description="The indexes of this server that the token reaches.")]
    folder: str | None = None
    unread_language: Annotated[
        str | None, Field(description="The language of most of the text if the encoder does not read it.")
    ] = None


class Health(Output):
    """The server answers."""

    status: Literal["ok"]


class Problem(Output):
    """Why a request was refused (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
