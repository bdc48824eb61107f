"""Mend an index: embed wrong vectors anew, drop what is stored wrongly, build both indexes from the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import wrong_vectors as misplaced
from .verify import stored_wrongly, vector_faults

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ...core.progress import OnProgress
    from ..models.encoder import Encoder
    from ..models.identity import EncoderId
    from ..store.writer import Writer
    from .verify import Fault


def mend_vectors(
    writer: Writer,
    encoder_of: Callable[[EncoderId], Encoder],
    *,
    deep: bool,
    found: Callable[[misplaced.VectorCheck], None] | None,
    progress: OnProgress,
) -> list[Fault]:
    """Put right the vectors that changed since the index was published, or `deep` all that are not their texts'.

    :param found: gets what was looked at and found.
    :returns: those vectors, as faults.
    """
    snapshot, head = writer.snapshot(), writer.head
    if deep:
        searched = misplaced.search(snapshot, encoder_of(head.encoder), progress)
    else:
        searched = misplaced.changed(snapshot, lambda: encoder_of(head.encoder))
    if searched.wrong:
        writer.replace_vectors(misplaced.mended(snapshot, searched.wrong), head.encoder, head.previous)
    if found:
        found(searched)
    return list(vector_faults(snapshot, searched.wrong))


def rebuild(writer: Writer, wrong: Iterable[Fault]) -> str:
    """Drop the files whose chunks are faulty, to be read again, and build both indexes anew.

    :returns: a line if the vector index no longer met what was demanded of it.
    """
    faulty = stored_wrongly(wrong)
    rows = [row for row in writer.snapshot().document_rows.to_pylist() if row["path"] in faulty]
    writer.drop_orphans([row["id"] for row in rows if row["source"] == "file"])
    return writer.finish(rebuild=True)
