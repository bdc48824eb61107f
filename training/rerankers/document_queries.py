"""Queries made from the documents of an index, as training data for a reranker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...retriever.documents.scan import index_at
from ..data import beir, source_documents
from ..tuning.queries import query_generation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...retriever.retriever import Retriever

KINDS = ("claim", "cloze", "definition", "link")  # their positives keep the headings that other passages have too
QUERIES = 5_000  # maximum of an index, unless the configuration says otherwise
_PASSAGES = 20_000  # maximum of an index to make queries from


class DocumentQueries:
    """Rows of query, positive and document, the same ones in each pass.

    A title that several documents have is no query, because it asks for none of them.

    :param retriever: the index of the documents.
    :param maximum: of queries; each has the same chance.
    """

    def __init__(self, retriever: Retriever, maximum: int, seed: int) -> None:
        self.retriever, self._maximum, self._seed = retriever, maximum, seed

    def __iter__(self) -> Iterator[dict[str, Any]]:
        sources = source_documents.sample(source_documents.from_index(self.retriever.snapshot()), _PASSAGES, self._seed)
        headings = query_generation.HeadingCounts(sources)
        pairs = query_generation.make(sources, seed=self._seed, kinds=KINDS)
        own = (pair for pair in pairs if not headings.is_shared(pair.query))
        for pair in query_generation.sample(own, self._maximum, self._seed):
            yield {"query": pair.query, "positive": pair.positive, "document_id": pair.document}


def index_in(source: Any) -> Path | None:
    """Return the index of a folder of documents, or the folder itself if it is an index; None for other data.

    A test collection brings its own queries, also if it has an index.
    """
    if not isinstance(source, (str, Path)) or beir.is_collection(Path(source)):
        return None
    return index_at(Path(source))
