"""What a defence costs: nDCG@10 of exact search over the defended vectors of an index's own passages.

Queries are a labelled collection's, or made from the documents (`pairs`), when nothing needs to be labelled: words left
out of a sentence, telling words, terms, titles. Those are easier than people's queries, and what a defence costs on
them is the least that it costs.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.errors import InputError
from ...retriever.store.tables import matrix
from ..data import documents as corpus
from ..evaluation.measures import values
from ..evaluation.retrieval import questions
from ..tuning import query_generation as pairs
from . import defences

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ...core.arrays import Floats
    from ...retriever.models.defences import Defence
    from ...retriever.models.encoder import Encoder
    from ...retriever.retriever import Retriever
    from ...retriever.store.snapshot import Snapshot
    from ..runs.progress import Tell
    from .config import AuditConfig
    from .defences import Setting


KINDS = ("dropped", "keywords", "definition", "title")
_QUERIES = 300  # made from the documents
_MOST = 100_000  # passages that are searched: 150 MB of vectors of 384 dimensions
_ENOUGH = 20_000  # passages that queries are made from


@dataclass(frozen=True, slots=True)
class Queries:
    """`source` says where they are from; `judged` is query to document to grade, documents by their paths."""

    source: str
    texts: dict[str, str]
    judged: dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class Passages:
    """The index's own passages and vectors, a document's next to each other."""

    paths: list[str]  # of the documents, in order
    first: NDArray[np.int64]  # where the passages of each begin
    contexts: list[str]
    vectors: Floats


def labelled(folder: str | Path, split: str, snapshot: Snapshot) -> Queries:
    """Queries and judgements of a folder in BEIR's layout, of which `corpus.jsonl` is not needed.

    :raises InputError: when none of the judged documents is in the index.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}: expected one with queries.jsonl and qrels/{split}.tsv")
    texts, judged = questions(folder, split, folder / "queries.jsonl", folder / "qrels" / f"{split}.tsv")
    held = set(snapshot.document_rows["path"].to_pylist())
    relevant = {document for grades in judged.values() for document, grade in grades.items() if grade > 0}
    if not held & relevant:
        raise InputError(
            f"none of the documents that {folder} judges, such as {min(relevant)!r}, is in the index, which holds "
            f"such as {min(held, default='none')!r}: give the queries of this index, or none to have them made"
        )
    return Queries(f"{folder.name} {split}", {name: texts[name] for name in judged}, judged)


def made(snapshot: Snapshot, most: int, seed: int) -> Queries:
    """Queries made from the documents; each is to find the document that it was made from.

    :raises InputError: when the documents give none.
    """
    sources = corpus.few(corpus.from_index(snapshot), _ENOUGH, seed)
    chosen = pairs.sample(pairs.make(sources, seed=seed, kinds=KINDS), most, seed)
    if not chosen:
        raise InputError(
            f"no query could be made from the documents of {snapshot.store.path}: expected some with sentences of five "
            "words and more; or give queries and judgements of your own"
        )
    numbered = {f"{number}": pair for number, pair in enumerate(chosen)}
    return Queries(
        "made from the documents",
        {name: pair.query for name, pair in numbered.items()},
        {name: {pair.document: 1} for name, pair in numbered.items()},
    )


def passages(snapshot: Snapshot, queries: Queries, seed: int) -> Passages:
    """All passages or, of a large index, those of the judged documents and of some others."""
    rows = snapshot.document_rows.to_pylist()
    held = {row["id"]: row for row in rows if row["chunks"]}
    chosen = _chosen(held, {document for grades in queries.judged.values() for document in grades}, seed)
    owners: list[int] = []
    contexts: list[str] = []
    vectors = []
    for batch in snapshot.batches(["document", "context", "vector"]):
        mask = np.isin(batch["document"].to_numpy(), chosen)
        owners += batch["document"].to_numpy()[mask].tolist()
        contexts += [text for text, kept in zip(batch["context"].to_pylist(), mask, strict=True) if kept]
        vectors.append(matrix(batch["vector"], snapshot.head.encoder.dim)[mask])
    if not owners:
        raise InputError(f"{snapshot.store.path} holds no passages: 'binocle index' fills it")
    changes = np.flatnonzero(np.diff(owners, prepend=-1))  # a document's chunks have neighbouring ids
    return Passages([held[owners[place]]["path"] for place in changes], changes, contexts, np.concatenate(vectors))


def _chosen(held: dict[int, dict[str, Any]], needed: set[str], seed: int) -> NDArray[np.int64]:
    order = np.random.default_rng(seed).permutation(np.array(list(held), np.int64))
    order = np.array(sorted(order.tolist(), key=lambda number: held[number]["path"] not in needed), np.int64)
    reach = np.cumsum([held[number]["chunks"] for number in order.tolist()])
    return order[: max(1, int(np.searchsorted(reach, _MOST, "right")))]


def encoded(queries: Queries, encoder: Encoder) -> Floats:
    """Shape (queries, dim), in the order of `texts`."""
    return encoder.encode(list(queries.texts.values()), kind="query")


def ndcg(queries: Queries, asked: Floats, stored: Floats, searched: Passages) -> dict[str, float]:
    """nDCG@10 of each query, every passage compared; a document ranks where its best passage does."""
    run = {}
    for name, vector in zip(queries.texts, asked, strict=True):
        best = np.maximum.reduceat(stored @ vector, searched.first)
        top = np.argsort(-best, kind="stable")[:10].tolist()
        run[name] = [(searched.paths[place], float(best[place])) for place in top]
    return values(queries.judged, run)["nDCG@10"]


@dataclass(frozen=True, slots=True)
class DefendedSearch:
    """The search over an index's passages whose quality each of several defences costs."""

    queries: Queries
    asked: Floats
    passages: Passages
    fitted: dict[str, Defence]  # setting -> defence fitted to the index's vectors

    @classmethod
    def of(cls, retriever: Retriever, config: AuditConfig, settings: Sequence[Setting], tell: Tell) -> DefendedSearch:
        snapshot, seed = retriever.snapshot(), config.seed
        tell("making queries from the documents" if config.queries is None else "reading the queries")
        queries = (
            made(snapshot, _QUERIES, seed)
            if config.queries is None
            else labelled(config.queries, config.split, snapshot)
        )
        tell("fitting the defences to the passages")
        searched = passages(snapshot, queries, seed)
        key = hashlib.sha256(f"audit {seed}".encode()).digest()
        fitted = {setting.name: defences.make(setting, searched.vectors, key) for setting in settings}
        return cls(queries, encoded(queries, retriever.encoder), searched, fitted)

    def ndcg(self, name: str) -> Floats:
        """Of each query with that defence."""
        defence = self.fitted[name]
        stored = defence.documents(self.passages.vectors, self.passages.contexts)
        found = ndcg(self.queries, defence.queries(self.asked), stored, self.passages)
        return np.array(list(found.values()))
