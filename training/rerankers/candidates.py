"""Find the candidates that a reranker learns on: the passages that the first stage will give it in a search."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from ...core.progress import Progress, ignore
from ...retriever.retriever import Retriever
from ..data.dataset import LEFT_OUT, hash_of, take

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from ...core.progress import OnProgress
    from ...retriever.search.results.hit import Hit
    from ..data.dataset import TrainingSet

_SOURCE = "document_id"  # metadata key of a positive that is indexed on its own: the document it comes from
_BLOCK = 1_000  # rows in memory at a time
_SEARCHED = 250  # queries searched together


@dataclass(frozen=True, slots=True)
class Positive:
    """A text that answers a query, and its location in the index."""

    text: str
    path: str | None  # of its document in the index; None if unknown
    source: str | None = None  # the document of a positive that is indexed on its own
    left_out: bool = False  # in neither part of the data: it is not trained on, and is never a negative


def index_of(folder: Path, documents: Iterable[Mapping[str, Any]], model: str | None) -> Retriever:
    """Index documents (`id`, `title`, `text`), or open the index if they are in it already."""
    retriever = Retriever.open(folder, model=model)
    retriever.add(documents)
    return retriever


def positives(data: TrainingSet) -> Iterator[dict[str, Any]]:
    """Yield each positive as a document to index, with its own document in the metadata."""
    for batch in data.table().to_batches(max_chunksize=_BLOCK):
        for row in batch.to_pylist():
            source = {_SOURCE: row["group"]} if "group" in row else {}
            yield {"id": _name(row["positive"]), "text": row["positive"], "metadata": source}


def _name(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()


def query_numbers(data: TrainingSet, rows: NDArray[np.uint32]) -> NDArray[np.intp]:
    """Return the number of each row's query; queries are numbered in order of first appearance."""
    table = data.table().select([data.texts[0]])
    keys = np.empty(len(rows), np.uint64)
    for start in range(0, len(rows), _BLOCK):
        texts = take(table, rows[start : start + _BLOCK]).column(0).to_pylist()
        keys[start : start + _BLOCK] = [hash_of(text) for text in texts]
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]


class Judged:
    """Queries with their positives, read from disk in small batches.

    A query's positives include rows left out of both parts of the data: they answer it too.

    :param rows: numbers of the rows.
    :param apart: whether the index holds `positives`, and not whole documents by `document_id`.
    """

    def __init__(self, data: TrainingSet, rows: NDArray[np.uint32], *, apart: bool) -> None:
        every = np.union1d(rows, np.flatnonzero(data.part == LEFT_OUT)).astype(np.uint32)
        numbers, is_row = query_numbers(data, every), np.isin(every, rows)
        numbers[~np.isin(numbers, numbers[is_row])] = -1
        order = np.argsort(numbers, kind="stable")[(numbers < 0).sum() :]
        self._table = data.table()
        self._rows, self._numbers, self._left_out = every[order], numbers[order], ~is_row[order]
        self._apart = apart

    def __len__(self) -> int:
        return len(np.unique(self._numbers))

    def __iter__(self) -> Iterator[tuple[str, list[Positive]]]:
        for _, group in groupby(self._read(), itemgetter(0)):
            rows = [row for _, row in group]
            yield rows[0]["query"], list(dict.fromkeys(map(self._positive, rows)))

    def _read(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for start in range(0, len(self._rows), _BLOCK):
            block = slice(start, start + _BLOCK)
            rows = take(self._table, self._rows[block]).to_pylist()
            for number, row, left_out in zip(
                self._numbers[block].tolist(), rows, self._left_out[block].tolist(), strict=True
            ):
                yield number, row | {"left_out": left_out}

    def _positive(self, row: Mapping[str, Any]) -> Positive:
        text, document = row["positive"], row.get("group")
        path, source = (_name(text), document) if self._apart else (document, None)
        return Positive(text, path, source, row["left_out"])


def lists(
    retriever: Retriever,
    judged: Collection[tuple[str, list[Positive]]] | Judged,
    *,
    negatives: int,
    depth: int,
    seed: int,
    as_given: bool = False,
    on_progress: OnProgress = ignore,
) -> Iterator[dict[str, Any]]:
    """Yield a row for each query and positive: the positive's best passage, and negatives drawn from the hits.

    Texts are passages with their headings, as a reranker reads them in a search. A passage from a positive's document
    is never a negative, since it may answer too. A query with fewer than `negatives` other hits gives no row.

    :param depth: number of hits of the first stage.
    :param as_given: learn each positive's own text: the index's passage still holds the sentence that became the query.
    """
    total = len(judged)
    for number, (query, answers, hits) in enumerate(_searched(retriever, judged, depth)):
        if not number % 100:
            on_progress(Progress("finding candidates", number, total))
        wrong = list(dict.fromkeys(hit.context for hit in hits if not _may_answer(hit, answers)))
        if len(wrong) < negatives:
            continue
        for positive in (answer for answer in answers if not answer.left_out):
            generator = np.random.default_rng((seed, number))
            passage = positive.text if as_given else _passage(retriever, hits, positive)
            drawn = generator.choice(len(wrong), negatives, replace=False)
            yield {
                "query": query,
                "positive": passage,
                **{f"negative_{number}": wrong[pick] for number, pick in enumerate(drawn, 1)},
            }


def _searched(
    retriever: Retriever, judged: Iterable[tuple[str, list[Positive]]], depth: int
) -> Iterator[tuple[str, list[Positive], list[Hit]]]:
    """Yield each query with its positives and hits; many queries are searched together, which is faster."""
    rest = iter(judged)
    while block := list(islice(rest, _SEARCHED)):
        hits_of_block = retriever.search_many([query for query, _ in block], depth, collapse=False)
        for (query, answers), hits in zip(block, hits_of_block, strict=True):
            yield query, answers, hits


def _passage(retriever: Retriever, hits: Iterable[Hit], positive: Positive) -> str:
    """Return the passage of a positive as a search gives it, or the positive's own text."""
    same = (hit.context for hit in hits if hit.path == positive.path and _overlap(hit.text, positive.text))
    return next(same, None) or _stored_passage(retriever, positive) or positive.text


def _may_answer(hit: Hit, answers: list[Positive]) -> bool:
    """Check whether a hit comes from the document of a positive, or shares its text."""
    for answer in answers:
        if hit.path == answer.path or (answer.source and hit.metadata.get(_SOURCE) == answer.source):
            return True
    passage, whole = _spaced(hit.text), _spaced(hit.context)
    return any(passage in answer or answer in whole for answer in (_spaced(positive.text) for positive in answers))


def _overlap(left: str, right: str) -> bool:
    """Check whether one text contains the other."""
    left, right = _spaced(left), _spaced(right)
    return left in right or right in left


def _spaced(text: str) -> str:
    """Collapse white space, which readers change."""
    return " ".join(text.split())


def _stored_passage(retriever: Retriever, positive: Positive) -> str | None:
    """Return the first passage of a positive that is not among the hits."""
    snapshot = retriever.snapshot()
    documents = snapshot.document_rows
    numbers = documents.filter(pc.equal(documents["path"], positive.path))["id"].to_pylist() if positive.path else []
    if not numbers:
        return None
    chunks = snapshot.read("chunks", ["id", "text", "context"], f"document = {numbers[0]}").sort_by("id").to_pylist()
    return next((chunk["context"] for chunk in chunks if _overlap(chunk["text"], positive.text)), None)
