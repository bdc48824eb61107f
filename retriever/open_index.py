"""The open state of an index: its store, the committed state that answers searches, and threads that write in turns.

The lock against other processes is in `store/locations`.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from ..core.checks import check_flags
from ..core.errors import DamagedError, ModelNotFoundError, NoIndexError, StoreError
from ..core.runtime import forking
from .models.cache import ModelCache
from .models.identity import EncoderId
from .store.committed_rows import CommittedRows
from .store.derived.search_backend import SearchBackend
from .store.foreign.confinement import check_files
from .store.head import FORMAT, Settings
from .store.root import relative_folder, root_of
from .store.snapshot import Snapshot
from .store.store import Store, allow, change_settings, go_back, with_way_back

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from .cluster.cluster import Cluster
    from .deferred import DeferredErasure
    from .store.head import Head
    from .store.locations.location import Location
    from .store.root import Request
    from .store.writer import Writer

_T = TypeVar("_T")
_LOG = logging.getLogger("binocle")


class OpenIndex:
    """One index, opened once for all threads of a process.

    :param model: the name of the encoder for a new index.
    :param ray: the address of a Ray cluster to work on.
    :param gpu: encode documents and compare every vector on the GPUs of this machine.
    :param trust: trust an index that came from elsewhere.
    :param dim: the dimension of the vectors of an index without an encoder.
    """

    def __init__(
        self,
        location: Location,
        *,
        model: str | None = None,
        ray: str | None = None,
        gpu: bool = False,
        trust: bool = False,
        dim: int | None = None,
    ) -> None:
        check_flags(gpu=gpu, trust=trust)
        self.location = location
        self.ray = ray
        self.gpu = gpu
        self.trust = trust
        self.models = ModelCache(location, model, lambda: self.store().trusted, dim, gpu=gpu)
        self.writing = threading.RLock()  # threads that write take turns
        self.current: Snapshot | None = None  # the state last read or written
        self._lock = threading.RLock()  # of the attributes that change
        self._store: Store | None = None
        self._damaged: tuple[Head, str] | None = None  # a committed state that does not answer, and why
        self._connecting = threading.Lock()
        self._cluster: Cluster | None = None
        self._erasure: DeferredErasure | None = None  # made when something waits to be erased
        self.is_closed = False

    # Reading

    def read(self, answer: Callable[[Snapshot], _T]) -> _T:
        """Answer from the committed state; from the next state, if this one or its encoder was removed meanwhile."""
        while True:
            snapshot = self.snapshot()
            try:
                return answer(snapshot)
            except (StoreError, ModelNotFoundError) as error:
                if self.snapshot() is not snapshot:
                    continue
                if isinstance(error, DamagedError) and not snapshot.fallback:
                    return self._read_previous(answer, snapshot, error)
                raise

    def _read_previous(self, answer: Callable[[Snapshot], _T], damaged: Snapshot, error: DamagedError) -> _T:
        """Answer from the state before a damaged one.

        :raises DamagedError: `error` itself, when the state before was not kept or is damaged too.
        """
        previous = damaged.store.previous()
        if previous is not None:
            with contextlib.suppress(StoreError):
                reason = str(with_way_back(damaged.store, error))
                result = answer(Snapshot(damaged.store, previous, damaged.backend, fallback=reason))
                self._damaged = damaged.head, reason
                self.snapshot()
                return result
        raise error

    def snapshot(self) -> Snapshot:
        """Return the committed state: the same object until something is committed."""
        forking.check()
        store, head, fallback = self._committed()
        if self.current is not None and self.current.head != head:
            check_files(self.location.cache)
        return self._set_current(store, head, fallback)

    def _committed(self) -> tuple[Store, Head, str]:
        """Read HEAD, or the state before if HEAD is damaged, with the reason.

        An index that was removed, or replaced by another, is opened again.
        """
        store = self.store()
        try:
            head = store.head()
        except StoreError:
            store = self.reopened()
            return store, *store.head_or_previous()
        if self._damaged and self._damaged[0] == head and (previous := store.previous()):
            return store, previous, self._damaged[1]
        return store, head, ""

    def _set_current(self, store: Store, head: Head, fallback: str = "") -> Snapshot:
        with self._lock:
            if self.current is None or (self.current.head, self.current.fallback) != (head, fallback):
                earlier, self.current = self.current, Snapshot(store, head, self._backend(), fallback=fallback)
                if earlier:
                    self.current.take_over(earlier)
                if fallback:
                    _LOG.warning("%s; until then that state answers", fallback)
            return self.current

    # The store

    @property
    def folder(self) -> Path | None:
        """The indexed folder, as the settings name it now; None for added documents only."""
        if self._store is None:
            return root_of(self.reopened())
        try:
            return root_of(self._store.read_settings())
        except StoreError:  # the index was removed
            return root_of(self.reopened())

    def store(self) -> Store:
        """Return the store, opened once."""
        return self._store or self.reopened()

    def reopened(self) -> Store:
        """Open the store, or read its settings again.

        :raises StoreError: when this retriever was closed.
        """
        if self.is_closed:
            raise StoreError(f"this retriever of {self.location} was closed: open the index again")
        store = Store.open(self.location, trusted=self.trust)
        with self._lock:
            self._store = store
        return store

    def existing(self) -> Store | None:
        """Return the store with its present settings; None if there is no index yet."""
        try:
            return self.reopened()
        except NoIndexError:
            return None

    def allow(self) -> None:
        """Trust this index from now on, in other processes too."""
        store = allow(self.reopened())
        with self._lock:
            self._store = store

    def _backend(self) -> SearchBackend:
        cluster = self.connected()
        if cluster is None:
            return SearchBackend(self.gpu)
        return SearchBackend(self.gpu, cluster.serve, cluster.build_shards)

    def connected(self) -> Cluster | None:
        """Return the cluster at `ray`, connected once; None if there is no `ray`."""
        if self.ray is None:
            return None
        from .cluster.cluster import Cluster

        with self._connecting:
            self._cluster = self._cluster or Cluster.connect(self.ray)
            return self._cluster

    # Writing

    @contextlib.contextmanager
    def patient(self, wait: float | None) -> Iterator[None]:
        """Wait for the lock of another process in this block, for some seconds."""
        if wait is None:
            yield
            return
        with self.writing:
            patience = self.location.patience
            self.location.patience = replace(patience, seconds=wait).check()
            try:
                yield
            finally:
                self.location.patience = patience

    @contextlib.contextmanager
    def writer(self, store: Store | None = None) -> Iterator[Writer]:
        """Write to the index; a cluster then serves the new vector index, and no longer the old one."""
        from .store.writer import open_writer  # a search needs none of it

        store = store or self.reopened()
        opened = open_writer(store, self.models.encoder_of, self._backend(), self.current)
        with self.writing, _naming_way_back(store), opened as writer:
            try:
                yield writer
            finally:
                with self._lock:
                    self.current = writer.snapshot()
                self._note_erasure(writer.erasure_due)
            if self._cluster:
                self._cluster.retire(store, writer.head)

    def _note_erasure(self, due: float | None) -> None:
        if self._erasure is None and due is None:
            return
        from .deferred import DeferredErasure  # few indexes need it

        self._erasure = self._erasure or DeferredErasure(self.erase_deleted)
        self._erasure.note_write(due)

    def erase_deleted(self) -> None:
        """Erase deleted documents from the disk."""
        with self.writer() as writer:
            writer.erase_deleted()

    def prepare(self, store: Store | None, request: Request | None) -> Store:
        """Create the index if there is none; change its settings if it is to hold another folder."""
        folder = None if request is None else relative_folder(request.root, self.location.cache)
        with self.writing:
            store = store or self.existing()
            if store is None:
                encoder = self.models.encoder_of(None)
                new = EncoderId.of_encoder(encoder)
                settings = Settings(FORMAT, folder)
                if request is not None and folder is not None:
                    settings = request.change(settings, folder)
                folders, exclude, ocr = settings.folders, settings.exclude, settings.ocr
                store = Store.create(self.location, new, folder, folders=folders, exclude=exclude, ocr=ocr)
            else:
                store.check_trusted()
                self.models.encoder_of(store.head().encoder)  # raises before anything is changed
                if request is not None and folder is not None and request.changes(store, folder):
                    store = change_settings(store, lambda settings: request.change(settings, folder))
            with self._lock:
                self._store = store
            return store

    def commit_previous(self) -> None:
        """Commit the state before again, if the committed state is damaged."""
        if self.snapshot().fallback:
            go_back(self.store(), self._damaged and self._damaged[0])

    def close(self) -> None:
        """Let go of the index. Deleted documents that wait to be erased are erased first."""
        if self._erasure:
            self._erasure.close()
        with self.writing, self._lock:
            self.is_closed, self._store, self.current, self._damaged = True, None, None, None


@contextlib.contextmanager
def _naming_way_back(store: Store) -> Iterator[None]:
    """Add the advice to go back to errors of a damaged state, if the state before was kept and its tables are whole."""
    try:
        yield
    except DamagedError as error:
        previous = store.previous()
        if previous is None or not _are_whole_tables(store, previous):
            raise
        raise with_way_back(store, error) from error


def _are_whole_tables(store: Store, head: Head) -> bool:
    try:
        CommittedRows(store, head).check_pages()
    except StoreError:
        return False
    return True
