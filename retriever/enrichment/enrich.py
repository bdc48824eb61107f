"""Fill keys of the documents' metadata by heads, take them out again, and fill them for new and changed documents.

Some thousand documents are committed at a time. The next call or sync goes on where a killed run stopped.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.checks import precision_of
from ...core.errors import BinocleError, InputError
from ...core.files import expand_home
from ...core.progress import Progress, ignore
from ...core.words import encodable
from ..documents.document import metadata_of
from ..indexing.sync.sync import rewrite_rows
from ..store.filters.fields import BUILT_IN
from ..store.stored_heads import StoredHead, read_heads, store_heads, unlabelled, with_keys
from .labellers import DocumentPassages, load_labeller, load_stored

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ...core.arrays import Ids
    from ...core.progress import OnProgress
    from ..models.encoder import Encoder
    from ..store.snapshot import Snapshot
    from ..store.writer import Writer
    from .labellers import Labeller

_PASSAGES = 4_096  # labelled and committed together


@dataclass(slots=True)
class EnrichReport:
    """The counts of documents that got values under each key, and that lost values."""

    labelled: dict[str, int] = field(default_factory=dict)
    removed: dict[str, int] = field(default_factory=dict)
    encoded: list[str] = field(default_factory=list)  # keys of models that read passages instead of vectors
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return the report for JSON."""
        return asdict(self)


def enrich(
    writer: Writer,
    encoder: Encoder,
    heads: Sequence[StoredHead],
    remove: Sequence[str] = (),
    progress: OnProgress = ignore,
) -> EnrichReport:
    """Let heads fill their keys in all documents with passages, and keep filling them in later syncs.

    :param heads: new heads, from `new_head`. The heads of the index also run, on documents without their values.
    :param remove: keys of heads to take out, with their values.
    :raises InputError: before anything is changed, for a head that does not fit, or a stored head with a new model at
        its path.
    """
    start, report = time.monotonic(), EnrichReport()
    location = writer.snapshot().store.location
    stored = read_heads(location)
    if unknown := next((key for key in remove if key not in stored), None):
        known = ", ".join(stored) or "none"
        raise InputError(f"no head fills {unknown!r}: this index has {known}")
    snapshot = writer.snapshot()
    labellers = {head.key: load_labeller(head, encoder, snapshot) for head in heads}
    fitted = [
        replace(head, keys=labellers[head.key].keys, fingerprint=labellers[head.key].fingerprint) for head in heads
    ]
    _check_free(snapshot, fitted, stored)
    staying = [head for key, head in stored.items() if key not in {*remove, *labellers} and not head.is_removed]
    labellers |= _load_waiting(staying, encoder, snapshot)
    stored = {key: replace(head, is_removed=head.is_removed or key in remove) for key, head in stored.items()}
    stored |= {head.key: _in_place_of(stored.get(head.key), head) for head in fitted}
    store_heads(location, stored)  # at once, so that a killed run loses no head
    _take_out(writer, stored, report)
    _fill(writer, stored, labellers, report, progress)
    writer.finish(new_rows=False)
    report.seconds = time.monotonic() - start
    return report


def fill_new(writer: Writer, encoder: Encoder, progress: OnProgress = ignore) -> str:
    """Fill the keys of documents that have none yet, after a sync.

    :returns: a note of the failures; those documents wait for the next call. Where a head does not load, or has a new
        model at its path, the others fill their keys all the same.
    """
    stored = read_heads(writer.snapshot().store.location)
    if not stored:
        return ""
    report, failed = EnrichReport(), []
    labellers: dict[str, Labeller] = {}
    try:
        _take_out(writer, stored, report)
        for key, head in stored.items():
            try:
                labellers |= _load_waiting([head], encoder, writer.snapshot())
            except BinocleError as error:
                failed.append(f"new documents got no {key!r}: {error}")
        _fill(writer, stored, labellers, report, progress)
        if report.labelled or report.removed:
            writer.finish(new_rows=False)
    except BinocleError as error:
        return f"new documents were not labelled: {error}"
    return "; ".join(failed)


def new_head(key: str, source: str | PathLike[str] | Sequence[str], precision: float | None) -> StoredHead:
    """Describe a head by its key, and its model or the names of its labels.

    :raises InputError: when the key cannot be filtered by, the source is neither, or the precision is no share.
    """
    if not isinstance(key, str) or not key.isprintable() or not key.strip() or len(key) > 100 or key in BUILT_IN:
        raise InputError(f"{key!r:.120} is no key for labels: expected a name such as topic, and no field of filters")
    precision = precision_of(precision)
    if isinstance(source, PathLike) or (isinstance(source, str) and source.strip()):
        path = expand_home(source)
        return StoredHead(key, (key,), model=str(path.resolve() if path.is_dir() else source), precision=precision)
    is_list = isinstance(source, Sequence) and not isinstance(source, str) and len(source) > 0
    if not is_list or not all(isinstance(name, str) for name in source):
        raise InputError(f"{key!r} needs a model, or the names of labels in a list, not {source!r:.120}")
    return StoredHead(key, (key,), names=tuple(map(encodable, source)), precision=precision)


