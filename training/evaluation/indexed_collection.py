"""The index of a test collection: choose it, fill it, and check that it holds the judged documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.errors import InputError, NoIndexError
from ...core.progress import Progress, at_intervals
from ...retriever.documents.scan import INDEX_NAME
from ..data import beir
from .measures import relevant

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ...core.progress import OnProgress
    from ...retriever.retriever import Retriever
    from .measures import Qrels


def live_index(folder: Path, model: str | None) -> Path | None:
    """Return the index that a folder of documents has already; None for a collection or when a model is named."""
    live = folder / INDEX_NAME
    return live if model is None and not beir.is_collection(folder) and (live / "HEAD.json").is_file() else None


def fill(retriever: Retriever, folder: Path, progress: OnProgress) -> float:
    """Index a collection or a folder and return the seconds that it took; a folder's own index stays unchanged."""
    if not beir.is_collection(folder):
        if retriever.path == (folder / INDEX_NAME).resolve():
            return 0.0
        return retriever.sync(folder, progress=progress).seconds
    _expect_collection(retriever, folder)
    report = retriever.add(_documents(folder, progress))
    if not report.indexed + report.unchanged:
        raise InputError(f"{folder / 'corpus.jsonl'} holds no documents")
    return report.seconds


def _documents(folder: Path, progress: OnProgress) -> Iterator[dict[str, str]]:
    stage, report = f"indexing {folder.name}", at_intervals(progress)
    for number, document in enumerate(beir.documents(folder), 1):
        report(Progress(stage, number, message=f"{stage}: {number:,} documents read"))
        yield document


def _expect_collection(retriever: Retriever, folder: Path) -> None:
    """:raises InputError: when an existing index holds documents of another collection."""
    try:
        indexed = {row["path"] for row in retriever.documents()}
    except NoIndexError:
        return
    strangers = indexed - {document["id"] for document in beir.documents(folder)}
    if strangers:
        raise InputError(
            f"the index at {retriever.path} holds other documents, such as {min(strangers)!r}: "
            "give another with --index"
        )


def count_documents(retriever: Retriever, judged: Qrels) -> int:
    """Count the documents that can be found.

    :raises InputError: when none of them is judged relevant: the ids of documents and judgements may not match.
    """
    indexed = {row["path"] for row in retriever.documents() if row["chunks"]}
    documents = {document for grades in judged.values() for document in relevant(grades)}
    if indexed and not indexed & documents:
        raise InputError(
            f"none of the judged documents, such as {min(documents)!r}, is among those indexed, such as "
            f"{min(indexed)!r}: they must have the same ids"
        )
    return len(indexed)
