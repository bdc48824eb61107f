"""The shapes of requests: their fields, limits and descriptions, for checks and for OpenAPI."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from ....indexing.report import DocumentError
from ...limits import MAX_DEPTH, MAX_DOCUMENTS, MAX_K, MAX_QUERIES
from ..faults import describe

MAX_QUERY = 10_000  # characters
MAX_FACETS = 20
MAX_TOKENS = 100_000  # of a context

Query = Annotated[
    str,
    Field(
        min_length=1,
        max_length=MAX_QUERY,
        description='A question or words. "Words in quotes" and +word must be in every passage; -word at the end must '
        "not.",
    ),
]
Where = Annotated[
    str | list[str | dict[str, Any]] | dict[str, Any] | None,
    Field(
        description="A filter of documents: a text such as `type=pdf and modified>=2026-01-01`, the JSON of OpenAI's "
        "vector stores, or a list of these, which must all hold. In a URL, JSON begins with `{`."
    ),
]
Count = Annotated[int, Field(ge=0, le=MAX_K, description="How many passages.")]
Vector = Annotated[list[float], Field(description="The meaning of the query, of the encoder of the index.")]
Mode = Annotated[Literal["hybrid", "semantic", "lexical"], Field(description="By words, meaning or both.")]
Relevance = Annotated[float | None, Field(ge=0, le=1, description="Leave out passages of less relevance.")]
Path = Annotated[str, Field(min_length=1, max_length=4_096, description="The id or path of a document.")]
Ids = Annotated[list[Path], Field(max_length=MAX_DOCUMENTS)]
Positions = Annotated[bool, Field(description="Say where each passage is in the map of the collection.")]
Rerank = Annotated[bool, Field(description="Read the best passages again with the server's reranker.")]


class Input(BaseModel):
    """The input of one operation: path, query parameters or JSON body."""

    model_config = ConfigDict(extra="forbid")


class RankingOptions(Input):
    """What searches and contexts take. The engine checks what no limit here does."""

    where: Where = None
    mode: Mode = "hybrid"
    min_relevance: Relevance = None
    rerank: Rerank = False
    rerank_depth: Annotated[int, Field(le=MAX_K, description="How many passages the reranker reads at most.")] = 50
    rerank_seconds: Annotated[float | None, Field(description="Rerank for about this long.")] = None
    deadline: Annotated[
        float | None,
        Field(description="Seconds from the arrival of the request, if that is sooner than the server's own deadline."),
    ] = None


class SearchOptions(RankingOptions):
    """What all searches take."""

    k: Count = 10
    offset: Annotated[int, Field(ge=0, le=MAX_DEPTH - MAX_K, description="Best passages to leave out.")] = 0
    ids: Annotated[list[Path] | None, Field(description="Only passages of these documents.")] = None
    per_document: Annotated[
        int | None,
        Field(
            ge=0,
            le=MAX_K,
            description="Passages of a document at most; 0: any number. Default: each from the fourth on gives way to "
            "slightly worse passages of other documents.",
        ),
    ] = None
    group_by: Annotated[
        Literal["passage", "document"], Field(description="document: the best passage of each of the k best documents.")
    ] = "passage"
    collapse: Annotated[bool, Field(description="False: copies are hits too, and any number of a document.")] = True
    join: Annotated[bool, Field(description="Make one hit of neighbours among the passages.")] = False
    mmr: Annotated[
        float | None, Field(description="Choose passages that differ: the weight of relevance against novelty, 0 to 1.")
    ] = None
    with_vectors: Annotated[bool, Field(description="Give each passage its stored vector.")] = False
    facets: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=1_000)]],
        Field(max_length=MAX_FACETS, description="Keys to count documents by, such as `type`."),
    ] = []
    highlights: Annotated[bool, Field(description="Say where words of the query stand in each passage.")] = False
    explain: Annotated[bool, Field(description="Say how each passage was found.")] = False
    positions: Positions = False


class FacetsInput(Input):
    """Keys to count documents by."""

    facets: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=1_000)]], Field(min_length=1, max_length=MAX_FACETS)
    ]
    where: Where = None


class SearchInput(SearchOptions):
    """One query: a text, a vector, or both."""

    query: Query | None = None
    vector: Vector | None = None


class SearchManyInput(SearchOptions):
    """Several queries at once: texts, vectors, or a vector for each text."""

    queries: Annotated[list[Query] | None, Field(max_length=MAX_QUERIES)] = None
    vectors: Annotated[list[Vector] | None, Field(max_length=MAX_QUERIES)] = None


class SimilarInput(Input):
    """A place in a document."""

    path: Path
    line: Annotated[int, Field(ge=1, le=2**31)]
    k: Count = 10
    where: Where = None
    positions: Positions = False


class ContextInput(RankingOptions):
    """A question, and the room for passages."""

    query: Query
    k: Annotated[int, Field(ge=0, le=MAX_K, description="How many passages to choose from.")] = 24
    max_tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS, description="Tokens of the encoder.")] = 2_000
    siblings: Annotated[
        int, Field(ge=0, le=MAX_K, description="Passages of the same section that may extend one on either side.")
    ] = 1
    order: Literal["best_first", "best_last"] = "best_first"


class PageInput(Input):
    """Documents in order of id."""

    where: Where = None
    after: Annotated[str | None, Field(max_length=4_096, description="Begin after this id.")] = None
    limit: Annotated[int, Field(ge=1, le=MAX_DOCUMENTS)] = 100
    text: Annotated[bool, Field(description="With the texts; fewer documents come if these are long.")] = False


class CountInput(Input):
    """Documents to count: all, or the documents that pass a filter."""

    where: Where = None


class DocumentInput(Input):
    """One document."""

    id: Path
    lines: Annotated[
        str | None,
        Field(pattern=r"^[0-9]{1,9}-[0-9]{1,9}$", description="The first and the last line of the text: `12-30`."),
    ] = None


class IdInput(Input):
    """One document by its id."""

    id: Path


class NewDocument(Input):
    """A document to add. It needs a text, a vector or metadata."""

    text: Annotated[str | None, Field(max_length=16_000_000)] = None
    id: Path | None = None
    title: Annotated[str | None, Field(max_length=10_000)] = None
    metadata: dict[str, Any] | None = None
    format: Literal["text", "markdown"] = "text"
    embedding: Annotated[list[float] | None, Field(description="A vector of your own, for one passage.")] = None


def _document(value: Any, check: ValidatorFunctionWrapHandler, info: ValidationInfo) -> NewDocument | DocumentError:
    """Return a document or, if the request skips invalid ones, why it is none; its number is not known here."""
    try:
        document: NewDocument = check(value)
    except ValidationError as error:
        if info.data.get("on_error") != "skip":
            raise
        name = value.get("id") if isinstance(value, dict) else None
        return DocumentError(0, name if isinstance(name, str) else None, describe(error, whole="the document"))
    return document


class AddInput(Input):
    """Documents to add."""

    if_exists: Literal["replace", "skip", "fail"] = "replace"
    on_error: Literal["stop", "skip"] = "stop"  # stands before the documents: their check reads it
    documents: Annotated[
        list[Annotated[NewDocument, WrapValidator(_document)]], Field(min_length=1, max_length=MAX_DOCUMENTS)
    ]


class UpdateInput(Input):
    """Metadata to change. A value of null removes a key."""

    ids: Ids = []
    where: Where = None
    metadata: dict[str, Any]
    mode: Literal["merge", "replace"] = "merge"


class DeleteInput(Input):
    """Documents to remove."""

    ids: Ids = []
    where: Where = None
    erase: Annotated[
        bool | Literal["later"],
        Field(
            description="Erase texts and vectors from the disk: now, which builds the indexes anew, or later, at a "
            "quiet moment within an hour. Otherwise they leave it with later writes."
        ),
    ] = False


class Nothing(Input):
    """No input."""
