"""The writer's side of HEAD.json: the versions of the two tables, each commit, and the removal of old versions."""

from __future__ import annotations

import math
import shutil
import time
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ...core.errors import LockedError
from .derived import text_checksums
from .locations.location import KEEP_SECONDS
from .snapshot import Snapshot
from .tables import check, drop_later_versions, drop_version_hint, manifests, open_table, unnamed_files

if TYPE_CHECKING:
    import lance

    from .derived.search_backend import SearchBackend
    from .head import Head
    from .store import Store
    from .tables import TableLocation

SWITCHING = "switching"  # the folder of a switch's new vectors
_KEEP_SWITCH = timedelta(days=30)  # after its last vector, for an interrupted switch to go on
_KEEP_VERSIONS = timedelta(seconds=KEEP_SECONDS)
_TIDY_DELAY = 1.5  # in lifetimes of an old version: versions are removed together when the oldest has this age
_MAX_FRAGMENTS = 32  # of a table, before small ones are merged
_LARGE_FRAGMENTS = 8  # the number of large fragments of a table, about
_MIN_ROWS = 1_024  # of a large fragment


class Commits:
    """The committed state. The one writer replaces it with each commit."""

    def __init__(
        self, store: Store, head: Head, tag: str, backend: SearchBackend, earlier: Snapshot | None = None
    ) -> None:
        self.store = store
        self.head = head
        self.backend = backend
        self.latest = {"documents": head.documents, "chunks": head.chunks}  # this writer's latest table versions
        self.previous = _state_before(store, head)  # its files are kept; None if there is none
        self._tag = tag
        self._snapshot = earlier
        self._tables: dict[str, lance.LanceDataset] = {}  # at their latest versions
        self._checked: dict[str, frozenset[str]] = {"documents": frozenset(), "chunks": frozenset()}
        self._text: frozenset[str] | None = None  # segments of the full-text index in the committed state

    def snapshot(self) -> Snapshot:
        """The committed state, for reading: the same object until the next commit."""
        snapshot = earlier = self._snapshot
        if snapshot is None or snapshot.head != self.head or snapshot.store != self.store or snapshot.fallback:
            snapshot = Snapshot(self.store, self.head, self.backend)
            if earlier:
                snapshot.take_over(earlier)
            snapshot.adopt(self._tables)
        self._snapshot = snapshot
        return snapshot

    def open(self, name: str) -> lance.LanceDataset:
        """Open this writer's latest version of `documents` or `chunks`, once, to write to it."""
        table = self._tables.get(name)
        if table is None or table.version != self.latest[name]:
            table = self._tables[name] = open_table(self.table(name), self.latest[name])
        return table

    def table(self, name: str) -> TableLocation:
        """Return the address of `documents` or `chunks`, without opening the table."""
        return self.store.location.table(name)

    def recover(self) -> None:
        """Take tables that a killed writer left ahead of HEAD back to it.

        If the lock can expire, commit first: that refuses every later commit of the writer before.
        """
        if self.store.location.lock_expires:
            self._restore()
            return
        for name in ("documents", "chunks"):
            self.open(name)
            drop_later_versions(self.table(name), getattr(self.head, name))
        self.store.location.begin(synced=self.previous is not None)

    def _restore(self) -> None:
        self.commit(self.head)
        versions: dict[str, Any] = {}
        for name in ("documents", "chunks"):
            committed = getattr(self.head, name)
            table = open_table(self.table(name), committed)
            if table.latest_version != committed:
                table.restore()  # type: ignore[no-untyped-call]
                versions[name] = table.version
        if versions:
            self.commit(replace(self.head, **versions))

    def follow(self, name: str, table: lance.LanceDataset) -> None:
        """Check the files of a new version of a table, and record it.

        :raises LockedError: when another process wrote a version in between.
        :raises OSError: naming a file that was cut short.
        """
        if table.version > self.latest[name] + 1:
            raise self._not_alone()
        self._checked[name] = check(self.table(name), table, self._checked[name])
        self.latest[name] = table.version
        self._tables[name] = table

    def commit_rearranged(self, name: str, table: lance.LanceDataset, *, words: tuple[str, ...] | None = None) -> None:
        """Commit a version of a table with the same rows in another arrangement.

        :param words: the segments of the inverted index from now on; the present ones by default.
        :raises LockedError: when it has other rows, written by another process.
        """
        before, head = getattr(self.head, name), self.head
        if table.version != before:
            if table.count_rows() != getattr(self.snapshot(), name).count_rows():
                raise self._not_alone()
            self._tables[name] = table
            version: dict[str, Any] = {name: table.version}
            head = replace(head, **version)
        head = head if words is None else replace(head, words=words)
        if head != self.head:
            self.commit(head)

    def check_alone(self) -> None:
        """Make sure that no other process took the lock over and committed.

        :raises LockedError: when one did.
        """
        if self.store.tagged_head()[1] != self._tag:
            raise self._not_alone()

    def _not_alone(self) -> LockedError:
        return LockedError(f"{self.store.location} is being written by another process as well: run it again")

    def commit(self, head: Head) -> None:
        """Commit a state: check new table versions, mark replaced vector indexes, write HEAD.json."""
        for name in ("documents", "chunks"):
            version = getattr(head, name)
            if version != getattr(self.head, name):
                table = self._tables.get(name)
                if table is None or table.version != version:
                    table = open_table(self.table(name), version)
                self._checked[name] = check(self.table(name), table, self._checked[name])
                if name == "chunks":
                    self._note_text(table, erase=head.erase)
        for name in set(self.head.published).difference(head.published):
            self.store.location.supersede(name)
        head = replace(head, commits=self.head.commits + 1)
        previous = head if head.erase else self.head  # erased rows must not come back
        self._tag = head.write(self.store.location, over=self._tag, previous=previous)
        self.head, self.previous = head, previous
        self.latest = {"documents": head.documents, "chunks": head.chunks}

    def _note_text(self, table: lance.LanceDataset, *, erase: bool) -> None:
        """Note the checksums of new segments of the full-text index, before a commit names them."""
        if self._text is None:
            self._text = text_checksums.segments(open_table(self.table("chunks"), self.head.chunks))
        present = text_checksums.segments(table)
        if new := present - self._text:
            text_checksums.note(self.store.location, new, keep=() if erase else self._text)
        self._text = present

    @property
    def _oldest(self) -> Head:
        """The oldest state that must stay readable."""
        return self.head if self.head.erase or self.previous is None else self.previous

    def tidy(self) -> None:
        """Merge small fragments if there are many; remove versions and indexes that no reader can still use.

        The state before the committed one is kept too, to fall back to. If HEAD says to erase, nothing of deleted
        rows stays, even if a reader must then open the index again.
        """
        erase = self.head.erase
        keep = timedelta(0) if erase else _KEEP_VERSIONS
        for name in ("documents", "chunks"):
            table = self.open(name)
            if erase:
                table.optimize.compact_files(materialize_deletions=True, materialize_deletions_threshold=0.0)
                self.commit_rearranged(name, table)
            elif len(table.get_fragments()) > _MAX_FRAGMENTS and self._can_compact(name):
                # A large fragment stays, so that a merge handles only newer rows.
                rows = max(_MIN_ROWS, table.count_rows() // _LARGE_FRAGMENTS)
                table.optimize.compact_files(target_rows_per_fragment=rows)
                self.commit_rearranged(name, table)
            self.check_alone()
            if not erase and not self._has_old_versions(name, keep):
                drop_version_hint(self.table(name))
                continue
            # Files that no version names are the leftovers of a killed writer, since there is one writer at a time.
            # If the lock can expire, they may be the next writer's: then Lance keeps them for seven days.
            table.cleanup_old_versions(
                keep,
                retain_versions=getattr(self.head, name) - getattr(self._oldest, name) + 1,
                delete_unverified=erase or not self.store.location.lock_expires,
            )
        parts = {*self.head.published, *self._oldest.published}
        self.store.location.tidy(parts, math.inf if erase else time.time() - keep.total_seconds())
        if erase or self._is_switch_over():
            shutil.rmtree(self.store.path / SWITCHING, ignore_errors=True)
        if erase:
            self._check_erased()
            self.commit(replace(self.head, erase=False))

    def _is_switch_over(self) -> bool:
        """Tell whether no switch can go on with the vectors in `SWITCHING`: it was completed, or abandoned."""
        encoder, oldest = self.head.encoder, time.time() - _KEEP_SWITCH.total_seconds()
        names = {f"{name}-{encoder.dim}" for name in (encoder.fingerprint, encoder.document_fingerprint)}
        files = [*self.store.path.glob(f"{SWITCHING}/*-*")]
        return all(file.name in names or file.lstat().st_mtime < oldest for file in files)

    def _can_compact(self, name: str) -> bool:
        """Tell whether Lance can rewrite the full-text index: it must when it merges fragments of the chunks."""
        return name != "chunks" or (self.snapshot().has_current_text() and not self.snapshot().damaged_text())

    def _has_old_versions(self, name: str, keep: timedelta) -> bool:
        """Tell whether an old version of a table has waited long enough; looking for its files is slow."""
        if "://" in self.table(name).uri:
            return True
        version, manifest = min(manifests(self.table(name)))
        waited = (keep * _TIDY_DELAY).total_seconds()
        return version < getattr(self._oldest, name) and manifest.stat().st_mtime <= time.time() - waited

    def _check_erased(self) -> None:
        """Check that no file with deleted rows is left, while HEAD still says to erase.

        :raises OSError: naming a file that could not be removed.
        """
        left = [
            *unnamed_files(self.table("documents"), self.head.documents),
            *unnamed_files(self.table("chunks"), self.head.chunks),
            *self.store.path.glob(SWITCHING),
        ]
        if left:
            raise OSError(f"{left[0]} cannot be removed")


def _state_before(store: Store, head: Head) -> Head | None:
    """Read the state that HEAD replaced; None if the last writer kept none: earlier versions of Binocle do not."""
    previous = store.previous()
    return previous if previous and head.commits - previous.commits in (0, 1) else None
