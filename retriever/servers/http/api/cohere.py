"""Reranking in the shape of Cohere's API, so that its clients speak to the server's reranker.

Source: docs.cohere.com/reference/rerank. A reranker's logit becomes a relevance by the logistic function. Without
--rerank, the relevance is the cosine of the index's encoder.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from .....core.errors import InputError
from ....models.reranker import best_of
from . import answer_shapes, request_shapes
from .operations import Operation

if TYPE_CHECKING:
    from ..caller import Caller
    from .operations import Answer

_MAX_DOCUMENTS, _MAX_CHARACTERS = 1_000, 500_000


class RerankInput(BaseModel):
    """A query, and texts to order by how well they answer it."""

    model_config = ConfigDict(extra="ignore")

    query: request_shapes.Query
    documents: Annotated[
        list[Annotated[str, Field(max_length=_MAX_CHARACTERS)]], Field(min_length=1, max_length=_MAX_DOCUMENTS)
    ]
    model: Annotated[str, Field(max_length=1_000, description="Any: the server has one reranker.")] = ""
    top_n: Annotated[int | None, Field(ge=1)] = None
    max_tokens_per_doc: Annotated[int | None, Field(ge=1, description="The model's own limit holds.")] = None


class RankedDocument(answer_shapes.Output):
    """A document by its place in the request."""

    index: int
    relevance_score: float


class RerankOutput(answer_shapes.Output):
    """The documents, best first."""

    id: str
    results: list[RankedDocument]
    meta: dict[str, Any]


def rerank(caller: Caller, request: RerankInput) -> Answer:
    """Order texts by how well they answer a query."""
    if sum(map(len, request.documents)) > _MAX_CHARACTERS:
        raise InputError(f"the documents have more than {_MAX_CHARACTERS:,} characters: send fewer at once")
    pairs, model = _ranked(caller, request)
    results = [{"index": position, "relevance_score": round(relevance, 6)} for position, relevance in pairs]
    meta = {"api_version": {"version": "2"}, "billed_units": {"search_units": 0}, "model": model}
    return {"id": str(uuid.uuid4()), "results": results, "meta": meta}


def _ranked(caller: Caller, request: RerankInput) -> tuple[list[tuple[int, float]], str]:
    """The positions and the relevance of the best documents, best first, and the name of the model."""
    reranker = caller.server.reranker
    if reranker is not None:
        logits = [reranker.score(request.query, part) for part in caller.batches(request.documents)]
        return best_of(np.concatenate(logits), request.top_n), reranker.name
    query = caller.encode([request.query], "query")[0]
    cosines = np.clip(caller.encode(request.documents) @ query, 0, 1)
    order = np.argsort(-cosines, kind="stable")[: request.top_n].tolist()
    return [(position, float(cosines[position])) for position in order], caller.retriever.encoder.name


OPERATIONS = (Operation("POST", "/v2/rerank", rerank, RerankInput, RerankOutput, is_of_index=False),)
