"""A fault of an index, and the documents that a repair has to drop or to read again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

UNREADABLE = "cannot be read now"
CHANGED = "has changed since it was indexed"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of an index."""

    kind: str  # "document", "passage", "vector", "neighbours", "store", or "vector", "full-text" or "inverted index"
    path: str  # of the document or of the index, or ""
    problem: str


def documents_to_drop(faults: Iterable[Fault]) -> set[str]:
    """The paths of documents with another text in the store than the one that was read.

    A file that cannot be read now is not among them: the stored text may be the last copy.
    """
    return {
        fault.path
        for fault in faults
        if fault.kind in ("passage", "store", "document") and not fault.problem.startswith((UNREADABLE, CHANGED))
    }


def changed_documents(faults: Iterable[Fault]) -> set[str]:
    """The paths of files with other bytes than when they were read."""
    return {fault.path for fault in faults if fault.kind == "document" and fault.problem == CHANGED}
