"""Change the metadata of added documents; no passage is embedded again."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import pyarrow as pa

from ...core.errors import InputError
from ..documents.document import metadata_of
from ..store.stored_heads import keys_of
from ..store.tables import document_schema
from .add import check_metadata, with_metadata
from .report import Report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ..store.snapshot import Snapshot
    from ..store.writer import Writer

    Row = dict[str, Any]
    Choice = Callable[[Snapshot], Iterable[Row]]

Change = Literal["merge", "replace"]


@dataclass(frozen=True, slots=True)
class MetadataChange:
    """New metadata, and whether to add them to the old ones or to replace these."""

    values: Mapping[str, Any]
    removed: frozenset[str]  # keys
    mode: Change

    @classmethod
    def of(cls, metadata: Mapping[str, Any], mode: Change) -> MetadataChange:
        """Check a caller's change.

        :raises InputError: when it cannot be stored.
        """
        if mode not in get_args(Change):
            raise InputError(f"mode is one of {', '.join(get_args(Change))}, not {mode!r}")
        values = check_metadata("the update", metadata)
        return cls(values, frozenset(metadata or ()).difference(values), mode)

    def apply(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Return the new metadata of a document."""
        if self.mode == "replace":
            return dict(self.values)
        merged = {**metadata, **self.values}
        return {key: value for key, value in merged.items() if key not in self.removed}


def update(
    writer: Writer, choose: Choice, change: MetadataChange, check: Callable[[list[Row]], None] = lambda _: None
) -> Report:
    """Change the metadata of documents.

    :param choose: returns their rows, with `id`, `path` and `source`.
    :param check: gets the new rows, and raises an error to prevent the change.
    :returns: `indexed` documents that changed and `unchanged` ones, and the `ids` of both.
    :raises InputError: when one of them is a file.
    """
    start = time.monotonic()
    report = Report()
    rows = changed_rows(writer.snapshot(), choose(writer.snapshot()), change, report)
    check(rows)
    if rows:
        writer.replace_rows(pa.Table.from_pylist(rows, document_schema()))
        report.note = writer.finish(new_rows=False)
    report.chunks_total = writer.snapshot().chunks.count_rows()
    report.seconds = time.monotonic() - start
    return report


def changed_rows(snapshot: Snapshot, rows: Iterable[Row], change: MetadataChange, report: Report) -> list[Row]:
    """Return the whole rows of the documents that differ after the change."""
    by_id = {row["id"]: row for row in rows}
    if file := next((row["path"] for row in by_id.values() if row["source"] == "file"), None):
        raise InputError(f"{file!r} is a file: its metadata come from the file, and `update` changes added documents")
    report.ids += [row["path"] for row in by_id.values()]
    changed, of_heads = [], keys_of(snapshot.store.location)
    for row in snapshot.documents_by_id(sorted(by_id), document_schema().names).values():
        before = metadata_of(row)
        labels, own = _divided(before, of_heads)
        after = {**(labels if change.mode == "replace" else {}), **change.apply(before)}
        if after != before or list(map(type, after.values())) != list(map(type, before.values())):
            sha256 = with_metadata(row["sha256"], row["text"], row["title"], own, _divided(after, of_heads)[1])
            changed.append({**row, "metadata": json.dumps(after, ensure_ascii=False), "sha256": sha256})
    report.indexed += len(changed)
    report.unchanged += len(by_id) - len(changed)
    return changed


def _divided(metadata: Mapping[str, Any], of_heads: frozenset[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the labels that heads gave, and the document's own metadata: only these are in its hash."""
    labels = {key: value for key, value in metadata.items() if key in of_heads}
    return labels, {key: value for key, value in metadata.items() if key not in of_heads}
