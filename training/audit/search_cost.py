"""Measure a defence's cost: nDCG@10 of exact search over the defended vectors of an index's own passages.

The queries come from a labelled collection, or are generated from the documents without labels: sentences with deleted
words, keywords, terms and titles. Generated queries are easier than people's, so they show the lowest cost.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.errors import InputError
from ...core.progress import Progress
from ...retriever.store.tables import matrix
from ..data import source_documents as corpus
from ..evaluation import retrieval
from ..evaluation.measures import values
from ..tuning.queries import query_generation
from . import defences
from .config import GENERATED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...core.arrays import Floats, Ids, Integers
    from ...core.progress import OnProgress
    from ...retriever.models.defences import Defence
    from ...retriever.models.encoder import Encoder
    from ...retriever.retriever import Retriever
    from ...retriever.store.snapshot import Snapshot
    from .config import AuditConfig
    from .defences import DefenceSetting


KINDS = ("dropped", "keywords", "definition", "title")
_QUERIES = 300  # generated from the documents
_SEARCHED_PASSAGES = 100_000  # at most: 150 MB of vectors of 384 dimensions
_QUERIED_PASSAGES = 20_000  # that queries are generated from


@dataclass(frozen=True, slots=True)
class Queries:
    """Queries with their judgements."""

    source: str
    texts: dict[str, str]
    judged: dict[str, dict[str, int]]  # query to document path to grade


@dataclass(frozen=True, slots=True)
class SearchedPassages:
    """The index's own passages and vectors; the passages of a document are neighbours."""

    paths: list[str]  # of the documents, in order
    first: Integers  # the position of each document's first passage
    contexts: list[str]
    vectors: Floats


def judged_queries(folder: str | Path, split: str, snapshot: Snapshot) -> Queries:
    """Read the queries and judgements of a folder in BEIR's layout; `corpus.jsonl` is not needed.

    :raises InputError: when no judged document is in the index.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}: expected one with queries.jsonl and qrels/{split}.tsv")
    texts, judged = retrieval.judged_queries(folder, split, folder / "queries.jsonl", folder / "qrels" / f"{split}.tsv")
    indexed = set(snapshot.document_rows["path"].to_pylist())
    relevant = {document for grades in judged.values() for document, grade in grades.items() if grade > 0}
    if not indexed & relevant:
        raise InputError(
            f"none of the documents that {folder} judges, such as {min(relevant)!r}, is in the index, which holds "
            f"such as {min(indexed, default='none')!r}: give the queries of this index, or none to have them made"
        )
    return Queries(f"{folder.name} {split}", {name: texts[name] for name in judged}, judged)


def generated_queries(snapshot: Snapshot, count: int, seed: int) -> Queries:
    """Generate at most `count` queries; each has one relevant document, its source.

    :raises InputError: when the documents give none.
    """
    sources = corpus.sample(corpus.from_index(snapshot), _QUERIED_PASSAGES, seed)
    pairs = query_generation.sample(query_generation.make(sources, seed=seed, kinds=KINDS), count, seed)
    if not pairs:
        raise InputError(
            f"no query could be made from the documents of {snapshot.store.path}: expected some with sentences of five "
            "words and more; or give queries and judgements of your own"
        )
    numbered = {f"{number}": pair for number, pair in enumerate(pairs)}
    return Queries(
        GENERATED,
        {name: pair.query for name, pair in numbered.items()},
        {name: {pair.document: 1} for name, pair in numbered.items()},
    )


def sample_passages(snapshot: Snapshot, queries: Queries, seed: int) -> SearchedPassages:
    """Read all passages; of a large index only the judged documents' and a random sample."""
    rows = snapshot.document_rows.to_pylist()
    by_id = {row["id"]: row for row in rows if row["chunks"]}
    sample = _chosen(by_id, {document for grades in queries.judged.values() for document in grades}, seed)
    owners: list[int] = []
    contexts: list[str] = []
    vectors = []
    for batch in snapshot.batches(["document", "context", "vector"]):
        mask = np.isin(batch["document"].to_numpy(), sample)
        owners += batch["document"].to_numpy()[mask].tolist()
        contexts += [text for text, is_chosen in zip(batch["context"].to_pylist(), mask, strict=True) if is_chosen]
        vectors.append(matrix(batch["vector"], snapshot.head.encoder.dim)[mask])
    if not owners:
        raise InputError(f"{snapshot.store.path} holds no passages: 'binocle index' fills it")
    first = np.flatnonzero(np.diff(owners, prepend=-1))  # a document's chunks have neighbouring ids
    return SearchedPassages(
        [by_id[owners[position]]["path"] for position in first], first, contexts, np.concatenate(vectors)
    )


