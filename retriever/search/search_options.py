"""The options of `Retriever.search` and `Retriever.context`, typed for the calls that pass them on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable

    from numpy.typing import ArrayLike

    from ..models.reranker import Reranker
    from .arguments import GroupBy
    from .context import Order
    from .mode import Mode


class RankingOptions(TypedDict, total=False):
    """How passages are found and ordered."""

    mode: Mode
    rerank_depth: int
    rerank_seconds: float | None
    min_relevance: float | None


class RerankerOptions(TypedDict, total=False):
    """The reranker of an index of this process; a server has its own."""

    rerank: str | os.PathLike[str] | Reranker | None


class ChoiceOptions(RankingOptions, total=False):
    """Which passages become hits; for one query or for many."""

    per_document: int | None
    collapse: bool
    join: bool
    with_vectors: bool
    group_by: GroupBy
    mmr: float | None
    offset: int


class HitOptions(ChoiceOptions, RerankerOptions, total=False):
    """The options of one query or of many, except filters and vectors."""


class SearchOptions(HitOptions, total=False):
    """The options of one query, except its filter."""

    vector: ArrayLike | None
    ids: Iterable[str | os.PathLike[str]] | None
    deadline: float | None


class PackingOptions(RankingOptions, total=False):
    """The options of a context, except its filter, its reranker and its tokenizer."""

    k: int
    deadline: float | None
    max_tokens: int
    siblings: int
    order: Order


class ContextOptions(PackingOptions, RerankerOptions, total=False):
    """The options of a context, except its filter."""

    tokenizer: Callable[[str], Any] | None
