"""The parts that all adapters share: their index, its documents, and the threads that asyncio waits for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ...core.errors import InputError, NoIndexError, NotFoundError
from ..asynchronous import AsyncWrites, CallPool
from ..models.encoders.no_encoder import NoEncoder
from ..models.load import load_encoder
from ..reads import DocumentReads
from ..retriever import Retriever
from ..search.search_options import SearchOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ..models.encoder import Encoder
    from ..search.results.hit import Hit
    from ..store.records import Record

WAIT = 10.0  # seconds that a write to an index at a path waits for another writer, as on a server
CALLS = CallPool()  # one for all adapters, so that many adapters do not start too many threads
SEARCH_OPTIONS = sorted(SearchOptions.__optional_keys__)


def reads_of(index: Any) -> Any:
    """Return an index to search: a `Retriever` or a `Scope` itself, or the index at a path.

    :raises InputError: when it is none of them.
    """
    if isinstance(index, DocumentReads):
        return index
    if isinstance(index, (str, os.PathLike)):
        return Retriever.open(index, wait=WAIT)
    raise InputError(f"expected a Retriever, a scope of one or the path of an index, not {index!r}")


def searched(index: Any) -> Any:
    """Return an index that is only searched: as `reads_of`, or a `RemoteRetriever` itself."""
    return index if isinstance(index, AsyncWrites) else reads_of(index)


def opened(index: Any, dim: Callable[[], int] | None) -> Any:
    """Return an index that a store fills: as `reads_of`, but a new one at a path may have no encoder.

    :param dim: gives the dimension of the vectors that documents will bring to a new index; None if it has an encoder.
    """
    if dim is None or not isinstance(index, (str, os.PathLike)):
        return reads_of(index)
    retriever = Retriever.open(index, wait=WAIT)
    try:
        retriever.snapshot()
    except NoIndexError:
        return Retriever.open(index, encoder=None, dim=dim(), wait=WAIT)
    return retriever


def refuse_options(options: Iterable[str], *expected: str) -> None:
    """Refuse options that a framework's signature lets through: a misspelt filter would be no filter.

    :param expected: the names of the options that there are.
    :raises InputError: naming the first option, when there is one.
    """
    if unknown := [name for name in options if name not in expected]:
        raise InputError(f"there is no option {unknown[0]!r} here: expected {', '.join(expected) or 'none'}")


def retriever_of(index: Any) -> Retriever:
    """Return the retriever of an index or of a scope."""
    retriever: Retriever = index if isinstance(index, Retriever) else index._retriever  # noqa: SLF001 - a scope's
    return retriever


def encoder_of(model: Any) -> Encoder:
    """Return an encoder: a folder or name is loaded, the encoder of a `Retriever` taken, any other object is one."""
    if isinstance(model, (str, os.PathLike)):
        return load_encoder(model)
    encoder: Encoder = model.encoder if isinstance(model, Retriever) else model
    if not callable(getattr(encoder, "encode", None)):
        raise InputError(f"expected an encoder, a Retriever, or the folder or name of a model, not {model!r}")
    return encoder


def dim_without_encoder(index: Any) -> int | None:
    """Return the dimension of the vectors that documents bring to an index; None if it has an encoder."""
    encoder = retriever_of(index).encoder
    return encoder.dim if isinstance(encoder, NoEncoder) else None


def present(index: Any, ids: Iterable[str], *, vectors: bool = False) -> dict[str, Record]:
    """Return the documents of an index that have one of these ids, by id; an index that is not there has none."""
    names = list(dict.fromkeys(ids))
    if not names:
        return {}
    options = {"vectors": True} if vectors else {}  # a server has none
    try:
        records = index.get(names, **options)
    except NoIndexError:
        return {}
    except NotFoundError:
        records = index.get([name for name in names if name in index], **options)
    return {record.id: record for record in records}


def search_documents(index: Any, k: int, **search: Any) -> list[Hit]:
    """Return the k best hits: one for each added document, and any number for a file.

    A missing index has no hits. Copies are hits too: whoever stores two equal documents expects both.

    :param search: arguments of `Retriever.search`.
    """
    count = k
    while True:
        try:
            hits = index.search(k=count, **{"collapse": False, **search})
        except NoIndexError:
            return []
        best: dict[str | int, Hit] = {}
        for hit in hits:
            best.setdefault(hit.path if hit.source == "added" else hit.passage, hit)
        if len(best) >= k or len(hits) < count:
            return list(best.values())[:k]
        count *= 2


def added_records(index: Any, hits: Iterable[Hit]) -> Mapping[str, Record]:
    """Return the whole documents of the hits in documents that were added, by id."""
    return present(index, [hit.path for hit in hits if hit.source == "added"])
