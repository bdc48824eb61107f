"""LangChain's documents, from records and hits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....core.errors import MissingExtraError
from .citations import passage_id, passage_metadata, passage_text
from .values import from_metadata

try:
    from langchain_core.documents import Document
except ModuleNotFoundError as error:
    raise MissingExtraError("langchain-core", "langchain", "Binocle in LangChain") from error

if TYPE_CHECKING:
    from ...search.results.hit import Hit
    from ...store.records import Record


def whole_document(record: Record) -> Document:
    """Return a whole document, as it was added."""
    return Document(page_content=record.text, metadata=from_metadata(record.metadata), id=record.id)


def passage_document(hit: Hit) -> Document:
    """Return a passage as a document with a citation and its score."""
    metadata = {**passage_metadata(hit), "score": hit.score}
    return Document(page_content=passage_text(hit), metadata=metadata, id=passage_id(hit))


def with_score(document: Document, score: float) -> Document:
    """Return a copy with this `relevance_score` in its metadata."""
    metadata = {**document.metadata, "relevance_score": score}
    return document.model_copy(update={"metadata": metadata})
