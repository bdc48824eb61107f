"""What a reranker learns on: for each query the passages that the first stage puts before it, as it will meet them."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby
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
    from ...retriever.search.hit import Hit
    from ..data.dataset import TrainingSet

_SOURCE = "document_id"  # in the metadata of a positive that is indexed by itself: the document that it is from
_BLOCK = 1_000  # rows in memory at a time


@dataclass(frozen=True, slots=True)
class Positive:
    """A text that answers a query, and where in the index it is."""

    text: str
    path: str | None  # of the document that it is, or is a part of; None where that is not known
    source: str | None = None  # the document that it is from, where positives are indexed by themselves
    left_out: bool = False  # whether it is of neither part of the data: then it is no negative, but has no row either


def index_of(folder: Path, documents: Iterable[Mapping[str, Any]], model: str | None) -> Retriever:
    """An index of these documents, made once: `id`, `title` and `text`."""
    retriever = Retriever.open(folder, model=model)
    retriever.add(documents)
    return retriever


def positives(given: TrainingSet) -> Iterator[dict[str, Any]]:
    """Each positive as a document to index: those of one document stay apart, and it is told in each."""
    for batch in given.table().to_batches(max_chunksize=_BLOCK):
        for row in batch.to_pylist():
            source = {_SOURCE: row["group"]} if "group" in row else {}
            yield {"id": _name(row["positive"]), "text": row["positive"], "metadata": source}


def _name(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()


def query_numbers(given: TrainingSet, rows: NDArray[np.uint32]) -> NDArray[np.intp]:
    """For each of these rows the number of its query; queries are numbered as they first come."""
    table = given.table().select([given.texts[0]])
    keys = np.empty(len(rows), np.uint64)
    for start in range(0, len(rows), _BLOCK):
        texts = take(table, rows[start : start + _BLOCK]).column(0).to_pylist()
        keys[start : start + _BLOCK] = [hash_of(text) for text in texts]
    _, first, places = np.unique(keys, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[places]


class Judged:
    """Queries, each with its positives, from rows that stay on disk.

    Their positives in rows that are left out of both parts of the data are among them: they answer all the same.

    :param rows: which, by number.
    :param apart: whether the index is that of `positives`, and not one of documents that are called by `document_id`.
    """

    def __init__(self, given: TrainingSet, rows: NDArray[np.uint32], *, apart: bool) -> None:
        every = np.union1d(rows, np.flatnonzero(given.part == LEFT_OUT)).astype(np.uint32)
        numbers, asked = query_numbers(given, every), np.isin(every, rows)
        numbers[~np.isin(numbers, numbers[asked])] = -1
        order = np.argsort(numbers, kind="stable")[(numbers < 0).sum() :]
        self._table = given.table()
        self._rows, self._numbers, self._left_out = every[order], numbers[order], ~asked[order]
        self._apart = apart

    def __len__(self) -> int:
        return len(np.unique(self._numbers))

    def __iter__(self) -> Iterator[tuple[str, list[Positive]]]:
        for _, some in groupby(self._read(), itemgetter(0)):
            rows = [row for _, row in some]
            yield rows[0]["query"], list(dict.fromkeys(map(self._positive, rows)))

    def _read(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for start in range(0, len(self._rows), _BLOCK):
            some = slice(start, start + _BLOCK)
            rows = take(self._table, self._rows[some]).to_pylist()
            for number, row, left_out in zip(
                self._numbers[some].tolist(), rows, self._left_out[some].tolist(), strict=True
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
    on_progress: OnProgress = ignore,
) -> Iterator[dict[str, Any]]:
    """A row for each query and positive: its best passage in the index, and others drawn from the best found.

    Texts are the passages with their headings, which is what a reranker is given in a search. What is from the
    document of a positive is never a negative: it may answer as well. A query that finds fewer than `negatives` others
    gives no row.

    :param depth: passages that the first stage finds.
    """
    total = len(judged)
    for number, (query, answers) in enumerate(judged):
        if not number % 100:
            on_progress(Progress("finding candidates", number, total))
        hits = retriever.search(query, depth)
        others = list(dict.fromkeys(hit.context for hit in hits if not _may_answer(hit, answers)))
        if len(others) < negatives:
            continue
        for one in (one for one in answers if not one.left_out):
            generator = np.random.default_rng((seed, number))
            own = next((hit.context for hit in hits if hit.path == one.path and _overlap(hit.text, one.text)), None)
            drawn = generator.choice(len(others), negatives, replace=False)
            yield {
                "query": query,
                "positive": own or _unfound(retriever, one) or one.text,
                **{f"negative_{place + 1}": others[pick] for place, pick in enumerate(drawn)},
            }


def _may_answer(hit: Hit, answers: list[Positive]) -> bool:
    if any(hit.path == one.path or (one.source and hit.metadata.get(_SOURCE) == one.source) for one in answers):
        return True
    passage, whole = _spaced(hit.text), _spaced(hit.context)
    return any(passage in answer or answer in whole for answer in (_spaced(one.text) for one in answers))


def _overlap(one: str, other: str) -> bool:
    """Whether one text holds the other."""
    one, other = _spaced(one), _spaced(other)
    return one in other or other in one


def _spaced(text: str) -> str:
    """A text with single spaces: readers change them."""
    return " ".join(text.split())


def _unfound(retriever: Retriever, one: Positive) -> str | None:
    """The first passage of a positive that the search did not find."""
    snapshot = retriever.snapshot()
    documents = snapshot.document_rows
    numbers = documents.filter(pc.equal(documents["path"], one.path))["id"].to_pylist() if one.path else []
    if not numbers:
        return None
    chunks = snapshot.read("chunks", ["id", "text", "context"], f"document = {numbers[0]}").sort_by("id").to_pylist()
    return next((chunk["context"] for chunk in chunks if _overlap(chunk["text"], one.text)), None)