def _chosen(by_id: dict[int, dict[str, Any]], judged: set[str], seed: int) -> Ids:
    """Choose documents with at most `_SEARCHED_PASSAGES` passages, judged documents first, the rest at random."""
    order = np.random.default_rng(seed).permutation(np.array(list(by_id), np.int64))
    order = np.array(sorted(order.tolist(), key=lambda number: by_id[number]["path"] not in judged), np.int64)
    totals = np.cumsum([by_id[number]["chunks"] for number in order.tolist()])
    return order[: max(1, int(np.searchsorted(totals, _SEARCHED_PASSAGES, "right")))]


def encode_queries(queries: Queries, encoder: Encoder) -> Floats:
    """Shape (queries, dim), in the order of `texts`."""
    return encoder.encode(list(queries.texts.values()), kind="query")


def ndcg(queries: Queries, query_vectors: Floats, stored: Floats, passages: SearchedPassages) -> dict[str, float]:
    """Return nDCG@10 of each query over all passages; a document ranks by its best passage.

    :param stored: the vectors of `passages` with a defence.
    """
    run = {}
    for name, vector in zip(queries.texts, query_vectors, strict=True):
        best = np.maximum.reduceat(stored @ vector, passages.first)
        top = np.argsort(-best, kind="stable")[:10].tolist()
        run[name] = [(passages.paths[position], float(best[position])) for position in top]
    return values(queries.judged, run)["nDCG@10"]


@dataclass(frozen=True, slots=True)
class DefendedSearch:
    """The search over an index's passages with any of the audited defences."""

    queries: Queries
    query_vectors: Floats
    passages: SearchedPassages
    fitted: dict[str, Defence]  # setting -> defence fitted to the index's vectors

    @classmethod
    def of(
        cls,
        retriever: Retriever,
        config: AuditConfig,
        settings: Sequence[DefenceSetting],
        on_progress: OnProgress,
    ) -> DefendedSearch:
        """Read or generate the queries, and fit the defences to the passages."""
        snapshot, seed = retriever.snapshot(), config.seed
        if config.queries is None:
            on_progress(Progress("making queries from the documents"))
            queries = generated_queries(snapshot, _QUERIES, seed)
        else:
            on_progress(Progress("reading the queries"))
            queries = judged_queries(config.queries, config.split, snapshot)
        on_progress(Progress("fitting the defences to the passages"))
        passages = sample_passages(snapshot, queries, seed)
        key = hashlib.sha256(f"audit {seed}".encode()).digest()
        fitted = {setting.name: defences.fit(setting, passages.vectors, key) for setting in settings}
        return cls(queries, encode_queries(queries, retriever.encoder), passages, fitted)

    def stored(self, name: str) -> Floats:
        """Return the vectors of the passages with the defence of that name."""
        return self.fitted[name].documents(self.passages.vectors, self.passages.contexts)

    def ndcg(self, name: str) -> Floats:
        """Return nDCG@10 of each query with the defence of that name."""
        queries = self.fitted[name].queries(self.query_vectors)
        by_query = ndcg(self.queries, queries, self.stored(name), self.passages)
        return np.array(list(by_query.values()))
