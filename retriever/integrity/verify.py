"""Verify an index: its passages against the documents of today, its parts against each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...core.progress import OnProgress, ignore
from ..documents.document import HIDDEN, hidden_spans
from ..indexing.sync.reader_versions import is_outdated
from .document_faults import concealed_in, document_faults
from .fault import Fault
from .index_faults import index_faults

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from ..models.encoder import Encoder
    from ..models.identity import EncoderId
    from ..store.snapshot import Snapshot
    from .wrong_vectors import VectorCheck, WrongVector


@dataclass(frozen=True, slots=True)
class HiddenText:
    """The number of passages with text that a person does not see, and of their documents."""

    passages: int
    documents: int


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of verifying an index."""

    faults: list[Fault]
    vectors: VectorCheck | None  # only of a deep verification
    hidden: HiddenText
    outdated: int  # documents that an earlier version of their reader read; the next run of `index` reads them again


def verify(
    snapshot: Snapshot,
    root: Path | None,
    encoder_of: Callable[[EncoderId], Encoder],
    *,
    deep: bool = False,
    progress: OnProgress = ignore,
) -> Verification:
    """Find the faults of a snapshot.

    :param root: the indexed folder, None if only documents were added.
    :param deep: also look for vectors that do not belong to their texts; a few per cent are embedded for that.
    """
    stored = list(faults(snapshot, root))
    hidden = _hidden_text(snapshot)
    outdated = sum(map(is_outdated, snapshot.document_rows.to_pylist()))
    if not deep:
        return Verification(stored, None, hidden, outdated)
    from .wrong_vectors import search  # few programs compare vectors with their texts

    vectors = search(snapshot, encoder_of(snapshot.head.encoder), progress)
    return Verification([*stored, *vector_faults(snapshot, vectors.wrong)], vectors, hidden, outdated)


def faults(snapshot: Snapshot, root: Path | None) -> Iterator[Fault]:
    """Read each document anew, and check the text, key, lines and vector of each chunk.

    :param root: the indexed folder, None when only documents were added.
    """
    snapshot.check_pages()
    rows = snapshot.document_rows.to_pylist()
    if snapshot.fallback:
        yield Fault("store", "", snapshot.fallback)
    yield from index_faults(snapshot, rows)
    yield from document_faults(snapshot, root, rows)


def _hidden_text(snapshot: Snapshot) -> HiddenText:
    rows = snapshot.document_rows.to_pylist()
    concealed = {row["id"]: concealed_in(row) for row in rows if row["source"] == "file" and HIDDEN in row["metadata"]}
    passages = [
        number
        for batch in snapshot.batches(["document", "char_start", "text"])
        for number, start, text in zip(*(column.to_pylist() for column in batch), strict=True)
        if (number in concealed or not text.isascii()) and hidden_spans(concealed.get(number), start, text)
    ]
    return HiddenText(len(passages), len(set(passages)))


def vector_faults(snapshot: Snapshot, wrong: Iterable[WrongVector]) -> Iterator[Fault]:
    """Wrong vectors as faults."""
    paths = dict(zip(*(snapshot.document_rows[name].to_pylist() for name in ("id", "path")), strict=True))
    for row in wrong:
        label = f"passage {row.chunk} (characters {row.char_start} to {row.char_end})"
        problem = f"{label} has a vector that its text does not have (cosine {row.cosine:.4f})"
        yield Fault("vector", paths.get(row.document, f"document {row.document}"), problem)