def _check_free(snapshot: Snapshot, heads: Sequence[StoredHead], stored: Mapping[str, StoredHead]) -> None:
    """Refuse keys that documents or other heads have.

    :raises InputError: naming the first one.
    """
    taken = {key: head.key for head in [*stored.values(), *heads] for key in head.keys}
    filled = {(head.key, key) for head in stored.values() for key in (*head.keys, *head.earlier_keys)}
    for head in heads:
        for key in head.keys:
            if taken[key] != head.key or ((head.key, key) not in filled and with_keys(snapshot, [key]).any()):
                raise InputError(f"documents have a key {key!r} already: expected another one for these labels")


def _load_waiting(heads: Sequence[StoredHead], encoder: Encoder, snapshot: Snapshot) -> dict[str, Labeller]:
    """Load the labellers of stored heads that documents wait for."""
    return {head.key: load_stored(head, encoder, snapshot) for head in heads if len(unlabelled(snapshot, head))}


def _in_place_of(earlier: StoredHead | None, head: StoredHead) -> StoredHead:
    """Return a new head that knows which values to remove before its own: the values of an earlier head of its key."""
    if earlier is None or earlier == head:
        return head
    return replace(head, earlier_keys=tuple(dict.fromkeys([*earlier.keys, *earlier.earlier_keys])))


def _take_out(writer: Writer, stored: dict[str, StoredHead], report: EnrichReport) -> None:
    """Remove the values of heads that are marked as removed, or replaced; then remove the marked heads."""
    for head in [head for head in stored.values() if head.is_removed or head.earlier_keys]:
        snapshot, keys = writer.snapshot(), head.earlier_keys or head.keys
        rows = snapshot.document_rows.filter(with_keys(snapshot, keys)).to_pylist()
        rewrite_rows(writer, [_without(row, keys) for row in rows])
        report.removed[head.key] = sum(any(map(metadata_of(row).get, keys)) for row in rows)
        if head.is_removed:
            del stored[head.key]
        else:
            stored[head.key] = replace(head, earlier_keys=())
        store_heads(snapshot.store.location, stored)


def _fill(
    writer: Writer,
    stored: Mapping[str, StoredHead],
    labellers: Mapping[str, Labeller],
    report: EnrichReport,
    progress: OnProgress,
) -> None:
    """Give the values of these labellers to the documents that lack them."""
    snapshot = writer.snapshot()
    waiting = {key: unlabelled(snapshot, stored[key]) for key in labellers}
    report.labelled = {key: len(ids) for key, ids in waiting.items() if len(ids)}
    loaded = {key: labellers[key] for key in report.labelled}
    report.encoded = [key for key, labeller in loaded.items() if "vector" not in labeller.columns]
    columns = sorted({column for labeller in loaded.values() for column in labeller.columns})
    ids = np.unique(np.concatenate([waiting[key] for key in loaded])) if loaded else np.empty(0, np.int64)
    done = 0
    for batch in _batches(snapshot, ids):
        progress(Progress("labelling", done, len(ids)))
        labels = _labels(DocumentPassages.of(snapshot, batch, columns), waiting, loaded)
        rows = snapshot.documents_by_id(batch.tolist())
        rewrite_rows(writer, [_with(rows[document], values) for document, values in labels.items()])
        done += len(batch)
    if len(ids):
        progress(Progress("labelling", done, len(ids)))


def _labels(
    passages: DocumentPassages, waiting: Mapping[str, Ids], labellers: Mapping[str, Labeller]
) -> dict[int, dict[str, Any]]:
    """Return the values of all keys for each document that waits for a labeller."""
    labels: dict[int, dict[str, Any]] = {}
    for key, labeller in labellers.items():
        part = passages.subset(waiting[key])
        if len(part.documents):
            for document, values in zip(part.documents.tolist(), labeller.values(part), strict=True):
                labels.setdefault(document, {}).update(zip(labeller.keys, values, strict=True))
    return labels


def _batches(snapshot: Snapshot, ids: Ids) -> Iterator[Ids]:
    """Yield groups of documents with a limited number of passages; a larger document comes alone."""
    rows = snapshot.document_rows
    owners, counts = rows["id"].to_numpy(), rows["chunks"].to_numpy()
    order = np.argsort(owners)
    totals = np.cumsum(counts[order][np.searchsorted(owners[order], ids)])
    start = 0
    while start < len(ids):
        before = totals[start - 1] if start else 0
        end = max(start + 1, int(np.searchsorted(totals, before + _PASSAGES, side="right")))
        yield ids[start:end]
        start = end


def _with(row: dict[str, Any], labels: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {**metadata_of(row), **labels}
    return {**row, "metadata": encodable(json.dumps(metadata, ensure_ascii=False))}


def _without(row: dict[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    metadata = {key: value for key, value in metadata_of(row).items() if key not in keys}
    return {**row, "metadata": json.dumps(metadata, ensure_ascii=False)}
