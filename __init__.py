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

TYPE_CHECKING = False  # that of `typing`, which takes as long to import as all that a program does to ask another one
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
    from .retriever.models.encoder import Encoder
    from .retriever.models.load import load_encoder, load_reranker
    from .retriever.models.reranker import Reranker
    from .retriever.retriever import Retriever
    from .retriever.scope import Scope
    from .retriever.search.context import Context
    from .retriever.search.events import SearchEvent
    from .retriever.search.mode import Mode
    from .retriever.search.results.hit import Hit
    from .retriever.search.results.hits import Hits
    from .retriever.search.results.passage import Passage
    from .retriever.servers.remote import RemoteRetriever
    from .retriever.store.filters.filter import F, Filter
    from .retriever.store.filters.where import Where
    from .retriever.store.records import Facet, Record
    from .training.evaluation.retrieval import evaluate

__all__ = [
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
    "Retriever",
    "Scope",
    "SearchEvent",
    "StoreError",
    "UnreadableError",
    "UnsupportedError",
    "UntrustedError",
    "Where",
    "evaluate",
    "load_encoder",
    "load_reranker",
]

_PLACES = {
    "Batch": ("retriever.indexing.batch", "Batch"),
    "BinocleError": ("core.errors", "BinocleError"),
    "Context": ("retriever.search.context", "Context"),
    "DamagedError": ("core.errors", "DamagedError"),
    "DeadlineError": ("core.errors", "DeadlineError"),
    "Document": ("retriever.documents.document", "Document"),
    "Encoder": ("retriever.models.encoder", "Encoder"),
    "EncoderMismatchError": ("core.errors", "EncoderMismatchError"),
    "F": ("retriever.store.filters.filter", "F"),
    "Facet": ("retriever.store.records", "Facet"),
    "Failure": ("retriever.indexing.report", "Failure"),
    "Filter": ("retriever.store.filters.filter", "Filter"),
    "Hit": ("retriever.search.results.hit", "Hit"),
    "Hits": ("retriever.search.results.hits", "Hits"),
    "InputError": ("core.errors", "InputError"),
    "LockedError": ("core.errors", "LockedError"),
    "MissingExtraError": ("core.errors", "MissingExtraError"),
    "Mode": ("retriever.search.mode", "Mode"),
    "ModelNotFoundError": ("core.errors", "ModelNotFoundError"),
    "NoIndexError": ("core.errors", "NoIndexError"),
    "NotFoundError": ("core.errors", "NotFoundError"),
    "Passage": ("retriever.search.results.passage", "Passage"),
    "Record": ("retriever.store.records", "Record"),
    "Report": ("retriever.indexing.report", "Report"),
    "RemoteRetriever": ("retriever.servers.remote", "RemoteRetriever"),
    "Reranker": ("retriever.models.reranker", "Reranker"),
    "Retriever": ("retriever.retriever", "Retriever"),
    "Scope": ("retriever.scope", "Scope"),
    "SearchEvent": ("retriever.search.events", "SearchEvent"),
    "StoreError": ("core.errors", "StoreError"),
    "UnreadableError": ("core.errors", "UnreadableError"),
    "UnsupportedError": ("core.errors", "UnsupportedError"),
    "UntrustedError": ("core.errors", "UntrustedError"),
    "Where": ("retriever.store.filters.where", "Where"),
    "evaluate": ("training.evaluation.retrieval", "evaluate"),
    "load_encoder": ("retriever.models.load", "load_encoder"),
    "load_reranker": ("retriever.models.load", "load_reranker"),
}


if not TYPE_CHECKING:  # a type checker is to see that there are no other names

    def __getattr__(name: str) -> object:
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        module, attribute = _PLACES[name]
        value = getattr(import_module(f".{module}", __name__), attribute)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
