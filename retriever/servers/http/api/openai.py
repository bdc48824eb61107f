"""Embeddings and vector stores in the shapes of OpenAI's API, so that its clients speak to an index.

Source: platform.openai.com/docs/api-reference, embeddings and vector_stores/search. The `score` of a passage is its
relevance, which orders hits and compares between queries. A model is named by the index alone: the answer says which.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from .....core.errors import InputError
from ....documents.document import visible_text
from ....store.filters.filter import Filter
from . import answer_shapes, request_shapes
from .operations import Operation

if TYPE_CHECKING:
    from ....search.results.hit import Hit
    from ..caller import Caller
    from .operations import Answer

_MAX_INPUTS, _MAX_CHARACTERS = 2_048, 500_000
_MAX_RESULTS = 50


class _Input(BaseModel):
    model_config = ConfigDict(extra="ignore")  # clients send what other servers understand


_Text = Annotated[str, Field(min_length=1, max_length=_MAX_CHARACTERS)]


class EmbeddingsInput(_Input):
    """Texts to encode."""

    input: _Text | Annotated[list[_Text], Field(min_length=1, max_length=_MAX_INPUTS)]
    model: Annotated[str, Field(max_length=1_000, description="Any: the index has one encoder.")] = ""
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int | None, Field(ge=1, description="Those of the encoder.")] = None
    input_type: Annotated[
        Literal["document", "query"], Field(description="For encoders that treat queries differently.")
    ] = "document"


class Embedding(answer_shapes.Output):
    """The vector of a text: numbers, or little-endian float32 in base64."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Usage(answer_shapes.Output):
    """Tokens of the encoder."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsOutput(answer_shapes.Output):
    """Vectors of unit length in the order of the texts."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: Usage


class RankingOptions(_Input):
    """How results are ranked; the threshold is a relevance."""

    ranker: str | None = None
    score_threshold: Annotated[float | None, Field(ge=0, le=1)] = None


class StoreSearchInput(_Input):
    """A search of a vector store; the store is an index of this server."""

    store: Annotated[str, Field(max_length=1_000)]
    query: request_shapes.Query | Annotated[list[request_shapes.Query], Field(min_length=1, max_length=10)]
    filters: dict[str, Any] | None = None
    max_num_results: Annotated[int, Field(ge=1, le=_MAX_RESULTS)] = 10
    ranking_options: RankingOptions | None = None
    rewrite_query: bool | None = None


class Content(answer_shapes.Output):
    """A text of a result."""

    type: Literal["text"]
    text: str


class Citation(answer_shapes.Output):
    """Where the text stands in its document."""

    line_start: int
    line_end: int
    page: int | None
    heading: list[str]


class StoreResult(answer_shapes.Output):
    """A passage."""

    file_id: str
    filename: str
    score: float
    attributes: dict[str, str | float | bool]
    content: list[Content]
    citation: Citation


class StoreSearchOutput(answer_shapes.Output):
    """The best passages, best first."""

    object: Literal["vector_store.search_results.page"]
    search_query: list[str]
    data: list[StoreResult]
    has_more: bool
    next_page: str | None


def embeddings(caller: Caller, request: EmbeddingsInput) -> Answer:
    """Encode texts with the encoder of the index."""
    texts = [request.input] if isinstance(request.input, str) else request.input
    if sum(map(len, texts)) > _MAX_CHARACTERS:
        raise InputError(f"the texts have more than {_MAX_CHARACTERS:,} characters: send fewer at once")
    encoder = caller.retriever.encoder
    if request.dimensions not in (None, encoder.dim):
        raise InputError(f"the vectors of {encoder.name} have {encoder.dim} dimensions, not {request.dimensions}")
    vectors = caller.encode(texts, request.input_type)
    tokens = sum(map(len, encoder.offsets(texts)))
    rows = [
        {
            "object": "embedding",
            "index": number,
            "embedding": vector.tolist() if request.encoding_format == "float" else _base64(vector),
        }
        for number, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": rows, "model": encoder.name, "usage": usage}


def _base64(vector: Any) -> str:
    return base64.b64encode(np.asarray(vector, "<f4").tobytes()).decode("ascii")


def search(caller: Caller, request: StoreSearchInput) -> Answer:
    """Search an index as a vector store of its name."""
    if request.store != caller.index.name:
        caller = caller.server.caller(caller.token, request.store, caller.deadline)
    queries = [request.query] if isinstance(request.query, str) else request.query
    where = None if request.filters is None else Filter.from_json(request.filters)
    threshold = request.ranking_options.score_threshold if request.ranking_options else None
    lists = caller.retriever.search_many(
        queries,
        request.max_num_results,
        where=caller.inside(where),
        min_relevance=threshold,
        deadline=caller.seconds("search"),
    )
    best: dict[int, Hit] = {}
    for hit in sorted((hit for hits in lists for hit in hits), key=lambda hit: (-hit.relevance, hit.rank)):
        best.setdefault(hit.passage, hit)
    return {
        "object": "vector_store.search_results.page",
        "search_query": queries,
        "data": [_result(hit) for hit in list(best.values())[: request.max_num_results]],
        "has_more": False,
        "next_page": None,
    }


def _result(hit: Hit) -> dict[str, Any]:
    return {
        "file_id": hit.path,
        "filename": hit.path.rsplit("/", 1)[-1] or hit.path,
        "score": hit.relevance,
        "attributes": {key: value for key, value in hit.metadata.items() if isinstance(value, (str, int, float))},
        "content": [{"type": "text", "text": visible_text(hit.text, hit.char_start, hit.hidden)}],
        "citation": {name: getattr(hit, name) for name in Citation.model_fields},
    }


OPERATIONS = (
    Operation("POST", "/v1/embeddings", embeddings, EmbeddingsInput, EmbeddingsOutput, is_of_index=False),
    Operation(
        "POST", "/v1/vector_stores/{store}/search", search, StoreSearchInput, StoreSearchOutput, is_of_index=False
    ),
)
