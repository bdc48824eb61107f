"""Writes of documents to an index: add, update, delete, clear, and several of them in one commit.

A search from the command line needs none of it, so each method imports its own part.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..core.errors import InputError, NotFoundError
from .search.ranking.relevance_calibration import renew_scale
from .store import documents as stored_documents
from .store.filters.where import Where, parse
from .store.locations.patience import Patience

if TYPE_CHECKING:
    from collections.abc import Callable

    from .indexing.add import IfExists, OnError
    from .indexing.batch import Batch
    from .indexing.delete import Erase
    from .indexing.report import Report
    from .indexing.update import Change
    from .open_index import OpenIndex
    from .store.records import Id
    from .store.snapshot import Snapshot

    Choice = Callable[[Snapshot], list[dict[str, Any]]]


class DocumentWrites:
    """The calls that change the documents of an index, besides `sync`."""

    _index: OpenIndex

    def add(
        self,
        documents: Iterable[Mapping[str, Any]],
        *,
        if_exists: IfExists = "replace",
        on_error: OnError = "stop",
        wait: float | None = None,
    ) -> Report:
        """Add documents that are not files, or replace documents with the same id.

        Line ends become "\\n", and half of a character (a lone surrogate) becomes U+FFFD, also in titles, metadata and
        filters. The positions of hits refer to `text(id)`.

        :param documents: mappings with `text` and optionally `id`, `title`, `metadata`, `embedding` and `format`. An
            id is a name that no file of the index has, by default made from the text. The format is "text" or
            "markdown": its headings become those of the passages, and the first one the title, if `title` is not given.
            Values of metadata are strings, numbers, booleans, lists of them, or dates, which become text; None is left
            out. A document with an embedding, a vector of shape (dim,), is one passage with this vector, brought to
            length 1 unless the encoder is trained for dot products. It needs no text. A document with metadata and no
            text is allowed too: `get` and filters find it, searches do not.
        :param if_exists: "replace" a document with the same id, "skip" the new one, or "fail".
        :param on_error: "stop" at the first document that cannot be added, or "skip" it.
        :param wait: the seconds to wait for another process that writes; by default those of `open`.
        :returns: `ids` of the documents that the index now has, in order; `failures`, the documents that were skipped.
        :raises InputError: naming the first invalid document, and how many documents before it were added.
        :raises LockedError: when another process still writes after `wait`.
        """
        from .indexing.add import AddPolicy, add, check_documents

        check_documents(documents)
        policy = AddPolicy(if_exists, on_error).check()
        with self._index.patient(wait), self._index.writer(self._index.prepare(self._index.existing(), None)) as writer:
            encoder = self._index.models.encoder_of(writer.head.encoder)
            report = add(writer, encoder, documents, policy)
            renew_scale(writer.snapshot(), encoder)
            return report

    def update(
        self,
        ids: Iterable[Id] | None = None,
        *,
        metadata: Mapping[str, Any],
        where: Where = None,
        mode: Change = "merge",
        wait: float | None = None,
    ) -> Report:
        """Change the metadata of added documents; nothing is embedded again.

        :param ids: the documents to change. With `where`, documents that pass the filter change too.
        :param metadata: new values. None removes a key.
        :param mode: "merge" keeps the other keys, "replace" does not.
        :returns: `indexed` documents that changed and `unchanged` ones, and the `ids` of both.
        :raises NotFoundError: naming the first id that is not there.
        :raises InputError: when nothing is chosen, or a document is a file.
        :raises LockedError: when another process still writes after `wait`, the seconds as in `add`.
        """
        from .indexing.update import MetadataChange, update

        choose, change = self._chosen(ids or (), where, must_exist=True), MetadataChange.of(metadata, mode)
        with self._index.patient(wait), self._index.writer() as writer:
            return update(writer, choose, change)

    def delete(
        self,
        *ids: Id,
        where: Where = None,
        folder: Id | None = None,
        erase: Erase = False,
        wait: float | None = None,
    ) -> Report:
        """Remove documents: by id or path, by a filter, or all below a folder. An id that is not there is no error.

        No search finds them any more, and their texts and vectors leave the disk with later writes. A file that still
        exists stays out until `sync(retry=True)`.

        :param ids: exact: "a/" is the document "a/", and not a folder.
        :param where: also remove the documents that pass this filter.
        :param erase: erase texts and vectors from the disk now, and after `optimize` also the sentences that measured
            the vector index. Each such call builds the indexes anew: delete many documents in one call. If the index
            is on object storage, another machine has a copy of the vectors until it next downloads the vector index.
            A `timedelta` erases after ten seconds without a write, on `close`, or at the latest after this time;
            "later" is an hour. A thread of this object does it. If the process ends without `close`, the first write
            after this time erases, in any process.
        :param wait: as in `add`.
        :returns: `removed` documents, and a `note` if the vector index no longer meets its requirements.
        :raises LockedError: when another process still writes after `wait`.
        """
        from .indexing.delete import delete

        choose = self._chosen(ids, where, folder=folder)
        with self._index.patient(wait), self._index.writer() as writer:
            return delete(writer, choose, erase=erase)

    def clear(self, *, erase: Erase = False, wait: float | None = None) -> Report:
        """Remove all documents; the index, its encoder and its folder stay.

        :param erase: as in `delete`, and `wait` too.
        """
        from .indexing.delete import delete

        with self._index.patient(wait), self._index.writer() as writer:
            return delete(writer, stored_documents.rows, erase=erase)

    @contextlib.contextmanager
    def batch(
        self, *, if_exists: IfExists = "replace", on_error: OnError = "stop", wait: float | None = None
    ) -> Iterator[Batch]:
        """Collect writes, and do all of them in one commit at the end of the block; none if it raises.

        >>> with Retriever.open("docs").batch(wait=10) as batch:  # doctest: +SKIP
        ...     batch.add([{"id": "a", "text": "Refunds take five days."}])
        ...     batch.delete("b")

        :param if_exists: as in `add`, and `on_error` and `wait` too. They hold for the whole batch.
        :raises LockedError: at the end of the block, when another process still writes after `wait`.
        """
        from .indexing.add import AddPolicy
        from .indexing.batch import Batch

        with self._committed(Batch(AddPolicy(if_exists, on_error).check(), self._chosen), wait) as batch:
            yield batch

    @contextlib.contextmanager
    def _committed(self, batch: Batch, wait: float | None) -> Iterator[Batch]:
        """Collect writes in this block, and commit them at its end."""
        if wait is not None:
            Patience(wait).check()
        try:
            yield batch
        finally:
            batch.close()
        self._commit(batch, wait)

    def _commit(self, batch: Batch, wait: float | None) -> None:
        store = self._index.prepare(self._index.existing(), None)
        with self._index.patient(wait), self._index.writer(store) as writer:
            encoder = self._index.models.encoder_of(writer.head.encoder) if batch.has_documents else None
            batch.commit(writer, encoder)
            if encoder:
                renew_scale(writer.snapshot(), encoder)

    def _chosen(
        self, ids: Iterable[Id], where: Where = None, *, folder: Id | None = None, must_exist: bool = False
    ) -> Choice:
        """Return a function that finds the documents of a caller's ids, filter and folder."""
        if isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable):
            raise InputError(f"ids is a list of documents, not {ids!r}")
        names, folders = [_name(path) for path in ids], [] if folder is None else [_name(folder)]
        conditions = parse(where)
        if must_exist and not names and conditions is None:
            raise InputError("nothing is chosen: give ids, or a filter as where")

        def choose(snapshot: Snapshot) -> list[dict[str, Any]]:
            rows = stored_documents.named(snapshot, names, folders)
            if must_exist:
                _check_present(names, rows)
            return rows if conditions is None else rows + stored_documents.passing(snapshot, conditions)

        return choose


def _name(path: Id) -> str:
    if not isinstance(path, (str, os.PathLike)):
        several = "; give several as delete(*ids)" if isinstance(path, (list, tuple, set)) else ""
        raise InputError(f"{path!r} is not a document: expected its path, or its id as it was added{several}")
    return os.fspath(path)


def _check_present(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    present = {row["path"] for row in rows}
    if missing := [name for name in names if name not in present]:
        raise NotFoundError(f"{missing[0]!r} is not in the index")
