"""Check the arguments of a search, and make a request of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

from ...core.checks import check_flags, is_real, is_whole, listed
from ...core.errors import InputError
from ...core.vectors import unit_vector
from ...core.words import encodable
from ..store.filters.where import among, parse
from .mode import Mode, check_mode
from .ranking.relevance import check_relevance
from .request import SearchRequest
from .results.joining import check_join
from .selection import Reranking, Selection

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

    from numpy.typing import ArrayLike

    from ...core.arrays import Floats
    from ..models.cache import ModelCache
    from ..models.reranker import Reranker
    from ..store.filters.where import Where
    from .deadline import Deadline

GroupBy = Literal["passage", "document"]

_RERANK_DEPTH = 50  # the default of `Retriever.search`
_MAX_CHARACTERS = 100_000  # of a query: Lance fails on one of 300,000 ideographs


def search_request(
    models: ModelCache,
    query: str | None,
    k: int,
    *,
    vector: ArrayLike | None = None,
    mode: Mode = "hybrid",
    where: Where = None,
    ids: Iterable[str | os.PathLike[str]] | None = None,
    offset: int = 0,
    rerank: str | os.PathLike[str] | Reranker | None = None,
    rerank_depth: int = _RERANK_DEPTH,
    rerank_seconds: float | None = None,
    per_document: int | None = None,
    collapse: bool = True,
    join: bool = False,
    min_relevance: float | None = None,
    with_vectors: bool = False,
    group_by: GroupBy = "passage",
    mmr: float | None = None,
    deadline: Deadline | None = None,
) -> SearchRequest:
    """Check the arguments of `Retriever.search`, and load the reranker.

    :param k: the number of passages behind the first `offset`.
    """
    check_flags(collapse=collapse, with_vectors=with_vectors, join=join)
    depth = check_page(k, offset)
    text, array, mode = check_query(query, vector, mode, reranks=rerank is not None)
    check_relevance(min_relevance)
    check_reranking(rerank_depth, rerank_seconds, reranks=rerank is not None)
    check_per_document(per_document, collapse=collapse)
    by_document = check_grouping(group_by, per_document)
    check_mmr(mmr)
    check_join(join=join, collapse=collapse, by_document=by_document)
    conditions = parse(among(where, ids))
    reranker = None if rerank is None else models.reranker_of(rerank)
    diversity = None
    if mmr is not None:
        from .results.diversity import Diversity  # few searches need it

        diversity = Diversity(mmr, min_relevance or 0.0)
    selection = Selection(
        int(depth),
        mode,
        conditions,
        reranking=None if reranker is None else Reranking(reranker, rerank_depth, rerank_seconds),
        per_document=per_document,
        collapse=bool(collapse),
        with_vectors=bool(with_vectors),
        by_document=by_document,
        diversity=diversity,
        offset=int(offset),
    )
    return SearchRequest(text, selection, min_relevance, array, deadline, bool(join))


def check_query(query: str | None, vector: Any, mode: Mode, *, reranks: bool) -> tuple[str, Floats | None, Mode]:
    """Return the text of a query without white space around it, its vector of length 1, and the mode.

    A vector without a text is searched by meaning.

    :raises InputError: when there is neither, or one of them cannot be searched for.
    """
    check_mode(mode)
    if vector is not None:
        vector = unit_vector(vector, "the vector of the query")
        if query is not None and mode == "lexical":
            raise InputError("mode 'lexical' searches by words alone: leave the vector out, or choose another mode")
        if query is None:
            if mode == "lexical":
                raise InputError("mode 'lexical' searches by words, and a vector has none: give a query too")
            if reranks:
                raise InputError("a reranker reads the words of a query, and a vector has none: give a query too")
            return "", vector, "semantic"
    if query is None:
        raise InputError("there is no query: give a text, a vector, or both")
    return check_words(query), vector, mode


def check_grouping(group_by: str, per_document: int | None) -> bool:
    """Return whether each hit is of another document.

    :raises InputError: when the two arguments contradict each other.
    """
    if group_by not in get_args(GroupBy):
        raise InputError(f"group_by is one of {', '.join(get_args(GroupBy))}, not {group_by!r}")
    if group_by == "document" and per_document not in (None, 1):
        raise InputError(f"group_by='document' gives one passage of each: leave per_document={per_document!r} out")
    return group_by == "document"


def check_mmr(weight: float | None) -> None:
    """Check the weight of relevance against novelty."""
    if weight is not None and not (is_real(weight) and 0 <= weight <= 1):
        raise InputError(f"mmr is the weight of relevance against novelty, from 0 to 1, not {weight!r}")


def check_queries(queries: Any, vectors: Any) -> Iterator[tuple[str | None, Any]]:
    """Pair the texts of several queries with their vectors.

    :raises InputError: when there are neither, or not as many vectors as texts.
    """
    texts = None if queries is None else listed(queries, "queries")
    arrays = None if vectors is None else listed(vectors, "vectors")
    if texts is None and arrays is None:
        raise InputError("there are no queries: give texts, vectors, or both")
    if texts is not None and arrays is not None and len(texts) != len(arrays):
        raise InputError(f"there are {len(texts):,} queries and {len(arrays):,} vectors: expected one vector a query")
    count = len(texts if texts is not None else arrays or ())
    return zip(texts or [None] * count, arrays if arrays is not None else [None] * count, strict=True)


def check_count(k: int) -> None:
    """Check the number of passages."""
    if not is_whole(k, 0):
        raise InputError(f"k is the number of passages, a whole number of at least 0, not {k!r}")


def check_words(query: str) -> str:
    """Strip a query of white space around it.

    :raises InputError: when it is no text, is empty, or is too long.
    """
    if not isinstance(query, str):
        raise InputError(f"a query is a text, but this one is of type {type(query).__name__}")
    query = encodable(query).strip()
    if not query.strip('"“”„ '):
        raise InputError("the query is empty: say what to look for")
    if len(query) > _MAX_CHARACTERS:
        raise InputError(f"the query has {len(query):,} characters: expected {_MAX_CHARACTERS:,} at most")
    return query


def check_page(k: int, offset: int) -> int:
    """Return how many passages to look for, if the best `offset` are left out."""
    check_count(k)
    if not is_whole(offset, 0):
        raise InputError(f"offset is the number of passages to leave out, a whole number of at least 0, not {offset!r}")
    return k + offset


def check_reranking(depth: int, seconds: float | None, *, reranks: bool = True) -> None:
    """Check the limits of reranking.

    :param reranks: whether there is a reranker; without one, other limits than the defaults are refused.
    """
    changed = {"rerank_depth": depth != _RERANK_DEPTH, "rerank_seconds": seconds is not None}
    if not reranks and any(changed.values()):
        name = next(name for name, is_changed in changed.items() if is_changed)
        raise InputError(f"{name} limits a reranker, and there is none: give rerank too, or leave {name} out")
    if not is_whole(depth, 1):
        raise InputError(f"rerank_depth is the number of passages to rerank, a whole number from 1, not {depth!r}")
    if seconds is None:
        return
    if not is_real(seconds) or seconds < 0:
        raise InputError(f"rerank_seconds is the time for reranking, a number of seconds from 0, not {seconds!r}")


def check_per_document(per_document: int | None, *, collapse: bool) -> None:
    """Check the limit on passages of one document."""
    if per_document and not collapse:
        raise InputError(
            f"collapse=False gives any number of passages of a document: leave per_document={per_document!r} out"
        )
    if per_document is not None and not is_whole(per_document, 0):
        raise InputError(f"per_document is a number of passages, a whole number from 0, not {per_document!r}")
