"""Binocle: semantic search over documents, with exact citations.

    from binocle import Retriever

    retriever = Retriever.open("docs")
    retriever.sync()
    for hit in retriever.search("how do I cancel a task?"):
        print(hit.path, hit.line_start, hit.text)

Names are imported when first used, so that `import binocle` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .indexes.errors import BinocleError
    from .retriever.context import Context
    from .retriever.document import Document
    from .retriever.encoder import Encoder
    from .retriever.encoder import load as load_encoder
    from .retriever.query import Hit
    from .retriever.reranker import Reranker
    from .retriever.retriever import Retriever
    from .training.evaluation import evaluate

__version__ = "0.1.0"
__all__ = ["BinocleError", "Context", "Document", "Encoder", "Hit", "Reranker", "Retriever", "evaluate", "load_encoder"]

_PLACES = {
    "BinocleError": ("indexes.errors", "BinocleError"),
    "Context": ("retriever.context", "Context"),
    "Document": ("retriever.document", "Document"),
    "Encoder": ("retriever.encoder", "Encoder"),
    "Hit": ("retriever.query", "Hit"),
    "Reranker": ("retriever.reranker", "Reranker"),
    "Retriever": ("retriever.retriever", "Retriever"),
    "evaluate": ("training.evaluation", "evaluate"),
    "load_encoder": ("retriever.encoder", "load"),
}


if not TYPE_CHECKING:  # a type checker is to see that there are no other names

    def __getattr__(name: str) -> Any:
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, attribute = _PLACES[name]
        value = getattr(import_module(f".{module}", __name__), attribute)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
