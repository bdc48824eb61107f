"""Repair an index: embed wrong vectors anew, drop faulty documents, build both indexes from the store."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..indexing.sync.picture_rows import latest_languages
from ..readers.ocr import choose_languages
from .fault import changed_documents, documents_to_drop
from .verify import vector_faults

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ...core.progress import OnProgress
    from ..indexing.report import Report
    from ..models.encoder import Encoder
    from ..models.identity import EncoderId
    from ..store.snapshot import Snapshot
    from ..store.writer import Writer
    from .fault import Fault
    from .wrong_vectors import VectorCheck


@dataclass(frozen=True, slots=True)
class Repair:
    """The result of a repair. `Retriever.verify` finds the faults that remain."""

    faults: list[Fault]  # before the repair
    vectors: VectorCheck
    report: Report | None = None  # of the sync that followed; None if the index has no folder
    notes: tuple[str, ...] = ()  # lines for people: the vector index no longer meets its requirements

    def followed_by(self, report: Report) -> Repair:
        """Add the sync that read the dropped documents again."""
        return replace(self, report=report, notes=(*self.notes, *filter(None, [report.note])))


def repair(
    writer: Writer,
    faults: Iterable[Fault],
    encoder_of: Callable[[EncoderId], Encoder],
    *,
    deep: bool,
    progress: OnProgress,
) -> Repair:
    """Embed wrong vectors anew, drop files with faulty chunks, and build both indexes from the store.

    The next sync reads the dropped files again.

    :param faults: the faults that `verify` found.
    """
    snapshot = writer.snapshot()
    vectors = _mend_vectors(writer, encoder_of, deep=deep, progress=progress)
    faults = [*faults, *vector_faults(snapshot, vectors.wrong)]
    note = _rebuild(writer, faults)
    return Repair(faults, vectors, notes=tuple(filter(None, [note])))


def languages_of_dropped(snapshot: Snapshot, faults: Iterable[Fault]) -> str:
    """The languages that OCR read the pictures of dropped files in; "" if it read none.

    :raises InputError: when Tesseract cannot read these languages now: their text would be lost.
    """
    faults = list(faults)
    paths = documents_to_drop(faults) | changed_documents(faults)
    languages = latest_languages(row for row in snapshot.document_rows.to_pylist() if row["path"] in paths)
    return choose_languages(languages) if languages else ""


def _mend_vectors(
    writer: Writer, encoder_of: Callable[[EncoderId], Encoder], *, deep: bool, progress: OnProgress
) -> VectorCheck:
    """Embed anew the vectors that changed since the index was published, or if `deep` all wrong ones."""
    from . import wrong_vectors

    snapshot, head = writer.snapshot(), writer.head
    if deep:
        check = wrong_vectors.search(snapshot, encoder_of(head.encoder), progress)
    else:
        check = wrong_vectors.changed(snapshot, lambda: encoder_of(head.encoder))
    if check.wrong:
        writer.replace_vectors(wrong_vectors.replace(snapshot, check.wrong), head.encoder, head.previous)
    return check


def _rebuild(writer: Writer, faults: Iterable[Fault]) -> str:
    """Drop files with faulty chunks, and build both indexes anew.

    A changed file stays until the next sync. This compares its bytes even if its time is the same.

    :returns: a line if the vector index no longer meets its requirements.
    """
    from ..indexing.sync.sync import rewrite_rows

    faults = list(faults)
    dropped, changed = documents_to_drop(faults), changed_documents(faults)
    rows = [row for row in writer.snapshot().document_rows.to_pylist() if row["source"] == "file"]
    writer.drop_orphans([row["id"] for row in rows if row["path"] in dropped])
    rewrite_rows(writer, [{**row, "settled": False} for row in rows if row["path"] in changed - dropped])
    return writer.finish(rebuild=True)
