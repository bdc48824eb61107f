"""What a reranker learns on: for each query the passages that the first stage puts before it, as it will meet them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..indexes.errors import InputError
from ..retriever.retriever import Retriever

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from ..retriever.query import Hit


def index_of(folder: Path, documents: Iterable[Mapping[str, Any]], model: str | None) -> Retriever:
    """An index of these documents, made once: `id`, `title` and `text`."""
    retriever = Retriever.open(folder, model=model)
    retriever.add(documents)
    return retriever


def lists(
    retriever: Retriever,
    judged: Mapping[str, Mapping[str, str]],
    *,
    negatives: int,
    depth: int,
    seed: int,
    mode: str = "hybrid",
    tell: Callable[[int], None] | None = None,
) -> Iterator[dict[str, Any]]:
    """A row for each query and relevant document: the document's best passage, and others drawn from the best found.

    Texts are the passages with their headings, which is what a reranker is given in a search. A query that finds
    fewer than `negatives` others gives none.

    :param judged: query -> path or id of each relevant document -> its text, in case the index does not hold it.
    :param depth: passages that the first stage finds.
    """
    for number, (query, relevant) in enumerate(judged.items()):
        if tell and not number % 100:
            tell(number)
        hits = retriever.search(query, depth, mode=mode)
        contexts = _contexts(retriever, hits)
        others = [
            text
            for hit, text in zip(hits, contexts, strict=True)
            if hit.path not in relevant and not any(hit.text in one or one in text for one in relevant.values())
        ]
        others = list(dict.fromkeys(others))
        if len(others) < negatives:
            continue
        for path, given in relevant.items():
            generator = np.random.default_rng((seed, number))
            own = next((text for hit, text in zip(hits, contexts, strict=True) if hit.path == path), None)
            drawn = generator.choice(len(others), negatives, replace=False)
            yield {
                "query": query,
                "positive": own or _first(retriever, path) or given,
                **{f"negative_{place + 1}": others[pick] for place, pick in enumerate(drawn)},
                "document_id": path,
            }


def _contexts(retriever: Retriever, hits: list[Hit]) -> list[str]:
    rows = retriever.snapshot().chunks_by_id([hit.chunk for hit in hits], ["context"])
    return [rows[hit.chunk]["context"] for hit in hits]


def _first(retriever: Retriever, path: str) -> str | None:
    """The first passage of a document that was not found."""
    snapshot = retriever.snapshot()
    owners = snapshot.document_rows
    places = np.flatnonzero(np.array(owners["path"].to_pylist()) == path)
    if not len(places):
        return None
    number = owners["id"][int(places[0])].as_py()
    chunks = snapshot.chunk_ids
    own = chunks["id"].to_numpy()[chunks["document"].to_numpy() == number]
    if not len(own):
        return None
    first = int(own.min())
    text: str = snapshot.chunks_by_id([first], ["context"])[first]["context"]
    return text


def judged(rows: Iterable[tuple[str, Mapping[str, Any]]]) -> tuple[dict[str, dict[str, str]], list[dict[str, str]]]:
    """Queries with their relevant documents, and those documents to index, from rows (query, positive, document_id).

    :raises InputError: when there is no row.
    """
    relevant: dict[str, dict[str, str]] = {}
    documents: dict[str, str] = {}
    names: dict[str, str] = {}
    for _, row in rows:
        text = str(row["positive"])
        name = str(row.get("document_id") or names.setdefault(text, f"d{len(names)}"))
        relevant.setdefault(str(row["query"]), {})[name] = text
        documents.setdefault(name, text)
    if not relevant:
        raise InputError("the data hold no pairs of a query and a positive")
    return relevant, [{"id": name, "text": text} for name, text in documents.items()]
