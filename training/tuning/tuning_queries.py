"""Make the queries of one tuning from an index's documents and a log, and part them by their use."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from ...core.errors import InputError
from ...core.units import count_of
from ..data import source_documents as corpus
from .passages import Passages
from .queries import query_generation
from .queries.query_log import read_log
from .queries.term_weights import normalised
from .tuning_config import ADAPTER_QUERIES
from .verdict import judging_share, natural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ...retriever.retriever import Retriever
    from ...retriever.store.snapshot import Snapshot
    from ..data.source_documents import Source
    from .queries.query_generation import HeadingCounts, SyntheticPair
    from .tuning_config import TuningConfig

_PASSAGES = 20_000  # maximum to learn from; from a sample of the documents of a larger index
_CHOOSING = 0.1  # share of the documents; their queries choose the share of the base and do not teach
_LOG_ALONE = 100  # queries; a log of so many replaces generated queries, which teach less
_LOG_HELD_OUT = 0.2  # share of the queries of a log that judge; as many again choose an adapter's share
_MIN_DOCUMENTS = 8  # to learn from
_SIGNIFICANT_DOCUMENTS = 6  # minimum for a p below 0.05


@dataclass(frozen=True, slots=True)
class TuningQueries:
    """The queries of one tuning: to teach, to judge and to choose. No query has two of these uses."""

    teaching: list[SyntheticPair]
    judging: list[SyntheticPair]  # natural ones, of held-out documents
    choosing_log: list[SyntheticPair]  # of a large log: they choose an adapter's share
    judging_log: list[SyntheticPair]  # of a large log
    passages: Passages  # of the documents that are learned from
    headings: HeadingCounts
    _taught: frozenset[str]  # normalised
    _choosing_documents: Iterable[Source]
    _seed: int

    @classmethod
    def make(
        cls, retriever: Retriever, snapshot: Snapshot, config: TuningConfig, report: Callable[[str], None]
    ) -> TuningQueries:
        """Make the queries, and report their numbers.

        :raises InputError: if the index holds too few documents.
        """
        logged, choosing_log, judging_log = _split_log(config)
        report("making queries from the documents")
        sources = corpus.sample(corpus.from_index(snapshot), _PASSAGES, config.seed)
        share = judging_share(sum(1 for _ in sources), config.held_out)
        learned, judging_documents = corpus.split(sources, share, config.seed)
        taught, choosing_documents = corpus.split(learned, _CHOOSING, config.seed + 1)
        pairs = query_generation.make(taught, seed=config.seed, kinds=config.kinds)
        generated = query_generation.sample(pairs, config.generated, config.seed)
        headings = query_generation.HeadingCounts(sources)
        queries = frozenset(normalised(pair.query) for pair in (*generated, *logged))
        judging = _natural(judging_documents, headings, queries, config.queries, config.seed)
        _check_documents(retriever, generated, judging, report)
        passages = Passages.read(snapshot, {source.id for source in learned})
        teaching = logged if judging_log else generated + logged
        logged_queries, texts = count_of(len(logged), "logged query"), count_of(len(passages.texts), "passage")
        report(f"{len(teaching) - len(logged):,} generated and {logged_queries}, {texts}")
        if judging_log:
            choose = f"{len(choosing_log):,} choose the adapter's share, " if choosing_log else ""
            report(f"other queries of the log: {choose}{len(judging_log):,} judge")
        return cls(
            teaching, judging, choosing_log, judging_log, passages, headings, queries, choosing_documents, config.seed
        )

    def choosing(self, maximum: int) -> list[SyntheticPair]:
        """Return natural queries of documents that are ranked while learning. No query of these documents teaches."""
        return _natural(self._choosing_documents, self.headings, self._taught, maximum, self._seed)


def _split_log(config: TuningConfig) -> tuple[list[SyntheticPair], list[SyntheticPair], list[SyntheticPair]]:
    """Return the log's queries that teach, choose an adapter's share, and judge; a small log only teaches."""
    logged = read_log(Path(config.log)) if config.log else []
    if config.adapter:
        logged = query_generation.sample(logged, ADAPTER_QUERIES, config.seed)
    if len(logged) < _LOG_ALONE:
        return logged, [], []
    Random(config.seed).shuffle(logged)  # noqa: S311
    count = min(math.ceil(_LOG_HELD_OUT * len(logged)), config.queries)
    held_back = 2 * count if config.adapter else count
    return logged[held_back:], logged[count:held_back], logged[:count]


def _natural(
    documents: Iterable[Source], headings: HeadingCounts, taught: frozenset[str], maximum: int, seed: int
) -> list[SyntheticPair]:
    """Return natural queries that ask for one document: no title of several documents, and no query that teaches."""
    pairs = query_generation.make(documents, seed=seed)
    own = (pair for pair in pairs if normalised(pair.query) not in taught)
    return natural((pair for pair in own if not headings.is_shared(pair.query)), maximum, seed)


def _check_documents(
    retriever: Retriever,
    generated: list[SyntheticPair],
    judging: list[SyntheticPair],
    report: Callable[[str], None],
) -> None:
    """:raises InputError: for queries of too few documents to learn from or to judge."""
    judges = len({pair.document for pair in judging})
    if len({pair.document for pair in generated}) < _MIN_DOCUMENTS or judges < 2:
        raise InputError(
            f"{retriever.path} holds too little to learn from: {len(generated)} queries came from training "
            f"documents and {len(judging)} from held-out ones; expected some dozens of documents with "
            "sentences"
        )
    if judges < _SIGNIFICANT_DOCUMENTS:
        report(f"queries came from {count_of(judges, 'held-out document')}: no gain on so few is significant")
