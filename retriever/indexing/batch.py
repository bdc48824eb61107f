"""Several writes in one commit: all of them are done, or none."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...core.errors import InputError
from ..store.records import name_of
from ..store.tables import document_schema
from ..store.tombstones import tombstones
from .add import Addition, Additions, AddPolicy, check_document, check_documents
from .indexer import Indexer
from .report import DocumentError, Report
from .update import Change, MetadataChange, changed_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ..models.encoder import Encoder
    from ..store.filters.where import Where
    from ..store.snapshot import Snapshot
    from ..store.writer import Writer

    Row = dict[str, Any]
    Choice = Callable[[Snapshot], list[Row]]
    Choose = Callable[..., Choice]


class Batch:
    """Writes that wait for the end of a `with` block. After it, `report` covers all of them, and the batch is closed.

    Filters and ids refer to the documents of the index at the end of the block. A document may be changed once: the
    same id in two writes is an error. If several documents are added under one id, the last counts.
    """

    def __init__(
        self, policy: AddPolicy, choose: Choose, check_changed: Callable[[list[Row]], None] = lambda _: None
    ) -> None:
        """:param choose: makes a function that finds documents by ids, filter and folder.
        :param check_changed: gets the rows with new metadata, and raises an error to prevent the commit.
        """
        self._policy = policy
        self._choose = choose
        self._check_changed = check_changed
        self._additions: list[Addition | DocumentError] = []
        self._updates: list[tuple[Choice, MetadataChange]] = []
        self._deletions: list[Choice] = []
        self._deleted: set[str] = set()  # ids that `delete` named
        self._is_open = True
        self.report: Report | None = None

    def add(self, documents: Iterable[Mapping[str, Any]]) -> None:
        """Add documents, as `Retriever.add` does.

        :raises InputError: naming the first invalid document, unless the batch skips invalid ones.
        """
        self._check_open()
        check_documents(documents)
        for number, document in enumerate(documents, len(self._additions)):
            addition = check_document(number, document)
            if isinstance(addition, DocumentError) and self._policy.on_error == "stop":
                raise InputError(str(addition))
            self._additions.append(addition)

    def update(
        self,
        *,
        metadata: Mapping[str, Any],
        ids: Iterable[str] | None = None,
        where: Where = None,
        mode: Change = "merge",
    ) -> None:
        """Change the metadata of documents, as `Retriever.update` does, with the same parameters.

        :raises InputError: when neither `ids` nor `where` chooses any.
        """
        self._check_open()
        self._updates.append((self._choose(ids or (), where, must_exist=True), MetadataChange.of(metadata, mode)))

    def delete(self, *ids: str, where: Where = None, folder: str | None = None) -> None:
        """Remove documents, as `Retriever.delete` does without erasing."""
        self._check_open()
        self._deletions.append(self._choose(ids, where, folder=folder))
        self._deleted.update(map(name_of, ids))

    def close(self) -> None:
        """Take no more writes."""
        self._is_open = False

    def _check_open(self) -> None:
        """:raises InputError: when the block has ended, so that no commit would have another write."""
        if not self._is_open:
            raise InputError("this batch has ended: write within its `with` block, or in another batch()")

    @property
    def has_documents(self) -> bool:
        """Whether there are documents to embed."""
        return bool(self._additions)

    def commit(self, writer: Writer, encoder: Encoder | None) -> None:
        """Do all writes in one commit; `report` is of them then.

        :param encoder: embeds the added documents.
        """
        start, report, snapshot = time.monotonic(), Report(), writer.snapshot()
        before = snapshot.chunks.count_rows()
        deleted = {row["id"]: row for choose in self._deletions for row in choose(snapshot)}
        updated = [
            row for choose, change in self._updates for row in changed_rows(snapshot, choose(snapshot), change, report)
        ]
        self._check_changed(updated)
        additions = Additions(snapshot, self._policy, report)
        added = additions.choose(self._additions)
        _check_once([item.name for item in added], [*updated, *deleted.values()], self._deleted)
        tables, dropped = [pa.Table.from_pylist(updated, document_schema())], list(deleted)
        next_document = writer.head.next_document
        if encoder:
            indexer = Indexer(writer, encoder, report, commits=False)
            additions.put(added, indexer)
            rows, replaced = indexer.take()
            tables, dropped, next_document = [*tables, rows], [*dropped, *replaced], indexer.next_ids[0]
        files = [row["path"] for row in deleted.values() if row["source"] == "file"]
        tables.append(tombstones(files, writer.head.tombstone_key, next_document))
        documents = pa.concat_tables(tables)
        if len(documents) or dropped:
            writer.commit(drop=dropped, documents=documents, replace=[row["id"] for row in updated])
            report.note = writer.finish()
        report.removed = len(deleted)
        report.count_chunks(before, writer.snapshot().chunks.count_rows())
        report.seconds = time.monotonic() - start
        self.report = report


def _check_once(added: Iterable[str], changed: Sequence[Row], deleted: set[str]) -> None:
    """Refuse two writes to one document. A file and an added document may have the same name.

    :param deleted: ids, also of documents that are not there.
    """
    paths = {row["id"]: row["path"] for row in changed}
    counts = Counter(row["id"] for row in changed)
    twice = {paths[number] for number, count in counts.items() if count > 1}
    twice |= deleted.union(paths.values()).intersection(added)
    if twice:
        raise InputError(f"{min(twice)!r} is changed twice in this batch: expected one write for each document")
