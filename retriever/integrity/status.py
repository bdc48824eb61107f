"""Measure an index: documents, bytes, encoder, vector index."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from ..documents.document import is_in_part
from ..indexing.vector_log import logged_vectors
from ..models.load import prompts_here
from ..search.words.documents_language import unread_language
from ..store import erasure
from ..store.commits import SWITCHING
from ..store.locations.folder_location import folder_size
from ..store.records import facets
from ..store.stored_heads import read_heads, unlabelled, with_keys
from ..store.tables import PREVIOUS

if TYPE_CHECKING:
    from pathlib import Path

    from ..store.snapshot import Snapshot


_VALUES = 10  # of a key that is filled, the most frequent


@dataclass(frozen=True, slots=True)
class Status:
    """The measurements of an index."""

    path: str
    folder: str | None
    folders: list[str]  # of a collection: folders and files; else that folder
    exclude: list[str]  # patterns of files that are left out, as in .gitignore
    ocr: str  # the languages of OCR, as Tesseract names them; "": pictures are not read
    model: str
    base: str | None  # the encoder that `model` adapts, if it is an adapter
    fingerprint: str
    dim: int
    prompts: dict[str, str] | None  # before texts, "query" and "document"; None if the model is not here or not trusted
    passage_tokens: int | None  # of the longest passage, if the encoder reads more; None: as many as it reads
    switching: dict[str, Any] | None  # of an unfinished `switch`: its encoder, its texts, and the embedded ones
    documents: dict[str, int]  # by state; forgotten files are counted without their names
    in_part: int  # indexed documents with a part that was not read
    chunks: int
    unread_language: str | None  # of most of the text, if the encoder is for English and that is in another language
    bytes: int
    vector_index: str | None
    vector_kind: dict[str, Any] | None  # its kind, parameters, bytes and measured recall and latency
    damage: str | None  # its damage, if any: search is exact until it is built anew
    newer_rows: int  # not in the vector index yet: searched exactly
    deleted_rows: int  # still in the vector index: masked
    relevance: dict[str, float | None]  # of "nothing answers this": both errors, and on how many passages (0: not here)
    previous: dict[str, Any] | None  # the encoder that `rollback` would restore, and its vectors
    labels: list[dict[str, Any]]  # of each key that `enrich` fills: the head, the counts, documents without it yet
    erase_by: str | None  # when deleted rows must have left the disk, UTC; None if nothing waits


def measure(snapshot: Snapshot, folder: Path | None) -> Status:
    """Measure an index.

    :param folder: the folder it is synced with, if any.
    """
    encoder, settings = snapshot.head.encoder, snapshot.store.read_settings().settings
    states = {"indexed": 0, "skipped": 0, "failed": 0}
    for state in snapshot.document_rows["state"].to_pylist():
        states[state] = states.get(state, 0) + 1
    states["forgotten"] = len(snapshot.tombstones)
    index = snapshot.index
    return Status(
        path=str(snapshot.store.location),
        folder=str(folder) if folder else None,
        folders=(list(settings.folders) or [str(folder)]) if folder else [],
        exclude=list(settings.exclude),
        ocr=settings.ocr,
        model=encoder.model,
        base=encoder.base or None,
        fingerprint=encoder.fingerprint,
        dim=encoder.dim,
        prompts=prompts_here(encoder.base or encoder.model) if snapshot.store.trusted else None,
        passage_tokens=encoder.passage_tokens or None,
        switching=_switching(snapshot),
        documents=states,
        in_part=sum(map(is_in_part, snapshot.document_rows.select(["state", "reason"]).to_pylist())),
        chunks=snapshot.chunks.count_rows(),
        unread_language=unread_language(snapshot),
        bytes=snapshot.store.location.size(),
        vector_index=snapshot.head.vectors,
        vector_kind=_kind(snapshot),
        damage=str(snapshot.damage) if snapshot.damage else None,
        newer_rows=0 if index.unindexed is None else len(index.unindexed.ids),
        deleted_rows=0 if index.live_mask is None else int((~index.live_mask).sum()),
        relevance={name: getattr(snapshot.scale, name) for name in ("answered", "refused", "passages")},
        previous=_previous(snapshot),
        labels=_labels(snapshot),
        erase_by=_erase_by(snapshot),
    )


def _labels(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Return a row for each key that a head fills."""
    rows = []
    for head in read_heads(snapshot.store.location).values():
        waiting = len(unlabelled(snapshot, head))
        for key in head.keys:
            is_there = bool(with_keys(snapshot, [key]).any())
            facet = facets(snapshot, [key], None, _VALUES)[key] if is_there else None
            counts = [list(pair) for pair in facet.counts] if facet else []
            labelled, distinct = (facet.documents, facet.distinct) if facet else (0, 0)
            source = {"model": head.model} if head.model else {"names": list(head.names)}
            rows.append(
                {"key": key, **source, "labelled": labelled, "waiting": waiting, "distinct": distinct, "counts": counts}
            )
    return rows


def _erase_by(snapshot: Snapshot) -> str | None:
    moment = erasure.due(snapshot.store.location)
    if moment is None:
        return None
    with contextlib.suppress(ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds")
    return "never"


def _kind(snapshot: Snapshot) -> dict[str, Any] | None:
    published = snapshot.published
    if published is None:
        return None
    size = sum(folder_size(snapshot.store.location.vectors(name)) for name in snapshot.head.parts)
    fields = {name: getattr(published, name) for name in ("kind", "metric", "build", "search")}
    return {**fields, "measured": published.measurements, "count": published.count, "bytes": size}


def _switching(snapshot: Snapshot) -> dict[str, Any] | None:
    """Measure a switch that runs, or was interrupted."""
    log, head = logged_vectors(snapshot.store.path / SWITCHING), snapshot.head
    if log is None or log.fingerprint == head.encoder.fingerprint:
        return None
    is_previous = head.previous is not None and head.previous.fingerprint == log.fingerprint
    keys = snapshot.read("chunks", ["key"], f"{PREVIOUS} IS NULL" if is_previous else None)["key"].to_numpy()
    return {
        "model": log.model,
        "fingerprint": log.fingerprint,
        "embedded": log.count,
        "texts": int(np.unique(keys).size),
    }


def _previous(snapshot: Snapshot) -> dict[str, Any] | None:
    before = snapshot.head.encoder.without_adapter or snapshot.head.previous
    if before is None:
        return None
    is_adapted = snapshot.head.encoder.without_adapter is not None
    vectors = 0 if is_adapted else snapshot.count_previous()
    return {
        "model": before.model,
        "fingerprint": before.fingerprint,
        "dim": before.dim,
        "vectors": vectors,
        "bytes": 4 * before.dim * vectors,
    }
