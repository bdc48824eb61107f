"""Binocle: semantic search over documents, with exact citations.

    from binocle import Retriever

    retriever = Retriever.open("docs")
    retriever.sync()
    for hit in retriever.search("how do I cancel a task?"):
        print(hit.path, hit.line_start, hit.text)

Names are imported when first used, so that `import binocle` costs nothing.
"""

from __future__ import annotations

from .core.version import __version__ as __version__

# Type checkers know this name. To import `typing` for it takes as long as all else in a search of `search --stay`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from .core.errors import (
        BinocleError,
        DamagedError,
        DeadlineError,
        EncoderMismatchError,
        InputError,
        LockedError,
        MissingExtraError,
        ModelNotFoundError,
        NoIndexError,
        NotFoundError,
        StoreError,
        UnreadableError,
        UnsupportedError,
        UntrustedError,
    )
    from .retriever.documents.document import Document
    from .retriever.indexing.batch import Batch
    from .retriever.indexing.report import Failure, Report
    from .retriever.integrity.status import Status
    from .retriever.models.encoder import Encoder
    from .retriever.models.load import load_encoder, load_reranker
    from .retriever.models.reranker import Reranker
    from .retriever.retriever import Retriever
    from .retriever.scope import Scope
    from .retriever.search.answers import Answer
    from .retriever.search.context import Context
    from .retriever.search.events import SearchEvent
    from .retriever.search.mode import Mode
    from .retriever.search.results.hit import Hit
    from .retriever.search.results.hits import Hits
    from .retriever.search.results.passage import Passage
    from .retriever.servers.client.remote import RemoteRetriever
    from .retriever.store.filters.filter import F, Filter
    from .retriever.store.filters.where import Where
    from .retriever.store.records import Facet, Record
    from .training.evaluation.result import RetrievalResult
    from .training.evaluation.retrieval import evaluate

__all__ = [
    "Answer",
    "Batch",
    "BinocleError",
    "Context",
    "DamagedError",
    "DeadlineError",
    "Document",
    "Encoder",
    "EncoderMismatchError",
    "F",
    "Facet",
    "Failure",
    "Filter",
    "Hit",
    "Hits",
    "InputError",
    "LockedError",
    "MissingExtraError",
    "Mode",
    "ModelNotFoundError",
    "NoIndexError",
    "NotFoundError",
    "Passage",
    "Record",
    "RemoteRetriever",
    "Report",
    "Reranker",
    "RetrievalResult",
    "Retriever",
    "Scope",
    "SearchEvent",
    "Status",
    "StoreError",
    "UnreadableError",
    "UnsupportedError",
    "UntrustedError",
    "Where",
    "evaluate",
    "load_encoder",
    "load_reranker",
]

_MODULES = {
    "Answer": "retriever.search.answers",
    "Batch": "retriever.indexing.batch",
    "BinocleError": "core.errors",
    "Context": "retriever.search.context",
    "DamagedError": "core.errors",
    "DeadlineError": "core.errors",
    "Document": "retriever.documents.document",
    "Encoder": "retriever.models.encoder",
    "EncoderMismatchError": "core.errors",
    "F": "retriever.store.filters.filter",
    "Facet": "retriever.store.records",
    "Failure": "retriever.indexing.report",
    "Filter": "retriever.store.filters.filter",
    "Hit": "retriever.search.results.hit",
    "Hits": "retriever.search.results.hits",
    "InputError": "core.errors",
    "LockedError": "core.errors",
    "MissingExtraError": "core.errors",
    "Mode": "retriever.search.mode",
    "ModelNotFoundError": "core.errors",
    "NoIndexError": "core.errors",
    "NotFoundError": "core.errors",
    "Passage": "retriever.search.results.passage",
    "Record": "retriever.store.records",
    "RemoteRetriever": "retriever.servers.client.remote",
    "Report": "retriever.indexing.report",
    "Reranker": "retriever.models.reranker",
    "RetrievalResult": "training.evaluation.result",
    "Retriever": "retriever.retriever",
    "Scope": "retriever.scope",
    "SearchEvent": "retriever.search.events",
    "Status": "retriever.integrity.status",
    "StoreError": "core.errors",
    "UnreadableError": "core.errors",
    "UnsupportedError": "core.errors",
    "UntrustedError": "core.errors",
    "Where": "retriever.store.filters.where",
    "evaluate": "training.evaluation.retrieval",
    "load_encoder": "retriever.models.load",
    "load_reranker": "retriever.models.load",
}


if not TYPE_CHECKING:  # with this function, a type checker would accept any name

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(f".{_MODULES[name]}", __name__), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
